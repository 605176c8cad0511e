//! Intermediate memory: scopes, back-pressure, and errors that name who is in the way.

use taskgraph::*;

use crate::support::{Bench, X};

const RING: u64 = 1024;

/// Two workers, and rings of 1 KiB.
fn bench() -> Bench {
    let buffer = |id: u64| BufferId::new(1, 1000 + id, 0, BufferKind::Shared);
    let ring = |id: u64| RingSpec {
        buffer: buffer(id),
        bytes: RING,
    };
    let mut bench = Bench::new(0, 0, Depth::One);
    bench.graph = Scheduler::with_heap(Limits::default(), [ring(0), ring(1), ring(2), ring(3)]);
    let mut worker = || {
        bench
            .graph
            .add_worker(WorkerKind::NextLevel, Depth::One)
            .unwrap()
    };
    bench.next_level = vec![worker(), worker()];
    bench.run = bench.graph.begin_run();
    bench
}

impl Bench {
    fn alloc(&mut self, bytes: u64) -> Result<Tensor, AllocError> {
        self.graph.alloc(self.run, DType::U8, &[bytes])
    }

    fn task_on(&mut self, worker: usize, tensor: Tensor, tag: Tag) -> Result<TaskId, SubmitError> {
        let mut args = TaskArgs::new();
        args.tensor(tensor, tag).unwrap();
        let on = Placement::On(self.next_level[worker]);
        self.graph.submit(self.run, &TaskSpec::new(on).args(&args))
    }

    fn begin_scope(&mut self) -> usize {
        self.graph
            .begin_scope(self.run, Inference::Automatic)
            .unwrap()
    }

    fn end_scope(&mut self) {
        self.graph.end_scope(self.run).unwrap();
    }
}

/// TG-4, case 1: more is live at once than the ring has, and nothing would ever free it.
#[test]
fn a_graph_that_needs_more_than_the_ring_is_told_so_with_the_scope_and_task() {
    let mut bench = bench();
    let tensor = bench.alloc(768).unwrap();
    let task = bench.task_on(0, tensor, Tag::Output).unwrap();
    let (requested, free, total, depth, scope) = (512, 256, RING, 0, 0);
    let task = Some(task);
    let exhausted = AllocError::Exhausted {
        requested,
        free,
        total,
        depth,
        scope,
        task,
    };
    assert_eq!(bench.alloc(512), Err(exhausted));
    let too_large = AllocError::TooLarge {
        requested: 4096,
        total,
        depth,
    };
    assert_eq!(bench.alloc(4096), Err(too_large));
    assert!(bench.alloc(256).is_ok());
}

/// TG-4, case 2: a slow consumer frees in time; no false alarm, however often.
#[test]
fn memory_that_comes_back_is_waited_for() {
    let mut bench = bench();
    for _ in 0..200 {
        bench.begin_scope();
        let tensor = bench.alloc(768).unwrap();
        let producer = bench.task_on(0, tensor, Tag::Output).unwrap();
        let consumer = bench.task_on(0, tensor, Tag::Input).unwrap();
        bench.end_scope();
        bench.begin_scope();
        let refused = bench.alloc(512);
        assert!(matches!(refused, Err(AllocError::Full { blocker, .. }) if blocker == consumer));
        assert_eq!(bench.dispatch(), [producer]);
        assert_eq!(bench.ok(producer), [consumer]);
        assert!(matches!(bench.alloc(512), Err(AllocError::Full { .. })));
        bench.ok(consumer);
        assert!(bench.alloc(512).is_ok());
        bench.end_scope();
    }
}

/// TG-4, case 3: a ring that is empty serves its whole size, wherever its ends had been.
#[test]
fn a_drained_ring_serves_its_whole_size() {
    let mut bench = bench();
    for bytes in [640, 640, 640] {
        bench.begin_scope();
        bench.alloc(bytes).unwrap();
        bench.end_scope();
    }
    bench.begin_scope();
    assert_eq!(bench.alloc(RING).unwrap().footprint(), 0..RING);
}

/// TG-4, case 4: slots come back when tasks end, whatever the scope; a full arena says who it waits for.
#[test]
fn a_scope_may_have_more_tasks_than_there_are_slots() {
    let mut bench = Bench::new(0, 0, Depth::One);
    bench.graph = Scheduler::new(Limits::default().tasks_max(4));
    bench.next_level = vec![
        bench
            .graph
            .add_worker(WorkerKind::NextLevel, Depth::One)
            .unwrap(),
    ];
    bench.run = bench.graph.begin_run();
    bench.begin_scope();
    let on = Placement::On(bench.next_level[0]);
    let mut n_submitted = 0;
    while n_submitted < 100 {
        match bench.graph.submit(bench.run, &TaskSpec::new(on)) {
            Ok(_) => n_submitted += 1,
            Err(SubmitError::SlotsFull { oldest, .. }) => {
                bench.dispatch();
                bench.ok(oldest);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn slots_that_failed_tasks_hold_are_an_error_and_not_a_reason_to_wait() {
    let mut bench = Bench::new(0, 0, Depth::One);
    bench.graph = Scheduler::new(Limits::default().tasks_max(2));
    bench.next_level = vec![
        bench
            .graph
            .add_worker(WorkerKind::NextLevel, Depth::One)
            .unwrap(),
    ];
    bench.run = bench.graph.begin_run();
    let a = bench.on(0, &[(X, Tag::Output)]);
    let b = bench.on(0, &[(X, Tag::InOut)]);
    bench.dispatch();
    bench.fail(a);
    assert_eq!(bench.end_of(b), Some(TaskEnd::Skipped { cause: a }));
    let spec = TaskSpec::new(Placement::On(bench.next_level[0]));
    let refused = bench.graph.submit(bench.run, &spec);
    assert_eq!(
        refused,
        Err(SubmitError::SlotsHeld {
            tasks_max: 2,
            oldest: a
        })
    );
}

#[test]
fn the_blocker_that_is_named_is_alive() {
    let mut bench = bench();
    bench.begin_scope();
    let tensor = bench.alloc(1024).unwrap();
    let slow = bench.task_on(0, tensor, Tag::NoDep).unwrap();
    let quick = bench.task_on(1, tensor, Tag::NoDep).unwrap();
    bench.end_scope();
    bench.begin_scope();
    bench.dispatch();
    assert!(matches!(bench.alloc(64), Err(AllocError::Full { blocker, .. }) if blocker == quick));
    bench.ok(quick);
    assert!(matches!(bench.alloc(64), Err(AllocError::Full { blocker, .. }) if blocker == slow));
    bench.ok(slow);
    assert!(bench.alloc(64).is_ok());
}

#[test]
fn a_tensor_cannot_be_named_after_its_scope() {
    let mut bench = bench();
    bench.begin_scope();
    let tensor = bench.alloc(64).unwrap();
    bench.task_on(0, tensor, Tag::Output).unwrap();
    bench.end_scope();
    let refused = bench.task_on(0, tensor, Tag::Input);
    assert_eq!(
        refused,
        Err(SubmitError::MemoryReclaimed {
            buffer: tensor.buffer()
        })
    );
}

#[test]
fn memory_of_a_failed_task_comes_back_at_once() {
    let mut bench = bench();
    bench.begin_scope();
    let tensor = bench.alloc(1024).unwrap();
    let task = bench.task_on(0, tensor, Tag::Output).unwrap();
    bench.end_scope();
    bench.begin_scope();
    bench.dispatch();
    bench.fail(task);
    let again = bench.alloc(1024).unwrap();
    let other = bench.task_on(0, again, Tag::InOut).unwrap();
    assert_eq!(bench.dispatch(), [other]); // the same bytes, another buffer: no failure is inherited
}

#[test]
fn scopes_nest_to_their_limit_and_end_with_the_run() {
    let mut bench = bench();
    for depth in 1..=SCOPES_MAX {
        assert_eq!(bench.begin_scope(), depth);
    }
    let run = bench.run;
    let refused = bench.graph.begin_scope(run, Inference::Automatic);
    assert_eq!(refused, Err(ScopeError::TooDeep { run }));
    bench.alloc(1024).unwrap();
    (0..SCOPES_MAX).for_each(|_| bench.end_scope());
    assert_eq!(bench.graph.end_scope(run), Err(ScopeError::NotOpen { run }));
    bench.alloc(1024).unwrap();
    bench.graph.seal(run).unwrap();
    bench.run = bench.graph.begin_run();
    bench.alloc(1024).unwrap();
}

#[test]
fn a_manual_scope_switches_inference_off_inside() {
    let mut bench = Bench::new(3, 0, Depth::One);
    let writer = bench.on(0, &[(X, Tag::Output)]);
    bench
        .graph
        .begin_scope(bench.run, Inference::Manual)
        .unwrap();
    bench
        .graph
        .begin_scope(bench.run, Inference::Automatic)
        .unwrap();
    let manual = bench.on(1, &[(X, Tag::InOut)]);
    bench.end_scope();
    bench.end_scope();
    let reader = bench.on(2, &[(X, Tag::Input)]);
    assert_eq!(bench.dispatch(), [writer, manual]);
    assert_eq!(bench.ok(writer), [reader]);
}

/// A task that reads `input` and brings as many outputs of 256 bytes into being.
fn making(input: Option<Tensor>, n_outputs: u64) -> TaskArgs {
    let mut args = TaskArgs::new();
    if let Some(input) = input {
        args.tensor(input, Tag::Input).unwrap();
    }
    for number in 0..n_outputs {
        let output = Tensor::unbacked(number, DType::U8, &[256]).unwrap();
        args.tensor(output, Tag::Output).unwrap();
    }
    args
}

#[test]
fn an_output_without_a_backing_is_allocated_by_its_submit_and_read_by_later_tasks() {
    let mut bench = bench();
    let spec = TaskSpec::new(Placement::On(bench.next_level[0]));
    let mut args = making(None, 2);
    let maker = bench
        .graph
        .submit_outputs(bench.run, &spec, &mut args)
        .unwrap();
    let made: Vec<_> = args.tensors().iter().map(|arg| arg.tensor).collect();
    assert_eq!((made[0].byte_offset(), made[1].byte_offset()), (0, 256));
    let reader = bench.task_on(1, made[1], Tag::Input).unwrap();
    assert_eq!(bench.dispatch(), [maker]);
    assert_eq!(bench.ok(maker), [reader]);
}

#[test]
fn a_refused_submit_takes_its_outputs_back() {
    let mut bench = bench();
    let spec = TaskSpec::new(Placement::On(bench.next_level[0]));
    let outside = bench.alloc(256).unwrap();
    for (mut args, n_wanted) in [(making(Some(outside), 4), 4), (making(None, 4), 4)] {
        let before = args.clone();
        let refused = bench
            .graph
            .submit_outputs(bench.run, &spec, &mut args)
            .unwrap_err();
        assert!(
            matches!(refused, AllocError::Exhausted { scope: 0, .. }),
            "{n_wanted}: {refused}"
        );
        assert_eq!(args.tensors(), before.tensors());
        assert_eq!(args.accesses(), before.accesses());
    }
    let nobody = TaskSpec::new(Placement::On(WorkerId(99)));
    let mut args = making(None, 3);
    let refused = bench
        .graph
        .submit_outputs(bench.run, &nobody, &mut args)
        .unwrap_err();
    assert!(
        matches!(
            refused,
            AllocError::Refused(SubmitError::NotNextLevel { .. })
        ),
        "{refused}"
    );
    // All of the memory is there.
    bench
        .graph
        .submit_outputs(bench.run, &spec, &mut args)
        .unwrap();
}

#[test]
fn a_plain_submit_refuses_outputs_without_a_backing() {
    let mut bench = bench();
    let args = making(None, 1);
    let spec = TaskSpec::new(Placement::On(bench.next_level[0])).args(&args);
    assert_eq!(
        bench.graph.submit(bench.run, &spec),
        Err(SubmitError::Unbacked)
    );
    assert_eq!(bench.graph.n_live_tasks(), 0);
}

#[test]
fn only_the_newest_tensor_that_nobody_named_is_taken_back() {
    let mut bench = bench();
    let (first, second) = (bench.alloc(512).unwrap(), bench.alloc(512).unwrap());
    assert!(!bench.graph.take_back(bench.run, &first));
    bench.task_on(0, second, Tag::Output).unwrap();
    assert!(
        !bench.graph.take_back(bench.run, &second),
        "a task names it"
    );
    bench.begin_scope();
    let inner = bench.alloc(1024).unwrap();
    assert!(bench.graph.take_back(bench.run, &inner));
    assert!(!bench.graph.take_back(bench.run, &inner), "it is gone");
    bench.alloc(1024).unwrap();
}

/// All scopes from depth 3 on share a ring.
#[test]
fn an_inner_scope_is_not_starved_by_what_a_deep_outer_one_keeps() {
    let mut bench = bench();
    (0..3).for_each(|_| {
        bench.begin_scope();
    });
    let outer = bench.alloc(128).unwrap();
    for _ in 0..20 {
        bench.begin_scope();
        let inner = bench.alloc(800).unwrap();
        let task = bench.task_on(0, inner, Tag::Output).unwrap();
        bench.end_scope();
        bench.dispatch();
        let full = bench.alloc(800).unwrap_err();
        assert!(
            matches!(full, AllocError::Full { blocker, .. } if blocker == task),
            "{full}"
        );
        bench.ok(task);
    }
    bench.task_on(0, outer, Tag::Output).unwrap();
}
