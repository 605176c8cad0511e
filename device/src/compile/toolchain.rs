//! Which compiler makes kernels for a platform, and with which arguments.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::compile::elf;
use crate::compile::error::CompileError;
use crate::compile::paths::{Variables, find_program};
use crate::kernel::CoreType;
use crate::platform::{Arch, Platform};

/// A compiler that was found, with what tells it from another version.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    platform: Platform,
    program: PathBuf,
    identity: Vec<u8>,
}

/// One kernel, ready to be compiled.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) kernel: String,
    pub(crate) core: CoreType,
    pub(crate) sources: Vec<PathBuf>,
    pub(crate) defines: Vec<String>,
    pub(crate) include_dirs: Vec<PathBuf>,
}

impl Job {
    /// Whether any source is C++, by its extension.
    pub(crate) fn is_cpp(&self) -> bool {
        let cpp = ["cpp", "cc", "cxx"];
        let extension =
            |path: &PathBuf| path.extension().map(|it| it.to_string_lossy().into_owned());
        self.sources
            .iter()
            .filter_map(extension)
            .any(|it| cpp.contains(&it.as_str()))
    }
}

impl Toolchain {
    /// Finds the compiler for a job: the one that is given, else the platform's own.
    pub(crate) fn find(
        platform: Platform,
        job: &Job,
        given: Option<&Path>,
        variables: &Variables,
    ) -> Result<Self, CompileError> {
        let program = match given {
            Some(program) => program.to_owned(),
            None => search(platform, job, variables)?,
        };
        let mut version = Command::new(&program);
        version.arg("--version");
        let output = run(job, &mut version)?;
        let mut identity = program.as_os_str().as_encoded_bytes().to_vec();
        identity.extend(output.stdout);
        Ok(Self {
            platform,
            program,
            identity,
        })
    }

    /// What tells this compiler from another one.
    pub(crate) fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// The extension of what it makes.
    pub(crate) fn extension(&self) -> &'static str {
        if self.platform.is_simulated() {
            "so"
        } else {
            "o"
        }
    }

    /// Whether a file can be what this compiler made. Objects for the cores are not judged: their loader
    /// is the vendor's.
    pub(crate) fn made(&self, path: &Path) -> bool {
        !self.platform.is_simulated() || elf::is_whole(path)
    }

    /// Everything that decides what comes out, apart from the files themselves.
    pub(crate) fn flags(&self, job: &Job) -> Vec<OsString> {
        let mut flags: Vec<OsString> = match self.platform {
            Platform::Sim(_) => host_flags(job),
            Platform::A2a3 | Platform::A5 => core_flags(self.platform.arch(), job.core),
        };
        flags.push(format!("-DDEVICE_CORE_{}", job.core).into());
        flags.extend(
            job.defines
                .iter()
                .map(|define| format!("-D{define}").into()),
        );
        for dir in &job.include_dirs {
            flags.extend(["-I".into(), dir.clone().into_os_string()]);
        }
        flags
    }

    /// Everything that the sources include, as one text.
    pub(crate) fn preprocess(&self, job: &Job) -> Result<Vec<u8>, CompileError> {
        let mut command = Command::new(&self.program);
        command.args(self.flags(job)).arg("-E").args(&job.sources);
        Ok(self.checked(job, &mut command)?.stdout)
    }

    /// Compiles the job into `to`.
    pub(crate) fn compile(&self, job: &Job, to: &Path) -> Result<(), CompileError> {
        let mut command = Command::new(&self.program);
        command.args(self.flags(job));
        command.arg(if self.platform.is_simulated() {
            "-shared"
        } else {
            "-c"
        });
        command.arg("-o").arg(to).args(&job.sources);
        self.checked(job, &mut command).map(drop)
    }

    fn checked(&self, job: &Job, command: &mut Command) -> Result<Output, CompileError> {
        let output = run(job, command)?;
        if output.status.success() {
            return Ok(output);
        }
        Err(CompileError::Refused {
            kernel: job.kernel.clone(),
            command: shown(command),
            status: output.status,
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

fn run(job: &Job, command: &mut Command) -> Result<Output, CompileError> {
    // A kernel that names its `__TIME__` would be another one at every look; with a fixed time of
    // day, as reproducible builds have it, it is found again.
    if std::env::var_os(SOURCE_TIME).is_none() {
        command.env(SOURCE_TIME, "0");
    }
    // The text of errors is read by people and compared by tests: not translated.
    let output = command.env("LC_ALL", "C").output();
    output.map_err(|source| CompileError::Start {
        kernel: job.kernel.clone(),
        command: shown(command),
        source,
    })
}

/// The command as it can be typed again.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = |word: &std::ffi::OsStr| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+:,@".contains(c);
        if word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{word}'")
        }
    };
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// A shared library for the host, with line tables so that a dump of a stuck kernel has lines.
fn host_flags(job: &Job) -> Vec<OsString> {
    let standard = if job.is_cpp() {
        "-std=c++17"
    } else {
        "-std=c11"
    };
    ["-O2", "-g1", "-fPIC", "-Wall", standard]
        .map(OsString::from)
        .to_vec()
}

/// An object for one core of a chip.
fn core_flags(arch: Arch, core: CoreType) -> Vec<OsString> {
    let family = match arch {
        Arch::A2a3 => "dav-c220",
        Arch::A5 => "dav-c310",
    };
    let unit = match core {
        CoreType::Aic => "-cube",
        CoreType::Aiv => "-vec",
        CoreType::Mix => "",
    };
    let flags = [
        "-O3",
        "-x",
        "cce",
        "-std=c++17",
        "--cce-aicore-only",
        "-DDEVICE_ON_CHIP",
    ];
    let mut flags = flags.map(OsString::from).to_vec();
    flags.push(format!("--cce-aicore-arch={family}{unit}").into());
    flags
}

/// The platform's compiler: `$CC` or `$CXX`, `cc` or `c++` on the search path; `ccec` of the
/// vendor's kit.
fn search(platform: Platform, job: &Job, variables: &Variables) -> Result<PathBuf, CompileError> {
    let mut kit = Vec::new();
    let (name, advice) = match platform {
        Platform::Sim(_) if job.is_cpp() => (compiler_name("CXX", "c++"), HOST_ADVICE),
        Platform::Sim(_) => (compiler_name("CC", "cc"), HOST_ADVICE),
        Platform::A2a3 | Platform::A5 => {
            if let Ok(home) = variables.resolve(&job.kernel, "$ASCEND_HOME_PATH") {
                kit.extend(["bin", "compiler/ccec_compiler/bin"].map(|dir| home.join(dir)));
            }
            ("ccec".to_owned(), CHIP_ADVICE)
        }
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = kit
        .iter()
        .cloned()
        .chain(std::env::split_paths(&path))
        .collect();
    find_program(&name, &dirs).ok_or(CompileError::NoCompiler {
        kernel: job.kernel.clone(),
        platform,
        compiler: name,
        searched: kit,
        advice,
    })
}

/// What compilers take for the present time, in seconds since 1970.
const SOURCE_TIME: &str = "SOURCE_DATE_EPOCH";

const HOST_ADVICE: &str = "install a C/C++ compiler, or set CC and CXX";
const CHIP_ADVICE: &str =
    "set ASCEND_HOME_PATH to the CANN installation, or use the simulator (sim, a5sim)";

fn compiler_name(variable: &str, default: &str) -> String {
    let set = std::env::var(variable).ok().filter(|name| !name.is_empty());
    set.unwrap_or_else(|| default.to_owned())
}
