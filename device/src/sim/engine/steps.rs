//! One step of the engine: begin what is ready, choose blocks, execute them, end what is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use taskgraph::Outcome;

use super::{Begun, Current, Engine, Item, Machine, shape};
use crate::error::{DeviceError, KernelError, TaskPlace};
use crate::kernel::CoreType;
use crate::parallel;
use crate::sim::options::TaskFault;

/// How many blocks one step executes at most.
const BLOCKS_PER_STEP: usize = 64;

/// How long a poll of a hanging run rests, so that polling in a loop does not burn a core.
const HANG_REST: Duration = Duration::from_micros(200);

/// How much work must be at hand for starting threads to be worth it.
const WORTH_THREADS: Duration = Duration::from_micros(500);

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many blocks were executed.
    Executed(usize),
    /// A task that will never end is in the way.
    Hanging,
    /// No task is ready and none was begun: whatever was submitted has ended.
    Idle,
}

impl Engine {
    /// Executes some blocks of what is ready.
    pub(super) fn step(&mut self) -> Result<Step, DeviceError> {
        if let Some((place, since)) = self.current().hanging {
            return self.watch_hang(place, since);
        }
        self.begin_tasks();
        if self.current().begun.is_empty() {
            return Ok(Step::Idle);
        }
        self.choose_items();
        if let Some(step) = self.inject()? {
            return Ok(step);
        }
        self.execute_items()?;
        self.check_guards()?;
        self.count_items();
        Ok(Step::Executed(self.items.len()))
    }

    /// Begins tasks while the graph has some for us. A task whose predicate says no ends here.
    fn begin_tasks(&mut self) {
        while self.current().begun.len() < self.machine.host_threads {
            let Some(dispatch) = self.graph.next_dispatch() else {
                return;
            };
            let task = &self.tasks[dispatch.task.slot as usize];
            if task.is_wanted() {
                let begun = Begun {
                    dispatch,
                    block: 0,
                    n_blocks: task.n_blocks,
                };
                self.current_mut().begun.push(begun);
            } else {
                self.current_mut().report.skipped += 1;
                self.finish(dispatch, Outcome::Ok);
            }
        }
    }

    /// Chooses the next blocks of what was begun: all of one task before the next one's; a task
    /// that must be alone gets the whole step, block by block.
    fn choose_items(&mut self) {
        self.items.clear();
        for at in 0..self.current().begun.len() {
            let Begun {
                dispatch,
                block,
                n_blocks,
            } = self.current().begun[at];
            let slot = dispatch.task.slot as usize;
            let is_alone = self.tasks[slot].is_alone;
            if is_alone && !self.items.is_empty() {
                return;
            }
            let room = if is_alone {
                1
            } else {
                BLOCKS_PER_STEP - self.items.len()
            };
            for block in (block..n_blocks).take(room) {
                let place = self.place(slot, block);
                self.items.push(Item { slot, place });
            }
            if is_alone || self.items.len() == BLOCKS_PER_STEP {
                return;
            }
        }
    }

    /// Lets an injected fault happen, if one of the chosen blocks is its place.
    fn inject(&mut self) -> Result<Option<Step>, DeviceError> {
        if self.current().faults.is_empty() {
            return Ok(None);
        }
        let fault_of = |current: &Current, item: &Item| {
            let fault = current.faults.iter().find(|(at, _)| *at == item.place.task);
            fault.map(|(_, kind)| (item.place, *kind))
        };
        let current = self.current.as_mut().expect("a run that began");
        let found = self.items.iter().find_map(|item| fault_of(current, item));
        let (chip, callable) = (self.machine.chip, current.callable.callable.name);
        match found {
            None => Ok(None),
            Some((task, TaskFault::Hardware)) => Err(DeviceError::Fault {
                chip,
                callable,
                task,
            }),
            Some((task, TaskFault::StrayWrite)) => {
                let of_task = |item: &&Item| item.place.task == task.task;
                let item = self.items.iter().find(of_task).expect("it was just found");
                let guards = &self.tasks[item.slot].guards;
                guards.iter().for_each(|(_, guard)| guard.damage());
                Ok(None)
            }
            Some((task, TaskFault::Hang)) => {
                current.hanging = Some((task, Instant::now()));
                Ok(Some(Step::Hanging))
            }
        }
    }

    /// Executes the chosen blocks, on several threads if that is allowed and worth it.
    fn execute_items(&mut self) -> Result<(), DeviceError> {
        let threads = self.machine.host_threads.min(self.items.len());
        let work = self.pace * self.items.len() as u32;
        let ended = if threads > 1 && work >= WORTH_THREADS {
            self.execute_on(threads)
        } else {
            self.execute_here()
        };
        ended.map_err(|(task, source)| {
            let (chip, callable) = (self.machine.chip, self.callable().name);
            DeviceError::Kernel {
                chip,
                callable,
                task,
                source,
            }
        })
    }

    fn execute_here(&mut self) -> Result<(), (TaskPlace, KernelError)> {
        let current = self.current.as_ref().expect("a run that began");
        let started = (self.machine.host_threads > 1).then(Instant::now);
        for Item { slot, place } in &self.items {
            let began = self.tracer.now();
            let ended = self.tasks[*slot].execute(&current.callable, place.block);
            self.tracer.block(began, place, current.number);
            ended.map_err(|error| (*place, error))?;
        }
        if let Some(started) = started {
            self.pace = started.elapsed() / self.items.len() as u32;
        }
        Ok(())
    }

    fn execute_on(&mut self, threads: usize) -> Result<(), (TaskPlace, KernelError)> {
        let current = self.current.as_ref().expect("a run that began");
        let (tasks, items, number) = (&self.tasks, &self.items, current.number);
        let (loaded, tracer) = (&*current.callable, &self.tracer);
        let failed = AtomicBool::new(false);
        let execute = |idx: usize| {
            let Item { slot, place } = &items[idx];
            // Relaxed: a hint to start nothing more; the results are handed over by the join.
            if failed.load(Ordering::Relaxed) {
                return (None, Ok(()));
            }
            let began = tracer.now();
            let ended = tasks[*slot].execute(loaded, place.block);
            failed.fetch_or(ended.is_err(), Ordering::Relaxed);
            (
                tracer.event(began, place, number),
                ended.map_err(|error| (*place, error)),
            )
        };
        let (events, ended): (Vec<_>, Vec<_>) = parallel::map(threads, items.len(), execute)
            .into_iter()
            .unzip();
        self.tracer.extend(events.into_iter().flatten());
        ended.into_iter().collect()
    }

    /// Finds out whether one of the executed blocks wrote where it must not.
    fn check_guards(&self) -> Result<(), DeviceError> {
        for Item { slot, place: task } in self.items.iter().copied() {
            self.tasks[slot].check_guards().map_err(|source| {
                let (chip, callable) = (self.machine.chip, self.callable().name);
                DeviceError::Kernel {
                    chip,
                    callable,
                    task,
                    source,
                }
            })?;
        }
        Ok(())
    }

    /// Counts the executed blocks; a task whose last one was among them has ended.
    fn count_items(&mut self) {
        let current = self.current.as_mut().expect("a run that began");
        current.report.blocks += self.items.len() as u64;
        for item in &self.items {
            let of_task = |begun: &&mut Begun| begun.dispatch.task.slot as usize == item.slot;
            let begun = current.begun.iter_mut().find(of_task);
            begun.expect("only begun tasks are executed").block += 1;
        }
        let is_over = |it: &Begun| it.block == it.n_blocks;
        while let Some(at) = self.current().begun.iter().position(is_over) {
            let over = self.current_mut().begun.remove(at);
            self.current_mut().report.tasks += 1;
            self.finish(over.dispatch, Outcome::Ok);
        }
    }

    /// Names a block and takes the next core of its shape.
    fn place(&mut self, slot: usize, block: u32) -> TaskPlace {
        let task = &self.tasks[slot];
        let kernel = &self.callable().kernels[task.kernel_idx];
        let cores = self.machine.cores;
        let count = if kernel.core == CoreType::Aiv {
            cores.aiv
        } else {
            cores.aic
        };
        let (kernel, core, task) = (kernel.name, kernel.core, task.number);
        let next = &mut self.next_core[shape(core)];
        let core_idx = *next;
        *next = (core_idx + 1) % count;
        TaskPlace {
            kernel,
            task,
            block,
            core,
            core_idx,
        }
    }

    /// Waits for a hanging core, a short rest at a time, until the operation's time is over.
    fn watch_hang(&self, task: TaskPlace, since: Instant) -> Result<Step, DeviceError> {
        let Machine {
            chip,
            op_timeout: limit,
            ..
        } = self.machine;
        let left = limit.saturating_sub(since.elapsed());
        if left.is_zero() {
            let callable = self.callable().name;
            return Err(DeviceError::Timeout {
                chip,
                callable,
                task,
                limit,
            });
        }
        std::thread::sleep(left.min(HANG_REST));
        Ok(Step::Hanging)
    }
}
