//! When files are rewritten, and what is said about it.

use super::*;

fn z(values: &[f32]) -> Tensors {
    let tensor = HostTensor::new(values, &[values.len()]).expect("it fits");
    Tensors::new().with("z", tensor)
}

#[test]
fn only_an_explicit_true_value_asks_for_rewriting() {
    for value in [None, Some(""), Some("0"), Some("false")] {
        assert!(!asked_by_variable(value).expect("it is clear"), "{value:?}");
    }
    for value in ["1", "true"] {
        assert!(asked_by_variable(Some(value)).expect("it is clear"));
    }
    let error = asked_by_variable(Some("yes")).expect_err("it is unclear");
    assert_eq!(
        error.to_string(),
        "SCENETEST_UPDATE_GOLDEN=yes: it is neither true (1, true) nor false (0, false, empty)"
    );
}

#[test]
fn outputs_that_nobody_wrote_make_no_golden_file() {
    fn poisoned<T: facade::Element>(values: &[T], first: usize) -> Result<(), String> {
        let whole = HostTensor::new(values, &[values.len()]).expect("it fits");
        let reader = crate::value::Reader::of(T::DTYPE).expect("readable");
        let mut bytes = whole.as_bytes().to_vec();
        reader.poison(&mut bytes[..first * reader.bytes]);
        let tensor = HostTensor::from_bytes(T::DTYPE, whole.shape(), &bytes).expect("it fits");
        refuse_unwritten(&Tensors::new().with("z", tensor)).map_err(|error| error.to_string())
    }
    let error = poisoned(&[1_i32, 2, 3], 2).expect_err("two are as before");
    assert_eq!(
        error,
        "make a golden file of output `z` [3]: 2 of its 3 elements were never written"
    );
    assert!(poisoned(&[1.0_f32, 2.0], 1).is_err());
    assert!(poisoned(&[1_u64, 2], 1).is_err());
    // Some of a narrow integer may be so by chance, all of them are not.
    assert!(poisoned(&[1_u8, 2], 2).is_err() && poisoned(&[1_i16, 2], 2).is_err());
    assert_eq!(poisoned(&[1_u8, 2], 1), Ok(()));
    assert_eq!(poisoned(&[1_i32, 2], 0), Ok(()));
}

#[test]
fn a_ci_host_refuses() {
    let on = |name: &'static str, value: &'static str| {
        refuse_on_ci(move |asked| (asked == name).then(|| value.to_owned()))
    };
    assert!(on("CI", "true").is_err() && on("GITHUB_ACTIONS", "true").is_err());
    assert!(on("CI", "false").is_ok() && on("CI", "").is_ok() && on("HOME", "/x").is_ok());
}

/// A case that passes.
fn rewrite(path: &Path, new: &Tensors) -> Option<String> {
    let rewrite = Rewrite::of(path.to_owned());
    let changes = stage(path, rewrite.staged(), new).expect("writable");
    if changes.is_some() {
        rewrite.publish().expect("it was staged");
    }
    changes
}

#[test]
fn what_is_not_published_is_gone_and_the_file_as_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = path(dir.path().to_str().expect("text"), "s", "c");
    rewrite(&file, &z(&[1.0])).expect("it is new");
    let dropped = Rewrite::of(file.clone());
    let changes = stage(&file, dropped.staged(), &z(&[2.0])).expect("writable");
    assert!(changes.is_some() && dropped.staged().exists());
    drop(dropped);
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 1);
    assert_eq!(read(&file, "s::c").expect("it is there"), z(&[1.0]));
}

#[test]
fn a_rewrite_says_what_changed_and_a_second_one_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = path(dir.path().join("golden").to_str().expect("text"), "s", "c");
    let missing = read(&file, "s::c")
        .expect_err("it is not there")
        .to_string();
    assert!(missing.contains("s.c.safetensors: it is not there; if the outputs are right"));

    let new = rewrite(&file, &z(&[1.0, 2.0])).expect("it changed");
    assert!(new.ends_with("a new file\n  + `z` F32 [2]"), "{new}");
    assert_eq!(rewrite(&file, &z(&[1.0, 2.0])), None);
    assert_eq!(read(&file, "s::c").expect("it is there"), z(&[1.0, 2.0]));

    let changed = rewrite(&file, &z(&[1.0, 3.0])).expect("it changed");
    assert!(
        changed.contains("  ~ output `z` [2]: 1 of 2 elements wrong"),
        "{changed}"
    );
    assert!(changed.contains("[1]: 3.0, expected 2.0"), "{changed}");

    let longer = rewrite(&file, &z(&[1.0; 3])).expect("it changed");
    assert!(longer.contains("`z` F32 [2] becomes F32 [3]"), "{longer}");

    fs::write(&file, "no such file").expect("writable");
    let unreadable = read(&file, "s::c").expect_err("it is malformed");
    assert!(matches!(unreadable, GoldenError::Malformed { .. }));
    let text = rewrite(&file, &z(&[1.0])).expect("it changed");
    assert!(text.contains("the old file was unreadable"), "{text}");
}
