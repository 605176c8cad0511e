//! The runs of one chip from prepare to finalize, the same for every backend.

use std::rc::Rc;

use taskgraph::Tag;

use crate::allocations::Allocations;
use crate::args::{ChipArgs, DeviceTensor};
use crate::callable::ChipCallable;
use crate::chip::{CallableSlot, DeviceAddress, RunId, RunReport};
use crate::error::DeviceError;

/// A run with everything that belongs to it: `C` is a backend's callable, `E` what it knows of a run
/// that is on the device.
#[derive(Debug)]
pub(crate) struct Run<C, E> {
    pub(crate) id: RunId,
    pub(crate) callable: Rc<C>,
    pub(crate) args: ChipArgs,
    pub(crate) phase: Phase<E>,
    /// Intermediate memory, freed when the run is finalized.
    pub(crate) allocated: Vec<DeviceAddress>,
}

/// Where a run stands.
#[derive(Debug)]
pub(crate) enum Phase<E> {
    /// Arguments checked; the device does not know of it.
    Prepared,
    /// Accepted and not over.
    Executing(E),
    /// Over.
    Finished(Result<RunReport, DeviceError>),
}

impl<E> Phase<E> {
    fn name(&self) -> &'static str {
        match self {
            Phase::Prepared => "prepared",
            Phase::Executing(_) => "executing",
            Phase::Finished(_) => "finished",
        }
    }
}

/// The runs that were not finalized, oldest first.
#[derive(Debug)]
pub(crate) struct Runs<C, E> {
    chip: u32,
    list: Vec<Run<C, E>>,
    next: u64,
}

impl<C, E> Runs<C, E> {
    pub(crate) fn new(chip: u32) -> Self {
        Self {
            chip,
            list: Vec::new(),
            next: 0,
        }
    }

    /// Checks the arguments and takes a place, of which there are `max`.
    pub(crate) fn prepare(
        &mut self,
        callable: Rc<C>,
        args: ChipArgs,
        memory: &Allocations,
        max: usize,
    ) -> Result<RunId, DeviceError> {
        let prepared = self
            .list
            .iter()
            .filter(|run| matches!(run.phase, Phase::Prepared));
        if prepared.count() >= max {
            return Err(DeviceError::TooManyPrepared {
                chip: self.chip,
                max,
            });
        }
        for tensor in &args.tensors {
            memory.find(tensor, Tag::Input)?;
        }
        let id = RunId(self.next);
        self.next += 1;
        let (phase, allocated) = (Phase::Prepared, Vec::new());
        self.list.push(Run {
            id,
            callable,
            args,
            phase,
            allocated,
        });
        Ok(id)
    }

    /// A prepared run, to be launched.
    pub(crate) fn prepared(&mut self, run: RunId) -> Result<&mut Run<C, E>, DeviceError> {
        let found = self.find("launch", run)?;
        match self.list[found].phase {
            Phase::Prepared => Ok(&mut self.list[found]),
            _ => Err(self.wrong_phase("launch", found)),
        }
    }

    /// A run that was launched, over or not.
    pub(crate) fn launched(&mut self, run: RunId) -> Result<&mut Run<C, E>, DeviceError> {
        let found = self.find("poll", run)?;
        match self.list[found].phase {
            Phase::Prepared => Err(self.wrong_phase("poll", found)),
            _ => Ok(&mut self.list[found]),
        }
    }

    /// Takes a run out that is over, or was never launched.
    pub(crate) fn remove(&mut self, run: RunId) -> Result<Run<C, E>, DeviceError> {
        let found = self.find("finalize", run)?;
        match self.list[found].phase {
            Phase::Executing(_) => Err(self.wrong_phase("finalize", found)),
            _ => Ok(self.list.remove(found)),
        }
    }

    /// A run that is known to be there.
    pub(crate) fn known(&mut self, run: RunId) -> &mut Run<C, E> {
        let found = self.list.iter_mut().find(|known| known.id == run);
        found.expect("a run that executes is not finalized")
    }

    /// Refuses to free what a run on the device names.
    pub(crate) fn refuse_in_use(
        &self,
        address: DeviceAddress,
        memory: &Allocations,
    ) -> Result<(), DeviceError> {
        let is_inside = |tensor: &DeviceTensor| {
            memory
                .find(tensor, Tag::Input)
                .is_ok_and(|it| it.access.buffer.id == address.0)
        };
        let names = |run: &&Run<C, E>| {
            run.allocated.contains(&address) || run.args.tensors.iter().any(is_inside)
        };
        let on_device = |run: &&Run<C, E>| matches!(run.phase, Phase::Executing(_));
        match self.list.iter().filter(on_device).find(names) {
            Some(run) => Err(DeviceError::InUse {
                chip: self.chip,
                address,
                run: run.id,
            }),
            None => Ok(()),
        }
    }

    /// Ends every run on the device, each as it is told.
    pub(crate) fn finish_all(
        &mut self,
        outcome: impl Fn(&mut E) -> Result<RunReport, DeviceError>,
    ) {
        for run in &mut self.list {
            if let Phase::Executing(executing) = &mut run.phase {
                run.phase = Phase::Finished(outcome(executing));
            }
        }
    }

    /// The device was reset because of `cause`: what the runs had allocated is gone, those that were
    /// on it will never end, and the arguments of those that were not name memory that is gone or
    /// somebody else's.
    pub(crate) fn end_by_reset(&mut self, cause: &str) {
        for run in &mut self.list {
            run.allocated.clear();
            if !matches!(run.phase, Phase::Finished(_)) {
                run.phase = Phase::Finished(Err(DeviceError::Reset {
                    chip: self.chip,
                    run: run.id,
                    cause: cause.to_owned(),
                }));
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    fn find(&self, operation: &'static str, run: RunId) -> Result<usize, DeviceError> {
        let found = self.list.iter().position(|known| known.id == run);
        found.ok_or(DeviceError::UnknownRun {
            operation,
            chip: self.chip,
            run,
        })
    }

    fn wrong_phase(&self, operation: &'static str, at: usize) -> DeviceError {
        let Run { id: run, phase, .. } = &self.list[at];
        DeviceError::RunState {
            operation,
            chip: self.chip,
            run: *run,
            state: phase.name(),
        }
    }
}

/// The callables of one chip by slot.
#[derive(Debug)]
pub(crate) struct Slots<C> {
    chip: u32,
    list: Vec<Rc<C>>,
}

impl<C> Slots<C> {
    pub(crate) fn new(chip: u32) -> Self {
        Self {
            chip,
            list: Vec::new(),
        }
    }

    /// The slot of a callable, which is loaded if it is new. `of` tells whose a loaded one is.
    pub(crate) fn register(
        &mut self,
        callable: &'static ChipCallable,
        of: impl Fn(&C) -> &'static ChipCallable,
        load: impl FnOnce() -> Result<C, DeviceError>,
    ) -> Result<CallableSlot, DeviceError> {
        if let Some(problem) = callable.fault() {
            return Err(DeviceError::Callable {
                callable: callable.name,
                problem,
            });
        }
        let known = self
            .list
            .iter()
            .position(|known| std::ptr::eq(of(known), callable));
        let slot = match known {
            Some(slot) => slot,
            None => {
                self.list.push(Rc::new(load()?));
                self.list.len() - 1
            }
        };
        Ok(CallableSlot(slot as u32))
    }

    pub(crate) fn get(&self, slot: CallableSlot) -> Result<Rc<C>, DeviceError> {
        let (chip, known) = (self.chip, self.list.len());
        let found = self.list.get(slot.0 as usize).cloned();
        found.ok_or(DeviceError::UnknownCallable { chip, slot, known })
    }

    /// Loads every callable anew; on an error all stay as they were.
    pub(crate) fn reload<X>(&mut self, load: impl Fn(&C) -> Result<C, X>) -> Result<(), X> {
        let loaded = self.list.iter().map(|old| load(old).map(Rc::new));
        self.list = loaded.collect::<Result<_, X>>()?;
        Ok(())
    }
}
