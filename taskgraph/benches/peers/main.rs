//! A whole task beside what a task costs in other task systems, in turns with them.
//!
//! `cargo xtask bench peers`, or `cargo bench -p taskgraph --bench peers -- [--json] [--rounds=N] [NAME…]`.
//!
//! The comparison programs stand beside this file. They are built here by the system's compilers, never by the
//! workspace, and run as processes of their own. One that cannot be built because it is not installed is reported as
//! such, and is no failure; `TASKFLOW_INCLUDE` says where the headers of Taskflow are, when they are not where the
//! compiler looks.
//!
//! All measure nanoseconds per task with an empty body: submit, schedule, complete. libgomp and StarPU execute while
//! more is submitted, libgomp with at most 64 waiting tasks for each thread; beside them ours are submitted with at
//! most [`WINDOW`](ours::WINDOW) live. Taskflow builds a graph, then runs it; beside it so do ours. What this leaves
//! out on our side is the way to a worker, which is a matter of mailboxes and has benches of its own.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench program reports on its standard streams"
)]

mod ours;
mod programs;
#[path = "../submit/report.rs"]
mod report;

use std::path::Path;

use ours::{Feeding, Graph, Shape};
use programs::Peer;
use report::{Measure, Report};

/// How often each shape is measured, in turns with each peer.
const ROUNDS: usize = 7;

fn main() {
    let mut report = Report::from_args();
    for peer in &programs::PEERS {
        let name = |shape: Shape| format!("peers/{}/{}", shape.name(), peer.name);
        let wanted: Vec<_> = Shape::ALL
            .into_iter()
            .filter(|&shape| report.is_wanted(&name(shape)))
            .collect();
        let built = (!wanted.is_empty()).then(|| peer.build());
        if let Some(Err(why)) = &built {
            eprintln!("{why}");
        }
        for shape in wanted {
            let program = built.as_ref().and_then(|built| built.as_deref().ok());
            report.add(beside(
                &name(shape),
                report.rounds(ROUNDS),
                shape,
                peer,
                program,
            ));
        }
    }
    report.print();
}

/// One shape beside one peer, or without it when it could not be built.
fn beside(name: &str, rounds: usize, shape: Shape, peer: &Peer, program: Option<&Path>) -> Measure {
    let mut graph = Graph::new(shape, peer.n_tasks);
    let feeding = if peer.builds_first {
        Feeding::AllFirst
    } else {
        Feeding::Stream
    };
    graph.run(feeding);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(graph.run(feeding));
        theirs.extend(program.map(|program| programs::ask(program, shape.name(), peer.n_tasks)));
    }
    let mut measure = Measure::new(name, "ns", ours);
    if theirs.is_empty() {
        let Peer { name, install, .. } = peer;
        measure.note = Some(format!("{name} is not installed; it needs {install}"));
    } else {
        let theirs = Measure::new(peer.name, "ns", theirs);
        measure.reference = Some((peer.name.to_owned(), theirs.median()));
    }
    measure
}
