//! What the runner adds to a scene, beside a bare fork and exec of the same program; and how long it
//! takes to collect a thousand scenes.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use scenetest::{Case, Scene};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The variable that makes this program a scene program with so many scenes.
const SCENES: &str = "SCENE_OVERHEAD_SCENES";
/// Scenes of a measured session.
const PER_SESSION: usize = 100;
/// Sessions, and as many batches of bare processes in turns with them.
const RUNS: usize = 9;

fn main() -> Outcome<ExitCode> {
    if let Some(count) = std::env::var_os(SCENES) {
        let count: usize = count.to_str().unwrap_or("").parse()?;
        // A bare process does nothing else.
        return Ok(match count {
            0 => ExitCode::SUCCESS,
            count => scenetest::main(&scenes(count)),
        });
    }
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|wish| wish == name);
    let mut figures = Vec::new();
    if wants("scene_overhead_ms") {
        figures.push(overhead()?);
    }
    if wants("collect_1000_ms") {
        figures.push(collecting()?);
    }
    writeln!(io::stdout(), "[{}]", figures.join(",\n "))?;
    Ok(ExitCode::SUCCESS)
}

fn scenes(count: usize) -> Vec<Scene> {
    let name = |number| -> &'static str { format!("scene_{number}").leak() };
    let scene = |number| Scene::new(name(number), |_| Ok(())).case(Case::new("case").devices(0));
    (0..count).map(scene).collect()
}

/// Runs this program; milliseconds.
fn timed(n_scenes: usize, args: &[&str]) -> Outcome<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .env(SCENES, n_scenes.to_string())
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let begin = Instant::now();
    let status = command.status()?;
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    if status.success() {
        Ok(ms)
    } else {
        Err(format!("{args:?} ended with {status}").into())
    }
}

/// One scene after the other, less what the session itself takes, beside bare processes.
fn overhead() -> Outcome<String> {
    let (mut added, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let one = timed(1, &["--max-parallel", "1"])?;
        let all = timed(PER_SESSION, &["--max-parallel", "1"])?;
        let mut processes = 0.0;
        for _ in 0..PER_SESSION {
            processes += timed(0, &[])?;
        }
        let process = processes / PER_SESSION as f64;
        added.push((all - one) / (PER_SESSION - 1) as f64 - process);
        bare.push(process);
    }
    Ok(figure("scene_overhead_ms", added, "fork_exec_ms", bare))
}

fn collecting() -> Outcome<String> {
    let (mut listing, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        listing.push(timed(1_000, &["--list"])?);
        bare.push(timed(0, &[])?);
    }
    Ok(figure("collect_1000_ms", listing, "fork_exec_ms", bare))
}

fn figure(name: &str, mut taken: Vec<f64>, other: &str, mut reference: Vec<f64>) -> String {
    taken.sort_by(f64::total_cmp);
    reference.sort_by(f64::total_cmp);
    let (value, min, runs) = (taken[taken.len() / 2], taken[0], taken.len());
    let beside = reference[reference.len() / 2];
    format!(
        r#"{{"name": "{name}", "value": {value:.4}, "unit": "ms", "min": {min:.4}, "runs": {runs}, "reference": {{"name": "{other}", "value": {beside:.4}}}}}"#
    )
}
