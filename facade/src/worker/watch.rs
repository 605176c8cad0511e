//! Looking at what a worker does: counters, latencies, a trace.

use super::Worker;
use crate::error::Error;
use crate::observe::{Observe, Stats, Trace};

impl Worker {
    /// Watches the tasks of this worker's graph this closely from now on, before or after `init`. Begins a new trace.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] when the engine cannot be made.
    pub fn observe(&self, how: Observe) -> Result<(), Error> {
        self.engine()?.core().observer.watch(how);
        Ok(())
    }

    /// What this worker's engine has done, and what it has to do now. Costs a moment under the lock that submits take.
    ///
    /// ```
    /// # fn main() -> Result<(), facade::Error> {
    /// let node = facade::Worker::node().sub_workers(1).build()?;
    /// assert_eq!(node.stats()?.tasks_submitted, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Start`] when the engine cannot be made.
    pub fn stats(&self) -> Result<Stats, Error> {
        let engine = self.engine()?;
        let paths = self.child_paths();
        let core = engine.core();
        let mut stats = core.observer.stats(&paths);
        stats.requests_queued = core.jobs.len() as u64;
        Ok(stats)
    }

    /// What the tasks did that ended since [`Worker::observe`] asked for a trace, or since the last call.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] when the engine cannot be made.
    pub fn take_trace(&self) -> Result<Trace, Error> {
        let tasks = self.engine()?.core().observer.take_trace();
        let workers = self.child_paths();
        Ok(Trace {
            root: self.inner.path.to_string(),
            workers: workers.iter().map(ToString::to_string).collect(),
            tasks,
        })
    }

    /// The paths of the children, by line; none before `init`.
    fn child_paths(&self) -> Vec<crate::error::Name> {
        let Some(started) = self.inner.started.get() else {
            return Vec::new();
        };
        let lines = started.plan.lines(&self.inner.path);
        let paths = lines.iter().map(|(_, path)| path.as_str().into());
        paths.collect()
    }
}
