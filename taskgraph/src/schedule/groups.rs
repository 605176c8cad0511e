//! Groups: all members start at once, on distinct workers, or none does.
//!
//! Every next-level worker has a line of the groups that wait for it. A group is a *head* when it is
//! first in line at each of its workers. A head reserves them: they get no further single task, so
//! it starts after at most what was on them already and, when their last task was a group too, one
//! more task that is older than itself. The oldest waiting group is always a head, and
//! two heads never share a worker, so groups cannot wait for each other in a circle, and a group on
//! other workers is not held up by one that waits.
//!
//! Groups of sub workers name no worker. They stand in one line; while it is not empty an idle sub
//! worker is held for its head.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::spec::{Failure, TaskEnd};
use super::workers::{WorkerSet, Workers};
use crate::ids::WorkerId;

/// One group that waits or runs.
pub(super) struct Group {
    pub(super) slot: u32,
    /// Empty until the start for a group of sub workers.
    pub(super) targets: SmallVec<[WorkerId; 8]>,
    pub(super) n_members: u32,
    pub(super) is_sub: bool,
    /// Workers at which the group is first in line.
    n_fronts: u32,
    /// Members that have not ended.
    n_left: u32,
    failure: Option<Failure>,
    pub(super) is_reported: bool,
}

impl Group {
    /// The workers that may run a member.
    pub(super) fn candidates(&self, workers: &Workers) -> WorkerSet {
        match self.is_sub {
            true => workers.subs,
            false => WorkerSet::of(&self.targets),
        }
    }

    /// Whether enough of its workers are alive.
    pub(super) fn can_run(&self, workers: &Workers) -> bool {
        if self.is_sub {
            return self.n_members <= workers.live_subs().len();
        }
        self.targets
            .iter()
            .all(|&worker| workers.live().contains(worker))
    }
}

/// All groups.
#[derive(Default)]
pub(super) struct Groups {
    all: Vec<Group>,
    free: Vec<u32>,
    pub(super) sub_line: VecDeque<u32>,
    /// Groups that stand in line.
    n_waiting: usize,
}

impl Groups {
    /// A group on these workers, or, without any, on that many sub workers.
    pub(super) fn add(&mut self, targets: &[WorkerId], n_subs: u32) -> u32 {
        let is_sub = targets.is_empty();
        let n_members = if is_sub { n_subs } else { targets.len() as u32 };
        let group = Group {
            slot: u32::MAX,
            targets: SmallVec::from_slice(targets),
            n_members,
            is_sub,
            n_fronts: 0,
            n_left: n_members,
            failure: None,
            is_reported: false,
        };
        if let Some(index) = self.free.pop() {
            self.all[index as usize] = group;
            return index;
        }
        self.all.push(group);
        self.all.len() as u32 - 1
    }

    pub(super) fn remove(&mut self, group: u32) {
        self.free.push(group);
    }

    /// Whether no group stands in line.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.n_waiting == 0
    }

    /// Whether the group is first in line at each of its workers.
    pub(super) fn is_head(&self, group: u32) -> bool {
        let group = &self[group];
        group.n_fronts == group.n_members
    }

    /// Puts a ready group in line at each of its workers.
    pub(super) fn enter(&mut self, index: u32, workers: &mut Workers) {
        self.n_waiting += 1;
        if self[index].is_sub {
            self.sub_line.push_back(index);
            return;
        }
        let group = &mut self.all[index as usize];
        for &worker in &group.targets {
            let line = &mut workers[worker].groups;
            line.push_back(index);
            group.n_fronts += u32::from(line.len() == 1);
        }
    }

    /// Takes a group out of every line it stands in, because it starts or ends.
    pub(super) fn leave(&mut self, index: u32, workers: &mut Workers) {
        self.n_waiting -= 1;
        if self[index].is_sub {
            self.sub_line.retain(|&other| other != index);
            return;
        }
        for member in 0..self[index].targets.len() {
            let worker = self[index].targets[member];
            let line = &mut workers[worker].groups;
            let Some(at) = line.iter().position(|&other| other == index) else {
                continue;
            };
            line.remove(at);
            if at == 0
                && let Some(&front) = line.front()
            {
                self[front].n_fronts += 1;
            }
        }
        self[index].n_fronts = 0;
    }

    /// The groups that stand in a line, each once.
    pub(super) fn waiting(&self, workers: &Workers) -> Vec<u32> {
        let mut waiting: Vec<u32> = workers
            .all_groups()
            .chain(self.sub_line.iter().copied())
            .collect();
        waiting.sort_unstable();
        waiting.dedup();
        waiting
    }

    /// Counts the end of one member; at the last one, says how the group ended.
    pub(super) fn member_ended(&mut self, at: u32, failure: Option<Failure>) -> Option<TaskEnd> {
        let group = &mut self[at];
        group.failure = group.failure.or(failure);
        group.n_left -= 1;
        (group.n_left == 0).then_some(group.failure.map_or(TaskEnd::Completed, TaskEnd::Failed))
    }
}

impl std::ops::Index<u32> for Groups {
    type Output = Group;

    fn index(&self, group: u32) -> &Group {
        &self.all[group as usize]
    }
}

impl std::ops::IndexMut<u32> for Groups {
    fn index_mut(&mut self, group: u32) -> &mut Group {
        &mut self.all[group as usize]
    }
}
