//! What test drivers expect of a test program.

use crate::support::{report, run};

pub(crate) fn the_terse_list_is_what_nextest_reads() {
    let all = run(&["--list", "--format", "terse"]);
    assert_eq!(all.code, 0);
    assert!(
        all.stdout.lines().all(|line| line.ends_with(": test")),
        "{}",
        all.stdout
    );
    assert!(
        all.stdout.contains("manual_only::manual: test\n"),
        "the ignored ones too"
    );
    let ignored = run(&["--list", "--format", "terse", "--ignored"]);
    assert_eq!(ignored.stdout, "manual_only::manual: test\n");
}

pub(crate) fn an_exact_filter_runs_one_case() {
    let report = report(&["--exact", "passes::case", "--nocapture"]);
    assert_eq!((report.cases().len(), report.code), (1, 0));
    let part = run(&["--exact", "passes::cas"]);
    assert_eq!(part.code, 3);
}

pub(crate) fn junit_has_every_case_once() {
    let file = std::env::temp_dir().join(format!("scenetest-junit-{}.xml", std::process::id()));
    let names = [
        "passes",
        "fails",
        "aborts",
        "skips",
        "nine_devices",
        "leaks",
    ];
    let mut args = vec!["--junit", file.to_str().expect("a plain path")];
    names.iter().for_each(|name| args.extend(["--case", name]));
    report(&args);
    let xml = std::fs::read_to_string(&file).expect("it was written");
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!(xml.matches("<testcase ").count(), names.len(), "{xml}");
    assert!(
        xml.contains("tests=\"6\" failures=\"1\" errors=\"2\" skipped=\"1\""),
        "{xml}"
    );
    for name in names {
        assert_eq!(
            xml.matches(&format!("classname=\"{name}\"")).count(),
            1,
            "{xml}"
        );
    }
    assert!(
        xml.contains("<failure message=\"seven is not eight\"/>"),
        "{xml}"
    );
    assert!(
        xml.contains("<property name=\"leaked\" value=\"stuck-child ("),
        "{xml}"
    );
}

pub(crate) fn exit_codes_are_the_documented_ones() {
    let code = |args: &[&str]| run(args).code;
    assert_eq!(code(&["--case", "passes", "--case", "skips"]), 0);
    assert_eq!(code(&["--case", "passes", "--case", "fails"]), 1);
    assert_eq!(code(&["--case", "aborts"]), 1);
    assert_eq!(code(&["--no-such-flag"]), 2);
    assert_eq!(code(&["--device", "3-1"]), 2);
    assert_eq!(code(&["--case", "no_such_case"]), 3);
    assert_eq!(code(&["--case", "stops_itself", "--case", "fails"]), 4);
    assert_eq!(code(&["--case", "nine_devices", "--case", "passes"]), 5);
    assert_eq!(code(&["--help"]), 0);
}

pub(crate) fn what_is_not_built_says_so() {
    let ran = run(&["--case", "passes", "--trace", "file"]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stderr, "error: --trace: not built yet\n");
}
