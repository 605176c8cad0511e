//! Staging: the first tasks of the next run lie in their workers' mailboxes before the present run has ended.
//!
//! While run N executes, run N + 1 is built. The graph says what each worker will most likely be sent first then
//! (`Scheduler::next_run_begins_with`). That task is encoded into the free frame of its worker's mailbox, and its buffers
//! are announced; what is left to do when run N ends is one store.
//!
//! A staged body has no stamp: the child cannot see it, and the graph does not know of it. So there is nothing to agree
//! upon with the child, and nothing to take back when things turn out otherwise:
//!
//! | what happens | what becomes of the staged body |
//! | --- | --- |
//! | run N ends, and the graph sends this task to this worker | it gets its identity and its stamp |
//! | the graph sends something else to this worker | discarded; that is written instead |
//! | run N + 1 is cancelled, or the task is skipped | discarded by the next one; its number never comes back |
//! | the worker dies | gone with the mailbox; the task was never sent, and runs elsewhere where it may |

use mailbox::{Identity, Staged};
use taskgraph::TaskId;

use super::core::{Core, TaskRecord};
use super::lines::{Line, Lines};

/// The most buffers that are announced to a worker for tasks that it was not sent in the end. Announcements wait in a
/// socket of limited size, which the worker reads in tasks only, and those that are sent need their place in it.
const ANNOUNCED_MAX: usize = 64;

/// What lies in a free frame.
#[derive(Debug)]
pub(super) struct Ahead {
    task: TaskId,
    staged: Staged,
    /// How many buffers were announced for it.
    announced: usize,
}

impl Lines {
    /// Stages what the next run begins with, where there is room.
    pub(super) fn stage_ahead(&mut self, core: &mut Core) {
        for (worker, task) in core.graph.next_run_begins_with() {
            let line = &mut self.all[worker.0 as usize];
            if line.stage_ahead(core, task) {
                core.observer.staged_ahead();
            }
        }
    }
}

impl Line {
    /// Sends a task that was staged; `None` where it was not, and what was is discarded.
    pub(super) fn send_staged(
        &mut self,
        task: TaskId,
        identity: Identity,
    ) -> Option<Result<(), String>> {
        let ahead = self.ahead.take()?;
        if ahead.task != task {
            self.end.discard(ahead.staged);
            self.announced_ahead += ahead.announced;
            return None;
        }
        if ahead.announced > 0 {
            // It reads them all, and what was announced before.
            self.announced_ahead = 0;
        }
        let sent = self.end.activate_as(ahead.staged, identity);
        Some(sent.map_err(|error| crate::control::chain(&error)))
    }

    /// Stages a task unless that has been done. What fails here fails again, and is told, when the task is sent.
    fn stage_ahead(&mut self, core: &Core, task: TaskId) -> bool {
        if self.ahead.as_ref().is_some_and(|ahead| ahead.task == task) || self.died.is_some() {
            return false;
        }
        if let Some(ahead) = self.ahead.take() {
            // Its run was given up.
            self.end.discard(ahead.staged);
            self.announced_ahead += ahead.announced;
        }
        if self.end.free_frames() == 0 {
            return false;
        }
        let Some(record) = core.task(task) else {
            return false;
        };
        let Some(announced) = self.announce_ahead(record) else {
            return false;
        };
        let payload = record.payloads.first().map_or(&[][..], |bytes| bytes);
        // Whose number it gets is decided when it is sent.
        let staged = self.end.stage(Identity::default(), 0, payload).ok();
        self.ahead = staged.map(|staged| Ahead {
            task,
            staged,
            announced,
        });
        self.ahead.is_some()
    }

    /// Announces what a task names, and says how many buffers that were; `None` where they would be too many.
    fn announce_ahead(&mut self, record: &TaskRecord) -> Option<usize> {
        let new = record
            .buffers()
            .filter(|(buffer, how)| !self.knows(buffer, *how));
        let n_new = new.count();
        if n_new > 0 && self.announced_ahead + n_new > ANNOUNCED_MAX {
            return None;
        }
        let mut buffers = record.buffers();
        let all = buffers.try_for_each(|(buffer, how)| self.announce(buffer, how));
        if all.is_err() {
            self.announced_ahead += n_new;
            return None;
        }
        Some(n_new)
    }
}
