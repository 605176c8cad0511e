//! What children answer, as the graph and whoever waits understand it.

use mailbox::{Event, Outcome};
use taskgraph::{BufferId, DispatchId, TaskId};

use super::core::Core;
use super::job::JobOutcome;
use crate::control::{self, ControlReply, FaultKind, RemoteError};
use crate::error::{Name, TaskCause};

/// Takes what a child said of a task. Gives the buffers of one that could not map them, to be announced again.
pub(super) fn take_event(
    event: Event<'_>,
    line: usize,
    path: &Name,
    core: &mut Core,
) -> Option<Vec<BufferId>> {
    let mut unmapped = None;
    match event {
        Event::Accepted(identity) => {
            core.observer.accepted(line, DispatchId(identity.dispatch));
            // An error says that the run has been given up meanwhile.
            let _ = core.graph.accepted(DispatchId(identity.dispatch));
        }
        Event::Done {
            identity, outcome, ..
        } => {
            let outcome = match outcome {
                Outcome::Ok(_) => taskgraph::Outcome::Ok,
                Outcome::Failed(failure) => {
                    let task = TaskId {
                        slot: identity.slot,
                        generation: identity.generation,
                    };
                    let remote = RemoteError::from_failure(&failure);
                    if remote.kind == FaultKind::Mapping {
                        unmapped = core.buffers_of(task);
                    }
                    core.note_failure(task, path, TaskCause::Remote(Box::new(remote)));
                    taskgraph::Outcome::Failed
                }
            };
            let dispatch = DispatchId(identity.dispatch);
            let is_ok = outcome == taskgraph::Outcome::Ok;
            core.observer.done(line, dispatch, is_ok);
            // An error says that the worker was declared lost meanwhile.
            let _ = core.graph.completed(dispatch, outcome);
        }
    }
    unmapped
}

pub(super) fn decode_reply(outcome: Outcome<'_>) -> JobOutcome {
    match outcome {
        Outcome::Ok(bytes) => match control::decode::<ControlReply>(bytes) {
            Ok(reply) => JobOutcome::Reply(reply),
            Err(error) => JobOutcome::Protocol(format!("an answer that is no message: {error}")),
        },
        Outcome::Failed(failure) => {
            JobOutcome::Reply(ControlReply::Failed(RemoteError::from_failure(&failure)))
        }
    }
}
