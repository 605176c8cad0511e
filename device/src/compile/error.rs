//! Why a kernel could not be compiled.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::platform::Platform;

/// A failure of the kernel compiler, always for one named kernel.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A path names a variable that is not set.
    #[error("resolve `{path}` for kernel `{kernel}`: the variable {variable} is not set")]
    Variable {
        /// The kernel.
        kernel: String,
        /// The path as written.
        path: String,
        /// The variable.
        variable: String,
    },
    /// Of a group of alternative include directories none exists.
    #[error(
        "find an include directory for kernel `{kernel}`: none of {} exists",
        List(alternatives)
    )]
    NoDirectory {
        /// The kernel.
        kernel: String,
        /// What was looked for, with variables resolved.
        alternatives: Vec<PathBuf>,
    },
    /// A source file is not there.
    #[error("read source {path} of kernel `{kernel}`: no such file", path = path.display())]
    NoSource {
        /// The kernel.
        kernel: String,
        /// The file, with variables resolved.
        path: PathBuf,
    },
    /// The compiler of the platform is not installed.
    #[error(
        "compile kernel `{kernel}` for {platform}: there is no `{compiler}` {}on PATH; {advice}",
        InKit(searched)
    )]
    NoCompiler {
        /// The kernel.
        kernel: String,
        /// The platform.
        platform: Platform,
        /// Name of the compiler.
        compiler: String,
        /// The directories of the vendor's kit that were looked into before the search path.
        searched: Vec<PathBuf>,
        /// What to do.
        advice: &'static str,
    },
    /// The compiler refused the sources.
    #[error("compile kernel `{kernel}`: {status}\n  {command}\n{output}")]
    Refused {
        /// The kernel.
        kernel: String,
        /// The command, as it can be typed again.
        command: String,
        /// How the compiler ended.
        status: std::process::ExitStatus,
        /// All that it wrote.
        output: String,
    },
    /// The sources were never the same before and after a compilation.
    #[error(
        "compile kernel `{kernel}`: its sources changed during each of {compilations} compilations; \
         stop what writes them, and use no __TIME__"
    )]
    Changing {
        /// The kernel.
        kernel: String,
        /// How often it was compiled.
        compilations: u32,
    },
    /// The compiler could not be started.
    #[error("start `{command}` for kernel `{kernel}`")]
    Start {
        /// The kernel.
        kernel: String,
        /// The command.
        command: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel cache could not be used.
    #[error("{operation} {path} in the kernel cache", path = path.display())]
    Cache {
        /// What was attempted.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel has nothing to compile.
    #[error("compile kernel `{kernel}`: it is a Rust function")]
    NotSource {
        /// The kernel.
        kernel: String,
    },
}

/// The directories before the search path, as the beginning of a clause.
struct InKit<'a>(&'a [PathBuf]);

impl fmt::Display for InKit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, "in {}, nor ", List(self.0))
        }
    }
}

/// Paths, separated by commas.
pub(crate) struct List<'a>(pub(crate) &'a [PathBuf]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, path) in self.0.iter().enumerate() {
            write!(f, "{}{}", if idx == 0 { "" } else { ", " }, path.display())?;
        }
        Ok(())
    }
}
