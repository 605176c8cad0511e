//! `build` names what is missing, and builds what it can.

use crate::{
    fixture::Fixture,
    support::{Run, command},
};

/// Builds for a2a3, with a toolkit in the fixture's directory `toolkit`.
fn build(fixture: &Fixture) -> Run {
    let mut command = command(fixture, &["build", "--platform", "a2a3"]);
    command
        .env("ASCEND_HOME_PATH", fixture.path().join("toolkit"))
        .env_remove("LD_LIBRARY_PATH");
    Run::of(command.output().expect("xtask can be started"))
}

#[test]
fn a_missing_toolkit_is_named_part_by_part_and_the_workspace_is_built() {
    let mut fixture = Fixture::new(&["device"]);
    fixture.write("toolkit/README.md", "Empty.\n");
    build(&fixture)
        .exits_with(1)
        .has_row(&["workspace", "ok"])
        .has_row(&[
            "libascendcl.so",
            "FAILED",
            "set ASCEND_HOME_PATH, or use `sim`",
        ])
        .has_row(&["ccec", "FAILED", "set ASCEND_HOME_PATH, or use `sim`"])
        .closes_with("1 passed, 2 failed, 0 skipped");
}

#[test]
fn with_a_toolkit_the_kernels_are_compiled_by_the_program_of_device() {
    let mut fixture = Fixture::new(&["device"]);
    for part in ["toolkit/lib64/libascendcl.so", "toolkit/bin/ccec"] {
        fixture.write(part, "");
    }
    build(&fixture).exits_with(1).has_row(&[
        "kernels for a2a3",
        "FAILED",
        "no example `compile_kernels` yet",
    ]);
    let program = "//! Compiles.\n\nfn main() {\n    \
                   assert!(std::env::args().skip(1).eq([\"--platform\", \"a2a3\"]));\n}\n";
    fixture.write("device/examples/compile_kernels.rs", program);
    build(&fixture)
        .exits_with(0)
        .has_row(&["kernels for a2a3", "ok"]);
}
