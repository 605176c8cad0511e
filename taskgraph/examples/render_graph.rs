//! Draws the graph of a blocked Cholesky factorization: what depends on what, and the critical path.
//!
//! `render_graph [FILE.svg]` writes the picture with Graphviz when `dot` is installed, else the DOT text
//! beside it; without a file the DOT text goes to standard output.

#![expect(
    clippy::print_stdout,
    reason = "a program reports on its standard output"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use taskgraph::*;

const BLOCKS: u64 = 4;
const SIDE: u64 = 64;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let (view, names) = factorize()?;
    let dot = view.to_dot(|node| names[node.task.slot as usize].clone());
    let profile = view.profile().ok_or("every task has a time")?;
    let Some(file) = std::env::args().nth(1) else {
        print!("{dot}");
        return Ok(());
    };
    let written = if render(&dot, &file)? {
        file
    } else {
        let text = format!("{file}.dot");
        std::fs::write(&text, dot)?;
        text
    };
    println!(
        "{written}: {} tasks, {} edges; {} of {} time units are the critical path",
        view.nodes().len(),
        view.edges().len(),
        profile.critical_ns,
        profile.makespan_ns
    );
    Ok(())
}

/// Submits the tasks block by block, as one would write the loops, and runs them on two workers.
fn factorize() -> Result<(GraphView, Vec<String>), AnyError> {
    let mut graph = Scheduler::default();
    let workers = [
        graph.add_worker(WorkerKind::NextLevel, Depth::One)?,
        graph.add_worker(WorkerKind::NextLevel, Depth::One)?,
    ];
    let run = graph.begin_run();
    graph.record(run)?;
    let mut names = Vec::new();
    let mut submit = |name: String, blocks: &[(u64, u64, Tag)]| -> Result<(), AnyError> {
        let mut args = TaskArgs::new();
        for &(row, column, tag) in blocks {
            args.tensor(block(row, column)?, tag)?;
        }
        graph.submit(run, &TaskSpec::new(Placement::AnyOf(&workers)).args(&args))?;
        names.push(name);
        Ok(())
    };
    for k in 0..BLOCKS {
        submit(format!("potrf {k}"), &[(k, k, Tag::InOut)])?;
        for i in k + 1..BLOCKS {
            submit(
                format!("trsm {i},{k}"),
                &[(k, k, Tag::Input), (i, k, Tag::InOut)],
            )?;
        }
        for i in k + 1..BLOCKS {
            for j in k + 1..=i {
                let reads = [(i, k, Tag::Input), (j, k, Tag::Input), (i, j, Tag::InOut)];
                submit(format!("update {i},{j} by {k}"), &reads)?;
            }
        }
    }
    graph.seal(run)?;
    let times = execute(&mut graph)?;
    let mut view = graph.graph_view(run).ok_or("the run is recorded")?;
    view.add_times(times);
    Ok((view, names))
}

/// A block of one large matrix: a tile, not a contiguous piece.
fn block(row: u64, column: u64) -> Result<Tensor, TensorError> {
    let (side, id) = (BLOCKS * SIDE, BufferId::new(1, 1, 0, BufferKind::Shared));
    let matrix = Tensor::contiguous(id, DType::F32, &[side, side], side * side * 4)?;
    let rows = matrix.slice(0, row * SIDE..(row + 1) * SIDE)?;
    rows.slice(1, column * SIDE..(column + 1) * SIDE)
}

/// Pretends that every task takes 10 units and that the workers take turns.
fn execute(graph: &mut Scheduler) -> Result<Vec<(TaskId, u64, u64)>, AnyError> {
    let (mut times, mut now) = (Vec::new(), 0);
    loop {
        let batch: Vec<_> = std::iter::from_fn(|| graph.next_dispatch()).collect();
        if batch.is_empty() {
            return Ok(times);
        }
        for dispatch in batch {
            times.push((dispatch.task, now, now + 10));
            graph.completed(dispatch.dispatch, Outcome::Ok)?;
        }
        now += 11;
    }
}

/// Hands the text to Graphviz; `false` when that is not installed.
fn render(dot: &str, file: &str) -> Result<bool, AnyError> {
    let started = Command::new("dot")
        .args(["-Tsvg", "-o", file])
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        return Ok(false);
    };
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(dot.as_bytes())?;
    }
    Ok(child.wait()?.success())
}
