//! The example `vector_add` as a whole process: what a user waits for, from start to exit.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::measure::{Measure, Reference};
use crate::{
    cargo::{self, Role},
    progress,
    report::{Outcome, judge_by_exit},
    workspace::Workspace,
};

/// The name of the measure.
pub(crate) const NAME: &str = "example_process_ms";

/// How often each of the two is run. The first run of each only warms the caches.
const RUNS: usize = 21;

/// Builds the example with optimizations and runs it and `true` in turns.
pub(crate) fn measure(workspace: &Workspace) -> Result<Measure, String> {
    let example = build(workspace)?;
    let (mut times, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        floor.push(run_ms(Path::new("/bin/true"))?);
        times.push(run_ms(&example)?);
    }
    let (value, reference) = (median(&mut times[1..]), median(&mut floor[1..]));
    Ok(Measure {
        name: NAME.to_owned(),
        value,
        unit: "ms".to_owned(),
        min: times[1],
        runs: RUNS as u64 - 1,
        reference: Some(Reference {
            name: "/bin/true".to_owned(),
            value: reference,
        }),
        note: None,
        ratio: Some(value / reference),
    })
}

/// The example's executable.
fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    let args = [
        "build",
        "--release",
        "--package=facade",
        "--example=vector_add",
    ];
    let mut step = cargo::step(workspace, "build facade/vector_add", super::LIMIT_S, args);
    step.command.arg("--message-format=json-render-diagnostics");
    let ran = progress::run(step);
    if judge_by_exit(&ran).outcome != Outcome::Passed {
        return Err(format!("the example does not build:\n{}", ran.stderr));
    }
    let mut programs = cargo::programs(workspace, &ran.stdout).into_iter();
    let example = programs.find(|program| program.role == Role::Example);
    example
        .map(|program| program.executable)
        .ok_or_else(|| "cargo built no example".to_owned())
}

/// Runs `program` to its end; the time in milliseconds.
fn run_ms(program: &Path) -> Result<f64, String> {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let began = Instant::now();
    let status = command
        .status()
        .map_err(|error| format!("start {}: {error}", program.display()))?;
    let elapsed = began.elapsed();
    if !status.success() {
        return Err(format!("{} ended with {status}", program.display()));
    }
    Ok(ms(elapsed))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The middle of `times`, which it sorts.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
