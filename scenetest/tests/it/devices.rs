//! The pool of devices.

use crate::support::report;

pub(crate) fn cases_get_distinct_devices_and_as_many_as_they_asked_for() {
    let report = report(&[
        "--case",
        "two_devices",
        "--device",
        "3,5,1",
        "--max-parallel",
        "3",
    ]);
    for name in ["two_devices::a", "two_devices::b", "two_devices::c"] {
        let case = report.case(name);
        case.is("passed", "");
        assert_eq!(
            case.0["devices"],
            serde_json::json!([1, 3]),
            "one at a time fits"
        );
    }
}

pub(crate) fn a_case_that_can_never_fit_is_told_at_the_start() {
    let report = report(&[
        "--case",
        "two_devices::a",
        "--case",
        "passes",
        "--device",
        "4",
    ]);
    report
        .case("two_devices::a")
        .is("not_run", "it needs 2 devices, and the pool has 1");
    report.case("passes::case").is("passed", "");
    let told = report
        .display
        .find("NOT RUN two_devices::a")
        .expect("it is told");
    let started = report
        .display
        .find("START passes::case")
        .expect("it is started");
    assert!(told < started, "{}", report.display);
    assert_eq!(report.code, 5);
}

pub(crate) fn a_device_that_breaks_is_not_given_out_again() {
    let names = ["--case", "breaks_a_device", "--case", "after"];
    let report = report(&[&names[..], &["--device", "0-1", "--max-parallel", "1"]].concat());
    let broken = report.case("breaks_a_device::case");
    broken.is("failed", "it does not answer");
    assert_eq!(
        broken.0["attempts"], 1,
        "it broke during the round: its own doing"
    );
    assert_eq!(report.json["broken_devices"], broken.0["devices"]);
    for name in ["after::a", "after::b"] {
        let case = report.case(name);
        case.is("passed", "");
        assert_ne!(case.0["devices"], broken.0["devices"]);
    }
    let alone =
        crate::support::report(&[&names[..], &["--device", "0", "--max-parallel", "1"]].concat());
    for name in ["after::a", "after::b"] {
        alone
            .case(name)
            .is("not_run", "the pool has 0, and [0] broke");
    }
}

pub(crate) fn a_case_that_met_a_broken_device_runs_once_more_elsewhere() {
    let names = ["--case", "meets_device_0_broken", "--case", "skips"];
    let two = report(&[&names[..], &["--device", "0-1", "--max-parallel", "1"]].concat());
    let case = two.case("meets_device_0_broken::case");
    case.is("passed", "");
    assert_eq!(
        (&case.0["attempts"], &case.0["devices"]),
        (&2.into(), &serde_json::json!([1]))
    );
    assert_eq!(
        two.case("skips::case").0["attempts"],
        1,
        "an ordinary skip is final"
    );
    assert_eq!(two.json["broken_devices"], serde_json::json!([0]));
    let one = report(&["--case", "meets_device_0_broken", "--device", "0"]);
    one.case("meets_device_0_broken::case")
        .is("not_run", "the pool has 0, and [0] broke");
}
