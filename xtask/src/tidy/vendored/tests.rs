//! Directories of vendored files, right and wrong.

use super::*;

/// A repository with one vendored header.
fn repository(provenance: Option<&str>) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("kernels/vendor/include");
    fs::create_dir_all(&dir).expect("writable");
    fs::write(dir.join("tile.h"), "abc").expect("writable");
    if let Some(text) = provenance {
        fs::write(root.path().join("kernels/vendor").join(PROVENANCE), text).expect("writable");
    }
    root
}

/// Of the bytes `abc`.
const SUM: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn text(commit: &str, date: &str, files: &str) -> String {
    format!(
        r#"{{"from": "somewhere", "commit": "{commit}", "date": "{date}", "edits": "none", "files": {files}}}"#
    )
}

#[track_caller]
fn findings(root: &Path) -> Vec<String> {
    let mut dirs = Vec::new();
    find(root, &mut dirs);
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    let all = check(root, &dirs[0]);
    all.iter()
        .map(|f| format!("{}: {}", f.file, f.what))
        .collect()
}

#[test]
fn files_that_are_what_it_says_are_right() {
    let files = format!(r#"{{"include/tile.h": "{SUM}"}}"#);
    let root = repository(Some(&text("0123abc", "2026-11-30", &files)));
    assert_eq!(findings(root.path()), Vec::<String>::new());
}

#[test]
fn a_directory_without_the_file_is_a_finding() {
    let root = repository(None);
    let all = findings(root.path());
    assert!(
        all[0].starts_with("kernels/vendor/provenance.json: says not where"),
        "{all:?}"
    );
}

#[test]
fn changed_new_and_missing_files_are_findings() {
    let files = r#"{"include/tile.h": "00", "gone.h": "11"}"#;
    let root = repository(Some(&text("0123abc", "2026-11-30", files)));
    fs::write(root.path().join("kernels/vendor/new.h"), "").expect("writable");
    let all = findings(root.path());
    assert_eq!(
        all,
        [
            format!(
                "kernels/vendor/include/tile.h: has the sum {SUM}, and provenance.json says 00"
            ),
            "kernels/vendor/new.h: is not in provenance.json".to_owned(),
            "kernels/vendor/gone.h: is in provenance.json and not there".to_owned(),
        ]
    );
}

#[test]
fn fields_that_say_nothing_are_findings() {
    let files = format!(r#"{{"include/tile.h": "{SUM}"}}"#);
    let root = repository(Some(&text("main", "yesterday", &files)));
    assert_eq!(
        findings(root.path()),
        [
            "kernels/vendor/provenance.json: `commit` is no commit: `main`",
            "kernels/vendor/provenance.json: `date` is not of the form 2026-11-30: `yesterday`",
        ]
    );
    let root = repository(Some("{\n\"from\": 3}"));
    assert_eq!(findings(root.path()).len(), 1, "it is no such file");
}

#[test]
fn a_module_of_that_name_is_no_directory_of_vendored_files() {
    let root = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(root.path().join("src/vendor")).expect("writable");
    fs::write(root.path().join("src/vendor.rs"), "//! A module.").expect("writable");
    let mut dirs = Vec::new();
    find(root.path(), &mut dirs);
    assert_eq!(dirs, Vec::<PathBuf>::new());
}
