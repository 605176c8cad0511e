//! The kernel compiler: from C and C++ sources to something a chip can load, cached by content.
//!
//! ```text
//!   kernel -> paths resolved -> preprocessed -> digest -> in the cache? -> path of the artefact
//!             ($VAR, groups)    (all includes)   ^         no: compile into a private file
//!                                                |         the digest again: equal? rename it into place
//!                                                +-------- another: somebody edited meanwhile
//! ```
//!
//! The digest is taken of everything that decides what comes out: the sources with all that they
//! include, the flags, and the compiler's path and version. So a changed header is found, a moved
//! one too, and a stale kernel is never used. The compiler reads the files after the preprocessor did:
//! what was edited in between would be published under the digest of the text before, so the digest
//! is taken again. A warm look-up costs one run of the preprocessor, a compilation one more. An entry
//! that is damaged is compiled again.
//!
//! For the simulator the system compiler makes a shared library whose functions are called on the
//! host; for a2a3 and a5 `ccec` makes an object for the cores. Both see `device_kernel.h`, which
//! says what a kernel is given.

mod cache;
mod elf;
mod error;
mod paths;
mod toolchain;

use std::path::PathBuf;

pub use error::CompileError;
pub(crate) use error::List;
pub(crate) use paths::Variables;

use crate::callable::{ChipCallable, Digest};
use crate::kernel::{Kernel, KernelBody, KernelSource};
use crate::parallel;
use crate::platform::Platform;
use cache::Cache;
use toolchain::{Job, Toolchain};

/// How often a kernel is compiled whose sources change meanwhile.
const COMPILATIONS_MAX: u32 = 3;

/// How to compile kernels. Start from the default.
#[derive(Clone, Debug, Default)]
pub struct CompileOptions {
    /// Where compiled kernels are kept; `$DEVICE_KERNEL_CACHE` or the user's cache directory unless
    /// said.
    pub cache_dir: Option<PathBuf>,
    /// The compiler; found by platform unless said.
    pub compiler: Option<PathBuf>,
    /// Variables that paths may name, looked up before the environment.
    pub variables: Vec<(String, PathBuf)>,
}

/// A compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artefact {
    /// The shared library (simulator) or object (a2a3, a5).
    pub path: PathBuf,
    /// What it was made of.
    pub digest: Digest,
    /// Whether it was there already.
    pub origin: Origin,
}

/// Where an artefact came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From the cache.
    Cached,
    /// Compiled by this call.
    Compiled,
}

/// Compiles kernels for one platform. Touches no device.
#[derive(Debug)]
pub struct KernelCompiler {
    platform: Platform,
    compiler: Option<PathBuf>,
    variables: Variables,
    cache: Cache,
}

impl KernelCompiler {
    /// A compiler for a platform. Looks for nothing yet.
    #[must_use]
    pub fn new(platform: Platform, options: &CompileOptions) -> Self {
        let CompileOptions {
            cache_dir,
            compiler,
            variables,
        } = options.clone();
        let cache = Cache::new(cache_dir.unwrap_or_else(Cache::default_dir));
        Self {
            platform,
            compiler,
            variables: Variables(variables),
            cache,
        }
    }

    /// Compiles a kernel, or finds it in the cache.
    ///
    /// # Errors
    /// [`CompileError`], which names the kernel, and the command with all of the compiler's output
    /// if it refused.
    pub fn compile(&self, kernel: &Kernel) -> Result<Artefact, CompileError> {
        let KernelBody::Source(source) = &kernel.body else {
            return Err(CompileError::NotSource {
                kernel: kernel.name.to_owned(),
            });
        };
        let job = self.job(kernel, source)?;
        let compiler = self.compiler.as_deref();
        let toolchain = Toolchain::find(self.platform, &job, compiler, &self.variables)?;
        self.compile_stable(&toolchain, &job)
    }

    /// Compiles sources that are the same before and after.
    fn compile_stable(&self, toolchain: &Toolchain, job: &Job) -> Result<Artefact, CompileError> {
        let (platform, extension) = (self.platform, toolchain.extension());
        let mut digest = digest_of(toolchain, job)?;
        for _ in 0..COMPILATIONS_MAX {
            let found = self.cache.find(digest, extension);
            if let Some(path) = found.filter(|path| toolchain.made(path)) {
                let origin = Origin::Cached;
                return Ok(Artefact {
                    path,
                    digest,
                    origin,
                });
            }
            let staged = self.cache.stage(extension)?;
            toolchain.compile(job, &staged)?;
            let after = digest_of(toolchain, job)?;
            if after == digest {
                let path = self.cache.publish(staged, digest, extension)?;
                tracing::info!(kernel = job.kernel, %platform, "compiled a kernel");
                let origin = Origin::Compiled;
                return Ok(Artefact {
                    path,
                    digest,
                    origin,
                });
            }
            tracing::info!(kernel = job.kernel, %platform, "the sources changed meanwhile");
            digest = after;
        }
        Err(CompileError::Changing {
            kernel: job.kernel.clone(),
            compilations: COMPILATIONS_MAX,
        })
    }

    /// Compiles every kernel with sources of these callables, up to `jobs` at a time, and reports
    /// on each in order.
    ///
    /// This is what warms the cache for a platform that need not be present.
    pub fn compile_all(
        &self,
        callables: &[&'static ChipCallable],
        jobs: usize,
    ) -> Vec<(&'static Kernel, Result<Artefact, CompileError>)> {
        let is_source = |kernel: &&Kernel| matches!(kernel.body, KernelBody::Source(_));
        let kernels: Vec<&'static Kernel> = callables
            .iter()
            .flat_map(|callable| callable.kernels)
            .filter(is_source)
            .collect();
        parallel::map(jobs, kernels.len(), |idx| {
            (kernels[idx], self.compile(kernels[idx]))
        })
    }

    /// The kernel with its paths resolved.
    fn job(&self, kernel: &Kernel, source: &KernelSource) -> Result<Job, CompileError> {
        let name = kernel.name;
        let mut include_dirs =
            paths::include_dirs(name, source.extra_include_dirs, &self.variables)?;
        include_dirs.push(self.cache.header_dir()?);
        Ok(Job {
            kernel: name.to_owned(),
            core: kernel.core,
            sources: paths::sources(name, source.sources, &self.variables)?,
            defines: source
                .defines
                .iter()
                .map(|define| (*define).to_owned())
                .collect(),
            include_dirs,
        })
    }
}

/// The name of what comes out.
fn digest_of(toolchain: &Toolchain, job: &Job) -> Result<Digest, CompileError> {
    let mut content = Vec::new();
    let mut add = |bytes: &[u8]| {
        content.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        content.extend_from_slice(bytes);
    };
    add(toolchain.identity());
    for flag in toolchain.flags(job) {
        add(flag.as_encoded_bytes());
    }
    add(&toolchain.preprocess(job)?);
    Ok(Digest::of(&content))
}
