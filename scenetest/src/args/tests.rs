//! Parts of the command line.

use super::*;

#[track_caller]
fn check(text: &str, expected: Result<&[u32], &str>) {
    match (text.parse::<DeviceList>(), expected) {
        (Ok(DeviceList(found)), Ok(wanted)) => assert_eq!(found, wanted),
        (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
        (found, _) => panic!("{text}: {found:?}"),
    }
}

#[test]
fn device_lists_are_numbers_and_ranges_without_doubles() {
    check("0-3", Ok(&[0, 1, 2, 3]));
    check("6", Ok(&[6]));
    check("3,2", Ok(&[3, 2]));
    check("0, 4-5", Ok(&[0, 4, 5]));
    check("", Err("neither a device number nor a range"));
    check("2,x", Err("`x` is neither"));
    check("3-1", Err("`3-1` is empty"));
    check("0-3,2", Err("device 2 is named twice"));
    check("0-4294967295", Err("more than 1024"));
    check("-1", Err("neither"));
}

#[test]
fn limits_are_positive_and_finite() {
    assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1_500)));
    for wrong in ["0", "-1", "nan", "inf", "1e19", "1e300", "soon"] {
        assert!(seconds(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory as _;
    Args::command().debug_assert();
}
