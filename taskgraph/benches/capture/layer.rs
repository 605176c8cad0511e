//! A layer of a model as tasks, and a scheduler that runs it one way or the other.

use std::num::NonZeroU32;
use std::sync::Arc;

use taskgraph::capture::{Cache, CacheLimits, Definition, Lookup, NodeSpec, Recorder};
use taskgraph::*;

/// Bytes of every tensor.
const BYTES: u64 = 64 * 64 * 4;

fn tensor(owner: u64, id: u64) -> Tensor {
    let buffer = BufferId::new(owner, id, 0, BufferKind::Shared);
    Tensor::contiguous(buffer, DType::F32, &[64, 64], BYTES).expect("fits")
}

/// Tasks with three tensors each: two that are read, of the boundary or of earlier tasks, and one that is written.
pub(crate) struct Layer {
    n_nodes: u32,
    n_tensors: u64,
    n_scalars: u32,
    /// The arguments of the tasks, for an eager run and for a recording.
    tasks: Vec<TaskArgs>,
    /// The boundary, and what lies between the tasks.
    all: TaskArgs,
}

impl Layer {
    pub(crate) fn new(n_nodes: u32, n_tensors: u64, n_scalars: u32) -> Layer {
        let mut layer = Layer {
            n_nodes,
            n_tensors,
            n_scalars,
            tasks: Vec::new(),
            all: TaskArgs::new(),
        };
        layer.all = layer.boundary(0);
        for at in 0..8 {
            let between = tensor(0, n_tensors + at);
            layer.all.tensor(between, Tag::InOut).expect("distinct");
        }
        layer.tasks = (0..u64::from(n_nodes))
            .map(|node| layer.task(node))
            .collect();
        layer
    }

    pub(crate) fn n_nodes(&self) -> u32 {
        self.n_nodes
    }

    /// The boundary in buffers of its own: all are read but the last, which is updated.
    pub(crate) fn boundary(&self, owner: u64) -> TaskArgs {
        let mut args = TaskArgs::new();
        for id in 0..self.n_tensors {
            let tag = if id + 1 == self.n_tensors {
                Tag::InOut
            } else {
                Tag::Input
            };
            args.tensor(tensor(owner, id), tag).expect("distinct");
        }
        (0..self.n_scalars).for_each(|at| {
            args.scalar(at);
        });
        args
    }

    /// Task `node` reads a tensor of the boundary and what the task before it wrote.
    fn task(&self, node: u64) -> TaskArgs {
        let mut args = TaskArgs::new();
        let between = |at: u64| self.n_tensors + at % 8;
        let add = |args: &mut TaskArgs, id, tag| {
            args.tensor(tensor(0, id), tag).expect("distinct");
        };
        add(&mut args, node % (self.n_tensors - 1), Tag::Input);
        if node > 0 {
            add(&mut args, between(node - 1), Tag::Input);
        }
        let last = node + 1 == u64::from(self.n_nodes);
        let output = if last {
            self.n_tensors - 1
        } else {
            between(node)
        };
        add(
            &mut args,
            output,
            if last { Tag::InOut } else { Tag::Output },
        );
        args
    }

    /// What records it, with nothing recorded yet.
    pub(crate) fn recorder(&self) -> Recorder {
        Recorder::new(NonZeroU32::MIN, &self.all, &[]).expect("few tensors")
    }

    /// The layer as a definition, by a recorder that has recorded before. What lies between its tasks is part of the
    /// boundary, so that recording and submitting are given the same arguments.
    pub(crate) fn record(&self, recorder: &mut Recorder) -> Definition {
        recorder
            .begin(NonZeroU32::MIN, &self.all, &[])
            .expect("few tensors");
        for args in &self.tasks {
            let members = [args];
            let spec = NodeSpec::new(0, Placement::On(WorkerId(0)), &members);
            recorder.submit(&spec).expect("within the boundary");
        }
        recorder.finish().unwrap()
    }

    /// The layer with its own memory between the tasks, as it is replayed.
    fn record_closed(&self) -> Definition {
        let mut recorder =
            Recorder::new(NonZeroU32::MIN, &self.boundary(0), &[]).expect("few tensors");
        let between: Vec<_> = (0..8)
            .map(|_| recorder.alloc(DType::F32, &[64, 64]).expect("fits"))
            .collect();
        for args in &self.tasks {
            let mut inner = TaskArgs::new();
            for arg in args.tensors() {
                let at = arg.tensor.buffer().id.checked_sub(self.n_tensors);
                let tensor = at.map_or(arg.tensor, |at| between[at as usize]);
                inner.tensor(tensor, arg.tag).expect("distinct");
            }
            let members = [&inner];
            let spec = NodeSpec::new(0, Placement::On(WorkerId(0)), &members);
            recorder.submit(&spec).expect("within the boundary");
        }
        recorder.finish().unwrap()
    }
}

/// A scheduler with one worker, and the definitions that it replays.
pub(crate) struct Runner {
    graph: Scheduler,
    run: RunId,
    cache: Cache<(u32, u64, u32), ()>,
}

impl Runner {
    pub(crate) fn new() -> Runner {
        let mut graph = Scheduler::default();
        graph
            .add_worker(WorkerKind::NextLevel, Depth::One)
            .expect("the first");
        let run = graph.begin_run();
        let cache = Cache::new(CacheLimits::default());
        Runner { graph, run, cache }
    }

    /// Every task of the layer by itself.
    pub(crate) fn submit(&mut self, layer: &Layer) {
        for args in &layer.tasks {
            let spec = TaskSpec::new(Placement::On(WorkerId(0))).args(args);
            self.graph.submit(self.run, &spec).expect("the run is open");
        }
    }

    /// The layer as one task; recorded when it is not known.
    pub(crate) fn replay(&mut self, layer: &Layer, boundary: &TaskArgs) {
        let key = (layer.n_nodes, layer.n_tensors, layer.n_scalars);
        let cached = match self.cache.lookup(&key) {
            Lookup::Ready(cached) => cached,
            _ => self
                .cache
                .recorded(&key, Arc::new(layer.record_closed()), ()),
        };
        let binding = cached.definition.bind(boundary, &[]).expect("it fits");
        self.cache.hit();
        self.graph
            .submit_graph(self.run, &binding)
            .expect("the run is open");
    }

    /// Executes everything that is live.
    pub(crate) fn drain(&mut self, expected: u32) {
        let mut n_tasks = 0;
        while let Some(dispatch) = self.graph.next_dispatch() {
            self.graph
                .completed(dispatch.dispatch, Outcome::Ok)
                .expect("in flight");
            while self.graph.next_effect().is_some() {}
            n_tasks += 1;
        }
        assert_eq!(n_tasks, expected);
    }
}
