//! The one trait of this crate: what every chip can do, simulated or real.
//!
//! # A run, from end to end
//!
//! ```text
//!   prepare(slot, args) ---> Prepared --launch()--> Running --poll()*--> Finished --finalize()--> gone
//!        checks arguments        |      accepted by      executes or        |      reports the outcome,
//!        takes a place           |      the device       asks the device    |      frees what the run
//!                                +---------------- finalize() --------------+      allocated
//! ```
//!
//! Up to [`Chip::max_prepared`] runs may be prepared while another executes. A run takes the whole
//! chip: runs are launched and executed in turn. *Acceptance* is the moment `launch` returns `Ok`;
//! nothing before it reaches the device.
//!
//! # Who checks what
//!
//! A backend trusts nothing of what it is given: addresses, ranges, slots, run ids, number and kind
//! of arguments are checked on each call, before the device sees them. Ownership *across* chips
//! (whose pointer is this?) is the caller's business: two chips hand out equal addresses.

use std::fmt;

use crate::args::ChipArgs;
use crate::callable::ChipCallable;
use crate::error::DeviceError;
use crate::graph::GraphCounts;
use crate::platform::{CoreCounts, Platform};
use crate::trace::TraceEvent;
use crate::window::Window;

/// An address in the memory of one chip. It says nothing about which chip, and is no host pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceAddress(pub u64);

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A place in a chip's table of callables; means nothing to another chip or process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallableSlot(pub(crate) u32);

impl fmt::Display for CallableSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Names one run of one chip; never used twice by the same chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub(crate) u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a chip is; fixed from open to close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChipInfo {
    /// The platform it was opened on.
    pub platform: Platform,
    /// The number the program used: an index into the visible devices.
    pub logical_id: u32,
    /// The number of the card itself; differs from the logical one when a visible-devices list is
    /// set.
    pub physical_id: u32,
    /// Its cores by type.
    pub cores: CoreCounts,
    /// Size of its memory in bytes.
    pub memory_bytes: u64,
}

/// How a chip's memory is used at one moment. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReport {
    /// The whole memory.
    pub total_bytes: u64,
    /// Taken by live allocations, rounding included.
    pub used_bytes: u64,
    /// Not taken, possibly in many pieces.
    pub free_bytes: u64,
    /// The largest allocation that would succeed now.
    pub largest_block_bytes: u64,
    /// Number of live allocations.
    pub allocations: usize,
}

/// Where a run stands after [`Chip::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Still executing; poll again.
    Running,
    /// Over, well or not; [`Chip::finalize`] says which.
    Finished,
}

/// What a finished run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunReport {
    /// Core tasks that were executed.
    pub tasks: u64,
    /// Blocks of these tasks that were executed on cores.
    pub blocks: u64,
    /// Tasks that did not run because their predicate said so.
    pub skipped: u64,
    /// How its graphs were submitted.
    pub graphs: GraphCounts,
}

/// One chip, owned by the thread that opened it: the trait object is neither `Send` nor `Sync`.
///
/// ```compile_fail
/// # use device::{Arch, OpenOptions, Platform};
/// let chip = device::open(Platform::Sim(Arch::A2a3), 0, &OpenOptions::default()).unwrap();
/// std::thread::spawn(move || drop(chip)); // a chip stays on its thread
/// ```
pub trait Chip {
    /// What the chip is. Free of cost, never touches the device.
    fn info(&self) -> &ChipInfo;

    /// Allocates device memory with unspecified contents; zero bytes count as one.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] with what was wanted, what is free and the largest block.
    fn malloc(&mut self, bytes: u64) -> Result<DeviceAddress, DeviceError>;

    /// Frees an allocation by its base address.
    ///
    /// # Errors
    /// [`DeviceError::Address`] if it is not the base of a live allocation, [`DeviceError::InUse`]
    /// while a launched run names it; nothing is freed then.
    fn free(&mut self, address: DeviceAddress) -> Result<(), DeviceError>;

    /// Copies host bytes into device memory; the range must lie inside one live allocation.
    ///
    /// # Errors
    /// [`DeviceError::Address`] before anything is copied.
    fn copy_to(&mut self, to: DeviceAddress, from: &[u8]) -> Result<(), DeviceError>;

    /// Copies device memory into host bytes; the range must lie inside one live allocation.
    ///
    /// # Errors
    /// [`DeviceError::Address`] before anything is copied.
    fn copy_from(&mut self, to: &mut [u8], from: DeviceAddress) -> Result<(), DeviceError>;

    /// Maps memory that other chips map too. It is used like an allocation, and given back by
    /// [`Chip::unmap_window`]. Its contents are those of the shared object.
    ///
    /// # Errors
    /// [`DeviceError::Window`] if it cannot be mapped, on the vendor's chips always for now;
    /// [`DeviceError::OutOfMemory`] if a window of this chip's own does not fit.
    fn map_window(&mut self, window: &Window<'_>) -> Result<DeviceAddress, DeviceError>;

    /// Unmaps a window by its first address.
    ///
    /// # Errors
    /// [`DeviceError::Address`] if no window begins there, [`DeviceError::InUse`] while a launched
    /// run names it; nothing is unmapped then.
    fn unmap_window(&mut self, address: DeviceAddress) -> Result<(), DeviceError>;

    /// How the memory is used now.
    ///
    /// # Errors
    /// Those of the device, when only it knows.
    fn memory(&self) -> Result<MemoryReport, DeviceError>;

    /// Makes a callable known to this chip. The same callable gets the same slot again.
    ///
    /// # Errors
    /// [`DeviceError::Callable`] if the callable is malformed or a kernel cannot be compiled.
    fn register(&mut self, callable: &'static ChipCallable) -> Result<CallableSlot, DeviceError>;

    /// How many runs may be prepared while another one executes; at least one.
    fn max_prepared(&self) -> usize;

    /// Checks the arguments and takes a place for a run. The device does not learn of it yet.
    ///
    /// # Errors
    /// [`DeviceError::UnknownCallable`], [`DeviceError::TooManyPrepared`], [`DeviceError::Address`]
    /// for a tensor outside live memory, [`DeviceError::Unusable`] after a hardware fault.
    fn prepare(&mut self, slot: CallableSlot, args: ChipArgs) -> Result<RunId, DeviceError>;

    /// Hands a prepared run to the device. `Ok` *is* the acceptance.
    ///
    /// # Errors
    /// [`DeviceError::RunState`] if the run is not prepared, [`DeviceError::Unusable`] after a
    /// hardware fault.
    fn launch(&mut self, run: RunId) -> Result<(), DeviceError>;

    /// Moves a launched run on by a bounded slice of work and says where it stands. Never blocks
    /// for longer than one kernel of that run.
    ///
    /// # Errors
    /// [`DeviceError::RunState`] if the run was not launched. A run that *fails* is
    /// [`Progress::Finished`].
    fn poll(&mut self, run: RunId) -> Result<Progress, DeviceError>;

    /// Ends a run: frees what it allocated and reports its outcome. A run that was never launched
    /// is withdrawn and reports zero tasks.
    ///
    /// # Errors
    /// The first cause why the run failed; [`DeviceError::RunState`] while it still executes (then
    /// nothing changes).
    fn finalize(&mut self, run: RunId) -> Result<RunReport, DeviceError>;

    /// The fault because of which the chip refuses memory and runs, if it does.
    fn unusable(&self) -> Option<&str>;

    /// Tests the chip by allocating, writing, reading and freeing. A chip that was unusable is reset
    /// for it, and comes back empty: no allocation is live, the registered callables are. Runs that
    /// were prepared or launched and are not over end as failed, with [`DeviceError::Reset`].
    ///
    /// # Errors
    /// What still fails; a chip that was unusable stays so then.
    fn probe(&mut self) -> Result<(), DeviceError>;

    /// What happened on the chip since the last call, if it was opened with tracing.
    fn take_trace(&mut self) -> Vec<TraceEvent>;

    /// Gives everything back. A second close does nothing. Dropping a chip closes it, and logs what
    /// failed.
    ///
    /// # Errors
    /// The first thing that could not be released; the chip is closed all the same.
    fn close(&mut self) -> Result<(), DeviceError>;
}

/// Runs a registered callable from prepare to finalize on the calling thread.
///
/// # Errors
/// Those of the four steps; a prepared run that cannot be launched is withdrawn.
pub fn run(
    chip: &mut dyn Chip,
    slot: CallableSlot,
    args: ChipArgs,
) -> Result<RunReport, DeviceError> {
    let run = chip.prepare(slot, args)?;
    if let Err(error) = chip.launch(run) {
        chip.finalize(run)?;
        return Err(error);
    }
    while chip.poll(run)? == Progress::Running {}
    chip.finalize(run)
}
