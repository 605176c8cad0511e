//! Device memory that was released while tasks used it, on its way back to the device.
//!
//! ```text
//!  free_after_runs ─┐                          last use ended            native free, unmap
//!  release          ├─> retired in the table ─────────────────> due ──────────────────────> gone
//!  end of a run     ┘   (refused from now on)                        a job per chip worker
//! ```
//!
//! Looked at when a run ends, after a copy, and when something is released. A chip worker serves its requests in order,
//! so an allocation that comes later finds the memory free.
//!
//! Who ended a run or released a domain waits for the jobs that came of it ([`Owed`]), and for nobody else's; and not for
//! a chip that is in a task, which serves no requests: that task may end only when the waiter has gone on. What is left
//! then is the background driver's.
//!
//! A domain goes as a whole: when the last use of the last of its windows has ended. One whose member died does not wait
//! for what was on it; chip workers unmap between tasks, and refuse tasks that name what is unmapped.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;
use provenance::{Ask, Operation, Revoked, Role, WorkerRef};
use taskgraph::RunId;

use super::Engine;
use super::core::Core;
use super::job::{Job, JobOutcome};
use super::run::RunCell;
use crate::control::{ControlReply, ControlRequest};
use crate::desk::name_of;
use crate::domain::DomainCore;

/// What waits, and what is on its way.
#[derive(Default)]
pub(super) struct Reclaim {
    /// The domains of each unfinished run, in the order of their allocation.
    of_runs: HashMap<RunId, Vec<Arc<DomainCore>>>,
    releasing: Vec<Releasing>,
    /// Jobs without an answer yet.
    pending: Arc<AtomicU32>,
    /// Bit `i`: the child on line `i` is in a task.
    busy: Arc<AtomicU64>,
    /// The number of the next job.
    next: u64,
    /// The run that is ending, which new jobs are owed to.
    ending: Option<Arc<RunCell>>,
}

/// The jobs that somebody may wait for: their lines and their numbers.
#[derive(Debug, Default)]
pub(crate) struct Owed(Mutex<Vec<(usize, u64)>>);

impl Owed {
    fn add(&self, line: usize, number: u64) {
        self.0.lock().push((line, number));
    }

    fn settle(&self, number: u64) {
        self.0.lock().retain(|(_, other)| *other != number);
    }

    /// Whether no line owes an answer but those with their bit in `busy`.
    fn is_over(&self, busy: u64) -> bool {
        self.0
            .lock()
            .iter()
            .all(|(line, _)| busy & (1 << line) != 0)
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// A released domain.
struct Releasing {
    domain: Arc<DomainCore>,
    /// Windows (viewer, shown rank) that somebody uses still.
    waiting: Vec<(usize, usize)>,
    /// Windows that nobody uses any more.
    revoked: Vec<Revoked>,
}

impl Engine {
    /// For what outlives a run, and perhaps its worker.
    pub(crate) fn weak(&self) -> Weak<Engine> {
        Weak::clone(&self.me)
    }

    /// Gives back what nobody uses any more.
    pub(crate) fn reclaim(&self) {
        if self.core().table().has_due() {
            self.change(Core::reclaim);
        }
    }

    /// Releases a domain: new uses are refused from now on.
    pub(crate) fn release_domain(&self, domain: &Arc<DomainCore>) {
        self.change(|core| core.release_domain(domain));
    }

    /// Every child has ended.
    pub(crate) fn tree_ended(&self) {
        self.change(Core::lives_ended);
    }

    /// Waits until what is owed is given back by every chip that is not in a task, driving meanwhile. The background driver
    /// does the rest.
    pub(crate) fn await_given_back(&self, owed: &Owed) {
        // Relaxed: changed under core by whoever drives, who wakes the sleepers.
        let over = || owed.is_over(self.busy.load(Ordering::Relaxed));
        self.wait_until(None, &over);
        if !owed.is_empty()
            && let Err(error) = self.ensure_background()
        {
            tracing::warn!(%error, "what is released is given back when somebody drives again");
        }
    }

    /// Whether memory is on its way back, which somebody must drive.
    pub(super) fn is_reclaiming(&self) -> bool {
        // Relaxed: changed under core only; who acts on it without core is told of changes otherwise.
        self.reclaiming.load(Ordering::Relaxed) > 0
    }
}

impl Core {
    /// The number of jobs on their way, also for who does not hold core.
    pub(crate) fn reclaiming(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.reclaim.pending)
    }

    /// Which lines are in a task, also for who does not hold core.
    pub(crate) fn busy(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.reclaim.busy)
    }

    /// The child on a line is in a task, or in none any more.
    pub(super) fn note_busy(&self, line: usize, is_busy: bool) {
        let (busy, bit) = (&self.reclaim.busy, 1_u64 << line);
        // Relaxed: under core only, as in `await_given_back`.
        let now = busy.load(Ordering::Relaxed);
        let next = if is_busy { now | bit } else { now & !bit };
        busy.store(next, Ordering::Relaxed);
    }

    /// The domain is released when the run ends, unless it was told to stay.
    pub(crate) fn own_domain(&mut self, run: RunId, domain: &Arc<DomainCore>) {
        let of_run = self.reclaim.of_runs.entry(run).or_default();
        of_run.push(Arc::clone(domain));
    }

    /// A run is over: releases what it forgot, and gives back what it was the last to use. The jobs are owed to it.
    pub(super) fn reclaim_after(&mut self, run: RunId, cell: &Arc<RunCell>) {
        let reclaim = &self.reclaim;
        if reclaim.of_runs.is_empty() && reclaim.releasing.is_empty() && !self.table().has_due() {
            return;
        }
        self.reclaim.ending = Some(Arc::clone(cell));
        self.sweep_domains(run);
        self.reclaim();
        self.reclaim.ending = None;
    }

    /// Releases what a run forgot, last first.
    fn sweep_domains(&mut self, run: RunId) {
        let domains = self.reclaim.of_runs.remove(&run).unwrap_or_default();
        for domain in domains.iter().rev().filter(|domain| !domain.is_retained()) {
            self.release_domain(domain);
        }
    }

    pub(super) fn release_domain(&mut self, domain: &Arc<DomainCore>) {
        if !domain.begin_release() {
            return;
        }
        let (mut waiting, mut revoked) = (Vec::new(), Vec::new());
        for (viewer, rank, ptr) in domain.windows() {
            match self.table().retire(Ask::owner(Operation::Release), ptr) {
                Ok(Some(unused)) => revoked.push(unused),
                Ok(None) => waiting.push((viewer, rank)),
                // Lost with a worker, which is the table's to know.
                Err(_) => {}
            }
        }
        self.reclaim.releasing.push(Releasing {
            domain: Arc::clone(domain),
            waiting,
            revoked,
        });
        self.unmap_unused();
    }

    /// Gives back what has seen its last use since the last call.
    pub(super) fn reclaim(&mut self) {
        for unused in self.table().due() {
            match unused.role() {
                Role::Allocation => self.free_later(unused),
                Role::Window => self.window_unused(unused),
            }
        }
        self.unmap_unused();
    }

    /// A life is over: nobody waits for what was on it.
    pub(super) fn memory_lost(&mut self, life: WorkerRef) {
        for releasing in &mut self.reclaim.releasing {
            if let Some(rank) = releasing.domain.rank_of(life) {
                releasing
                    .waiting
                    .retain(|&(viewer, shown)| viewer != rank && shown != rank);
            }
        }
        self.unmap_unused();
    }

    /// Every process below has ended, and its memory with it: whatever is released now is freed at once.
    pub(super) fn lives_ended(&mut self) {
        let lives: Vec<WorkerRef> = (0..self.n_lives()).map(|line| self.life(line)).collect();
        for life in &lives {
            self.table().worker_lost(*life);
            self.end_life(life.id as usize);
        }
        // Now none of them is asked to unmap anything.
        lives.into_iter().for_each(|life| self.memory_lost(life));
    }

    fn free_later(&mut self, unused: Revoked) {
        let ptr = unused.ptr();
        let request = ControlRequest::Free { name: name_of(ptr) };
        let line = ptr.worker().id as usize;
        let settled = self.settled(line, None);
        let job = Job::with_after(line, request, move |outcome, later| {
            match is_done(outcome) {
                true => unused.freed(),
                // Dropped: a leak.
                false => {
                    let outcome = outcome.clone();
                    later.tell(move || tracing::error!(%ptr, ?outcome, "device memory is leaked"));
                }
            }
            settled();
        });
        self.jobs.push(job);
    }

    fn window_unused(&mut self, unused: Revoked) {
        let ptr = unused.ptr();
        for releasing in &mut self.reclaim.releasing {
            if let Some((viewer, rank)) = releasing.domain.find(ptr) {
                releasing.waiting.retain(|at| *at != (viewer, rank));
                releasing.revoked.push(unused);
                return;
            }
        }
        // Its domain did not wait for it, because a member died.
        unused.freed();
    }

    /// Sends the unmaps of domains that nobody uses any more, in the order of their release.
    fn unmap_unused(&mut self) {
        let releasing = &mut self.reclaim.releasing;
        let unused: Vec<Releasing> = releasing
            .extract_if(.., |releasing| releasing.waiting.is_empty())
            .collect();
        unused.into_iter().for_each(|unused| self.unmap(unused));
    }

    fn unmap(&mut self, unused: Releasing) {
        let Releasing {
            domain,
            mut revoked,
            ..
        } = unused;
        let alive: Vec<usize> = (0..domain.n_ranks())
            .filter(|&rank| self.life(domain.member(rank).id as usize) == domain.member(rank))
            .collect();
        // Now, not when the last member has answered: whoever answers first may give the address to somebody else at once.
        let roots = domain.revoke_roots(self.table());
        if alive.is_empty() {
            domain.end_release(roots);
            return;
        }
        let left = Arc::new(Mutex::new((alive.len(), roots)));
        for rank in alive {
            let member = domain.member(rank);
            let mine: Vec<Revoked> = revoked
                .extract_if(.., |unused| unused.ptr().worker() == member)
                .collect();
            let windows = domain.wire_windows(rank);
            let (domain, left) = (Arc::clone(&domain), Arc::clone(&left));
            let line = member.id as usize;
            let settled = self.settled(line, Some(domain.owed()));
            let request = ControlRequest::UnmapDomain { windows };
            let job = Job::with_after(line, request, move |outcome, later| {
                match is_done(outcome) {
                    true => mine.into_iter().for_each(Revoked::freed),
                    false => domain.note_leak(rank, outcome, later),
                }
                let (unanswered, roots) = &mut *left.lock();
                *unanswered -= 1;
                if *unanswered == 0 {
                    domain.end_release(std::mem::take(roots));
                }
                settled();
            });
            self.jobs.push(job);
        }
    }

    /// Counts a job in, also for those that may wait for it; what comes back counts it out.
    fn settled(&mut self, line: usize, domain: Option<Arc<Owed>>) -> impl FnOnce() + Send + use<> {
        let number = self.reclaim.next;
        self.reclaim.next += 1;
        let waited: Vec<Arc<Owed>> = domain
            .into_iter()
            .chain(self.reclaim.ending.as_ref().map(|cell| cell.owed()))
            .collect();
        waited.iter().for_each(|owed| owed.add(line, number));
        let pending = self.reclaiming();
        pending.fetch_add(1, Ordering::Relaxed);
        move || {
            waited.iter().for_each(|owed| owed.settle(number));
            pending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Whether the memory is gone: given back, or with its process.
fn is_done(outcome: &JobOutcome) -> bool {
    matches!(
        outcome,
        JobOutcome::Reply(ControlReply::Done) | JobOutcome::Died(_)
    )
}
