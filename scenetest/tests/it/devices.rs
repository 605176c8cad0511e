//! The pool of devices.

use serde_json::json;

use crate::support::{FIXTURES, Report, program, ran, repeats, report};

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

/// ST-4, DV-5: six cases on two devices.
pub(crate) fn cases_behind_a_broken_device_run_elsewhere_or_are_said_not_to_have_run() {
    let run = |devices: &str, broken: &str| {
        let args = ["--device", devices, "--max-parallel", "1", "--json"];
        let mut program = program(&args);
        Report::of(ran(program.env(FIXTURES, "six").env("BROKEN", broken)))
    };
    // Devices are given out from the lowest: case three breaks device 0, which four would have had.
    let two = run("0,1", "none");
    let outcomes = [
        ("one", "passed", ""),
        ("two", "crashed", "SIGSEGV"),
        ("three", "failed", "it is gone"),
        ("four", "passed", ""),
        ("five", "skipped", "there is no such thing"),
        ("six", "failed", "exited with code 0 without a verdict"),
    ];
    for (name, kind, why) in outcomes {
        let case = two.case(&format!("{name}::case"));
        case.is(kind, why);
        assert_eq!(case.0["attempts"], 1, "{name}");
    }
    assert_eq!((two.cases().len(), two.code), (6, 1));
    assert_eq!(two.json["broken_devices"], serde_json::json!([0]));
    assert_eq!(two.case("four::case").0["devices"], serde_json::json!([1]));

    // Case four finds its device broken before its first round: once more elsewhere, once only.
    let again = run("0-2", "1");
    let four = again.case("four::case");
    four.is("passed", "");
    assert_eq!(
        (&four.0["attempts"], &four.0["devices"]),
        (&2.into(), &serde_json::json!([2]))
    );
    assert_eq!(again.json["broken_devices"], serde_json::json!([0, 1]));
    assert!(
        again.display.contains("AGAIN four::case on other devices"),
        "{}",
        again.display
    );

    // No other device is left: each of those behind is said not to have run, by name.
    let one = run("0", "none");
    for name in ["four", "five", "six"] {
        one.case(&format!("{name}::case"))
            .is("not_run", "the pool has 0, and [0] broke");
    }
    assert_eq!(one.cases().len(), 6, "each exactly once");
}

/// ST-6: late peers and starved processors are no hang, and the stuck one beside them is.
pub(crate) fn a_late_peer_and_a_starved_machine_are_no_hang() {
    let names = ["late_peer", "eight_on_one_processor", "stuck_beside"];
    let args: Vec<&str> = names.iter().flat_map(|name| ["--case", *name]).collect();
    let args = [&args[..], &["--max-parallel", "3", "--json"]].concat();
    for _ in 0..repeats() {
        let report = Report::of(ran(program(&args).env(FIXTURES, "more")));
        report.case("late_peer::case").is("passed", "");
        report.case("eight_on_one_processor::case").is("passed", "");
        let stuck = report.case("stuck_beside::case");
        stuck.is("timed_out", "3.0 s (its time is over)");
        assert!(stuck.text("hung").contains("stuck_in_this_function"));
    }
}

/// Scenes have error types of their own.
pub(crate) fn a_chip_that_breaks_is_out_of_the_pool_whatever_the_scene_makes_of_the_error() {
    for way in [
        "as_a_cause",
        "in_a_box",
        "and_shares_it",
        "in_an_orchestration",
        "in_part",
    ] {
        let name = format!("breaks_its_chip_{way}");
        let pool = ["--device", "0,1", "--json"];
        let mut program = program(&[&["--case", &name][..], &pool].concat());
        let faulty = program
            .env(FIXTURES, "more")
            .env("SCENETEST_BAD_DEVICE", "0");
        let report = Report::of(ran(faulty));
        let case = report.case(&format!("{name}::case"));
        case.is("failed", "task `twice`");
        assert_eq!(report.json["broken_devices"], json!([0]), "{name}");
    }
}

/// DV-5, from a task on the device to the pool: nobody but the simulator knows of the fault.
pub(crate) fn a_chip_that_breaks_in_a_run_is_out_of_the_pool() {
    let run = |devices: &str, names: &[&str]| {
        let names: Vec<&str> = names.iter().flat_map(|name| ["--case", *name]).collect();
        let pool = ["--device", devices, "--max-parallel", "1", "--json"];
        let mut program = program(&[&names[..], &pool].concat());
        let faulty = program
            .env(FIXTURES, "more")
            .env("SCENETEST_BAD_DEVICE", "0");
        Report::of(ran(faulty))
    };
    let two = run("0,1", &["breaks_its_chip", "behind"]);
    let broke = two.case("breaks_its_chip::case");
    broke.is("failed", "task `twice`");
    assert_eq!(
        (&broke.0["attempts"], &broke.0["devices"]),
        (&1.into(), &json!([0]))
    );
    for name in ["behind::a", "behind::b"] {
        let case = two.case(name);
        case.is("passed", "");
        assert_eq!(case.0["devices"], json!([1]), "{name}");
    }
    assert_eq!((&two.json["broken_devices"], two.code), (&json!([0]), 1));

    // It breaks before the first round: once more elsewhere, where it passes.
    let again = run("0,1", &["warms_up", "behind"]);
    let warm = again.case("warms_up::case");
    warm.is("passed", "");
    assert_eq!(
        (&warm.0["attempts"], &warm.0["devices"]),
        (&2.into(), &json!([1]))
    );
    again.case("behind::a").is("passed", "");
    assert_eq!(
        (&again.json["broken_devices"], again.code),
        (&json!([0]), 0)
    );

    // There is no other one.
    let one = run("0", &["breaks_its_chip", "behind"]);
    one.case("breaks_its_chip::case")
        .is("failed", "task `twice`");
    for name in ["behind::a", "behind::b"] {
        one.case(name)
            .is("not_run", "the pool has 0, and [0] broke");
    }
}
