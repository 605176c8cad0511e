//! `ci` reports everything: failures, hangs, leftovers, skips.

use crate::{
    fixture::Fixture,
    support::{Run, command, xtask},
};

/// A crate whose library has these tests.
fn with_tests(tests: &str) -> Fixture {
    let mut fixture = Fixture::new(&["lifecycle"]);
    let text = format!("//! A crate.\n\n#[cfg(test)]\nmod tests {{\n{tests}}}\n");
    fixture.write("lifecycle/src/lib.rs", &text);
    fixture
}

#[test]
fn all_failures_are_reported_and_the_steps_are_counted() {
    let mut fixture = with_tests(
        "    #[test]\n    fn holds() {}\n\n    #[test]\n    fn breaks() {\n        panic!(\"on purpose\");\n    }\n",
    );
    fixture.append("lifecycle/src/lib.rs", "fn   unformatted() {}\n");
    let run = xtask(&fixture, &["ci", "--only", "fmt,tidy,test,doctest"]);
    run.exits_with(1)
        .has_row(&["fmt", "FAILED"])
        .has_row(&["tidy", "ok"])
        .has_row(&[
            "test lifecycle (unit)",
            "FAILED",
            "1 of 2 tests failed: tests::breaks",
        ])
        .has_row(&["doc tests", "ok"])
        .says("on purpose")
        .closes_with("3 passed, 2 failed, 0 skipped");
}

#[test]
fn a_hung_test_is_ended_at_its_limit_and_named_and_the_rest_still_runs() {
    // The test waits for its own child, which would outlive a kill of the test alone.
    let fixture = with_tests(
        "    #[test]\n    fn hangs() {\n        let seconds = std::env::var(\"SLEEP\").unwrap();\n        \
         let mut sleep = std::process::Command::new(\"sleep\");\n        \
         assert!(sleep.arg(seconds).status().is_ok());\n    }\n",
    );
    let mut quick = command(&fixture, &["ci", "--only", "test,doctest"]);
    Run::of(
        quick
            .env("SLEEP", "0")
            .output()
            .expect("xtask can be started"),
    )
    .exits_with(0);
    // Everything is built, so a low limit hits the test alone.
    let mut hung = command(
        &fixture,
        &["ci", "--only", "test,doctest", "--limit-s", "12"],
    );
    Run::of(
        hung.env("SLEEP", "1000")
            .output()
            .expect("xtask can be started"),
    )
    .exits_with(1)
    .has_row(&[
        "test lifecycle (unit)",
        "FAILED",
        "hung: ended at its limit of 12 s",
    ])
    .has_row(&["doc tests", "ok"])
    .says("sleep 1000")
    .closes_with("2 passed, 1 failed, 0 skipped");
}

#[test]
fn a_test_that_leaves_a_process_behind_fails_and_the_process_is_ended() {
    let fixture = with_tests(
        "    #[test]\n    fn leaves() {\n        let mut sleep = std::process::Command::new(\"setsid\");\n        \
         assert!(sleep.args([\"sleep\", \"1000\"]).spawn().is_ok());\n    }\n",
    );
    let run = xtask(&fixture, &["ci", "--only", "test"]);
    run.exits_with(1)
        .has_row(&[
            "test lifecycle (unit)",
            "FAILED",
            "left 1 processes behind: pid",
            "sleep 1000",
        ])
        .closes_with("1 passed, 1 failed, 0 skipped");
}

#[test]
fn a_test_that_skips_itself_is_a_row_with_its_reason() {
    let fixture = with_tests(
        "    #[test]\n    fn needs_a_chip() {\n        println!(\"skipped: no chip\");\n    }\n\n    \
         #[test]\n    #[ignore = \"takes a day\"]\n    fn is_slow() {}\n",
    );
    let run = xtask(&fixture, &["ci", "--only", "test"]);
    run.exits_with(0)
        .has_row(&["test lifecycle: tests::needs_a_chip", "skipped", "no chip"])
        .has_row(&["test lifecycle: tests::is_slow", "skipped", "takes a day"])
        .closes_with("2 passed, 0 failed, 2 skipped");
}

#[test]
fn a_failed_build_fails_and_the_later_steps_still_run() {
    let mut fixture = with_tests("");
    fixture.append("lifecycle/src/lib.rs", "\nfn broken( {}\n");
    let run = xtask(&fixture, &["ci", "--only", "tidy,test,examples"]);
    run.exits_with(1)
        .has_row(&["build tests and examples", "FAILED"])
        .says("lifecycle/src/lib.rs")
        .closes_with("1 passed, 1 failed, 0 skipped");
}

#[test]
fn examples_run_as_their_heads_say() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    let body =
        "fn main() {\n    assert_eq!(std::env::args().nth(1).as_deref(), Some(\"--fast\"));\n}\n";
    let head = "//! Asks for an argument.\n//!\n//! xtask: run with --fast\n\n";
    fixture.write("lifecycle/examples/good.rs", &format!("{head}{body}"));
    fixture.write(
        "lifecycle/examples/bad.rs",
        &format!("//! Gets none.\n\n{body}"),
    );
    fixture.write(
        "lifecycle/examples/none.rs",
        "//! xtask: skip (no chip)\n\nfn main() {}\n",
    );
    let run = xtask(&fixture, &["ci", "--only", "examples"]);
    run.exits_with(1)
        .has_row(&["example lifecycle/good", "ok"])
        .has_row(&["example lifecycle/bad", "FAILED"])
        .has_row(&["example lifecycle/none", "skipped", "no chip"])
        .closes_with("2 passed, 1 failed, 1 skipped");
}

#[test]
fn a_difference_that_cannot_be_told_runs_everything_and_says_why() {
    let fixture = with_tests("    #[test]\n    fn holds() {}\n");
    let run = xtask(
        &fixture,
        &[
            "ci",
            "--only",
            "test",
            "--changed-since",
            "no-such-revision",
        ],
    );
    run.exits_with(0)
        .says("checking all crates (the difference to `no-such-revision` is unknown")
        .has_row(&["test lifecycle (unit)", "ok"]);
}

#[test]
fn a_change_of_documents_alone_skips_the_crates_with_a_reason() {
    let mut fixture = with_tests("    #[test]\n    fn holds() {}\n");
    fixture.write(".gitignore", "target\nCargo.lock\n");
    fixture.git(&["init", "--quiet"]);
    fixture.commit("first");
    fixture.append("docs/ARCHITECTURE.md", "More.\n");
    let run = xtask(
        &fixture,
        &["ci", "--only", "tidy,test", "--changed-since", "HEAD"],
    );
    run.exits_with(0)
        .has_row(&["tidy", "ok"])
        .has_row(&["test", "skipped", "no crate is affected"])
        .closes_with("1 passed, 0 failed, 1 skipped");
}
