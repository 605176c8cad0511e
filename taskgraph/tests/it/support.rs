//! A graph with workers, and a driver that keeps what was dispatched.

use taskgraph::*;

pub(crate) const X: u64 = 1;

/// A tensor of 100 bytes, alone in its buffer.
pub(crate) fn tensor(id: u64) -> Tensor {
    let buffer = BufferId::new(1, id, 0, BufferKind::Shared);
    Tensor::contiguous(buffer, DType::U8, &[100], 100).unwrap()
}

/// Arguments from pairs of buffer and tag.
pub(crate) fn args(list: &[(u64, Tag)]) -> TaskArgs {
    let mut args = TaskArgs::new();
    for &(id, tag) in list {
        args.tensor(tensor(id), tag).unwrap();
    }
    args
}

/// A scheduler, its run, its workers, and every dispatch that was not answered.
pub(crate) struct Bench {
    pub(crate) graph: Scheduler,
    pub(crate) run: RunId,
    pub(crate) next_level: Vec<WorkerId>,
    pub(crate) open: Vec<Dispatch>,
    pub(crate) effects: Vec<Effect>,
}

impl Bench {
    /// With this many next-level workers and sub workers.
    pub(crate) fn new(n_next: usize, n_subs: usize, depth: Depth) -> Bench {
        let mut graph = Scheduler::default();
        let next_level = (0..n_next)
            .map(|_| graph.add_worker(WorkerKind::NextLevel, depth).unwrap())
            .collect();
        for _ in 0..n_subs {
            graph.add_worker(WorkerKind::Sub, depth).unwrap();
        }
        let run = graph.begin_run();
        Bench {
            graph,
            run,
            next_level,
            open: Vec::new(),
            effects: Vec::new(),
        }
    }

    pub(crate) fn submit(&mut self, placement: Placement<'_>, list: &[(u64, Tag)]) -> TaskId {
        let args = args(list);
        self.graph
            .submit(self.run, &TaskSpec::new(placement).args(&args))
            .unwrap()
    }

    pub(crate) fn on(&mut self, worker: usize, list: &[(u64, Tag)]) -> TaskId {
        self.submit(Placement::On(self.next_level[worker]), list)
    }

    /// Takes every decision there is; the tasks that were sent now.
    pub(crate) fn dispatch(&mut self) -> Vec<TaskId> {
        let new: Vec<_> = std::iter::from_fn(|| self.graph.next_dispatch()).collect();
        self.open.extend(&new);
        new.iter().map(|dispatch| dispatch.task).collect()
    }

    /// Answers the oldest open dispatch of a task, then takes every new decision.
    pub(crate) fn finish(&mut self, task: TaskId, outcome: Outcome) -> Vec<TaskId> {
        let at = self
            .open
            .iter()
            .position(|dispatch| dispatch.task == task)
            .unwrap();
        let dispatch = self.open.remove(at).dispatch;
        self.graph.completed(dispatch, outcome).unwrap();
        self.dispatch()
    }

    pub(crate) fn ok(&mut self, task: TaskId) -> Vec<TaskId> {
        self.finish(task, Outcome::Ok)
    }

    pub(crate) fn fail(&mut self, task: TaskId) -> Vec<TaskId> {
        self.finish(task, Outcome::Failed)
    }

    /// How a task ended, when it has.
    pub(crate) fn end_of(&mut self, wanted: TaskId) -> Option<TaskEnd> {
        self.effects
            .extend(std::iter::from_fn(|| self.graph.next_effect()));
        let mut ends = self.effects.iter().filter_map(|effect| match effect {
            Effect::TaskFinished { task, end, .. } if *task == wanted => Some(*end),
            _ => None,
        });
        let end = ends.next();
        assert_eq!(ends.next(), None, "{wanted} ended twice");
        end
    }

    pub(crate) fn outcome(&self) -> RunOutcome {
        match self.graph.run_status(self.run) {
            Some(RunStatus::Done(outcome)) => outcome,
            other => panic!("the run is not over: {other:?}"),
        }
    }
}
