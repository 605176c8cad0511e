//! Making a callable in a process that was not forked with it: one that was started again, or that runs already.
//!
//! Such a process is the same program file, mapped elsewhere: every function has the same *distance* from every other as in
//! its parent. So a function crosses as its distance from a fixed function of this crate. A chip callable crosses as its
//! parts, texts and distances; a host function or an orchestration as a function that makes it, which can be had where it
//! captured nothing. A closure that captured something lives on its parent's heap; only a fork copies that.
//!
//! # Safety
//!
//! A distance is turned back into an address only in [`Maker::body`], from bytes that the parent wrote: into the memory file
//! that procfork started this very program with, or into a control frame. The address is checked to lie in the program; that
//! it is the right one rests on the parent, which is this program too (`/proc/self/exe`), and which could make this process
//! run anything in any case. Both sides run one program file, so the address
//! is that of the same function.
#![expect(
    unsafe_code,
    reason = "addresses of functions; see the module's safety section"
)]

use std::sync::Arc;

use device::{ChipCallable, CoreType, Kernel, KernelBody, KernelSource};
use serde::{Deserialize, Serialize};

use crate::args::Args;
use crate::callable::{Body, HostFunction, NodeFunction, TaskResult};
use crate::error::Error;
use crate::orchestrator::Orchestrator;

/// How a callable is made in another process of this program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Maker {
    /// From its parts.
    Chip(ChipParts),
    /// A function of the program that makes the host function.
    Function(u64),
    /// A function of the program that makes the orchestration.
    Orchestration(u64),
}

/// A chip callable, its functions as distances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChipParts {
    name: String,
    orchestration: u64,
    kernels: Vec<KernelParts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KernelParts {
    name: String,
    core: Core,
    body: BodyParts,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum BodyParts {
    Rust(u64),
    Source {
        sources: Vec<String>,
        defines: Vec<String>,
        extra_include_dirs: Vec<Vec<String>>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Core {
    Aic,
    Aiv,
    Mix,
}

type MakeFunction = fn() -> Arc<HostFunction>;
type MakeOrchestration = fn() -> Arc<NodeFunction>;

impl Maker {
    /// For a chip callable whose functions are the program's own; none where one is in a library.
    pub(crate) fn of_chip(callable: &'static ChipCallable) -> Option<Self> {
        let kernels: Option<_> = callable.kernels.iter().map(KernelParts::of).collect();
        Some(Maker::Chip(ChipParts {
            name: callable.name.to_owned(),
            orchestration: distance(callable.orchestration as *const ())?,
            kernels: kernels?,
        }))
    }

    /// For a host function that captured nothing.
    pub(crate) fn of_function<F>(_function: &F) -> Option<Self>
    where
        F: Fn(&Args) -> TaskResult + Send + Sync + 'static,
    {
        let make: MakeFunction = || Arc::new(conjured::<F>());
        captures_nothing::<F>().then(|| distance(make as *const ()).map(Maker::Function))?
    }

    /// For an orchestration that captured nothing.
    pub(crate) fn of_orchestration<F>(_orchestration: &F) -> Option<Self>
    where
        F: Fn(&mut Orchestrator<'_>, &Args) -> Result<(), Error> + Send + Sync + 'static,
    {
        let make: MakeOrchestration = || Arc::new(conjured::<F>());
        captures_nothing::<F>().then(|| distance(make as *const ()).map(Maker::Orchestration))?
    }

    /// The callable, in a child of the process that this was made by. See the module's safety section.
    ///
    /// A chip callable lasts as long as the process: kernels and slots refer to it.
    ///
    /// None where a function would lie outside of this program: whoever wrote the distance is not it.
    pub(crate) fn body(&self) -> Option<Body> {
        Some(match *self {
            Maker::Chip(ref parts) => Body::Chip(Box::leak(Box::new(parts.callable()?))),
            Maker::Function(distance) => {
                // SAFETY: the parent took the distance of a function of this type in this program.
                let make =
                    unsafe { std::mem::transmute::<*const (), MakeFunction>(address(distance)?) };
                Body::Function(make())
            }
            Maker::Orchestration(distance) => {
                // SAFETY: as for a function.
                let make = unsafe {
                    std::mem::transmute::<*const (), MakeOrchestration>(address(distance)?)
                };
                Body::Orchestration(make())
            }
        })
    }
}

impl ChipParts {
    fn callable(&self) -> Option<ChipCallable> {
        let kernels: Option<Vec<Kernel>> = self.kernels.iter().map(KernelParts::kernel).collect();
        let kernels = kernels?;
        let orchestration = address(self.orchestration)?;
        Some(ChipCallable {
            name: leak(&self.name),
            // SAFETY: the parent took the distance of a function of this type in this program.
            orchestration: unsafe {
                std::mem::transmute::<*const (), device::Orchestration>(orchestration)
            },
            kernels: Vec::leak(kernels),
        })
    }
}

impl KernelParts {
    fn of(kernel: &Kernel) -> Option<Self> {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let body = match kernel.body {
            KernelBody::Rust(function) => BodyParts::Rust(distance(function as *const ())?),
            KernelBody::Source(source) => BodyParts::Source {
                sources: texts(source.sources),
                defines: texts(source.defines),
                extra_include_dirs: source
                    .extra_include_dirs
                    .iter()
                    .map(|dirs| texts(dirs))
                    .collect(),
            },
        };
        let core = match kernel.core {
            CoreType::Aic => Core::Aic,
            CoreType::Aiv => Core::Aiv,
            CoreType::Mix => Core::Mix,
        };
        Some(Self {
            name: kernel.name.to_owned(),
            core,
            body,
        })
    }

    fn kernel(&self) -> Option<Kernel> {
        let body = match &self.body {
            BodyParts::Rust(distance) => {
                let function = address(*distance)?;
                // SAFETY: the parent took the distance of a function of this type in this program.
                KernelBody::Rust(unsafe {
                    std::mem::transmute::<*const (), device::KernelFn>(function)
                })
            }
            BodyParts::Source {
                sources,
                defines,
                extra_include_dirs,
            } => KernelBody::Source(KernelSource {
                sources: leak_all(sources),
                defines: leak_all(defines),
                extra_include_dirs: Vec::leak(
                    extra_include_dirs
                        .iter()
                        .map(|dirs| leak_all(dirs))
                        .collect(),
                ),
            }),
        };
        Some(Kernel {
            name: leak(&self.name),
            core: match self.core {
                Core::Aic => CoreType::Aic,
                Core::Aiv => CoreType::Aiv,
                Core::Mix => CoreType::Mix,
            },
            body,
        })
    }
}

fn leak(text: &str) -> &'static str {
    String::leak(text.to_owned())
}

fn leak_all(texts: &[String]) -> &'static [&'static str] {
    Vec::leak(texts.iter().map(|text| leak(text)).collect())
}

/// Whether a value of this type has no bytes and nothing to drop: then one is like another.
fn captures_nothing<F>() -> bool {
    size_of::<F>() == 0 && !std::mem::needs_drop::<F>()
}

/// A value of a type that captured nothing. A fork would have copied the parent's; there are no bytes to copy.
fn conjured<F>() -> F {
    assert!(
        captures_nothing::<F>(),
        "only types without bytes are made from nothing"
    );
    // SAFETY: `F` has no bytes and no destructor, and the parent holds a value of it, so it is inhabited.
    unsafe { std::mem::MaybeUninit::<F>::zeroed().assume_init() }
}

/// The fixed point of all distances.
fn anchor() {}

fn distance(address: *const ()) -> Option<u64> {
    let anchor = anchor as *const ();
    let both = procfork::lies_in_program(address) && procfork::lies_in_program(anchor);
    both.then(|| address.addr().wrapping_sub(anchor.addr()) as u64)
}

fn address(distance: u64) -> Option<*const ()> {
    let anchor = anchor as *const ();
    let address = anchor.wrapping_byte_add(distance as usize);
    procfork::lies_in_program(address).then_some(address)
}

#[cfg(test)]
mod tests;
