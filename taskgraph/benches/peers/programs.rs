//! The comparison programs: how each is built, and how it is asked.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Another task system.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    source: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    /// What `pkg-config` knows it as, when it does.
    package: Option<&'static str>,
    /// How to get it.
    pub(crate) install: &'static str,
    pub(crate) n_tasks: u64,
    /// Whether a graph is built before it runs.
    pub(crate) builds_first: bool,
}

pub(crate) const PEERS: [Peer; 3] = [
    Peer {
        name: "libgomp",
        source: "libgomp.c",
        compiler: "cc",
        flags: &["-fopenmp"],
        package: None,
        install: "a C compiler with OpenMP, such as the package gcc",
        n_tasks: 20_000,
        builds_first: false,
    },
    Peer {
        name: "starpu",
        source: "starpu.c",
        compiler: "cc",
        flags: &[],
        package: Some("starpu-1.3"),
        install: "the packages libstarpu-dev and pkg-config",
        n_tasks: 20_000,
        builds_first: false,
    },
    Peer {
        name: "taskflow",
        source: "taskflow.cpp",
        compiler: "c++",
        flags: &["-std=c++20", "-pthread"],
        package: None,
        install: "its headers, and their folder in TASKFLOW_INCLUDE",
        n_tasks: 50_000,
        builds_first: true,
    },
];

impl Peer {
    /// Compiles the program; its path.
    ///
    /// # Errors
    /// What the compiler or `pkg-config` said.
    pub(crate) fn build(&self) -> Result<PathBuf, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("benches/peers")
            .join(self.source);
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("peer-{}", self.name));
        let mut compile = Command::new(self.compiler);
        compile
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(source)
            .args(self.flags);
        if let Some(folder) = env::var_os("TASKFLOW_INCLUDE") {
            compile.arg("-I").arg(folder);
        }
        if let Some(package) = self.package {
            let flags = output(Command::new("pkg-config").args(["--cflags", "--libs", package]))?;
            compile.args(flags.split_whitespace());
        }
        output(&mut compile).map(|_| program)
    }
}

/// Runs a program once; nanoseconds per task.
///
/// # Panics
/// When a program that was just built does not give a figure.
pub(crate) fn ask(program: &Path, shape: &str, n_tasks: u64) -> f64 {
    let mut command = Command::new(program);
    command.arg(shape).arg(n_tasks.to_string());
    // StarPU keeps what it learns of the machine in a folder, and says on its error stream that it does.
    command
        .env("STARPU_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("STARPU_SILENT", "1");
    let text = output(&mut command).unwrap_or_else(|why| panic!("{why}"));
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("{} printed `{text}`, no figure", program.display()))
}

/// What a command printed; what is wrong with it when it failed.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let ran = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {program}: {error}"))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    Err(format!(
        "{program} failed ({}):\n{}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    ))
}
