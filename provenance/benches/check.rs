//! What a check costs, at 10, 1 000 and 1 000 000 live pointers, from one thread and from two.
//!
//! Pointers are visited in a random order, so that a million of them do not fit any cache. The
//! time is that of one thread per check. `--json` prints `[{name, value, unit, min, runs}]`, `value`
//! being the median over the runs; without it a line per figure.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::hint::black_box;
use std::time::Instant;

use provenance::{Ask, Operation, Span, Table, WorkerRef};

const CHIPS: u32 = 8;
const VISITS: usize = 2_000_000;
const RUNS: usize = 7;

type Visit = fn(&Table, Ask, Span) -> u64;

fn main() {
    let json = std::env::args().any(|arg| arg == "--json");
    let mut rows = Vec::new();
    for live in [10, 1_000, 1_000_000] {
        let (table, spans) = filled(live);
        for (what, visit) in [
            ("check", check as Visit),
            ("with_range", with_range as Visit),
        ] {
            for threads in [1, 2] {
                let name = format!("provenance_{what}/live={live}/threads={threads}");
                rows.push((name, measure(&table, &spans, threads, visit)));
            }
        }
    }
    if json {
        print_json(&rows)
    } else {
        print_lines(&rows)
    }
}

#[inline(never)]
fn check(table: &Table, ask: Ask, span: Span) -> u64 {
    table.check(ask, span).expect("alive")
}

fn with_range(table: &Table, ask: Ask, span: Span) -> u64 {
    table
        .with_range(ask, span, |address| address)
        .expect("alive")
}

/// A table with so many allocations on eight chips, and a random walk over them.
fn filled(live: usize) -> (Table, Vec<Span>) {
    let table = Table::new();
    let one = |at: usize| {
        let worker = WorkerRef {
            id: at as u32 % CHIPS,
            incarnation: 0x5eed,
        };
        let ptr = table
            .record(worker, 0x1000 * (1 + at as u64), 0x1000)
            .expect("recorded");
        ptr.plus(256).expect("inside").span(512)
    };
    let ptrs: Vec<Span> = (0..live).map(one).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let visits = std::iter::repeat_with(|| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        ptrs[(seed % live as u64) as usize]
    });
    let walk = visits.take(VISITS).collect();
    (table, walk)
}

/// Nanoseconds per visit of each run, sorted.
fn measure(table: &Table, walk: &[Span], threads: usize, visit: Visit) -> Vec<f64> {
    let mut figures: Vec<f64> = (0..RUNS)
        .map(|_| run(table, walk, threads, visit))
        .collect();
    figures.sort_by(f64::total_cmp);
    figures
}

fn run(table: &Table, walk: &[Span], threads: usize, visit: Visit) -> f64 {
    let worker = |part: usize| {
        let start = Instant::now();
        // Each thread starts elsewhere in the same walk.
        let (head, tail) = walk.split_at(part * walk.len() / threads);
        for &span in tail.iter().chain(head) {
            let ask = Ask::on(Operation::CopyTo, span.ptr.worker().id);
            black_box(visit(table, ask, span));
        }
        start.elapsed().as_nanos() as f64 / walk.len() as f64
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|part| scope.spawn(move || worker(part)))
            .collect();
        let each = running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        each.fold(0.0, f64::max)
    })
}

fn print_json(rows: &[(String, Vec<f64>)]) {
    let lines: Vec<String> = rows
        .iter()
        .map(|(name, runs)| {
            let (median, min) = (runs[runs.len() / 2], runs[0]);
            format!(
                "{{\"name\":\"{name}\",\"value\":{median:.2},\"unit\":\"ns\",\
                 \"min\":{min:.2},\"runs\":{}}}",
                runs.len()
            )
        })
        .collect();
    println!("[\n{}\n]", lines.join(",\n"));
}

fn print_lines(rows: &[(String, Vec<f64>)]) {
    for (name, runs) in rows {
        println!(
            "{name:<48} median {:7.2} ns, min {:7.2} ns",
            runs[runs.len() / 2],
            runs[0]
        );
    }
}
