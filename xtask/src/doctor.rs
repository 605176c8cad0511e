//! `cargo xtask doctor`: what this machine has, and what each missing thing costs.

mod probe;
pub(crate) mod vendor;

use std::{env, path::Path, process::Command, thread};

use crate::{
    error::{Error, Verdict},
    table,
    workspace::Workspace,
};

/// Look at this machine: kernel features, cores, compilers, vendor libraries.
///
/// For each thing that is missing, the table says what that costs. Exit code 1 only when the
/// commands of the README cannot work here.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {}

/// One thing that a machine has or lacks.
#[derive(Debug)]
pub(crate) struct Check {
    what: &'static str,
    /// What was found, or how it is missing.
    found: Result<String, String>,
    need: Need,
    /// What cannot be done without it.
    cost: &'static str,
}

/// Who needs a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Everybody: without it nothing runs.
    Everybody,
    /// Some.
    Some,
}

impl Args {
    /// Prints the table.
    pub(crate) fn run(&self, _workspace: &Workspace) -> Result<Verdict, Error> {
        let checks = checks();
        print!("{}", render(&checks));
        let lacks = |check: &&Check| check.need == Need::Everybody && check.found.is_err();
        let lacking: Vec<_> = checks
            .iter()
            .filter(lacks)
            .map(|check| check.what)
            .collect();
        match lacking.as_slice() {
            [] => println!("\nthe simulator runs here"),
            lacking => println!("\nnothing runs here without: {}", lacking.join(", ")),
        }
        Ok(Verdict::of(lacking.is_empty()))
    }
}

fn render(checks: &[Check]) -> String {
    let row = |check: &Check| match &check.found {
        Ok(found) => vec![check.what.to_owned(), "yes".to_owned(), found.clone()],
        Err(how) => vec![
            check.what.to_owned(),
            "NO".to_owned(),
            format!("{how}; costs: {}", check.cost),
        ],
    };
    let rows: Vec<_> = checks.iter().map(row).collect();
    table::render(
        &["what", "found", "which, or what its absence costs"],
        &[],
        &rows,
    )
}

fn checks() -> Vec<Check> {
    let mut checks = machine();
    checks.extend(kernel_features());
    checks.extend(observation());
    checks.extend(tools());
    checks.extend(vendor_parts());
    checks
}

fn needed(what: &'static str, found: Result<String, String>, cost: &'static str) -> Check {
    Check {
        what,
        found,
        need: Need::Everybody,
        cost,
    }
}

fn useful(what: &'static str, found: Result<String, String>, cost: &'static str) -> Check {
    Check {
        what,
        found,
        need: Need::Some,
        cost,
    }
}

fn machine() -> Vec<Check> {
    let system = format!("{} {}", env::consts::OS, env::consts::ARCH);
    let known = ["linux x86_64", "linux aarch64"].contains(&&*system);
    vec![
        needed(
            "Linux on x86-64 or aarch64",
            if known {
                Ok(format!("{system}, kernel {}", release()))
            } else {
                Err(system)
            },
            "processes and mailboxes; lifecycle, provenance and taskgraph work anywhere",
        ),
        useful(
            "two cores or more",
            cores(),
            "a parent and a child take turns: a round trip costs two wake-ups of the kernel, not a spin",
        ),
    ]
}

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn cores() -> Result<String, String> {
    match thread::available_parallelism() {
        Ok(cores) if cores.get() > 1 => Ok(format!("{cores} cores")),
        Ok(_) => Err("1 core".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn kernel_features() -> Vec<Check> {
    vec![
        needed(
            "memfd_create",
            probe::memfd(),
            "shared memory without a name: mailboxes and tensors",
        ),
        needed(
            "pidfd_open",
            probe::pidfd(),
            "waiting for and signalling a child without mistaking its pid",
        ),
        needed("futex", probe::futex(), "sleeping until a mailbox rings"),
        useful(
            "futex_waitv",
            probe::futex_waitv(),
            "sleeping on several words at once; one doorbell for all children is used instead",
        ),
        useful(
            "/proc/PID/task/TID/children",
            exists(&format!("/proc/{0}/task/{0}/children", std::process::id())),
            "finding descendants takes a walk over all processes; `ci` cannot find what a step left behind",
        ),
    ]
}

fn observation() -> Vec<Check> {
    vec![
        useful(
            "reading a child's stack (ptrace)",
            probe::ptrace_scope(),
            "hang dumps are written by a handler in the stuck process, if it still can",
        ),
        useful(
            "user namespaces",
            probe::user_namespace(),
            "tests that need privileges of their own namespace are skipped",
        ),
    ]
}

fn tools() -> Vec<Check> {
    let compiler = |variable: &str, default: &str| {
        let program = env::var(variable).unwrap_or_else(|_| default.to_owned());
        version(&program, &["--version"])
    };
    vec![
        useful(
            "C compiler",
            compiler("CC", "cc"),
            "kernels in C are not compiled for the simulator; Rust kernels are",
        ),
        useful(
            "C++ compiler",
            compiler("CXX", "c++"),
            "the same for kernels in C++",
        ),
        useful(
            "git",
            version("git", &["--version"]),
            "`ci --changed-since` runs everything",
        ),
        useful(
            "rustfmt",
            version("cargo", &["fmt", "--version"]),
            "`ci` skips its step",
        ),
        useful(
            "clippy",
            version("cargo", &["clippy", "--version"]),
            "`ci` skips its step",
        ),
        useful(
            "nightly compiler",
            version("rustc", &["+nightly", "--version"]),
            "`fuzz` runs nothing",
        ),
    ]
}

fn vendor_parts() -> Vec<Check> {
    vec![
        useful(
            "ASCEND_HOME_PATH",
            vendor::home().map(|home| home.display().to_string()),
            vendor::COST,
        ),
        useful(
            "libascendcl.so",
            vendor::library("libascendcl.so"),
            vendor::COST,
        ),
        useful(
            "ccec",
            vendor::compiler(),
            "kernels are not compiled for a2a3 and a5",
        ),
    ]
}

fn exists(path: &str) -> Result<String, String> {
    if Path::new(path).exists() {
        Ok(String::new())
    } else {
        Err("the kernel has it not".to_owned())
    }
}

/// The first line that a program prints about its version.
fn version(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("`{program}` cannot be started ({error})"))?;
    if !output.status.success() {
        return Err(format!("`{program} {}` fails", args.join(" ")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests;
