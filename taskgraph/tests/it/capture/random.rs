//! Captured and eager runs of random bodies: equal edges, equal results, and the results of running the
//! tasks one after the other.
//!
//! A body has a boundary of all tags, tasks and groups on workers of both kinds, predicates, tasks whose order is not
//! inferred, and sometimes a task that fails. It is replayed where its boundary lies like the recorded one, and in
//! other layouts: each of these is refused, or gives what an eager run gives there.
//!
//! `TASKGRAPH_BODIES` sets how many bodies are tried.

mod body;
mod memory;

use std::collections::HashMap;

use taskgraph::capture::{Bindings, BoundaryScalar, MismatchKind, ScalarSource};

use self::body::{
    Body, Given, Layout, Random, SIDE, SUBS, WORKERS, apart, moved, random_body, random_layout,
    with_placement,
};
use self::memory::{INTERMEDIATE, Memory, Work};
use super::*;

/// What tasks there are in one run, by number and member; of intermediate memory only the shape.
type Done = HashMap<(u32, u32), Vec<(Option<Tensor>, Vec<u64>, Tag)>>;

/// What one run came to.
struct Run {
    memory: Memory,
    done: Done,
    has_failed: bool,
}

impl Run {
    fn new() -> Run {
        Run {
            memory: Memory::default(),
            done: Done::new(),
            has_failed: false,
        }
    }

    fn execute(&mut self, node: u32, member: u32, work: &Work) {
        self.memory.execute(work);
        let named = |(tensor, tag): &(Tensor, Tag)| {
            let is_given = tensor.buffer().owner < INTERMEDIATE;
            (is_given.then_some(*tensor), tensor.shape().to_vec(), *tag)
        };
        let mut named: Vec<_> = work.tensors.iter().map(named).collect();
        named.push((None, work.scalars.clone(), Tag::NoDep));
        let is_new = self.done.insert((node, member), named).is_none();
        assert!(is_new, "node {node} ran twice");
    }
}

fn scheduler() -> (Scheduler, RunId) {
    let mut graph = Scheduler::default();
    for _ in 0..WORKERS {
        graph.add_worker(WorkerKind::NextLevel, Depth::Two).unwrap();
    }
    for _ in 0..SUBS {
        graph.add_worker(WorkerKind::Sub, Depth::One).unwrap();
    }
    let run = graph.begin_run();
    (graph, run)
}

/// Runs everything in a random order that the graph allows; `execute` is called at the end of each task or member, and
/// says whether it went well.
fn drain(
    graph: &mut Scheduler,
    random: &mut Random,
    mut execute: impl FnMut(&Scheduler, &Dispatch) -> Outcome,
) {
    let mut open = Vec::new();
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
            return;
        }
        let dispatch: Dispatch = open.remove(random.pick(&begun));
        let outcome = execute(graph, &dispatch);
        graph.completed(dispatch.dispatch, outcome).unwrap();
        while graph.next_effect().is_some() {}
    }
}

/// What tells a member from all others.
fn number(node: usize, member: u32) -> u32 {
    node as u32 * 4 + member
}

/// All that the tasks of a body are given where its boundary lies like that; `None` where that cannot be submitted.
fn all_given(body: &Body, owner: u64, layout: &Layout, scalars: [u64; 2]) -> Option<Vec<Given>> {
    let boundary = body.boundary(owner, layout, scalars)?;
    let bases = body.bases(&boundary, owner + INTERMEDIATE);
    let forwarded = scalars.map(|value| BoundaryScalar::eager(value.into()));
    (0..body.tasks.len())
        .map(|at| body.given(at, &bases, forwarded))
        .collect()
}

/// The eager run with its edges.
fn eager(body: &Body, given: &[Given], random: &mut Random) -> (Vec<(usize, usize, bool)>, Run) {
    let (mut graph, run) = scheduler();
    graph.record(run).unwrap();
    let mut ids: Vec<TaskId> = Vec::new();
    for (task, given) in body.tasks.iter().zip(given) {
        let after: Vec<_> = task.after.iter().map(|&at| ids[at]).collect();
        let accesses = given.accesses();
        let id = with_placement(task.place, |placement| {
            let spec = TaskSpec::new(placement).after(&after);
            let spec = if task.is_manual { spec.manual() } else { spec };
            let accesses = &accesses[..];
            graph.submit(run, &TaskSpec { accesses, ..spec }).unwrap()
        });
        ids.push(id);
    }
    let view = graph.graph_view(run).unwrap();
    let edges = view
        .edges()
        .iter()
        .map(|edge| (edge.from, edge.to, edge.is_data))
        .collect();
    graph.seal(run).unwrap();
    let mut found = Run::new();
    drain(&mut graph, random, |_, dispatch| {
        let node = ids.iter().position(|&id| id == dispatch.task).unwrap();
        if body.fails == Some(node) && dispatch.member == 0 {
            found.has_failed = true;
            return Outcome::Failed;
        }
        let given = &given[node];
        let args = &given.members[dispatch.member as usize];
        let work = Work::of(number(node, dispatch.member), args, given.element);
        found.execute(node as u32, dispatch.member, &work);
        Outcome::Ok
    });
    (edges, found)
}

/// What the tasks leave behind in the order of their submission.
fn in_order(given: &[Given]) -> Memory {
    let mut memory = Memory::default();
    for (node, given) in given.iter().enumerate() {
        for (member, args) in (0..).zip(&given.members) {
            memory.execute(&Work::of(number(node, member), args, given.element));
        }
    }
    memory
}

fn record(
    body: &Body,
    owner: u64,
    layout: &Layout,
    scalars: [u64; 2],
) -> Result<Arc<Definition>, NotRecordable> {
    let boundary = body.boundary(owner, layout, scalars).unwrap();
    let mut recorder = recorder(&boundary);
    let mut bases = body.bases(&boundary, 0);
    for allocation in &mut bases[body.boundary.len()..] {
        *allocation = recorder.alloc(DType::U8, &[SIDE, SIDE]).unwrap();
    }
    let forwarded = [0, 1].map(|index| recorder.scalar(index).unwrap());
    for (number, task) in body.tasks.iter().enumerate() {
        let given = body.given(number, &bases, forwarded).unwrap();
        let after: Vec<_> = task.after.iter().map(|&at| at as u32).collect();
        let members = given.members();
        with_placement(task.place, |placement| {
            let spec = NodeSpec {
                after: &after,
                predicate: given.element.as_ref().map(|element| (element, 1)),
                inference: if task.is_manual {
                    Inference::Manual
                } else {
                    Inference::Automatic
                },
                ..NodeSpec::new(number as u32, placement, &members)
            };
            recorder.submit(&spec)
        })?;
    }
    recorder.finish().map(Arc::new)
}

/// A replay with this boundary.
fn replay(
    definition: &Arc<Definition>,
    body: &Body,
    boundary: &TaskArgs,
    owner: u64,
    random: &mut Random,
) -> Result<Run, capture::Mismatch> {
    let (mut graph, run) = scheduler();
    let size = definition.heap_bytes().max(1);
    let heap = BufferId::new(owner + INTERMEDIATE, 77, 0, BufferKind::Shared);
    let heap = Tensor::contiguous(heap, DType::U8, &[size], size).unwrap();
    let binding = definition.bind(boundary, &[])?.heap(&heap).unwrap();
    let outer = graph.submit_graph(run, &binding).unwrap();
    graph.seal(run).unwrap();
    let heap = Some(heap);
    let bindings = Bindings { boundary, heap };
    let mut found = Run::new();
    drain(&mut graph, random, |graph, dispatch| {
        let (graph_task, node) = graph
            .node_of(dispatch.task)
            .expect("nothing but nodes runs");
        assert_eq!(graph_task, outer);
        if body.fails == Some(node as usize) && dispatch.member == 0 {
            found.has_failed = true;
            return Outcome::Failed;
        }
        let tensor = |arg| definition.tensor(&arg, &bindings).unwrap();
        let value = |source: ScalarSource| definition.scalar(source, &bindings).unwrap().bits();
        let (at, member) = (definition.node(node), dispatch.member);
        let work = Work {
            number: number(node as usize, member),
            tensors: at.args(member).map(|arg| (tensor(arg), arg.tag)).collect(),
            scalars: at.scalars(member).map(value).collect(),
            only_if: at.predicate().map(|predicate| tensor(predicate.element)),
        };
        found.execute(node, member, &work);
        Outcome::Ok
    });
    assert_eq!(graph.n_live_tasks(), 0);
    let Some(RunStatus::Done(outcome)) = graph.run_status(run) else {
        panic!("the graph task has not ended")
    };
    let ends = (u64::from(!found.has_failed), u64::from(found.has_failed));
    assert_eq!((outcome.completed, outcome.failed), ends);
    Ok(found)
}

fn edges_of(definition: &Definition) -> Vec<(usize, usize, bool)> {
    let into = definition.nodes().flat_map(|node| {
        let to = node.number() as usize;
        let edge = move |(from, is_data)| (from as usize, to, is_data);
        node.fan_in().map(edge)
    });
    let mut edges: Vec<_> = into.collect();
    edges.sort_unstable();
    edges
}

/// What was tried of one body.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    bodies: u64,
    refused: u64,
    failed: u64,
    /// Layouts that were replayed, and that did not fit.
    layouts: [u64; 2],
}

fn check(seed: u64, tried: &mut Tried) {
    let (body, recorded_at) = random_body(seed);
    let Some(body) = body.prune(&recorded_at) else {
        return;
    };
    let mut random = Random(seed | 1);
    let given = all_given(&body, 5, &recorded_at, [1, 2]).expect("it was pruned");
    let (edges, run) = eager(&body, &given, &mut random);
    if body.is_ordered() && !run.has_failed {
        assert_eq!(
            run.memory,
            in_order(&given),
            "seed {seed}: the eager run is wrong"
        );
    }
    let definition = match record(&body, 5, &recorded_at, [1, 2]) {
        Ok(definition) => definition,
        Err(NotRecordable::UnwrittenOutput { .. } | NotRecordable::PartialOutput { .. }) => {
            assert!(body.has_output(), "seed {seed}");
            tried.refused += 1;
            return;
        }
        Err(error) => panic!("seed {seed}: {error}\n{body:#?}"),
    };
    assert_eq!(edges_of(&definition), edges, "seed {seed}\n{body:#?}");
    let again = Definition::decode(definition.to_bytes()).expect("what was recorded can be read");
    assert_eq!(again, *definition);
    tried.bodies += 1;
    let definition = Arc::new(again);
    let like_recorded = moved(&recorded_at, &mut random);
    let other = match random.below(3) {
        0 => apart(&recorded_at),
        _ => random_layout(&mut random, recorded_at.len()),
    };
    check_layout(
        seed,
        &definition,
        &body,
        &like_recorded,
        true,
        &edges,
        tried,
    );
    // All bodies would take as long again.
    if seed.is_multiple_of(3) {
        check_layout(seed, &definition, &body, &other, false, &edges, tried);
    }
}

/// A replay in one layout, beside an eager run there.
fn check_layout(
    seed: u64,
    definition: &Arc<Definition>,
    body: &Body,
    layout: &Layout,
    must_fit: bool,
    edges: &[(usize, usize, bool)],
    tried: &mut Tried,
) {
    let mut random = Random((seed << 3) | 1);
    let (owner, scalars) = (9, [3, 4]);
    let Some(boundary) = body.boundary(owner, layout, scalars) else {
        return;
    };
    let replayed = match replay(definition, body, &boundary, owner, &mut random) {
        Ok(replayed) => replayed,
        Err(difference) => {
            assert_eq!(difference.kind, MismatchKind::Overlap, "seed {seed}");
            assert!(!must_fit, "seed {seed}: {difference}\n{body:#?}");
            tried.layouts[1] += 1;
            return;
        }
    };
    let given = all_given(body, owner, layout, scalars);
    let given = given.unwrap_or_else(|| panic!("seed {seed}: no eager run can be what this is"));
    let (found, expected) = eager(body, &given, &mut random);
    assert_eq!(found, edges, "seed {seed}, {layout:?}\n{body:#?}");
    assert_eq!(
        replayed.done, expected.done,
        "seed {seed}, {layout:?}\n{body:#?}"
    );
    assert_eq!(replayed.has_failed, expected.has_failed);
    if body.is_ordered() {
        let memories = [replayed, expected].map(|run| run.memory.of_owner(owner));
        assert_eq!(
            memories[0], memories[1],
            "seed {seed}, {layout:?}\n{body:#?}"
        );
    }
    tried.layouts[0] += 1;
    tried.failed += u64::from(body.fails.is_some());
}

#[test]
fn captured_and_eager_runs_of_random_bodies_have_equal_edges_and_equal_results() {
    let bodies = std::env::var("TASKGRAPH_BODIES")
        .ok()
        .and_then(|n| n.parse().ok());
    let bodies: u64 = bodies.unwrap_or(10_000);
    let mut tried = Tried::default();
    (1..=bodies).for_each(|seed| check(seed, &mut tried));
    // The generator shall not have come to try nothing.
    let Tried {
        bodies: checked,
        refused,
        failed,
        layouts,
    } = tried;
    let least = [
        checked * 3,
        refused * 50,
        failed * 20,
        layouts[0] * 3,
        layouts[1] * 50,
    ];
    assert!(least.iter().all(|n| *n > bodies), "of {bodies}: {tried:?}");
}
