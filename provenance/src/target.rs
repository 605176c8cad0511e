//! Where a task runs: its device arguments decide, or it is refused.

use crate::error::{Ask, Operation, Refused};
use crate::ptr::Span;
use crate::table::Table;

/// Where a task is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// Exactly there.
    On(u32),
    /// On any of these; to be settled before dependency keys are built.
    Any(&'a [u32]),
}

/// A task that has no one place to run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoTarget {
    /// No device argument decides (windows can be seen by several workers), and not exactly one
    /// worker can take it.
    #[error(
        "choose a worker: no device argument decides, and the candidates are {candidates:?}; name one"
    )]
    Ambiguous {
        /// Who could take it.
        candidates: Vec<u32>,
    },
    /// Two members of a group would run on one worker, and so not at once.
    #[error(
        "place group member {second} on worker {worker}: member {first} is there already, \
         and members run at once on distinct workers"
    )]
    Duplicate {
        /// The worker that both need.
        worker: u32,
        /// The member that has it.
        first: usize,
        /// The member that was refused.
        second: usize,
    },
    /// The memory is on a worker that may not take it.
    #[error("run where {span} is: worker {owner} is not among the candidates {candidates:?}")]
    NotEligible {
        /// The argument.
        span: Span,
        /// Its owner.
        owner: u32,
        /// Who could take the task.
        candidates: Vec<u32>,
    },
    /// An argument is not worth its range, or not on the wanted worker.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Two arguments are on different workers.
    #[error(
        "run one task on {first} and {second}: they are on workers {} and {}; copy one over",
        first.ptr.worker().id, second.ptr.worker().id
    )]
    Split {
        /// The first argument.
        first: Span,
        /// The first that is elsewhere.
        second: Box<Span>,
    },
}

impl Table {
    /// The one worker on which a task with these device arguments can run.
    ///
    /// The same for an explicit and for an open wish, so one buffer has one owner in every key.
    /// An argument is on every worker that sees it: its owner, and those with a window on it.
    /// To rule out that an argument is freed between this and the dispatch, [`hold`](Self::hold)
    /// the arguments first.
    ///
    /// # Errors
    /// When an argument is dead or out of range, arguments are on several workers or not on the
    /// wanted one, or none decides and there is not exactly one candidate.
    pub fn resolve_target(&self, args: &[Span], wanted: Wanted<'_>) -> Result<u32, NoTarget> {
        match wanted {
            Wanted::On(worker) => {
                let ask = Ask::on(Operation::Argument, worker);
                for &arg in args {
                    self.check(ask, self.seen_from(ask, arg)?)?;
                }
                Ok(worker)
            }
            Wanted::Any(&[only]) if args.is_empty() => Ok(only),
            Wanted::Any(several) if args.is_empty() => Err(ambiguous(several)),
            Wanted::Any(eligible) => self.resolve_open(args, eligible),
        }
    }

    /// The one eligible worker that sees all of the arguments.
    fn resolve_open(&self, args: &[Span], eligible: &[u32]) -> Result<u32, NoTarget> {
        let ask = Ask::owner(Operation::Argument);
        let first = args[0];
        let mut seeing = self.viewers(ask, first)?;
        for &second in &args[1..] {
            let viewers = self.viewers(ask, second)?;
            seeing.retain(|worker| viewers.contains(worker));
            if seeing.is_empty() {
                let second = Box::new(second);
                return Err(NoTarget::Split { first, second });
            }
        }
        seeing.retain(|worker| eligible.contains(worker));
        match *seeing.as_slice() {
            [worker] => Ok(worker),
            [] => Err(NoTarget::NotEligible {
                span: first,
                owner: first.ptr.worker().id,
                candidates: eligible.to_vec(),
            }),
            ref several => Err(ambiguous(several)),
        }
    }

    /// The workers of the members of a group, in order: all distinct.
    ///
    /// # Errors
    /// For the first member that has no target, or the target of another member.
    ///
    /// Cost: quadratic in the members, which are at most as many as chips.
    pub fn resolve_group(&self, members: &[(&[Span], Wanted<'_>)]) -> Result<Vec<u32>, NoTarget> {
        let mut workers: Vec<u32> = Vec::with_capacity(members.len());
        for (second, (args, wanted)) in members.iter().enumerate() {
            let worker = self.resolve_target(args, *wanted)?;
            if let Some(first) = workers.iter().position(|&taken| taken == worker) {
                return Err(NoTarget::Duplicate {
                    worker,
                    first,
                    second,
                });
            }
            workers.push(worker);
        }
        Ok(workers)
    }
}

fn ambiguous(candidates: &[u32]) -> NoTarget {
    NoTarget::Ambiguous {
        candidates: candidates.to_vec(),
    }
}
