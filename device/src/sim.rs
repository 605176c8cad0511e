//! The simulator: a chip with a memory and cores of its own, without hardware.

mod body;
mod builder;
mod chip;
mod cores;
mod engine;
mod graphs;
mod memory;
mod options;
mod task;
mod tracer;
mod windows;

pub(crate) use chip::SimChip;
pub use memory::AddressReuse;
pub use options::{SimFault, SimOptions, TaskFault};
