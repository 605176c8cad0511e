//! Captured and eager runs of random bodies: equal edges, equal results, and the results of running the
//! tasks one after the other.
//!
//! `TASKGRAPH_BODIES` sets how many bodies are tried.

use std::collections::HashMap;

use taskgraph::capture::{Bindings, ScalarSource};

use super::*;

const BUFFERS: u64 = 3;
const SIDE: u64 = 6;
const WORKERS: u32 = 3;

/// A generator of numbers, the same for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// What a task of a body names: a tensor of the boundary or an allocation, and a part of it.
#[derive(Clone, Copy, Debug)]
struct Part {
    base: usize,
    rows: (u64, u64),
    columns: (u64, u64),
    tag: Tag,
}

#[derive(Clone, Debug)]
struct Task {
    worker: u32,
    parts: Vec<Part>,
    after: Option<usize>,
    scalar: Option<Result<usize, u64>>,
}

/// A random body: boundary tensors as parts of buffers, allocations, tasks.
#[derive(Clone, Debug)]
struct Body {
    boundary: Vec<(u64, Part)>,
    n_allocations: usize,
    tasks: Vec<Task>,
}

fn matrix(owner: u64, id: u64) -> Tensor {
    let buffer = BufferId::new(owner, id, 0, BufferKind::Shared);
    Tensor::contiguous(buffer, DType::U8, &[SIDE, SIDE], SIDE * SIDE).unwrap()
}

fn cut(base: &Tensor, part: &Part) -> Tensor {
    let clamp = |(a, b): (u64, u64), n: u64| {
        if n == 0 {
            0..0
        } else {
            a % n..(a % n + b).min(n)
        }
    };
    let rows = clamp(part.rows, base.shape()[0]);
    let columns = clamp(part.columns, base.shape()[1]);
    base.slice(0, rows).unwrap().slice(1, columns).unwrap()
}

fn random_part(random: &mut Random, base: usize, tags: &[Tag]) -> Part {
    let mut range = || match random.below(3) {
        0 => (0, SIDE),
        _ => (random.below(SIDE), 1 + random.below(SIDE)),
    };
    Part {
        base,
        rows: range(),
        columns: range(),
        tag: random.pick(tags),
    }
}

fn random_body(seed: u64) -> Body {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let boundary = (0..1 + random.below(4)).map(|_| {
        let tags = [Tag::Input, Tag::InOut, Tag::InOut];
        (random.below(BUFFERS), random_part(&mut random, 0, &tags))
    });
    let boundary: Vec<_> = boundary.collect();
    let n_allocations = random.below(3) as usize;
    let n_bases = boundary.len() as u64 + n_allocations as u64;
    let tags = [
        Tag::Input,
        Tag::Input,
        Tag::Output,
        Tag::InOut,
        Tag::OutputExisting,
    ];
    let tasks = (0..1 + random.below(9)).map(|number| Task {
        worker: random.below(u64::from(WORKERS)) as u32,
        parts: (0..1 + random.below(3))
            .map(|_| {
                let base = random.below(n_bases) as usize;
                random_part(&mut random, base, &tags)
            })
            .collect(),
        after: (number > 0 && random.below(6) == 0).then(|| random.below(number) as usize),
        scalar: match random.below(3) {
            0 => Some(Ok(random.below(2) as usize)),
            1 => Some(Err(random.below(100))),
            _ => None,
        },
    });
    let tasks = tasks.collect();
    Body {
        boundary,
        n_allocations,
        tasks,
    }
}

impl Body {
    /// The boundary in buffers of one owner; `None` when two outputs of it overlap.
    fn boundary(&self, owner: u64, scalars: [u64; 2]) -> Option<TaskArgs> {
        let mut args = TaskArgs::new();
        for (buffer, part) in &self.boundary {
            args.tensor(cut(&matrix(owner, *buffer), part), part.tag)
                .ok()?;
        }
        args.scalar(scalars[0]).scalar(scalars[1]);
        Some(args)
    }

    /// The arguments of a task over these bases; `None` for one that writes a byte twice.
    fn task(
        &self,
        number: usize,
        bases: &[Tensor],
        scalars: [capture::BoundaryScalar; 2],
    ) -> Option<TaskArgs> {
        let mut args = TaskArgs::new();
        let task = &self.tasks[number];
        for part in &task.parts {
            args.tensor(cut(&bases[part.base], part), part.tag).ok()?;
        }
        match task.scalar {
            Some(Ok(index)) => args.scalar(scalars[index]),
            Some(Err(value)) => args.scalar(value),
            None => &mut args,
        };
        Some(args)
    }

    /// The tasks that can be submitted at all: those that write no byte twice, and nothing read only.
    fn prune(mut self) -> Option<Body> {
        let boundary = self.boundary(1, [0, 0])?;
        let mut bases: Vec<_> = boundary.tensors().iter().map(|arg| arg.tensor).collect();
        bases.extend((0..self.n_allocations).map(|at| matrix(2, at as u64)));
        let scalars = [0u64, 0].map(|value| capture::BoundaryScalar::eager(value.into()));
        let writes_input = |task: &Task| {
            let mut parts = task.parts.iter();
            parts.any(|part| {
                let outer = self.boundary.get(part.base);
                part.tag.writes() && outer.is_some_and(|(_, outer)| outer.tag == Tag::Input)
            })
        };
        let is_good = |&at: &usize| {
            self.task(at, &bases, scalars).is_some() && !writes_input(&self.tasks[at])
        };
        let good: Vec<usize> = (0..self.tasks.len()).filter(is_good).collect();
        let tasks = good.iter().map(|&at| {
            let mut task = self.tasks[at].clone();
            task.after = task
                .after
                .and_then(|earlier| good.iter().position(|&it| it == earlier));
            task
        });
        self.tasks = tasks.collect();
        Some(self)
    }
}

/// What is in every buffer.
#[derive(Clone, Default, PartialEq, Debug)]
struct Memory(HashMap<BufferId, Vec<u8>>);

impl Memory {
    fn bytes_of(tensor: &Tensor) -> Vec<usize> {
        let (shape, strides) = (tensor.shape(), tensor.strides());
        let rows = (0..shape[0]).flat_map(|row| (0..shape[1]).map(move |column| (row, column)));
        let offset = |(row, column)| tensor.byte_offset() + row * strides[0] + column * strides[1];
        rows.map(|place| offset(place) as usize).collect()
    }

    fn buffer(&mut self, tensor: &Tensor) -> &mut Vec<u8> {
        let size = tensor.backing_bytes() as usize;
        self.0
            .entry(tensor.buffer())
            .or_insert_with(|| vec![0; size])
    }

    /// Executes a task: what it writes follows from what it reads, its number and its scalars.
    fn execute(&mut self, number: u32, tensors: &[(Tensor, Tag)], scalars: &[u64]) {
        let mut value = u64::from(number) + 1;
        let mut mix = |word: u64| {
            value = (value ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            value ^= value >> 29;
        };
        scalars.iter().for_each(|&scalar| mix(scalar));
        for (tensor, _) in tensors.iter().filter(|(_, tag)| tag.reads()) {
            for (position, at) in (0..).zip(Memory::bytes_of(tensor)) {
                mix(u64::from(self.buffer(tensor)[at]) + position * 256);
            }
        }
        for (index, (tensor, tag)) in (0..).zip(tensors) {
            if tag.writes() {
                for (position, at) in (0..).zip(Memory::bytes_of(tensor)) {
                    self.buffer(tensor)[at] = (value >> (index * 7)) as u8 ^ position;
                }
            }
        }
    }

    /// What is in the buffers of one owner.
    fn of_owner(&self, owner: u64) -> HashMap<u64, Vec<u8>> {
        let own = self.0.iter().filter(|(buffer, _)| buffer.owner == owner);
        own.map(|(buffer, bytes)| (buffer.id, bytes.clone()))
            .collect()
    }
}

fn scheduler() -> (Scheduler, RunId) {
    let mut graph = Scheduler::default();
    for _ in 0..WORKERS {
        graph.add_worker(WorkerKind::NextLevel, Depth::Two).unwrap();
    }
    let run = graph.begin_run();
    (graph, run)
}

/// Runs everything in a random order that the graph allows; `execute` is called at the end of each task.
fn drain(
    graph: &mut Scheduler,
    random: &mut Random,
    mut execute: impl FnMut(&Scheduler, TaskId),
) -> usize {
    let (mut open, mut n_done) = (Vec::new(), 0);
    loop {
        open.extend(std::iter::from_fn(|| graph.next_dispatch()));
        // A staged task starts when the one in front of it is done.
        let begun: Vec<usize> = (0..open.len())
            .filter(|&at| {
                let worker = |dispatch: &Dispatch| dispatch.worker;
                !open[..at]
                    .iter()
                    .any(|other| worker(other) == worker(&open[at]))
            })
            .collect();
        if begun.is_empty() {
            return n_done;
        }
        let dispatch: Dispatch = open.remove(random.pick(&begun));
        execute(graph, dispatch.task);
        graph.completed(dispatch.dispatch, Outcome::Ok).unwrap();
        while graph.next_effect().is_some() {}
        n_done += 1;
    }
}

/// Values of scalars, by forwarding them through arguments as a body does.
fn values(args: &TaskArgs) -> Vec<u64> {
    args.scalars()
        .iter()
        .map(|arg| arg.to_send().bits())
        .collect()
}

fn tensors(args: &TaskArgs) -> Vec<(Tensor, Tag)> {
    args.tensors()
        .iter()
        .map(|arg| (arg.tensor, arg.tag))
        .collect()
}

/// The eager run: its edges, and memory after a random order and after the order of submission.
fn eager(
    body: &Body,
    owner: u64,
    scalars: [u64; 2],
    random: &mut Random,
) -> (Vec<(usize, usize, bool)>, Memory, Memory) {
    let (mut graph, run) = scheduler();
    graph.record(run).unwrap();
    let boundary = body.boundary(owner, scalars).unwrap();
    let mut bases: Vec<_> = boundary.tensors().iter().map(|arg| arg.tensor).collect();
    bases.extend((0..body.n_allocations).map(|at| matrix(owner + 100, at as u64)));
    let forwarded = scalars.map(|value| capture::BoundaryScalar::eager(value.into()));
    let (mut ids, mut all): (Vec<TaskId>, Vec<TaskArgs>) = (Vec::new(), Vec::new());
    let mut in_order = Memory::default();
    for (number, task) in body.tasks.iter().enumerate() {
        let args = body.task(number, &bases, forwarded).unwrap();
        let after: Vec<_> = task.after.iter().map(|&at| ids[at]).collect();
        let spec = TaskSpec::new(Placement::On(WorkerId(task.worker)))
            .args(&args)
            .after(&after);
        ids.push(graph.submit(run, &spec).unwrap());
        in_order.execute(number as u32, &tensors(&args), &values(&args));
        all.push(args);
    }
    let view = graph.graph_view(run).unwrap();
    let edges = view
        .edges()
        .iter()
        .map(|edge| (edge.from, edge.to, edge.is_data))
        .collect();
    graph.seal(run).unwrap();
    let mut memory = Memory::default();
    drain(&mut graph, random, |_, task| {
        let number = ids.iter().position(|&id| id == task).unwrap();
        memory.execute(number as u32, &tensors(&all[number]), &values(&all[number]));
    });
    (edges, memory, in_order)
}

fn record(body: &Body, owner: u64, scalars: [u64; 2]) -> Arc<Definition> {
    let boundary = body.boundary(owner, scalars).unwrap();
    let mut recorder = recorder(&boundary);
    let mut bases: Vec<_> = boundary.tensors().iter().map(|arg| arg.tensor).collect();
    bases
        .extend((0..body.n_allocations).map(|_| recorder.alloc(DType::U8, &[SIDE, SIDE]).unwrap()));
    let forwarded = [0, 1].map(|index| recorder.scalar(index).unwrap());
    for (number, task) in body.tasks.iter().enumerate() {
        let args = body.task(number, &bases, forwarded).unwrap();
        let after: Vec<_> = task.after.iter().map(|&at| at as u32).collect();
        let placement = Placement::On(WorkerId(task.worker));
        let members = [&args];
        let spec = NodeSpec {
            after: &after,
            ..NodeSpec::new(number as u32, placement, &members)
        };
        recorder
            .submit(&spec)
            .unwrap_or_else(|error| panic!("{error}\n{body:#?}"));
    }
    Arc::new(recorder.finish().unwrap())
}

/// A replay in buffers of another owner.
fn replay(
    definition: &Arc<Definition>,
    body: &Body,
    owner: u64,
    scalars: [u64; 2],
    random: &mut Random,
) -> Memory {
    let (mut graph, run) = scheduler();
    let boundary = body.boundary(owner, scalars).unwrap();
    let size = definition.heap_bytes().max(1);
    let heap = BufferId::new(owner + 100, 77, 0, BufferKind::Shared);
    let heap = Tensor::contiguous(heap, DType::U8, &[size], size).unwrap();
    let binding = definition
        .bind(&boundary, &[])
        .unwrap()
        .heap(&heap)
        .unwrap();
    let outer = graph.submit_graph(run, &binding).unwrap();
    graph.seal(run).unwrap();
    let bindings = Bindings {
        boundary: &boundary,
        heap: Some(heap),
    };
    let mut memory = Memory::default();
    let n_done = drain(&mut graph, random, |graph, task| {
        let (graph_task, number) = graph.node_of(task).expect("nothing but nodes runs");
        assert_eq!(graph_task, outer);
        let node = definition.node(number);
        let tensors: Vec<_> = node
            .args(0)
            .map(|arg| (definition.tensor(&arg, &bindings).unwrap(), arg.tag))
            .collect();
        let value = |source: ScalarSource| definition.scalar(source, &bindings).unwrap().bits();
        let scalars: Vec<_> = node.scalars(0).map(value).collect();
        memory.execute(number, &tensors, &scalars);
    });
    assert_eq!(n_done, body.tasks.len());
    assert_eq!(graph.n_live_tasks(), 0);
    assert!(
        matches!(graph.run_status(run), Some(RunStatus::Done(outcome)) if outcome.completed == 1)
    );
    memory
}

fn check(seed: u64) -> bool {
    let Some(body) = random_body(seed)
        .prune()
        .filter(|body| !body.tasks.is_empty())
    else {
        return false;
    };
    let mut random = Random(seed | 1);
    let (edges, eager, in_order) = eager(&body, 5, [1, 2], &mut random);
    assert_eq!(eager, in_order, "seed {seed}: the eager run is wrong");
    let recorded = record(&body, 5, [1, 2]);
    let mut captured: Vec<_> = recorded
        .nodes()
        .flat_map(|node| {
            node.fan_in()
                .map(move |(from, is_data)| (from as usize, node.number() as usize, is_data))
        })
        .collect();
    captured.sort_unstable();
    assert_eq!(captured, edges, "seed {seed}\n{body:#?}");
    let again = Definition::decode(recorded.to_bytes()).expect("what was recorded can be read");
    assert_eq!(again, *recorded);
    let (_, other, _) = self::eager(&body, 9, [3, 4], &mut random);
    let replayed = replay(&Arc::new(again), &body, 9, [3, 4], &mut random);
    assert_eq!(
        replayed.of_owner(9),
        other.of_owner(9),
        "seed {seed}\n{body:#?}"
    );
    true
}

#[test]
fn captured_and_eager_runs_of_random_bodies_have_equal_edges_and_equal_results() {
    let bodies = std::env::var("TASKGRAPH_BODIES")
        .ok()
        .and_then(|n| n.parse().ok());
    let bodies: u64 = bodies.unwrap_or(10_000);
    let checked = (1..=bodies).filter(|&seed| check(seed)).count() as u64;
    assert!(
        checked * 4 > bodies,
        "only {checked} of {bodies} bodies could be checked"
    );
}
