//! Ending children that may not want to end.
//!
//! The stages are ordered data: an attempt only ever rises, and its result says how far it had to.
//!
//! | stage | what is done | until |
//! | --- | --- | --- |
//! | [`Stage::Ended`] | nothing: it had ended | |
//! | [`Stage::Asked`] | `SIGTERM`, and `SIGCONT` in case it is stopped | the grace period |
//! | [`Stage::Killed`] | `SIGKILL` to the whole group that it leads, and to itself | the deadline |
//!
//! A stopped process handles no `SIGTERM` before it goes on, hence the `SIGCONT`; `SIGKILL` ends a
//! stopped one too. What is not gone at the deadline hangs in the kernel; it is named, not waited
//! for.

use std::time::{Duration, Instant};

use crate::cause::ExitCause;
use crate::child::{Child, ChildError};
use crate::pid::Pid;
use crate::signal::Signal;
use crate::sys::process;

/// How far an attempt to end a child had to go. The order is severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// It had ended before it was asked.
    Ended,
    /// It ended within the grace period.
    Asked,
    /// It had to be killed.
    Killed,
}

/// How a child was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Termination {
    /// How it ended, exactly.
    pub cause: ExitCause,
    /// How far it had to go.
    pub stage: Stage,
}

/// After `SIGKILL` a process is gone as soon as the kernel has freed its memory; one that hangs in
/// a driver may never be.
pub(crate) const KILL_PATIENCE: Duration = Duration::from_secs(2);

impl Child {
    /// Ends the child: asks, waits for the grace period, then kills it with the group that it
    /// leads, if it was forked with [`Group::New`](crate::Group::New). The child is reaped.
    ///
    /// Takes at most the grace period and two seconds.
    ///
    /// # Errors
    ///
    /// [`ChildError::StillThere`] when even `SIGKILL` did not end it in time. It can be tried again.
    pub fn terminate(&self, grace: Duration) -> Result<Termination, ChildError> {
        let asked_until = Instant::now() + grace;
        let mut stage = Stage::Ended;
        if self.try_wait()?.is_none() {
            stage = Stage::Asked;
            self.ask();
            if let Err(ChildError::StillThere { .. }) = self.wait(asked_until) {
                stage = Stage::Killed;
            }
        }
        self.kill_with_led_group();
        let cause = self.wait(Instant::now() + KILL_PATIENCE)?;
        self.reap()?;
        Ok(Termination { cause, stage })
    }

    /// `SIGTERM`, and `SIGCONT` so that a stopped child gets to handle it.
    ///
    /// A failure means that it has ended, which the wait that follows finds.
    pub(crate) fn ask(&self) {
        let _ = process::signal_pidfd(self.pidfd(), Signal::TERM);
        let _ = process::signal_pidfd(self.pidfd(), Signal::CONT);
    }

    /// `SIGKILL` to the child alone.
    pub(crate) fn kill(&self) {
        let _ = process::signal_pidfd(self.pidfd(), Signal::KILL);
    }

    /// `SIGKILL` to the group that the child leads, before it is reaped, and to the child.
    fn kill_with_led_group(&self) {
        if let Some(group) = self.proven_group().filter(|group| *group == self.pid()) {
            kill_group(group);
        }
        self.kill();
    }
}

/// `SIGKILL` to every process of a group that the caller has proved to be its own.
pub(crate) fn kill_group(group: Pid) {
    // ESRCH: nobody is left in it.
    let _ = process::signal_group(group, Signal::KILL);
}
