//! Which crates a list of changed files runs; each doubt runs everything.

use std::collections::BTreeSet;

use super::{Scope, scope_of, scope_since};
use crate::{fixture::Fixture, suite::Crates};

/// Two crates, `lower` and `upper`, where `upper` uses `lower`; and a third that stands alone.
fn fixture() -> Fixture {
    let mut fixture = Fixture::new(&["lower", "upper", "alone"]);
    fixture.append(
        "upper/Cargo.toml",
        "[dependencies]\nlower.workspace = true\n",
    );
    fixture.append("Cargo.toml", "lower = { path = \"lower\" }\n");
    fixture
}

fn scope(files: &[&str]) -> Scope {
    let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
    scope_of(&fixture().workspace(), &files)
}

#[track_caller]
fn check(files: &[&str], expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(scope(files).crates, Crates::Only(expected));
}

#[test]
fn a_changed_crate_runs_with_all_that_depend_on_it() {
    check(&["lower/src/lib.rs"], &["lower", "upper"]);
    check(
        &["upper/README.md", "alone/src/lib.rs"],
        &["alone", "upper"],
    );
}

#[test]
fn documents_affect_no_crate() {
    check(&["docs/testing.md", "CHANGELOG.md"], &[]);
}

#[test]
fn an_empty_difference_runs_everything() {
    assert_eq!(scope(&[]).crates, Crates::All);
}

#[test]
fn what_is_not_known_runs_everything() {
    for file in [
        "Cargo.toml",
        "Cargo.lock",
        ".ci/run",
        ".github/workflows/ci.yml",
        "clippy.toml",
        "brand_new/src/lib.rs",
        "README.md",
    ] {
        let scope = scope(&["docs/testing.md", file, "alone/src/lib.rs"]);
        assert_eq!(scope.crates, Crates::All, "{file}");
        assert!(scope.why.contains(file), "{}", scope.why);
    }
}

#[test]
fn a_failing_difference_runs_everything() {
    // The fixture is no git repository, so git cannot answer.
    let fixture = fixture();
    for rev in ["HEAD", "--output=surprise"] {
        let scope = scope_since(&fixture.workspace(), rev);
        assert_eq!(scope.crates, Crates::All);
        assert!(
            scope
                .why
                .contains(&format!("difference to `{rev}` is unknown")),
            "{}",
            scope.why
        );
    }
    assert!(!fixture.path().join("surprise").exists());
}

#[test]
fn committed_uncommitted_and_new_files_all_count() {
    let mut fixture = fixture();
    fixture.git(&["init", "--quiet"]);
    fixture.commit("first");
    fixture.write("lower/src/new.rs", "//! New.\n");
    let of = |fixture: &Fixture| scope_since(&fixture.workspace(), "start").crates;
    fixture.git(&["tag", "start"]);
    let both = ["lower", "upper"].map(str::to_owned).into();
    assert_eq!(of(&fixture), Crates::Only(both), "an untracked file");
    fixture.commit("second");
    fixture.append("alone/src/lib.rs", "// More.\n");
    let all = ["alone", "lower", "upper"].map(str::to_owned).into();
    assert_eq!(of(&fixture), Crates::Only(all), "a commit and an edit");
}
