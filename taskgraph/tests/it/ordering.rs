//! Which task waits for which.

use taskgraph::*;

use crate::support::{Bench, X, args, tensor};

/// TG-1: a later writer must find the readers.
///
/// ```text
/// W0 inout ──> R0, R1, R2 in ──> W1 inout ──> W2 out
/// ```
#[test]
fn a_writer_waits_for_every_reader_and_readers_run_together() {
    let mut bench = Bench::new(4, 0, Depth::One);
    let w0 = bench.on(3, &[(X, Tag::InOut)]);
    let readers: Vec<_> = (0..3)
        .map(|worker| bench.on(worker, &[(X, Tag::Input)]))
        .collect();
    let w1 = bench.on(3, &[(X, Tag::InOut)]);
    let w2 = bench.on(0, &[(X, Tag::Output)]);
    assert_eq!(bench.dispatch(), [w0]);
    assert_eq!(bench.ok(w0), readers);
    assert_eq!(bench.ok(readers[0]), []);
    assert_eq!(bench.ok(readers[2]), []); // readers[1] is still at it
    assert_eq!(bench.ok(readers[1]), [w1]);
    assert_eq!(bench.ok(w1), [w2]);
}

/// TG-2: two tasks that wait for each other inside must both be running.
#[test]
fn tasks_on_disjoint_slices_of_one_buffer_run_together() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let buffer = tensor(X).buffer();
    let x = Tensor::contiguous(buffer, DType::F32, &[16, 16], 1024).unwrap();
    let cuts = [(0, 0..1), (0, 1..2), (1, 0..4), (1, 8..12)];
    for [(dim_a, a), (dim_b, b)] in [
        [cuts[0].clone(), cuts[1].clone()],
        [cuts[2].clone(), cuts[3].clone()],
    ] {
        let mut tasks = Vec::new();
        for (worker, dim, range) in [(0, dim_a, a), (1, dim_b, b)] {
            let mut args = TaskArgs::new();
            args.tensor(x.slice(dim, range).unwrap(), Tag::InOut)
                .unwrap();
            let on = Placement::On(bench.next_level[worker]);
            tasks.push(
                bench
                    .graph
                    .submit(bench.run, &TaskSpec::new(on).args(&args))
                    .unwrap(),
            );
        }
        assert_eq!(bench.dispatch(), tasks);
        for task in tasks {
            bench.ok(task);
        }
    }
}

#[test]
fn a_task_that_reads_and_writes_one_tensor_does_not_wait_for_itself() {
    let mut bench = Bench::new(1, 0, Depth::One);
    let task = bench.on(0, &[(X, Tag::Input), (X, Tag::Output)]);
    assert_eq!(bench.dispatch(), [task]);
}

#[test]
fn after_adds_an_edge_and_a_finished_task_counts_as_done() {
    let mut bench = Bench::new(2, 0, Depth::One);
    let a = bench.on(0, &[]);
    let spec = TaskSpec::new(Placement::On(bench.next_level[1]));
    let after = [a, a];
    let b = bench.graph.submit(bench.run, &spec.after(&after)).unwrap();
    assert_eq!(bench.dispatch(), [a]);
    assert_eq!(bench.ok(a), [b]);
    let c = bench.graph.submit(bench.run, &spec.after(&after)).unwrap();
    assert_eq!(bench.ok(b), [c]);
    let unknown = TaskId {
        slot: 99,
        generation: 0,
    };
    let refused = bench.graph.submit(bench.run, &spec.after(&[unknown]));
    assert_eq!(refused, Err(SubmitError::UnknownTask { task: unknown }));
}

#[test]
fn a_manual_task_neither_follows_nor_is_followed() {
    let mut bench = Bench::new(3, 0, Depth::One);
    let w = bench.on(0, &[(X, Tag::Output)]);
    let args = args(&[(X, Tag::InOut)]);
    let spec = TaskSpec::new(Placement::On(bench.next_level[1]))
        .args(&args)
        .manual();
    let manual = bench.graph.submit(bench.run, &spec).unwrap();
    let reader = bench.on(2, &[(X, Tag::Input)]);
    assert_eq!(bench.dispatch(), [w, manual]);
    assert_eq!(bench.ok(w), [reader]);
}

#[test]
fn many_successors_are_released_in_the_order_of_submission() {
    let mut bench = Bench::new(40, 0, Depth::One);
    let w = bench.on(0, &[(X, Tag::Output)]);
    let readers: Vec<_> = (0..40)
        .map(|worker| bench.on(worker, &[(X, Tag::Input)]))
        .collect();
    assert_eq!(bench.dispatch(), [w]);
    assert_eq!(bench.ok(w), readers);
    assert_eq!(bench.graph.n_live_tasks(), 40);
    for reader in readers {
        bench.ok(reader);
    }
    assert_eq!(
        (bench.graph.n_live_tasks(), bench.graph.n_records()),
        (0, 0)
    );
}
