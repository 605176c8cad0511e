//! `main` of a scene program: command line, selection, session, reports, exit code.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;
use facade::Platform;

use crate::args::{Args, Format};
use crate::compile;
use crate::disk::{self, NotListed, Sources};
use crate::display::Display;
use crate::exit;
use crate::golden::{self, GoldenError, Updates};
use crate::junit;
use crate::scene::Scene;
use crate::select::{Candidate, SelectError, candidates, check_limits, mark_updates, select};
use crate::session::Session;
use crate::trace;

/// Runs the scenes as the command line says. Call it from `main`, with one thread.
///
/// The command line is that of the process; `--help` describes it. See [`exit`] for the codes.
/// Usually [`main!`](crate::main!) calls it.
pub fn main(scenes: &[Scene]) -> ExitCode {
    main_of(None, scenes)
}

/// As [`main`], for a program whose sources are known: a scene that is written in its directory and
/// is not among `scenes` is an error.
pub fn main_of(sources: impl Into<Option<Sources>>, scenes: &[Scene]) -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // `--help` and `--version` arrive here too, and are no mistake.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() {
                exit::USAGE
            } else {
                exit::OK
            });
        }
    };
    ExitCode::from(run(sources.into(), scenes, &args).unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "error: {}", chain(&error));
        error.exit_code()
    }))
}

/// Why there was no session, or none to its end.
#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error(transparent)]
    Select(#[from] SelectError),
    #[error(transparent)]
    NotListed(#[from] NotListed),
    #[error(transparent)]
    Golden(#[from] GoldenError),
    #[error(
        "compile kernels: none of the selected scenes is for {platform} and names a callable whose kernels have sources"
    )]
    NothingToCompile { platform: Platform },
    #[error("run the session")]
    Session(#[source] io::Error),
    #[error("write {what}")]
    Report { what: String, source: io::Error },
}

impl MainError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Select(error) if error.is_no_match() => exit::NO_MATCH,
            Self::NothingToCompile { .. } => exit::NO_MATCH,
            Self::Select(_) | Self::NotListed(_) | Self::Golden(_) => exit::USAGE,
            Self::Session(_) | Self::Report { .. } => exit::INTERNAL,
        }
    }
}

fn chain(error: &MainError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

fn run(sources: Option<Sources>, scenes: &[Scene], args: &Args) -> Result<u8, MainError> {
    let all = candidates(scenes)?;
    if let Some(sources) = sources {
        disk::check(sources, scenes)?;
    }
    if args.list {
        return list(&all, args).map(|()| exit::OK);
    }
    if let Some(("compile", filters)) = args.filters.split_first().map(|(f, r)| (f.as_str(), r)) {
        let mut args = args.clone();
        args.filters = filters.to_vec();
        return compile(all, &args);
    }
    let mut selected = select(all, args)?;
    mark_updates(&mut selected, &updates(args)?)?;
    check_limits(&selected, args)?;
    let mut display = Display::new(args);
    let (junit_file, trace_file) = (report_file(&args.junit)?, report_file(&args.trace)?);
    let traces = args.trace.as_ref().map(|_| tempfile::tempdir()).transpose();
    let traces = traces.map_err(MainError::Session)?;
    let traces = traces.as_ref().map(tempfile::TempDir::path);
    let session = Session::new(args, &selected, &mut display, traces);
    let session = session.map_err(MainError::Session)?;
    let report = session.run().map_err(MainError::Session)?;
    display.summary(&report).map_err(MainError::Session)?;
    if args.json {
        to_stdout("the report", serde_json::to_string_pretty(&report))?;
    }
    if let Some(file) = junit_file {
        file.write(&junit::xml(&report))?;
    }
    if let Some(file) = trace_file {
        file.write(&trace::json(&report, traces))?;
    }
    Ok(report.exit_code())
}

/// A file for a report, opened before the session: one that cannot be written is told at once, not after
/// half an hour.
struct ReportFile<'a> {
    path: &'a Path,
    file: File,
}

fn report_file(path: &Option<PathBuf>) -> Result<Option<ReportFile<'_>>, MainError> {
    let Some(path) = path else {
        return Ok(None);
    };
    match File::create(path) {
        Ok(file) => Ok(Some(ReportFile { path, file })),
        Err(source) => Err(cannot_write(path, source)),
    }
}

impl ReportFile<'_> {
    fn write(mut self, text: &str) -> Result<(), MainError> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|source| cannot_write(self.path, source))
    }
}

fn cannot_write(path: &Path, source: io::Error) -> MainError {
    let what = path.display().to_string();
    MainError::Report { what, source }
}

/// The golden files that are to be rewritten, by flag or by variable.
fn updates(args: &Args) -> Result<Updates, GoldenError> {
    let variable = |name: &str| std::env::var(name).ok();
    let updates = Updates {
        names: args.update_golden.clone(),
        all: golden::asked_by_variable(variable(golden::UPDATE).as_deref())?,
    };
    if updates.all || !updates.names.is_empty() {
        golden::refuse_on_ci(variable)?;
    }
    Ok(updates)
}

/// Compiles the kernels of what is selected, manual and long cases too.
fn compile(all: Vec<Candidate<'_>>, args: &Args) -> Result<u8, MainError> {
    let selected = select(all, args)?;
    let scenes = selected.iter().map(|selected| selected.candidate.scene);
    let scenes = scenes.filter(|scene| scene.platforms.contains(&args.platform));
    let jobs = args
        .max_parallel
        .map_or_else(compile::processors, usize::from);
    let compiled = compile::all(scenes, args.platform, jobs);
    if compiled.kernels == 0 {
        return Err(MainError::NothingToCompile {
            platform: args.platform,
        });
    }
    let _ = io::stderr().write_all(compiled.errors.as_bytes());
    let sums = format!(
        "{} kernels for {}: {} compiled, {} cached, {} failed\n",
        compiled.kernels,
        args.platform,
        compiled.new,
        compiled.kernels - compiled.new - compiled.failed,
        compiled.failed
    );
    write_stdout("the list of kernels", &(compiled.lines + &sums))?;
    Ok(if compiled.failed == 0 {
        exit::OK
    } else {
        exit::FAILED
    })
}

/// Lists what filters leave, also what would be skipped: `--ignored` lists that alone.
fn list(all: &[Candidate<'_>], args: &Args) -> Result<(), MainError> {
    let mut every = args.clone();
    every.manual = true;
    let listed: Vec<Candidate<'_>> = match select(all.to_vec(), &every) {
        Ok(selected) => selected
            .into_iter()
            .map(|selected| selected.candidate)
            .collect(),
        // A test driver asks for the ignored ones of every program, also where there are none.
        Err(SelectError::NothingLeft { .. }) if args.filters.is_empty() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    if args.json {
        let lines: Vec<serde_json::Value> = listed.iter().map(as_json).collect();
        return to_stdout("the list", serde_json::to_string_pretty(&lines));
    }
    let mut text: String = listed
        .iter()
        .map(|candidate| format!("{}: test\n", candidate.name))
        .collect();
    if args.format == Format::Pretty {
        text.push_str(&format!("\n{} tests, 0 benchmarks\n", listed.len()));
    }
    write_stdout("the list", &text)
}

fn as_json(candidate: &Candidate<'_>) -> serde_json::Value {
    let Candidate { scene, case, name } = candidate;
    serde_json::json!({
        "name": name,
        "file": scene.place.file(),
        "line": scene.place.line(),
        "level": scene.level.label(),
        "platforms": scene.platforms.iter().map(Platform::to_string).collect::<Vec<_>>(),
        "devices": case.devices,
        "manual": case.manual,
        "step": case.step,
        "params": case.params,
    })
}

fn to_stdout(what: &str, json: serde_json::Result<String>) -> Result<(), MainError> {
    let json = json.map_err(|error| MainError::Report {
        what: what.to_owned(),
        source: error.into(),
    })?;
    write_stdout(what, &(json + "\n"))
}

fn write_stdout(what: &str, text: &str) -> Result<(), MainError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|source| MainError::Report {
        what: what.to_owned(),
        source,
    })
}

/// Defines `main` of a scene program from functions that return a [`Scene`] each.
///
/// ```no_run
/// # mod vector_add { pub fn scene() -> scenetest::Scene { scenetest::Scene::new("vector_add", |_| Ok(())) } }
/// scenetest::main!(vector_add::scene);
/// ```
///
/// A scene that is there twice is an error of the program at its start. So is one that is missing from
/// the list, if the `main.rs` stands in a directory of its own, as `scenes/main.rs`: every
/// `Scene::new(` in a file there, or in a directory below it, must be in the list.
#[macro_export]
macro_rules! main {
    ($($scene:path),+ $(,)?) => {
        pub(crate) fn main() -> ::std::process::ExitCode {
            let sources = $crate::Sources {
                manifest_dir: env!("CARGO_MANIFEST_DIR"),
                main_file: file!(),
            };
            $crate::main_of(sources, &[$($scene()),+])
        }
    };
}
