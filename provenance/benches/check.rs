//! What a check costs, at 10, 1 000 and 1 000 000 live pointers, from one thread and from two.
//!
//! Pointers are visited in a random order, so that a million of them do not fit any cache; `hot` says
//! that only so many of the live ones are visited, as a run does that uses the same weights again and
//! again. The handles lie in the order of the walk, 64 bytes each, and are read as they come, as those
//! of a list of tasks are; no check needs the result of another. The time is what the thread spent on
//! a core.
//!
//! The reference of each figure, measured in turns with it, is the same walk over as many cache lines,
//! each load needing the one before: what this machine takes to fetch one line of that much memory.
//! A check is quicker than that, since it reads one word of a dense array and the processor fetches
//! for the next one meanwhile; a guarded call is not, since its atomic operations wait for each
//! other. Beside it stands what the bare words of that array cost in the same walk, nothing checked.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::hint::black_box;

use provenance::{Ask, Operation, Span, Table, WorkerRef};

const CHIPS: u32 = 8;
const VISITS: usize = 1_000_000;
const RUNS: usize = 7;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let json = args.iter().any(|arg| arg == "--json");
    let named: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wanted = |name: &str| named.is_empty() || named.contains(&name);
    let mut rows = Vec::new();
    for (live, hot) in [
        (10, 10),
        (1_000, 1_000),
        (1_000_000, 1_000),
        (1_000_000, 1_000_000),
    ] {
        let setting = Setting::new(live, hot);
        for threads in [1, 2] {
            if wanted("provenance_check") {
                rows.push(setting.measure("provenance_check", threads, Setting::check));
            }
            if wanted("provenance_with_range") {
                rows.push(setting.measure("provenance_with_range", threads, Setting::with_range));
            }
        }
    }
    if json {
        print_json(&rows)
    } else {
        print_lines(&rows)
    }
}

struct Row {
    name: String,
    /// Nanoseconds per visit of each run, sorted.
    runs: Vec<f64>,
    reference: Vec<f64>,
    /// The same walk over words that do not need each other.
    bare: Vec<f64>,
}

#[derive(Clone)]
#[repr(align(64))]
struct Line(u64);

/// A table with so many allocations on eight chips, and a random walk over the hot ones: every
/// so-manieth, so that they lie far apart.
struct Setting {
    live: usize,
    hot: usize,
    table: Table,
    walk: Vec<(u32, Span)>,
    lines: Vec<Line>,
    words: Vec<u32>,
}

impl Setting {
    fn new(live: usize, hot: usize) -> Self {
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
        let spans: Vec<Span> = (0..live).map(one).collect();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let visits = std::iter::repeat_with(|| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let at = (seed % hot as u64) as usize * (live / hot);
            (at as u32, spans[at])
        });
        let walk = visits.take(VISITS).collect();
        Self {
            live,
            hot,
            table,
            walk,
            lines: vec![Line(1); live],
            words: vec![1; live],
        }
    }

    #[inline(always)]
    fn check(&self, span: Span) -> u64 {
        let ask = Ask::on(Operation::CopyTo, span.ptr.worker().id);
        self.table.check(ask, span).expect("alive")
    }

    #[inline(always)]
    fn with_range(&self, span: Span) -> u64 {
        let ask = Ask::on(Operation::CopyTo, span.ptr.worker().id);
        self.table
            .with_range(ask, span, |address| address)
            .expect("alive")
    }

    fn measure(
        &self,
        name: &str,
        threads: usize,
        visit: impl Fn(&Self, Span) -> u64 + Sync,
    ) -> Row {
        let hot = if self.hot == self.live {
            String::new()
        } else {
            format!(",hot={}", self.hot)
        };
        let name = format!("{name}/live={}{hot}/threads={threads}", self.live);
        let (mut runs, mut reference, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..RUNS {
            runs.push(self.run(threads, |sum, _, span| sum ^ visit(self, span)));
            reference.push(self.run(threads, |last, at, _| self.next_line(last, at)));
            bare.push(self.run(threads, |sum, at, _| {
                sum + u64::from(self.words[at as usize])
            }));
        }
        for figures in [&mut runs, &mut reference, &mut bare] {
            figures.sort_by(f64::total_cmp);
        }
        Row {
            name,
            runs,
            reference,
            bare,
        }
    }

    /// A load whose address depends on the value of the one before.
    #[inline(always)]
    fn next_line(&self, last: u64, at: u32) -> u64 {
        self.lines[(u64::from(at) ^ (last >> 8)) as usize].0
    }

    /// The slowest thread's nanoseconds per visit. Each starts elsewhere in the same walk.
    fn run(&self, threads: usize, visit: impl Fn(u64, u32, Span) -> u64 + Sync) -> f64 {
        let visit = &visit;
        let worker = |part: usize| {
            let (head, tail) = self.walk.split_at(part * self.walk.len() / threads);
            let start = cpu_ns();
            let mut last = 0;
            for part in [tail, head] {
                for &(at, span) in part {
                    last = visit(last, at, span);
                }
            }
            black_box(last);
            (cpu_ns() - start) as f64 / self.walk.len() as f64
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
}

/// How long this thread has been on a core: neighbours on a shared machine do not count.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    stat.split(' ')
        .next()
        .and_then(|field| field.parse().ok())
        .expect("a number")
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

fn print_json(rows: &[Row]) {
    let line = |row: &Row| {
        format!(
            "{{\"name\":\"{}\",\"value\":{:.2},\"unit\":\"ns\",\"min\":{:.2},\"runs\":{},\
             \"reference\":{{\"name\":\"dependent_load\",\"value\":{:.2}}}}}",
            row.name,
            median(&row.runs),
            row.runs[0],
            row.runs.len(),
            median(&row.reference)
        )
    };
    println!(
        "[\n{}\n]",
        rows.iter().map(line).collect::<Vec<_>>().join(",\n")
    );
}

fn print_lines(rows: &[Row]) {
    for row in rows {
        println!(
            "{:<53} median {:6.2} ns, min {:6.2} ns; a dependent load {:6.2} ns, min {:6.2} ns; \
             a bare word {:6.2} ns",
            row.name,
            median(&row.runs),
            row.runs[0],
            median(&row.reference),
            row.reference[0],
            median(&row.bare)
        );
    }
}
