//! `bench`: what goes to standard output, and what is an error.

use crate::{fixture::Fixture, support::xtask};

/// A crate with a bench program that prints `json`, and promises the measures `a_ns` and `b`.
fn with_bench(json: &str) -> Fixture {
    let mut fixture = Fixture::new(&["mailbox"]);
    let lines = "[[bench]]\nname = \"two\"\nharness = false\n\n[package.metadata.bench]\ntwo = [\"a_ns\", \"b\"]\n";
    fixture.append("mailbox/Cargo.toml", lines);
    let text = format!(
        "//! Measures two things.\n\nfn main() {{\n    print!(\"{{}}\", r#\"{json}\"#);\n}}\n"
    );
    fixture.write("mailbox/benches/two.rs", &text);
    fixture
}

const BOTH: &str = r#"[{"name": "a_ns", "value": 3, "unit": "ns", "min": 2.5, "runs": 9},
{"name": "b", "value": 4, "unit": "ns", "min": 4, "runs": 9, "reference": {"name": "raw", "value": 2}}]"#;

#[test]
fn json_is_one_array_and_nothing_else_on_standard_output() {
    let run = xtask(&with_bench(BOTH), &["bench", "--json"]);
    run.exits_with(0);
    let expected = r#"[{"name":"a_ns","value":3.0,"unit":"ns","min":2.5,"runs":9},
 {"name":"b","value":4.0,"unit":"ns","min":4.0,"runs":9,"reference":{"name":"raw","value":2.0},"ratio":2.0}]
"#;
    assert_eq!(run.stdout, expected);
}

#[test]
fn a_measure_that_was_not_asked_for_is_left_out() {
    let run = xtask(&with_bench(BOTH), &["bench", "--json", "b"]);
    run.exits_with(0);
    assert!(
        run.stdout.contains(r#""b""#) && !run.stdout.contains("a_ns"),
        "{run:#?}"
    );
}

#[test]
fn a_promised_measure_that_is_missing_is_named_and_the_array_is_still_whole() {
    let run = xtask(&with_bench("[]"), &["bench", "--json"]);
    run.exits_with(1)
        .says("mailbox/two: did not measure a_ns, b");
    assert_eq!(run.stdout, "[]\n");
}

#[test]
fn listing_builds_nothing() {
    let fixture = with_bench(BOTH);
    let run = xtask(&fixture, &["bench", "--list"]);
    run.exits_with(0);
    assert_eq!(run.stdout, "a_ns\nb\n");
    assert!(!fixture.path().join("target").exists());
}

#[test]
fn a_comparison_runs_only_when_it_is_named_and_where_it_cannot_be_built_that_is_no_failure() {
    let mut fixture = with_bench(BOTH);
    let manifest = "[package]\nname = \"vs-other\"\nedition = \"2024\"\n\n\
         [package.metadata.bench]\nmeasures = [\"a_vs_b\"]\n\n\
         [dependencies]\nother = { path = \"no/such/place\" }\n\n[workspace]\n";
    fixture.write("mailbox/benches/vs-other/Cargo.toml", manifest);
    let program = "//! Compares.\n\nfn main() {}\n";
    fixture.write("mailbox/benches/vs-other/src/main.rs", program);
    let all = xtask(&fixture, &["bench", "--json"]);
    all.exits_with(0);
    assert!(!all.stderr.contains("not available"), "{all:#?}");
    let named = xtask(&fixture, &["bench", "--json", "a_vs_b"]);
    named
        .exits_with(0)
        .says("not available  a_vs_b")
        .says("no/such/place");
    assert_eq!(named.stdout, "[]\n");
}
