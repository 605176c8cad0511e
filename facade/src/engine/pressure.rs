//! Back-pressure: who submits faster than tasks end waits for them, driving meanwhile.
//!
//! Slots and intermediate memory come back when tasks end. So a submit or an allocation that finds none is tried again
//! after each end of a task. It waits as long as the graph says that waiting helps, which is as long as a task is live
//! that is in the way; what no end of a task can bring is an error at once.
//!
//! No end is missed: the count of ended tasks is read before the attempt, and whoever ends a task afterwards changes it,
//! and wakes those who sleep, under core.

use std::sync::atomic::Ordering;

use super::{Core, Engine};

impl Engine {
    /// Calls `attempt` until it succeeds, or fails in a way for which `helps` says that waiting does not help.
    pub(crate) fn attempt<R, E>(
        &self,
        helps: impl Fn(&E) -> bool,
        mut attempt: impl FnMut(&mut Core) -> Result<R, E>,
    ) -> Result<R, E> {
        loop {
            let ended = self.n_ended();
            let tried = self.change(|core| {
                let tried = attempt(core);
                core.starving += u32::from(tried.as_ref().is_err_and(&helps));
                tried
            });
            if !tried.as_ref().is_err_and(&helps) {
                return tried;
            }
            self.wait_until(None, &|| self.n_ended() != ended);
            self.core().starving -= 1;
        }
    }

    /// How many tasks have ended so far.
    fn n_ended(&self) -> u64 {
        // Acquire: partner of the release in `Core::task_finished`.
        self.ended.load(Ordering::Acquire)
    }
}
