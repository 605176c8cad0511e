//! Kernels from sources: compiled before a body runs, or all at once to warm the cache.

use std::fmt::Write as _;

use facade::{ChipCallable, CompileError, CompileOptions, KernelCompiler, Origin, Platform};

use crate::failure::Failure;
use crate::scene::Scene;

/// Compiles what a scene needs, several kernels at a time. The threads are gone when it returns.
pub(crate) fn for_run(scene: &Scene, platform: Platform) -> Result<(), CompileError> {
    if scene.callables.is_empty() {
        return Ok(());
    }
    let compiler = KernelCompiler::new(platform, &CompileOptions::default());
    let compiled = compiler.compile_all(&scene.callables, processors());
    compiled
        .into_iter()
        .try_for_each(|(_, compiled)| compiled.map(drop))
}

pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What compiling everything came to.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    /// A line for each kernel.
    pub(crate) lines: String,
    /// The refusals, whole.
    pub(crate) errors: String,
    pub(crate) kernels: usize,
    pub(crate) new: usize,
    pub(crate) failed: usize,
}

/// Compiles the kernels of these scenes for a platform, up to `jobs` at a time. Touches no device.
pub(crate) fn all<'s>(
    scenes: impl IntoIterator<Item = &'s Scene>,
    platform: Platform,
    jobs: usize,
) -> Compiled {
    let compiler = KernelCompiler::new(platform, &CompileOptions::default());
    let mut callables: Vec<&'static ChipCallable> = Vec::new();
    for callable in scenes.into_iter().flat_map(|scene| &scene.callables) {
        if !callables
            .iter()
            .any(|known| std::ptr::eq(*known, *callable))
        {
            callables.push(callable);
        }
    }
    let mut all = Compiled::default();
    for (kernel, compiled) in compiler.compile_all(&callables, jobs) {
        all.kernels += 1;
        let state = match compiled {
            Ok(artefact) if artefact.origin == Origin::Compiled => {
                all.new += 1;
                format!("compiled {:#}", artefact.digest)
            }
            Ok(artefact) => format!("cached   {:#}", artefact.digest),
            Err(error) => {
                all.failed += 1;
                let _ = writeln!(all.errors, "error: {}", Failure::from(error));
                "failed".to_owned()
            }
        };
        let _ = writeln!(all.lines, "{:<24} {state}", kernel.name);
    }
    all
}
