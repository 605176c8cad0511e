//! Kernels: what runs on a core. A Rust function, or C/C++ sources that are compiled per platform.

use std::fmt;

use crate::context::KernelContext;
use crate::error::KernelError;

/// The body of a kernel written in Rust; runs on a simulated core.
pub type KernelFn = fn(&mut KernelContext<'_>) -> Result<(), KernelError>;

/// Which cores a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CoreType {
    /// One matrix core.
    Aic,
    /// One vector core.
    Aiv,
    /// One matrix core with its two vector cores, together.
    Mix,
}

impl CoreType {
    /// `AIC`, `AIV` or `MIX`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CoreType::Aic => "AIC",
            CoreType::Aiv => "AIV",
            CoreType::Mix => "MIX",
        }
    }
}

impl fmt::Display for CoreType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which core of its block a kernel runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    // The numbers are those of `device_lane` in C.
    /// The matrix core.
    Aic = 0,
    /// A vector core; of the two of a MIX kernel, the first.
    Aiv0 = 1,
    /// The second vector core of a MIX kernel.
    Aiv1 = 2,
}

impl Lane {
    /// The cores of a MIX block.
    pub const MIX: [Lane; 3] = [Lane::Aic, Lane::Aiv0, Lane::Aiv1];

    /// The core of a kernel that needs only one.
    pub(crate) const fn single(core: CoreType) -> Lane {
        match core {
            CoreType::Aic | CoreType::Mix => Lane::Aic,
            CoreType::Aiv => Lane::Aiv0,
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lane::Aic => "AIC",
            Lane::Aiv0 => "AIV 0",
            Lane::Aiv1 => "AIV 1",
        })
    }
}

/// A named kernel, constant.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its name within the callable.
    pub name: &'static str,
    /// The cores it needs.
    pub core: CoreType,
    /// What it does.
    pub body: KernelBody,
}

impl Kernel {
    /// A Rust kernel for a vector core.
    #[must_use]
    pub const fn vector(name: &'static str, body: KernelFn) -> Self {
        Self {
            name,
            core: CoreType::Aiv,
            body: KernelBody::Rust(body),
        }
    }

    /// A Rust kernel for a matrix core.
    #[must_use]
    pub const fn matrix(name: &'static str, body: KernelFn) -> Self {
        Self {
            name,
            core: CoreType::Aic,
            body: KernelBody::Rust(body),
        }
    }

    /// A Rust kernel for one matrix core with its two vector cores: all three run the body at once
    /// and tell themselves apart by [`KernelContext::lane`].
    #[must_use]
    pub const fn mix(name: &'static str, body: KernelFn) -> Self {
        Self {
            name,
            core: CoreType::Mix,
            body: KernelBody::Rust(body),
        }
    }
}

/// How a kernel is written.
#[derive(Clone, Copy, Debug)]
pub enum KernelBody {
    /// A function of this program; the simulator only.
    Rust(KernelFn),
    /// C or C++ sources, compiled when the callable is registered.
    Source(KernelSource),
}

/// C/C++ sources of one kernel. Paths and variables are resolved when the kernel is compiled, not
/// before, so that a program that only lists its kernels needs no compiler and no vendor kit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelSource {
    /// Source files: absolute, or `$VAR/...` with a variable of the environment.
    pub sources: &'static [&'static str],
    /// Preprocessor definitions, `NAME` or `NAME=VALUE`.
    pub defines: &'static [&'static str],
    /// Groups of alternative directories (`$VAR` allowed). Of each group all that exist are used; a
    /// group of which none exists is an error.
    pub extra_include_dirs: &'static [&'static [&'static str]],
}
