//! Device memory that was released while tasks used it, on its way back to the device.
//!
//! ```text
//!  free_after_runs ─┐                          last use ended            native free, unmap
//!  release          ├─> retired in the table ─────────────────> due ──────────────────────> gone
//!  end of a run     ┘   (refused from now on)                        a job per chip worker
//! ```
//!
//! Looked at when a run ends, after a copy, and when something is released. Nobody waits for the jobs but who wants to
//! ([`Engine::await_reclaimed`]): a chip worker serves its requests in order, so an allocation that comes later finds the
//! memory free.
//!
//! A domain goes as a whole: when the last use of the last of its windows has ended. One whose member died does not wait
//! for what was on it; chip workers unmap between tasks, and refuse tasks that name what is unmapped.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use provenance::{Ask, Operation, Revoked, Role, WorkerRef};
use taskgraph::RunId;

use super::Engine;
use super::core::{Core, Job, JobOutcome};
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

    /// Waits until everything that could be given back is, driving meanwhile.
    pub(crate) fn await_reclaimed(&self) {
        // Acquire: partner of the release in `settled`.
        if self.reclaiming.load(Ordering::Acquire) > 0 {
            let over = || self.reclaiming.load(Ordering::Acquire) == 0;
            self.wait_until(None, &over);
        }
    }
}

impl Core {
    /// The number of jobs on their way, also for who does not hold core.
    pub(crate) fn reclaiming(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.reclaim.pending)
    }

    /// The domain is released when the run ends, unless it was told to stay.
    pub(crate) fn own_domain(&mut self, run: RunId, domain: &Arc<DomainCore>) {
        let of_run = self.reclaim.of_runs.entry(run).or_default();
        of_run.push(Arc::clone(domain));
    }

    /// Releases what a run forgot, last first.
    pub(super) fn sweep_domains(&mut self, run: RunId) {
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

    fn free_later(&mut self, unused: Revoked) {
        let ptr = unused.ptr();
        let request = ControlRequest::Free { name: name_of(ptr) };
        let settled = self.settled();
        let job = Job::with_after(ptr.worker().id as usize, request, move |outcome| {
            match is_done(outcome) {
                true => unused.freed(),
                // Dropped: a leak.
                false => tracing::error!(%ptr, ?outcome, "device memory is leaked"),
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
        let left = Arc::new(AtomicU32::new(alive.len() as u32));
        if alive.is_empty() {
            domain.end_release(self.table());
        }
        for rank in alive {
            let member = domain.member(rank);
            let mine: Vec<Revoked> = revoked
                .extract_if(.., |unused| unused.ptr().worker() == member)
                .collect();
            let windows = domain.wire_windows(rank);
            let (domain, left, table) =
                (Arc::clone(&domain), Arc::clone(&left), self.table().clone());
            let settled = self.settled();
            let request = ControlRequest::UnmapDomain { windows };
            let job = Job::with_after(member.id as usize, request, move |outcome| {
                match is_done(outcome) {
                    true => mine.into_iter().for_each(Revoked::freed),
                    false => domain.note_leak(rank, outcome),
                }
                // Relaxed: all of them are called under core.
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    domain.end_release(&table);
                }
                settled();
            });
            self.jobs.push(job);
        }
    }

    /// Counts a job in; what comes back counts it out.
    fn settled(&self) -> impl FnOnce() + Send + use<> {
        let pending = self.reclaiming();
        pending.fetch_add(1, Ordering::Relaxed);
        move || {
            // Release: partner of the acquire in `await_reclaimed`.
            pending.fetch_sub(1, Ordering::Release);
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
