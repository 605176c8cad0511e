//! Names that match nothing are errors that say what would have matched.

use crate::{fixture::Fixture, support::xtask};

#[test]
fn a_crate_that_does_not_exist_is_an_error() {
    let fixture = Fixture::new(&["lifecycle", "mailbox"]);
    xtask(&fixture, &["test", "mailbox", "mialbox"])
        .exits_with(2)
        .says("find the crate `mialbox`; there is: lifecycle, mailbox");
}

#[test]
fn a_stage_that_does_not_exist_is_an_error() {
    let fixture = Fixture::new(&["lifecycle"]);
    xtask(&fixture, &["ci", "--only", "tidy,tests"])
        .exits_with(2)
        .says("'tests'");
}

#[test]
fn a_filter_that_no_test_matches_is_a_failure() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    fixture.append("lifecycle/src/lib.rs", "\n#[test]\nfn holds() {}\n");
    xtask(&fixture, &["test", "lifecycle", "--filter", "hold"]).exits_with(0);
    xtask(&fixture, &["test", "lifecycle", "--filter", "hodl"])
        .exits_with(1)
        .has_row(&["filter", "FAILED", "no test's name contains `hodl`"]);
}

#[test]
fn a_measure_model_or_fuzz_target_that_does_not_exist_is_an_error() {
    let fixture = Fixture::new(&["lifecycle"]);
    xtask(&fixture, &["bench", "--list", "rtt"])
        .exits_with(2)
        .says("find the measure `rtt`");
    xtask(&fixture, &["loom", "lifecycle"])
        .exits_with(2)
        .says("find the crate with models");
    xtask(&fixture, &["fuzz", "frame"])
        .exits_with(2)
        .says("find the fuzz target `frame`");
}

#[test]
fn nothing_to_run_is_a_failure() {
    let fixture = Fixture::new(&["lifecycle"]);
    for task in ["loom", "fuzz"] {
        xtask(&fixture, &[task])
            .exits_with(1)
            .closes_with("0 passed, 0 failed, 0 skipped");
    }
}

#[test]
fn a_program_that_is_not_built_yet_is_an_error_that_says_so() {
    let fixture = Fixture::new(&["facade", "taskgraph", "scenetest"]);
    for (task, program) in [
        ("chaos", "chaos"),
        ("sim-test", "sim_test"),
        ("scene", "scenes"),
    ] {
        xtask(&fixture, &[task])
            .exits_with(2)
            .says(&format!("run `{program}`: the crate"));
    }
}
