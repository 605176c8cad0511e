//! Finding a callable again in a program that was started again.
//!
//! A spawned child is the same program file, mapped elsewhere: every function and static has the same *distance* from
//! every other as in its parent. So a callable crosses as the distance of its static, or of a function that makes it,
//! from a fixed function of this crate. What can be found so: statics of the program, and functions that captured
//! nothing. A closure that captured something lives on its parent's heap; only a fork copies that.
//!
//! # Safety
//!
//! A distance is turned back into an address only in [`Maker::body`], from bytes that the parent wrote into the memory
//! file that procfork started this very program with. Both sides run one program file (`/proc/self/exe`), so the address
//! is that of the same function or static.
#![expect(
    unsafe_code,
    reason = "addresses of functions and statics; see the module's safety section"
)]

use std::sync::Arc;

use device::ChipCallable;
use serde::{Deserialize, Serialize};

use crate::args::Args;
use crate::callable::{Body, HostFunction, NodeFunction, TaskResult};
use crate::error::Error;
use crate::orchestrator::Orchestrator;

/// How a callable is made again in a child that was not forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Maker {
    /// A static of the program.
    Chip(u64),
    /// A function of the program that makes the host function.
    Function(u64),
    /// A function of the program that makes the orchestration.
    Orchestration(u64),
}

type MakeFunction = fn() -> Arc<HostFunction>;
type MakeOrchestration = fn() -> Arc<NodeFunction>;

impl Maker {
    /// For a static chip callable of the program itself; none for one on the heap or in a library.
    pub(crate) fn of_chip(callable: &'static ChipCallable) -> Option<Self> {
        distance(std::ptr::from_ref(callable).cast()).map(Maker::Chip)
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

    /// The callable, in a child that this program's parent process started. See the module's safety section.
    pub(crate) fn body(self) -> Body {
        match self {
            Maker::Chip(distance) => {
                let callable = address(distance).cast::<ChipCallable>();
                // SAFETY: the parent took the distance of a static of this type in this program.
                Body::Chip(unsafe { &*callable })
            }
            Maker::Function(distance) => {
                // SAFETY: the parent took the distance of a function of this type in this program.
                let make =
                    unsafe { std::mem::transmute::<*const (), MakeFunction>(address(distance)) };
                Body::Function(make())
            }
            Maker::Orchestration(distance) => {
                // SAFETY: as for a function.
                let make = unsafe {
                    std::mem::transmute::<*const (), MakeOrchestration>(address(distance))
                };
                Body::Orchestration(make())
            }
        }
    }
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

fn address(distance: u64) -> *const () {
    let anchor = anchor as *const ();
    anchor.wrapping_byte_add(distance as usize)
}

#[cfg(test)]
mod tests;
