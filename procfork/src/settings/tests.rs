//! What is refused before anything is touched, and how settings read.

use super::{Resource, Settings, SettingsError};

#[test]
fn impossible_values_are_refused_by_name() {
    let cases = [
        (Settings::new().cpus([]), "cpus "),
        (Settings::new().cpus([1024]), "cpus 1024"),
        (Settings::new().cpus(0..u32::MAX), "cpus 0-1024"),
        (Settings::new().nice(20), "nice 20"),
        (Settings::new().nice(-21), "nice -21"),
        (Settings::new().env("", "x"), "=x"),
        (Settings::new().env("A=B", "x"), "A=B=x"),
        (Settings::new().env("A", "x\0y"), "A=x\0y"),
    ];
    for (settings, wanted) in cases {
        let Err(SettingsError::Invalid { setting, .. }) = settings.check() else {
            panic!("{wanted} was not refused");
        };
        assert_eq!(setting, wanted);
    }
}

#[test]
fn a_later_value_replaces_an_earlier_one() {
    let settings = Settings::new()
        .env("A", "1")
        .env("B", "2")
        .env("A", "3")
        .limit(Resource::Core, 1)
        .limit(Resource::Core, 0)
        .cpus([5, 1, 2, 3, 1]);
    assert_eq!(settings.to_string(), "cpus 1-3,5, B=2, A=3, core 0");
}

#[test]
fn settings_of_one_child_stand_in_front_of_those_of_all() {
    let all = Settings::new().nice(3).env("A", "1").env("B", "1");
    let one = Settings::new().cpus([0]).env("B", "2");
    assert_eq!(
        all.overridden_by(&one).to_string(),
        "cpus 0, nice 3, A=1, B=2"
    );
    assert!(Settings::new().is_empty());
    assert!(!all.is_empty());
}
