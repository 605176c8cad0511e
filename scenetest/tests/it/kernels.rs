//! Kernels from C++ sources: compiled when needed, cached, and refused with everything that helps.

use std::fs;

use crate::support::{FIXTURES, Ran, Report, program, ran};

/// Runs the fixtures with a kernel cache of their own.
struct Cache(tempfile::TempDir);

impl Cache {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut program = program(args);
        program
            .env(FIXTURES, "more")
            .env("DEVICE_KERNEL_CACHE", self.0.path())
            .env("SCENETEST_TEST_DIR", self.0.path());
        ran(&mut program)
    }

    fn report(&self, args: &[&str]) -> Report {
        Report::of(self.run(&[args, &["--json"]].concat()))
    }

    fn libraries(&self) -> usize {
        let entries = fs::read_dir(self.0.path()).expect("it is there").flatten();
        let is_library = |path: std::path::PathBuf| path.extension().is_some_and(|e| e == "so");
        entries.filter(|entry| is_library(entry.path())).count()
    }
}

pub(crate) fn a_kernel_in_cpp_is_compiled_once_and_runs() {
    let cache = Cache::new();
    let first = cache.run(&["compile", "adds"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let sums = "1 kernels for sim: 1 compiled, 0 cached, 0 failed\n";
    assert!(first.stdout.ends_with(sums), "{}", first.stdout);
    assert_eq!(cache.libraries(), 1);
    let report = cache.report(&["--case", "adds"]);
    report.case("adds::case").is("passed", "");
    let again = cache.run(&["compile", "adds"]);
    assert!(
        again.stdout.contains("0 compiled, 1 cached, 0 failed"),
        "{}",
        again.stdout
    );
    assert_eq!(
        cache.libraries(),
        1,
        "the run and the command use the same one"
    );
}

pub(crate) fn collecting_needs_no_compiler() {
    let mut listing = program(&["--list"]);
    listing.env(FIXTURES, "more").env("PATH", "/nowhere");
    assert_eq!(ran(&mut listing).code, 0);
}

pub(crate) fn a_compilers_refusal_is_shown_whole_with_the_command() {
    let cache = Cache::new();
    let report = cache.report(&["--case", "broken_source"]);
    let case = report.case("broken_source::case");
    case.is("failed", "compile kernel `add`");
    for part in [
        "-DBY=no_such_name",
        "tests/it/kernels/add.cpp",
        "error:",
        "no_such_name",
    ] {
        assert!(case.why().contains(part), "no `{part}` in {}", case.why());
    }
    let compiled = cache.run(&["compile", "broken_source", "adds"]);
    assert_eq!(compiled.code, 1);
    assert!(
        compiled.stdout.contains("1 compiled, 0 cached, 1 failed"),
        "{}",
        compiled.stdout
    );
    assert!(
        compiled.stderr.contains("-DBY=no_such_name"),
        "{}",
        compiled.stderr
    );
}

pub(crate) fn include_directories_that_are_not_there_are_named() {
    let cache = Cache::new();
    let report = cache.report(&["--case", "no_variable", "--case", "no_directory"]);
    let unset = "resolve `$SCENETEST_NO_SUCH_VARIABLE/include` for kernel `add`: the variable SCENETEST_NO_SUCH_VARIABLE is not set";
    report.case("no_variable::case").is("failed", unset);
    let case = report.case("no_directory::case");
    case.is("failed", "none of /no/such/place, ");
    assert!(case.why().contains("/nor/this exists"), "{}", case.why());
}

pub(crate) fn compiling_nothing_is_an_error() {
    let cache = Cache::new();
    let nothing = cache.run(&["compile", "golden"]);
    assert_eq!(nothing.code, 3, "{}", nothing.stdout);
    assert!(
        nothing
            .stderr
            .contains("none of the selected scenes is for sim and names a callable")
    );
    let missing = cache.run(&["compile", "zebra"]);
    assert_eq!(missing.code, 3);
}

pub(crate) fn a_crash_in_a_kernel_shows_the_function_of_the_kernel() {
    let cache = Cache::new();
    let report = cache.report(&["--case", "crashes_in_kernel"]);
    let case = report.case("crashes_in_kernel::case");
    case.is("failed", "SIGSEGV");
    let crash = case.text("crash");
    assert!(
        crash.starts_with("CRASH 11 (SIGSEGV) at 0x8 in thread "),
        "{crash}"
    );
    assert!(
        crash.contains("doing node/chip0: run chip callable `crashes_in_kernel`"),
        "{crash}"
    );
    let frame = crash
        .lines()
        .find(|line| line.contains("tests/it/kernels/add.cpp:"));
    assert!(
        frame.is_some(),
        "the file and line of the kernel in {crash}"
    );
}
