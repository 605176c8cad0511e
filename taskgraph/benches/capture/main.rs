//! What recording and replaying cost, beside submitting the same tasks.
//!
//! `cargo bench -p taskgraph --bench capture -- [--json] [NAME…]`. A replay is everything that a call of a known graph
//! costs the thread that submits: the look-up of the key, the comparison of the boundary, the graph task with its edges.
//! What is compared is measured in turns, so that both see the same neighbours. Nothing here asserts a time.

#![expect(
    clippy::print_stdout,
    reason = "a bench program reports on its standard output"
)]

mod layer;
#[path = "../submit/report.rs"]
mod report;

use std::time::{Duration, Instant};

use layer::{Layer, Runner};
use report::{Measure, Report};

/// Tasks of one layer of a model, and how often it is repeated.
const NODES: u32 = 277;
const LAYERS: u32 = 40;

fn main() {
    let mut report = Report::from_args();
    if report.is_wanted("record") {
        report.add(record(report.rounds(100)));
    }
    if report.is_wanted("replay_small") {
        report.add(replay_small(report.rounds(201)));
    }
    if report.is_wanted("replay_host") {
        replay_host(&mut report);
    }
    if report.is_wanted("replay_vs_submit") {
        report.add(replay_vs_submit(report.rounds(14)));
    }
    if report.is_wanted("definition_bytes") {
        let layer = Layer::new(NODES, 30, 4);
        let definition = layer.record(&mut layer.recorder());
        let bytes = definition.bytes() as f64 / f64::from(NODES);
        report.add(Measure::new("definition_bytes", "bytes", vec![bytes]));
    }
    report.print();
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn ns_per(elapsed: Duration, n: u32) -> f64 {
    elapsed.as_nanos() as f64 / f64::from(n)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Recording a layer, the definition included, beside submitting it; per node. The scheduler and the recorder are those of
/// the rounds before: their tables have their size.
fn record(rounds: usize) -> Measure {
    let layer = Layer::new(NODES, 30, 4);
    let (mut runner, mut recorder) = (Runner::new(), layer.recorder());
    let (mut records, mut submits) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let recording = timed(|| drop(std::hint::black_box(layer.record(&mut recorder))));
        let submitting = timed(|| runner.submit(&layer));
        runner.drain(NODES);
        if round > 0 {
            records.push(ns_per(recording, NODES));
            submits.push(ns_per(submitting, NODES));
        }
    }
    let mut measure = Measure::new("record", "ns", records);
    measure.reference = Some(("submit".to_owned(), median(submits)));
    measure
}

/// One replay of each layer, in turns. The timed ones follow others of the same buffers, which have not run yet:
/// so each has edges to the one before it, as the layers of a model do, and finds the tables warm, whatever the
/// nodes of the last round have left in the caches.
fn replays(layers: &[Layer], runs: usize) -> Vec<Vec<f64>> {
    let (mut runner, batch) = (Runner::new(), 16);
    let calls = |layer: &Layer| (0..batch).map(|at| layer.boundary(1 + at)).collect();
    let calls: Vec<Vec<_>> = layers.iter().map(calls).collect();
    let mut figures = vec![Vec::new(); layers.len()];
    for round in 0..=runs {
        for (at, layer) in layers.iter().enumerate() {
            let all = |runner: &mut Runner| {
                calls[at].iter().for_each(|call| runner.replay(layer, call));
            };
            all(&mut runner);
            let replaying = timed(|| all(&mut runner));
            runner.drain(layer.n_nodes() * 2 * batch as u32);
            if round > 0 {
                figures[at].push(ns_per(replaying, batch as u32));
            }
        }
    }
    figures
}

fn replay_small(rounds: usize) -> Measure {
    let figures = replays(&[Layer::new(NODES, 2, 0)], rounds).remove(0);
    Measure::new("replay_small", "ns", figures)
}

/// The same boundary around few and many nodes.
fn replay_host(report: &mut Report) {
    let counts = [28, NODES, 1000];
    let layers = counts.map(|nodes| Layer::new(nodes, 30, 4));
    let mut first = None;
    for (nodes, figures) in counts.iter().zip(replays(&layers, report.rounds(101))) {
        let mut measure = Measure::new(&format!("replay_host/nodes={nodes}"), "ns", figures);
        match first {
            None => first = Some(measure.median()),
            Some(few) => measure.reference = Some(("nodes=28".to_owned(), few)),
        }
        report.add(measure);
    }
}

/// A whole model: the host's time with capture, beside that without.
fn replay_vs_submit(rounds: usize) -> Measure {
    let layer = Layer::new(NODES, 30, 4);
    let mut runner = Runner::new();
    let call = layer.boundary(0);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let replaying = timed(|| (0..LAYERS).for_each(|_| runner.replay(&layer, &call)));
        runner.drain(NODES * LAYERS);
        let submitting = timed(|| (0..LAYERS).for_each(|_| runner.submit(&layer)));
        runner.drain(NODES * LAYERS);
        if round > 0 {
            with.push(replaying.as_nanos() as f64);
            without.push(submitting.as_nanos() as f64);
        }
    }
    let mut measure = Measure::new("replay_vs_submit", "ns", with);
    measure.reference = Some(("submit".to_owned(), median(without)));
    measure
}
