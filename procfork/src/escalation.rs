//! Ending children that may not want to end.
//!
//! The stages are ordered data: an attempt only ever rises, and its result says how far it had to.
//!
//! | stage | what is done | until |
//! | --- | --- | --- |
//! | [`Stage::Ended`] | nothing: it had ended | |
//! | [`Stage::Asked`] | `SIGTERM`, and `SIGCONT` in case it is stopped | the grace period |
//! | [`Stage::Killed`] | `SIGKILL` to the child and to the group, as far as [`Reach`] says | the deadline |
//! | sweep ([`Reach::Descendants`]) | `SIGKILL` to every process that is proved to descend from it and is left | none is left, or the deadline |
//!
//! A stopped process handles no `SIGTERM` before it goes on, hence the `SIGCONT`; `SIGKILL` ends a
//! stopped one too. What is not gone at the deadline hangs in the kernel; it is named, not waited
//! for.
//!
//! The child is reaped last of all: until then its zombie keeps the number of its group from being
//! given to anybody else, so that the group kill cannot hit a stranger.

use std::time::{Duration, Instant};

use crate::cause::ExitCause;
use crate::child::{Child, ChildError};
use crate::pid::Pid;
use crate::signal::Signal;
use crate::sweep::{Family, Stray};
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

/// Who goes with a child that is ended. The order is severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reach {
    /// The child alone. Children that procfork made follow it by themselves.
    Process,
    /// Its process group as well, however the child itself ended: the one that it leads; for
    /// [`Children`](crate::Children), each group that one of them was put into.
    Group,
    /// Every process that descends from it as well, also those that left the group or lost their
    /// parents. Looks through all processes of the machine, which takes some milliseconds; through
    /// those below this process where it [adopts orphans](crate::adopt_orphans) since before the child
    /// was made.
    Descendants,
}

/// A plan for ending children. See the module for the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Escalation {
    /// How long to wait after asking. Zero asks nobody.
    pub grace: Duration,
    /// Who goes too.
    pub reach: Reach,
}

impl Escalation {
    /// Asks, kills after the grace period, and takes the group along.
    pub fn after(grace: Duration) -> Self {
        Self {
            grace,
            reach: Reach::Group,
        }
    }

    /// The same with another reach.
    #[must_use]
    pub fn reach(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }
}

/// How a child was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Termination {
    /// How it ended, exactly.
    pub cause: ExitCause,
    /// How far it had to go.
    pub stage: Stage,
    /// Descendants that had to be swept up, with [`Reach::Descendants`].
    pub strays: Vec<Stray>,
}

/// After `SIGKILL` a process is gone as soon as the kernel has freed its memory; one that hangs in
/// a driver may never be.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

impl Child {
    /// Ends the child: asks, waits for the grace period, then kills it with the group that it
    /// leads, if it was made with [`Group::New`](crate::Group::New). The child is reaped.
    ///
    /// Takes at most the grace period and two seconds.
    ///
    /// # Errors
    ///
    /// [`ChildError::StillThere`] when even `SIGKILL` did not end it in time. It can be tried again.
    pub fn terminate(&self, grace: Duration) -> Result<Termination, ChildError> {
        let deadline = after(grace.saturating_add(KILL_PATIENCE));
        self.terminate_with(Escalation::after(grace), deadline)
    }

    /// Ends the child by this plan, until the deadline. The grace period is cut at the deadline.
    ///
    /// # Errors
    ///
    /// [`ChildError::StillThere`] when it has not ended by the deadline. It can be tried again.
    pub fn terminate_with(
        &self,
        plan: Escalation,
        deadline: Instant,
    ) -> Result<Termination, ChildError> {
        self.try_wait()?;
        let led = |child: &Child| child.proven_group().filter(|group| *group == child.pid());
        let attempt = Attempt {
            children: &[self],
            plan,
            deadline,
            group_of: &led,
        };
        let (stages, strays) = attempt.run();
        match self.reap()? {
            Some(cause) => Ok(Termination {
                cause,
                stage: stages[0],
                strays,
            }),
            None => Err(self.still_there(self.status()?)),
        }
    }

    /// `SIGTERM`, and `SIGCONT` so that a stopped child gets to handle it.
    ///
    /// A failure means that it has ended, which the wait that follows finds.
    fn ask(&self) {
        self.send(Signal::TERM);
        self.send(Signal::CONT);
    }

    /// `SIGKILL` to the child alone.
    fn kill(&self) {
        self.send(Signal::KILL);
    }

    /// To an own child only: in a forked copy of the parent the number of the pidfd may be that of another.
    fn send(&self, signal: Signal) {
        if self.is_own() {
            let _ = process::signal_pidfd(self.pidfd(), signal);
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.try_wait(), Ok(Some(_)))
    }
}

/// So long from now; a time beyond what the clock can hold is one that nobody lives to see.
fn after(time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(time).unwrap_or_else(|| now + FAR)
}

/// One attempt to end some children of this process. It reaps none of them.
pub(crate) struct Attempt<'a> {
    pub(crate) children: &'a [&'a Child],
    pub(crate) plan: Escalation,
    pub(crate) deadline: Instant,
    /// The group to kill with a child, proved to be ours at this moment.
    pub(crate) group_of: &'a dyn Fn(&Child) -> Option<Pid>,
}

impl Attempt<'_> {
    /// How far it had to go for each child, and what was swept up after them.
    pub(crate) fn run(&self) -> (Vec<Stage>, Vec<Stray>) {
        let sweeps = self.plan.reach >= Reach::Descendants;
        // Before anybody ends: the children of a process are lost from sight with it.
        let mut family = sweeps.then(|| Family::of(self.children));
        let before = self.ended();
        self.ask();
        let asked = self.ended();
        family.iter_mut().for_each(Family::grow);
        self.kill();
        self.wait(self.deadline);
        let strays = family
            .map(|family| family.sweep(self.deadline))
            .unwrap_or_default();
        let stages = before.iter().zip(&asked).map(|pair| match pair {
            (true, _) => Stage::Ended,
            (false, true) => Stage::Asked,
            (false, false) => Stage::Killed,
        });
        (stages.collect(), strays)
    }

    fn ask(&self) {
        if self.plan.grace.is_zero() {
            return;
        }
        self.children
            .iter()
            .filter(|child| !child.has_ended())
            .for_each(|child| child.ask());
        self.wait(self.deadline.min(after(self.plan.grace)));
    }

    fn kill(&self) {
        if self.plan.reach >= Reach::Group {
            let proved = self
                .children
                .iter()
                .filter_map(|child| (self.group_of)(child));
            let mut groups: Vec<Pid> = proved.collect();
            groups.sort_unstable();
            groups.dedup();
            for group in groups {
                // ESRCH: nobody is left in it.
                let _ = process::signal_group(group, Signal::KILL);
            }
        }
        self.children.iter().for_each(|child| child.kill());
    }

    /// Until all have ended, or the time; which of them have not, `ended` tells.
    fn wait(&self, until: Instant) {
        for child in self.children {
            let _ = child.wait(until);
        }
    }

    fn ended(&self) -> Vec<bool> {
        self.children
            .iter()
            .map(|child| child.has_ended())
            .collect()
    }
}
