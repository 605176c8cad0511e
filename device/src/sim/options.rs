//! What can be chosen about a simulated chip, faults included.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::chip::DeviceAddress;
use crate::sim::memory::AddressReuse;

/// A simulated chip's settings. All fields are public; start from [`SimOptions::default`].
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Size of the memory in bytes. Only touched pages cost host memory.
    pub memory_bytes: u64,
    /// What happens to freed addresses.
    pub address_reuse: AddressReuse,
    /// Addresses that the first allocations get, in this order; one that is not free makes its
    /// allocation fail.
    pub placed: Vec<DeviceAddress>,
    /// How many runs may be prepared while another executes.
    pub max_prepared: usize,
    /// After how long a hanging core task fails its run.
    pub op_timeout: Duration,
    /// How many scheduler threads share its cores, from 1 to the number of AIC cores. They are logical,
    /// as the cores are: more of them need no more threads of the host.
    pub schedulers: usize,
    /// How many threads of the host its cores may use, the calling one included. With more than
    /// one, blocks that take long are executed side by side.
    pub host_threads: usize,
    /// Whether to collect trace events, for `Chip::take_trace`.
    pub trace: bool,
    /// Faults to inject, in any order.
    pub faults: Vec<SimFault>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 16 << 30,
            address_reuse: AddressReuse::default(),
            placed: Vec::new(),
            max_prepared: 2,
            op_timeout: Duration::from_secs(3),
            schedulers: 3,
            host_threads: 1,
            trace: false,
            faults: Vec::new(),
        }
    }
}

impl SimOptions {
    pub(crate) fn probes_to_fail(&self) -> u32 {
        let times = |fault: &SimFault| match *fault {
            SimFault::Probe { times } => times,
            _ => 0,
        };
        self.faults.iter().map(times).sum()
    }
}

/// A fault that happens once, at a chosen place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SimFault {
    /// A core task goes wrong.
    Task {
        /// Which launched run of this chip, from 0.
        run: u64,
        /// Which task of the run in the order of submission, from 0.
        task: u64,
        /// What it does.
        kind: TaskFault,
    },
    /// The n-th free (from 0) is refused by the device; its memory is lost.
    Free {
        /// Which free.
        nth: u64,
    },
    /// The n-th unmap of a window (from 0) is refused by the device; its memory is lost.
    Unmap {
        /// Which unmap.
        nth: u64,
    },
    /// The next probes fail.
    Probe {
        /// How many of them.
        times: u32,
    },
}

/// What goes wrong with an injected core task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TaskFault {
    /// Stops with a hardware fault.
    Hardware,
    /// Runs, and then writes behind its first output. The run fails; the chip stays usable.
    StrayWrite,
    /// Never ends; the run fails after the operation time limit.
    Hang,
}
