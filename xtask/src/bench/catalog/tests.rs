//! Which program is asked for which measure.

use super::{Catalog, Program, Source};
use crate::{bench::measure::from_json, error::Error, fixture::Fixture};

/// Two crates with one bench program each.
fn fixture() -> Fixture {
    let mut fixture = Fixture::new(&["mailbox", "provenance"]);
    for (package, bench, measures) in [
        ("mailbox", "rtt", r#"["mailbox_rtt", "wake_idle"]"#),
        ("provenance", "check", r#"["provenance_check"]"#),
    ] {
        fixture.write(
            &format!("{package}/benches/{bench}.rs"),
            "//! Measures.\n\nfn main() {}\n",
        );
        let lines = format!(
            "[[bench]]\nname = {bench:?}\nharness = false\n\n[package.metadata.bench]\n{bench} = {measures}\n"
        );
        fixture.append(&format!("{package}/Cargo.toml"), &lines);
    }
    fixture
}

/// What is asked of whom, as `package/bench: measures`.
#[track_caller]
fn check(wanted: &[&str], expected: &[&str]) {
    let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
    let catalog = Catalog::of(&fixture().workspace()).expect("good manifests");
    let chosen = catalog.choose(&wanted).expect("all of them match");
    let line = |program: &Program| {
        let (asked, wanted) = (program.measures.join(" "), program.wanted.join(" "));
        format!("{}: {asked} -> {wanted}", program.source)
    };
    assert_eq!(chosen.iter().map(line).collect::<Vec<_>>(), expected);
}

#[test]
fn without_names_everything_is_measured() {
    let mailbox = "mailbox/rtt: mailbox_rtt wake_idle -> mailbox_rtt wake_idle";
    check(
        &[],
        &[
            mailbox,
            "provenance/check: provenance_check -> provenance_check",
        ],
    );
}

#[test]
fn a_name_asks_only_the_program_that_measures_it() {
    check(&["wake_idle"], &["mailbox/rtt: wake_idle -> wake_idle"]);
}

#[test]
fn of_a_family_only_the_named_members_are_wanted() {
    let member = "provenance_check/live=10";
    check(
        &[member],
        &["provenance/check: provenance_check -> provenance_check/live=10"],
    );
}

#[test]
fn a_name_that_matches_nothing_is_an_error_that_lists_what_there_is() {
    let catalog = Catalog::of(&fixture().workspace()).expect("good manifests");
    for wanted in ["mailbox", "wake", "wake_idle_more", ""] {
        let error = catalog.choose(&["mailbox_rtt".to_owned(), wanted.to_owned()]);
        let error = error.expect_err("unknown").to_string();
        let expected = format!(
            "find the measure `{wanted}`; there is: mailbox_rtt, wake_idle, provenance_check"
        );
        assert_eq!(error, expected);
    }
}

#[test]
fn a_declared_program_that_does_not_exist_is_an_error() {
    let mut fixture = fixture();
    fixture.append("mailbox/Cargo.toml", "other = [\"a\"]\n");
    let error = Catalog::of(&fixture.workspace()).expect_err("no such bench");
    assert!(
        matches!(&error, Error::NoMatch { wanted, .. } if wanted == "mailbox/other"),
        "{error}"
    );
}

#[test]
fn a_promised_measure_that_does_not_come_back_is_an_error() {
    let source = Source::Bench {
        package: "mailbox".to_owned(),
        bench: "rtt".to_owned(),
    };
    let measures = ["mailbox_rtt", "wake_idle"].map(str::to_owned).to_vec();
    let program = Program::whole(source, measures);
    let one = |name: &str| {
        format!(r#"{{"name": "{name}", "value": 2, "unit": "ns", "min": 1, "runs": 1}}"#)
    };
    let taken = |names: &[&str]| {
        let json = names
            .iter()
            .map(|name| one(name))
            .collect::<Vec<_>>()
            .join(",");
        from_json(&format!("[{json}]")).expect("good")
    };
    let both = taken(&[
        "mailbox_rtt/bytes=64",
        "mailbox_rtt/bytes=4096",
        "wake_idle",
        "unasked",
    ]);
    assert_eq!(program.check(both.clone()), Ok(both[..3].to_vec()));
    let error = program.check(taken(&["mailbox_rtt_more", "wake_idle"]));
    assert_eq!(error, Err("did not measure mailbox_rtt".to_owned()));
}
