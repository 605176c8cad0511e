//! A run on a simulated chip while it waits, executes, or waits to be finalized.

use std::rc::Rc;

use crate::args::ChipArgs;
use crate::chip::{DeviceAddress, RunId, RunReport};
use crate::error::DeviceError;
use crate::sim::body::SimCallable;

/// A run with everything that belongs to it.
#[derive(Debug)]
pub(crate) struct SimRun {
    pub(crate) id: RunId,
    pub(crate) callable: Rc<SimCallable>,
    pub(crate) args: ChipArgs,
    pub(crate) state: RunState,
    /// Intermediate memory, freed when the run is finalized.
    pub(crate) allocated: Vec<DeviceAddress>,
}

/// Where a run stands.
#[derive(Debug)]
pub(crate) enum RunState {
    /// Arguments checked, not on the device.
    Prepared,
    /// Accepted; waits for the runs before it. Holds its number among the launched ones.
    Launched(u64),
    /// Its tasks are built and being executed.
    Executing,
    /// Over.
    Finished(Result<RunReport, DeviceError>),
}

impl RunState {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            RunState::Prepared => "prepared",
            RunState::Launched(_) | RunState::Executing => "executing",
            RunState::Finished(_) => "finished",
        }
    }
}
