//! One step of the engine: begin what is ready, give blocks to cores, execute them, end what is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use taskgraph::Outcome;

use super::{Begun, Engine, Item, Machine, TaskAt, task_at};
use crate::error::{DeviceError, KernelError, TaskPlace};
use crate::parallel;
use crate::sim::memory::DeviceMemory;
use crate::sim::options::TaskFault;

/// How long a poll of a hanging run rests, so that polling in a loop does not burn a core.
const HANG_REST: Duration = Duration::from_micros(200);

/// How much work must be at hand for starting threads to be worth it.
const WORTH_THREADS: Duration = Duration::from_micros(500);

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many blocks were executed, or part of a graph was prepared, which counts as one.
    Worked(usize),
    /// All that is left waits for a core that will never answer.
    Hanging,
    /// No task is ready and no core is busy: whatever was submitted has ended.
    Idle,
}

impl Engine {
    /// One turn of every scheduler thread: blocks are given to free cores, executed, and their answers
    /// taken.
    pub(super) fn step(&mut self, memory: &DeviceMemory) -> Result<Step, DeviceError> {
        self.check_hang()?;
        let has_prepared = self.prepare_some(memory);
        self.begin_tasks();
        self.give_blocks();
        self.mend_guards();
        self.inject()?;
        if self.items.is_empty() {
            return Ok(if has_prepared {
                Step::Worked(1)
            } else {
                self.rest()
            });
        }
        let executed = self.execute_items();
        // First: the code of a kernel that wrote elsewhere says little.
        self.check_guards()?;
        executed?;
        self.take_answers();
        Ok(Step::Worked(self.items.len()))
    }

    /// Begins tasks while the graph has some for us. A task whose predicate says no ends here.
    fn begin_tasks(&mut self) {
        while let Some(dispatch) = self.graph.next_dispatch() {
            let at = self.locate(dispatch.task);
            let task = task_at(&self.tasks, &self.replays, at);
            if task.is_wanted() {
                let n_blocks = task.n_blocks;
                let (given, ended) = (0, 0);
                self.current_mut().begun.push(Begun {
                    dispatch,
                    task: at,
                    given,
                    ended,
                    n_blocks,
                });
            } else {
                self.current_mut().report.skipped += 1;
                self.finish(dispatch, Outcome::Ok);
            }
        }
        // A graph without tasks ends when it is begun.
        self.note_ends();
    }

    /// Gives the next blocks of what was begun to free cores, oldest task first. A block that must be
    /// alone gets a step of its own.
    fn give_blocks(&mut self) {
        self.items.clear();
        for at in 0..self.current().begun.len() {
            let Begun {
                task,
                given,
                n_blocks,
                ..
            } = self.current().begun[at];
            let is_alone = task_at(&self.tasks, &self.replays, task).is_alone;
            if given == n_blocks || (is_alone && !self.items.is_empty()) {
                continue;
            }
            let wanted = if is_alone { given + 1 } else { n_blocks };
            for block in given..wanted {
                let Some(place) = self.give(task, block) else {
                    break;
                };
                let begun = at;
                self.items.push(Item { begun, task, place });
                self.current_mut().begun[at].given += 1;
            }
            if is_alone && !self.items.is_empty() {
                return;
            }
        }
    }

    /// Lets an injected fault happen, if one of the given blocks is its place. What hangs is executed
    /// no more; its core never answers.
    fn inject(&mut self) -> Result<(), DeviceError> {
        let current = self.current.as_mut().expect("a run that began");
        if current.faults.is_empty() {
            return Ok(());
        }
        let (chip, callable) = (self.machine.chip, current.callable.callable.name);
        let fault_of = |item: &Item| {
            let fault = current.faults.iter().find(|(at, _)| *at == item.place.task);
            fault.map(|(_, kind)| *kind)
        };
        let hangs = |item: &Item| fault_of(item) == Some(TaskFault::Hang);
        for item in &self.items {
            let task = item.place;
            match fault_of(item) {
                Some(TaskFault::Hardware) => {
                    return Err(DeviceError::Fault {
                        chip,
                        callable,
                        task,
                    });
                }
                Some(TaskFault::StrayWrite) => {
                    let guards = &task_at(&self.tasks, &self.replays, item.task).guards;
                    guards.iter().for_each(|(_, guard)| guard.damage());
                }
                Some(TaskFault::Hang) | None => {}
            }
        }
        let hanging = self
            .items
            .iter()
            .find(|item| hangs(item))
            .map(|item| item.place);
        self.items.retain(|item| !hangs(item));
        if let Some(place) = hanging {
            current.hanging.get_or_insert((place, Instant::now()));
        }
        Ok(())
    }

    /// Executes the given blocks, on several threads if that is allowed and worth it.
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
        for Item { task, place, .. } in &self.items {
            let began = self.tracer.now();
            let task = task_at(&self.tasks, &self.replays, *task);
            let ended = task.execute(&current.callable, place.block);
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
        let (tasks, replays) = (&self.tasks, &self.replays);
        let (items, number) = (&self.items, current.number);
        let (loaded, tracer) = (&*current.callable, &self.tracer);
        let failed = AtomicBool::new(false);
        let execute = |idx: usize| {
            let Item { task, place, .. } = &items[idx];
            // Relaxed: a hint to start nothing more; the results are handed over by the join.
            if failed.load(Ordering::Relaxed) {
                return (None, Ok(()));
            }
            let began = tracer.now();
            let ended = task_at(tasks, replays, *task).execute(loaded, place.block);
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

    /// Restores what was overwritten before the given blocks run, behind an input or by somebody else
    /// in a window: none of them is to blame.
    fn mend_guards(&self) {
        let (chip, callable) = (self.machine.chip, self.callable().name);
        for Item { task, place, .. } in &self.items {
            if let Some(idx) = task_at(&self.tasks, &self.replays, *task).mend_guards() {
                tracing::warn!(
                    chip,
                    callable,
                    task = %place,
                    "bytes behind its tensor argument {idx} were overwritten before this task"
                );
            }
        }
    }

    /// Finds out whether one of the executed blocks wrote where it must not. The first one found is
    /// the failure, and nothing is left for a later task to be blamed for.
    fn check_guards(&self) -> Result<(), DeviceError> {
        let (chip, callable) = (self.machine.chip, self.callable().name);
        let strayed = |item: &Item| {
            let idx = task_at(&self.tasks, &self.replays, item.task).mend_guards()?;
            Some((item.place, KernelError::StrayWrite { idx }))
        };
        let found = self.items.iter().filter_map(strayed);
        match found.reduce(|first, _| first) {
            Some((task, source)) => Err(DeviceError::Kernel {
                chip,
                callable,
                task,
                source,
            }),
            None => Ok(()),
        }
    }

    /// Takes the answers of the cores. A task whose last block has ended is over.
    fn take_answers(&mut self) {
        let current = self.current.as_mut().expect("a run that began");
        current.report.blocks += self.items.len() as u64;
        for Item { begun, place, .. } in &self.items {
            self.cores.answer(place.core, place.core_idx);
            self.cores.take(place.core, place.core_idx);
            current.begun[*begun].ended += 1;
        }
        let mut begun = std::mem::take(&mut current.begun);
        begun.retain(|it| {
            let is_over = it.ended == it.n_blocks;
            if is_over {
                self.current_mut().report.tasks += 1;
                self.finish(it.dispatch, Outcome::Ok);
            }
            !is_over
        });
        self.current_mut().begun = begun;
    }

    /// Names a block and gives it to the next core of its shape, if one is free.
    fn give(&mut self, at: TaskAt, block: u32) -> Option<TaskPlace> {
        let task = task_at(&self.tasks, &self.replays, at);
        let kernel = &self.callable().kernels[task.kernel_idx];
        let (kernel, core, task) = (kernel.name, kernel.core, task.number);
        let core_idx = self.cores.give(core)?;
        self.active |= 1 << self.cores.scheduler(core, core_idx);
        Some(TaskPlace {
            kernel,
            task,
            block,
            core,
            core_idx,
        })
    }

    /// Ends the run if a core has been hanging for longer than an operation may take.
    fn check_hang(&self) -> Result<(), DeviceError> {
        let Some((task, since)) = self.current().hanging else {
            return Ok(());
        };
        let Machine {
            chip,
            op_timeout: limit,
            ..
        } = self.machine;
        if since.elapsed() < limit {
            return Ok(());
        }
        let callable = self.callable().name;
        Err(DeviceError::Timeout {
            chip,
            callable,
            task,
            limit,
        })
    }

    /// No core has anything to do: either all is done, or the rest waits for a core that hangs.
    fn rest(&self) -> Step {
        let Some((_, since)) = self.current().hanging else {
            return Step::Idle;
        };
        let left = self.machine.op_timeout.saturating_sub(since.elapsed());
        std::thread::sleep(left.min(HANG_REST));
        Step::Hanging
    }
}
