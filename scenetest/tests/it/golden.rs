//! ST-5: golden files are never made by accident, and never rewritten in silence.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{FIXTURES, Ran, Report, program, ran};

/// A directory for golden files.
struct Golden(tempfile::TempDir);

impl Golden {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut program = program(args);
        program
            .env(FIXTURES, "more")
            .env("SCENETEST_TEST_DIR", self.0.path())
            .env_remove("CI")
            .env_remove("SCENETEST_UPDATE_GOLDEN")
            .envs(variables.iter().copied());
        ran(&mut program)
    }

    fn report(&self, args: &[&str], variables: &[(&str, &str)]) -> Report {
        Report::of(self.run(&[args, &["--json"]].concat(), variables))
    }

    fn file(&self, scene: &str) -> PathBuf {
        self.0.path().join(format!("{scene}.case.safetensors"))
    }

    fn write(&self, scene: &str) -> Vec<u8> {
        let made = self.report(&["--case", scene, "--update-golden", scene], &[]);
        assert_eq!(made.code, 7, "{}", made.display);
        fs::read(self.file(scene)).expect("it was written")
    }
}

pub(crate) fn a_missing_golden_file_is_a_failure_with_its_path() {
    let golden = Golden::new();
    for variables in [
        &[][..],
        &[("SCENETEST_UPDATE_GOLDEN", "0")],
        &[("SCENETEST_UPDATE_GOLDEN", "")],
    ] {
        let report = golden.report(&["--case", "golden"], variables);
        let case = report.case("golden::case");
        case.is("failed", "it is not there; if the outputs are right");
        assert!(
            case.why()
                .contains(&golden.file("golden").display().to_string())
        );
        assert_eq!(report.code, 1);
        assert!(!golden.file("golden").exists(), "it was not made");
    }
}

pub(crate) fn a_golden_file_is_rewritten_only_when_asked_for_and_that_is_no_pass() {
    let golden = Golden::new();
    let made = golden.report(
        &["--case", "golden", "--update-golden", "golden::case"],
        &[],
    );
    made.case("golden::case").is("rewritten", "a new file");
    assert_eq!(made.code, 7);
    assert!(
        made.display.contains("REWRITTEN golden::case"),
        "{}",
        made.display
    );
    let again = golden.report(&["--case", "golden"], &[]);
    again.case("golden::case").is("passed", "");
    let same = golden.report(&["--case", "golden", "--update-golden", "all"], &[]);
    same.case("golden::case").is("passed", "");
    assert_eq!(same.code, 0, "nothing changed");

    // The same file for a scene that computes something else.
    fs::copy(golden.file("golden"), golden.file("golden_other")).expect("writable");
    let other = golden.report(&["--case", "golden_other"], &[]);
    other
        .case("golden_other::case")
        .is("failed", "3 of 4 elements wrong");
    let changed = golden.report(
        &["--case", "golden_other"],
        &[("SCENETEST_UPDATE_GOLDEN", "1")],
    );
    let case = changed.case("golden_other::case");
    case.is(
        "rewritten",
        "what changed\n  ~ output `z` [4]: 3 of 4 elements wrong",
    );
    assert!(
        case.why().contains("[1]: 2.0, expected 1.0"),
        "{}",
        case.why()
    );
}

pub(crate) fn rewriting_is_refused_on_a_ci_host() {
    let golden = Golden::new();
    let before = golden.write("golden");
    let ci = [("CI", "true"), ("SCENETEST_UPDATE_GOLDEN", "1")];
    let by_variable = golden.run(&["--case", "golden"], &ci);
    let by_flag = golden.run(&["--case", "golden", "--update-golden", "golden"], &ci[..1]);
    for refused in [by_variable, by_flag] {
        assert_eq!(refused.code, 2);
        assert_eq!(
            refused.stderr,
            "error: rewrite golden files: refused on a CI host (CI is set): rewrite them where you can look at what changes\n"
        );
    }
    assert_eq!(
        fs::read(golden.file("golden")).expect("it is there"),
        before
    );
    let unclear = golden.run(&["--case", "golden"], &[("SCENETEST_UPDATE_GOLDEN", "yes")]);
    assert_eq!(unclear.code, 2, "{}", unclear.stderr);
}

/// A driver runs each case in a process of its own, with the variable for all of them.
pub(crate) fn the_variable_asks_nothing_of_cases_without_a_golden_file() {
    let golden = Golden::new();
    let variable = [("SCENETEST_UPDATE_GOLDEN", "1")];
    let without = golden.run(&["--exact", "long_one::case"], &variable);
    assert_eq!(without.code, 0, "{}", without.stderr);
    let with = golden.report(&["--case", "golden", "--case", "long_one::case"], &variable);
    with.case("golden::case").is("rewritten", "a new file");
    with.case("long_one::case").is("passed", "");
    let named = ["--case", "golden", "--update-golden", "golden"];
    let skipped = golden.run(&[&named[..], &["--skip-golden"]].concat(), &[]);
    assert_eq!(skipped.code, 3, "a name that rewrites nothing");
}

pub(crate) fn an_unknown_name_among_the_updates_is_an_error() {
    let golden = Golden::new();
    for wanted in ["goldn", "adds", "golden_other"] {
        let refused = golden.run(&["--case", "golden", "--update-golden", wanted], &[]);
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        let text = format!("the selected case with a golden file `{wanted}` matches nothing");
        assert!(refused.stderr.contains(&text), "{}", refused.stderr);
    }
    assert!(is_empty(golden.0.path()), "nothing was run");
}

pub(crate) fn what_fails_or_was_never_written_makes_no_golden_file() {
    let golden = Golden::new();
    for scene in ["golden_unwritten", "golden_unwritten_integers"] {
        let report = golden.report(&["--case", scene, "--update-golden", "all"], &[]);
        let case = report.case(&format!("{scene}::case"));
        case.is("failed", "4 of its 4 elements were never written");
        assert!(is_empty(golden.0.path()));
    }
    let report = golden.report(&["--case", "golden_fails", "--update-golden", "all"], &[]);
    report
        .case("golden_fails::case")
        .is("failed", "as it is meant to");
    assert!(is_empty(golden.0.path()));
}

/// However a case ends after its first round was found right.
pub(crate) fn a_case_that_does_not_pass_leaves_its_golden_file_alone() {
    for (scene, kind) in [
        ("golden_fails", "failed"),
        ("golden_differs_later", "failed"),
        ("golden_crashes", "crashed"),
        ("golden_hangs", "timed_out"),
    ] {
        let golden = Golden::new();
        fs::write(golden.file(scene), "as before").expect("writable");
        let report = golden.report(
            &["--case", scene, "--update-golden", "all", "--rounds", "2"],
            &[],
        );
        report.case(&format!("{scene}::case")).is(kind, "");
        assert!(!report.display.contains("REWRITTEN"), "{}", report.display);
        let files = fs::read_dir(golden.0.path()).expect("it is there");
        assert_eq!(files.count(), 1, "{scene}: nothing is left beside it");
        let now = fs::read(golden.file(scene)).expect("it is there");
        assert_eq!(now, b"as before", "{scene}");
    }
}

pub(crate) fn a_reference_is_what_a_golden_file_is_made_of() {
    let golden = Golden::new();
    assert_eq!(
        golden.write("golden_from_reference"),
        golden.write("golden")
    );
    let report = golden.report(&["--case", "golden_from_reference"], &[]);
    report.case("golden_from_reference::case").is("passed", "");
}

pub(crate) fn scenes_with_golden_files_can_be_left_out() {
    let golden = Golden::new();
    let report = golden.report(
        &["--case", "golden", "--case", "adds", "--skip-golden"],
        &[],
    );
    report
        .case("golden::case")
        .is("skipped", "--skip-golden was given");
    report.case("adds::case").is("passed", "");
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).expect("it is there").next().is_none()
}
