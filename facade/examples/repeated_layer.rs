//! Records a layer once and runs it forty times: each further call is one task, whatever the layer consists of.
//!
//! Prints what became of the calls, and how long the host took to build the graph, with capture and without.

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::time::Instant;

use facade::{ArgList, Args, Error, GraphArgs, Orchestrator, TaskResult, Worker, args};

const LAYERS: usize = 40;
const TASKS: usize = 24;
const WIDTH: usize = 64;

/// `y = a x + w`, element by element.
fn scale_add(args: &Args) -> TaskResult {
    let (x, w, a) = (
        args.input::<f32>(0)?,
        args.input::<f32>(1)?,
        args.scalar::<f32>(0)?,
    );
    for ((y, x), w) in args.output::<f32>(2)?.iter_mut().zip(x).zip(w) {
        *y = a * x + w;
    }
    Ok(())
}

/// A chain of tasks from tensor 0 to tensor 2, over the weights in tensor 1; the key says how long.
fn layer(g: &mut Orchestrator<'_>, a: &GraphArgs<'_, usize>) -> Result<(), Error> {
    let scale_add = g.function("scale_add")?;
    let mut from = a.tensor(0)?;
    let steps = [g.alloc::<f32>(WIDTH)?, g.alloc::<f32>(WIDTH)?];
    for task in 0..*a.key() {
        let list = args().input(&from).input(&a.tensor(1)?);
        let list = if task + 1 == *a.key() {
            list.output(&a.tensor(2)?)
        } else {
            from = steps[task % 2].clone().into();
            list.output(&from)
        };
        g.submit_sub(&scale_add, list.scalar(a.scalar(0)?))?;
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let node = Worker::node().sub_workers(1).build()?;
    node.register_fn("scale_add", scale_add)?;
    node.init()?;
    let weights: Vec<_> = (0..LAYERS)
        .map(|at| node.buffer_from(&[at as f32 / 1000.0; WIDTH]))
        .collect::<Result<_, _>>()?;
    let hidden = [
        node.buffer_from(&[1.0_f32; WIDTH])?,
        node.buffer::<f32>(WIDTH)?,
    ];
    let call = |at: usize| -> ArgList {
        let list = args().input(&hidden[at % 2]).input(&weights[at]);
        list.output(&hidden[(at + 1) % 2]).scalar(0.99_f32)
    };
    for step in 0..3 {
        let built = node.run(|orch| {
            let begun = Instant::now();
            for at in 0..LAYERS {
                orch.graph(TASKS, call(at), layer)?;
            }
            Ok(begun.elapsed())
        })?;
        println!("step {step}: {LAYERS} layers of {TASKS} tasks submitted in {built:?}");
    }
    let stats = node.graph_stats()?;
    println!("{} recorded, {} replayed", stats.recorded, stats.hits);
    println!("first element: {:.4}", hidden[0].view()?[0]);
    node.close()
}
