//! The life of a slot, all transitions in one place, and the arena that slots live in.
//!
//! ```text
//!          submit              wait                 release
//! Free ------------> Building ------------> Pending ------------> Ready
//!   ^                   |                                         ^ | |
//!   |                   +------------------ release --------------+ | | fail
//!   | reuse                                                dispatch | +---------------+
//!   |                                                               v                 v
//!   |                                                            Running --- fail --> Failed
//!   |                            consume                            | complete        |
//! Consumed <------------------------------------------------- Completed               |
//!   ^                                                                                 |
//!   +--------------------------------------- consume --------------------------------+
//! ```
//!
//! * *submit*: the slot is taken and its edges are being found.
//! * *wait*: it has predecessors that have not ended.
//! * *release*: the last predecessor ended, or there was none.
//! * *dispatch*: it was handed to its worker, or to all workers of its group.
//! * *complete*, *fail*: its worker is done. A task that is skipped or cancelled fails from Ready:
//!   it ends only after all that it had to wait for, so order holds for whatever comes after it.
//! * *consume*: nothing can refer to its result any more. A completed task is consumed at once (or
//!   when the memory it produced is released), a failed one at the end of its run, because a task
//!   that is submitted later still has to learn that its producer failed.
//! * *reuse*: the generation rises and old handles become stale.

/// Where a slot is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Never used, or ready to be used again.
    Free,
    /// Being submitted.
    Building,
    /// Waits for predecessors.
    Pending,
    /// Waits for a worker.
    Ready,
    /// On its worker or workers.
    Running,
    /// Ended well.
    Completed,
    /// Ended badly, was skipped, or was cancelled.
    Failed,
    /// Nobody needs it any more.
    Consumed,
}

/// What moves a slot on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Submit,
    Wait,
    Release,
    Dispatch,
    Complete,
    Fail,
    Consume,
    Reuse,
}

impl State {
    /// The next state, or `None` when this step is not legal here.
    pub(crate) const fn next(self, step: Step) -> Option<State> {
        match (self, step) {
            (State::Free, Step::Submit) => Some(State::Building),
            (State::Building, Step::Wait) => Some(State::Pending),
            (State::Building | State::Pending, Step::Release) => Some(State::Ready),
            (State::Ready, Step::Dispatch) => Some(State::Running),
            (State::Running, Step::Complete) => Some(State::Completed),
            (State::Ready | State::Running, Step::Fail) => Some(State::Failed),
            (State::Completed | State::Failed, Step::Consume) => Some(State::Consumed),
            (State::Consumed, Step::Reuse) => Some(State::Free),
            _ => None,
        }
    }

    /// Whether the task has ended, well or badly.
    pub const fn has_ended(self) -> bool {
        matches!(self, State::Completed | State::Failed | State::Consumed)
    }
}

#[cfg(test)]
mod tests;
