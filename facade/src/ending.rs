//! The end of the children of one worker.

use std::time::{Duration, Instant};

use procfork::{Child, Pid};

use crate::config::NodeSpec;
use crate::engine::{Engine, Line, Lines};
use crate::error::Error;

/// How long the children of a worker may take to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    /// By themselves, when their mailboxes were shut down: enough for a child to end children of its own that hang.
    patience: Duration,
    /// After they were asked, before they are killed.
    grace: Duration,
}

impl Ending {
    pub(crate) const AT_ONCE: Ending = Ending {
        patience: Duration::ZERO,
        grace: Duration::ZERO,
    };

    /// What the limits of a worker and of those below it add up to.
    pub(crate) fn of(spec: &NodeSpec) -> Self {
        let grace = spec.limits.grace;
        let below = spec.children.iter().map(|child| Ending::of(child).whole());
        Self {
            patience: grace + below.max().unwrap_or_default(),
            grace,
        }
    }

    fn whole(self) -> Duration {
        self.patience + self.grace
    }
}

/// Ends the children of an engine: told at once, asked within the grace period, killed after it. Repeatable.
pub(crate) fn end_children(
    engine: &Engine,
    ending: Ending,
    deadline: Option<Instant>,
) -> Result<(), Error> {
    let deadline = deadline.unwrap_or_else(|| Instant::now() + KILL_PATIENCE);
    engine.stop_background();
    // Claimed until the end: a thread that still waits for a run must not sleep on children that are being ended.
    let mut lines = engine.claim_lines();
    lines.all.iter_mut().for_each(Line::shutdown);
    let mut children = engine.children.write();
    // A child leaves by itself when its mailbox is shut down; the escalation is for those that do not.
    let patience = deadline.min(Instant::now() + ending.patience);
    let _ = children.wait_all(patience);
    // A killed process needs a moment to vanish, budget or not.
    let closing = children.terminate(ending.grace, deadline.max(Instant::now() + KILL_PATIENCE));
    engine.lose_ended(&closing.ended, &mut lines);
    drop(lines);
    // What follows may look for the dead by itself.
    drop(children);
    for ended in closing
        .ended
        .iter()
        .filter(|ended| ended.stage > procfork::Stage::Ended)
    {
        tracing::warn!(worker = ended.name, pid = %ended.pid, cause = %ended.cause, stage = ?ended.stage,
            "a worker had to be ended");
    }
    // Their last words: nobody below writes any more.
    engine.logs.replay();
    if closing.survivors.is_empty() {
        engine.tree_ended();
        return Ok(());
    }
    let names: Vec<String> = closing
        .survivors
        .iter()
        .map(|survivor| {
            format!(
                "`{}` (pid {}, {:?})",
                survivor.name, survivor.pid, survivor.status
            )
        })
        .collect();
    Err(Error::Teardown {
        what: "the children",
        reason: format!("still there: {}", names.join(", ")),
    })
}

/// How long a killed process may take to vanish when the budget is used up.
pub(crate) const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// Lets go of what the parent had of children that are all ended: their mailboxes, channels and numbers. For a worker that
/// failed to start and is never used again.
pub(crate) fn forget_children(engine: &Engine) {
    *engine.claim_lines() = Lines::default();
    let mut children = engine.children.write();
    let pids: Vec<Pid> = children.iter().map(Child::pid).collect();
    for pid in pids {
        // Dropping it reaps it.
        drop(children.remove(pid));
    }
}
