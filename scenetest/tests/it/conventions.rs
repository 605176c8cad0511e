//! What test drivers expect of a test program.

use crate::support::{FIXTURES, Report, program, ran, report, run};

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
    assert_eq!(
        ignored.stdout,
        "manual_only::manual: test\nreal_chip_only::case: test\n"
    );
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

pub(crate) fn a_report_that_cannot_be_written_is_told_before_anything_runs() {
    for flag in ["--junit", "--trace"] {
        let ran = run(&["--case", "passes", flag, "/no/such/directory/report"]);
        assert_eq!(ran.code, 6, "{}", ran.stdout);
        assert!(!ran.stdout.contains("START"), "{}", ran.stdout);
        assert_eq!(
            ran.stderr,
            "error: write /no/such/directory/report: No such file or directory (os error 2)\n"
        );
    }
}

pub(crate) fn a_trace_shows_cases_and_rounds() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("trace.json");
    let path = file.to_str().expect("a plain path");
    report(&[
        "--case",
        "right",
        "--case",
        "two_devices::a",
        "--rounds",
        "3",
        "--trace",
        path,
    ]);
    let trace = std::fs::read_to_string(&file).expect("it was written");
    let trace: serde_json::Value = serde_json::from_str(&trace).expect("JSON");
    let spans = trace["traceEvents"].as_array().expect("a list").iter();
    let mut names: Vec<&str> = spans
        .filter(|event| event["ph"] == "X")
        .filter_map(|event| event["name"].as_str())
        .collect();
    names.sort_unstable();
    let expected = [
        "right::case",
        "round 0",
        "round 1",
        "round 2",
        "two_devices::a",
        "two_devices::a",
    ];
    assert_eq!(names, expected, "a span for each device");
}

pub(crate) fn a_trace_shows_what_each_worker_ran() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("trace.json");
    let path = file.to_str().expect("a plain path");
    let args = ["--case", "behind", "--trace", path];
    let traced = ran(program(&args).env(FIXTURES, "more"));
    assert_eq!(traced.code, 0, "{}{}", traced.stdout, traced.stderr);
    let trace = std::fs::read_to_string(&file).expect("it was written");
    let trace: serde_json::Value = serde_json::from_str(&trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    for name in ["behind::a", "behind::b"] {
        let case = span(events, name);
        let group = events.iter().find(|event| {
            event["name"] == "process_name" && event["args"]["name"] == format!("{name} node")
        });
        let group = &group.expect("a group of lanes for its worker")["pid"];
        let lane = events.iter().find(|event| {
            event["name"] == "thread_name" && &event["pid"] == group && event["tid"] == 0
        });
        assert_eq!(
            lane.expect("a lane for its chip")["args"]["name"],
            "node/chip0"
        );
        // The run to warm up, and the round.
        let tasks = events
            .iter()
            .filter(|event| event["ph"] == "X" && &event["pid"] == group);
        let tasks: Vec<&serde_json::Value> = tasks.collect();
        assert_eq!(tasks.len(), 2, "{name}");
        for task in tasks {
            assert_eq!(task["name"], "twice");
            assert!(is_within(task, case), "{task} is not within {case}");
        }
    }
}

fn span<'e>(events: &'e [serde_json::Value], name: &str) -> &'e serde_json::Value {
    let mut spans = events.iter().filter(|event| event["ph"] == "X");
    let found = spans.find(|event| event["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}"))
}

fn is_within(inner: &serde_json::Value, outer: &serde_json::Value) -> bool {
    let times = |span: &serde_json::Value| {
        let (begin, length) = (span["ts"].as_f64(), span["dur"].as_f64());
        let begin = begin.expect("a time");
        (begin, begin + length.expect("a length"))
    };
    let ((begin, end), (from, until)) = (times(inner), times(outer));
    from <= begin && end <= until
}

pub(crate) fn a_wrong_output_of_two_dimensions_has_a_heat_map_on_request() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("a plain path");
    let args = ["--case", "two_dimensional", "--heat-map", path, "--json"];
    let report = Report::of(ran(program(&args).env(FIXTURES, "more")));
    let case = report.case("two_dimensional::case");
    let file = dir.path().join("two_dimensional.case.z.png");
    case.is("failed", &format!("heat map: {}", file.display()));
    let png = std::fs::read(&file).expect("it was written");
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let without = ran(program(&args[..2]).env(FIXTURES, "more"));
    assert!(!without.stdout.contains("heat map"), "{}", without.stdout);
}

pub(crate) fn the_table_of_rounds_has_a_line_for_each_case() {
    let ran = run(&["--case", "right", "--case", "passes", "--rounds", "20"]);
    let table: Vec<&str> = ran
        .stdout
        .lines()
        .skip_while(|line| !line.starts_with("case "))
        .take(2)
        .collect();
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        words(table[0]),
        ["case", "rounds", "min", "us", "median", "us", "p95", "us"]
    );
    assert_eq!(words(table[1])[..2], ["right::case", "20"]);
    let json = report(&["--case", "right", "--rounds", "20"]);
    let table = &json.case("right::case").0["rounds_table"];
    let ns = |field: &str| table[field].as_u64().expect("a number");
    assert!(ns("min_ns") <= ns("median_ns") && ns("median_ns") <= ns("p95_ns"));
}

/// What cargo-nextest does: lists twice, then runs each test in a process of its own.
pub(crate) fn nextest_can_list_and_run_every_case() {
    let list = |more: &[&str]| run(&[&["--list", "--format", "terse"], more].concat()).stdout;
    let (all, ignored) = (list(&[]), list(&["--ignored"]));
    assert!(all.lines().any(|line| line == "passes::case: test"));
    for (name, extra) in [
        ("passes::case", &[][..]),
        ("manual_only::manual", &["--ignored"]),
    ] {
        let listed = if extra.is_empty() { &all } else { &ignored };
        assert!(listed.contains(&format!("{name}: test\n")));
        let ran = run(&[&["--exact", name, "--nocapture"], extra].concat());
        assert_eq!(ran.code, 0, "{}", ran.stdout);
        assert!(
            ran.stdout.contains("1 selected: 1 passed"),
            "{}",
            ran.stdout
        );
    }
    assert_eq!(run(&["--exact", "fails::case", "--nocapture"]).code, 1);
}

/// What is skipped unless it is asked for is listed as ignored: a driver counts a skip as a pass.
pub(crate) fn what_would_be_skipped_is_listed_as_ignored_and_runs_when_asked_for() {
    let more = |args: &[&str]| ran(program(args).env(FIXTURES, "more"));
    let ignored = more(&["--list", "--format", "terse", "--ignored"]);
    assert_eq!(ignored.stdout, "long_one::long: test\n");
    let in_step = more(&[
        "--list",
        "--format",
        "terse",
        "--ignored",
        "--step",
        "nightly",
    ]);
    assert_eq!((in_step.stdout.as_str(), in_step.code), ("", 0));
    for extra in [&[][..], &["--ignored"], &["--include-ignored"]] {
        let one = more(&[&["--exact", "long_one::long", "--nocapture"], extra].concat());
        let passed = one.stdout.contains("1 selected: 1 passed");
        assert!(passed, "{extra:?}: {}{}", one.stdout, one.stderr);
    }
}

/// What `docs/scenes.md` has a new user write is a scene of this repository, which runs with the others.
pub(crate) fn the_first_scene_of_the_docs_is_one_that_runs() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("it is there");
    let page = read("../docs/scenes.md");
    for file in ["scenes/scale.rs", "scenes/scale.cpp"] {
        assert!(
            page.contains(&read(file)),
            "docs/scenes.md has another {file}"
        );
    }
    assert!(read("scenes/main.rs").contains("    scale::scene,\n"));
}
