//! The same shapes through our scheduler.

use std::time::Instant;

use taskgraph::*;

/// Tasks that are live at once when they are executed while more are submitted: what libgomp lets wait for two threads.
pub(crate) const WINDOW: usize = 128;

/// Buffers of the shape that reads two and writes one.
const BUFFERS: u64 = 64;

/// What depends on what.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each task updates the same buffer.
    Chain,
    /// Each task writes a buffer of its own.
    Independent,
    /// Each task reads two of 64 buffers and writes a third.
    InInOut,
}

/// When tasks are executed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feeding {
    /// While more are submitted.
    Stream,
    /// When all are submitted.
    AllFirst,
}

impl Shape {
    pub(crate) const ALL: [Shape; 3] = [Shape::Chain, Shape::Independent, Shape::InInOut];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Shape::Chain => "chain",
            Shape::Independent => "independent",
            Shape::InInOut => "in_in_out",
        }
    }

    /// How many different argument lists there are. That of an independent task is the same but for the buffer.
    fn period(self) -> u64 {
        match self {
            Shape::Chain | Shape::Independent => 1,
            Shape::InInOut => BUFFERS,
        }
    }

    fn accesses(self, i: u64) -> Vec<Access> {
        match self {
            Shape::Chain => vec![access(0, Tag::InOut)],
            Shape::Independent => vec![access(i, Tag::Output)],
            Shape::InInOut => vec![
                access(i % BUFFERS, Tag::Input),
                access((7 * i + 1) % BUFFERS, Tag::Input),
                access((13 * i + 6) % BUFFERS, Tag::Output),
            ],
        }
    }
}

fn access(buffer: u64, tag: Tag) -> Access {
    let buffer = BufferId::new(0x5eed, buffer, 0, BufferKind::Shared);
    let tensor = Tensor::contiguous(buffer, DType::F32, &[64, 64], 64 * 64 * 4).expect("it fits");
    Access::new(&tensor, tag)
}

/// A scheduler with one worker, and the arguments of the tasks that go through it.
pub(crate) struct Graph {
    scheduler: Scheduler,
    on: Placement<'static>,
    run: RunId,
    tasks: Vec<Vec<Access>>,
    n_tasks: u64,
    shape: Shape,
}

impl Graph {
    pub(crate) fn new(shape: Shape, n_tasks: u64) -> Graph {
        let mut scheduler = Scheduler::default();
        let worker = scheduler
            .add_worker(WorkerKind::NextLevel, Depth::One)
            .expect("the first");
        let run = scheduler.begin_run();
        let tasks = (0..shape.period()).map(|i| shape.accesses(i)).collect();
        Graph {
            scheduler,
            on: Placement::On(worker),
            run,
            tasks,
            n_tasks,
            shape,
        }
    }

    /// Nanoseconds per task.
    pub(crate) fn run(&mut self, feeding: Feeding) -> f64 {
        let start = Instant::now();
        let (mut n_live, mut n_ended) = (0, 0);
        for i in 0..self.n_tasks as usize {
            self.submit(i);
            n_live += 1;
            if feeding == Feeding::Stream && n_live == WINDOW {
                n_live -= WINDOW / 2;
                n_ended += self.execute(WINDOW / 2);
            }
        }
        n_ended += self.execute(n_live);
        assert_eq!(n_ended as u64, self.n_tasks, "every task has ended");
        start.elapsed().as_nanos() as f64 / self.n_tasks as f64
    }

    /// The peers make the arguments of a task while they submit it, too.
    fn submit(&mut self, i: usize) {
        let at = i % self.tasks.len();
        if self.shape == Shape::Independent {
            self.tasks[at][0].buffer.id = i as u64;
        }
        let spec = TaskSpec {
            accesses: &self.tasks[at],
            ..TaskSpec::new(self.on)
        };
        self.scheduler
            .submit(self.run, &spec)
            .expect("the run is open");
    }

    /// Dispatches and completes so many tasks; how many ended.
    fn execute(&mut self, n: usize) -> usize {
        let mut n_ended = 0;
        for _ in 0..n {
            let next = self.scheduler.next_dispatch().expect("a task is ready");
            self.scheduler
                .completed(next.dispatch, Outcome::Ok)
                .expect("it is in flight");
            n_ended += std::iter::from_fn(|| self.scheduler.next_effect()).count();
        }
        n_ended
    }
}
