//! Scenarios: what happens to a scheduler, as data that is drawn from a seed and can be shrunk.

use taskgraph::{Depth, Outcome, Tag, WorkerKind};

/// Rows and columns of every buffer, in bytes: its bytes are the bits of a word.
pub(crate) const SIDE: u64 = 8;
/// Number of buffers.
pub(crate) const BUFFERS: usize = 3;

/// Workers and limits, and then one event after the other.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) workers: Vec<(WorkerKind, Depth)>,
    /// How often a worker finishes something, compared with the others.
    pub(crate) speeds: Vec<u64>,
    pub(crate) tasks_max: u32,
    /// Whether decisions are taken only when a `Decide` comes, not after every event.
    pub(crate) is_lazy: bool,
    pub(crate) events: Vec<Event>,
}

/// Numbers pick from what there is at that moment, wrapped round.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Begin,
    /// Takes so many decisions and no more.
    Decide(u64),
    Submit(Task),
    Seal(u64),
    Cancel(u64),
    Release(u64),
    Accept(u64),
    Finish(u64, Outcome),
    Lose(u64),
    Back(u64),
}

/// A task to submit.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) run: u64,
    pub(crate) place: Place,
    pub(crate) accesses: Vec<(usize, Cut, Tag)>,
    pub(crate) after: Vec<u64>,
    pub(crate) manual: bool,
}

/// A placement; workers are numbered among the next-level ones.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    On(u64),
    AnyOf(Vec<u64>),
    Group(Vec<u64>),
    Sub,
    SubGroup(u32),
}

/// Part of a buffer: rows and columns, every how many, and whether it is turned.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) rows: (u64, u64, u64),
    pub(crate) columns: (u64, u64, u64),
    pub(crate) turned: bool,
}

/// A small generator of numbers; equal seeds give equal numbers, now and later.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `n` times.
    fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// How likely trouble is in one scenario.
struct Mood {
    /// One failure in so many ends.
    failures: u64,
    /// One lost worker, or cancelled run, in so many events.
    losses: u64,
    /// One group in so many tasks.
    groups: u64,
    /// So many submits for each end, in eighths.
    submits: u64,
    n_next: u64,
    n_subs: u64,
}

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn of(seed: u64) -> Scenario {
        let mut random = Random::new(seed);
        let mood = Mood {
            failures: random.pick(&[3, 10, 1000]),
            losses: random.pick(&[30, 100, 10_000]),
            groups: random.pick(&[2, 5, 50]),
            submits: random.pick(&[3, 4, 5]),
            n_next: 1 + random.below(5),
            n_subs: random.below(4),
        };
        let depth = |random: &mut Random| random.pick(&[Depth::One, Depth::Two]);
        let next = (0..mood.n_next).map(|_| WorkerKind::NextLevel);
        let subs = (0..mood.n_subs).map(|_| WorkerKind::Sub);
        let workers: Vec<_> = next
            .chain(subs)
            .map(|kind| (kind, depth(&mut random)))
            .collect();
        let n_events = random.pick(&[20, 100, 400]);
        Scenario {
            speeds: workers
                .iter()
                .map(|_| random.pick(&[1, 1, 3, 20]))
                .collect(),
            workers,
            is_lazy: random.once_in(4),
            tasks_max: random.pick(&[5, 40, 1000]),
            events: (0..n_events).map(|_| event(&mut random, &mood)).collect(),
        }
    }
}

fn event(random: &mut Random, mood: &Mood) -> Event {
    if random.once_in(mood.losses) {
        return match random.below(3) {
            0 => Event::Cancel(random.next()),
            1 => Event::Lose(random.next()),
            _ => Event::Back(random.next()),
        };
    }
    match random.below(64) {
        0 => Event::Begin,
        1..4 => Event::Seal(random.next()),
        4 => Event::Release(random.next()),
        5..8 => Event::Accept(random.next()),
        8..14 => Event::Decide(random.below(6)),
        n if n % 8 < mood.submits => Event::Submit(task(random, mood)),
        _ => {
            let is_bad = random.once_in(mood.failures);
            Event::Finish(
                random.next(),
                if is_bad { Outcome::Failed } else { Outcome::Ok },
            )
        }
    }
}

fn task(random: &mut Random, mood: &Mood) -> Task {
    let n_accesses = random.pick(&[0, 1, 1, 2, 2, 3]);
    Task {
        run: random.next(),
        place: place(random, mood),
        accesses: (0..n_accesses).map(|_| access(random)).collect(),
        after: (0..random.pick(&[0, 0, 0, 0, 1, 2]))
            .map(|_| random.next())
            .collect(),
        manual: random.once_in(20),
    }
}

fn place(random: &mut Random, mood: &Mood) -> Place {
    let on_subs = mood.n_subs > 0 && random.once_in(3);
    match (random.once_in(mood.groups), on_subs) {
        (true, true) => Place::SubGroup(1 + random.below(mood.n_subs) as u32),
        (true, false) => Place::Group(some_of(random, mood.n_next)),
        (false, true) => Place::Sub,
        (false, false) if random.once_in(4) => Place::AnyOf(some_of(random, mood.n_next)),
        (false, false) => Place::On(random.below(mood.n_next)),
    }
}

/// Some distinct numbers below `n`, in any order, one at least.
fn some_of(random: &mut Random, n: u64) -> Vec<u64> {
    let mut all: Vec<_> = (0..n).collect();
    for i in (1..all.len()).rev() {
        all.swap(i, random.below(i as u64 + 1) as usize);
    }
    all.truncate(1 + random.below(n) as usize);
    all
}

fn access(random: &mut Random) -> (usize, Cut, Tag) {
    let tags = [
        Tag::Input,
        Tag::Input,
        Tag::Input,
        Tag::Output,
        Tag::InOut,
        Tag::OutputExisting,
    ];
    let tag = if random.once_in(20) {
        Tag::NoDep
    } else {
        random.pick(&tags)
    };
    (random.below(BUFFERS as u64) as usize, cut(random), tag)
}

fn cut(random: &mut Random) -> Cut {
    let all = (0, SIDE, 1);
    let (rows, columns) = match random.below(5) {
        0 => (all, all),
        1 => (range(random), all),
        2 => (all, range(random)),
        _ => (range(random), range(random)),
    };
    Cut {
        rows,
        columns,
        turned: random.once_in(4),
    }
}

fn range(random: &mut Random) -> (u64, u64, u64) {
    let (a, b) = (random.below(SIDE + 1), random.below(SIDE + 1));
    (a.min(b), a.max(b), random.pick(&[1, 1, 1, 2, 3]))
}

/// The smallest part of the events that still fails, as far as leaving out pieces finds it.
pub(crate) fn shrink(scenario: &Scenario, fails: impl Fn(&Scenario) -> bool) -> Scenario {
    let mut smallest = scenario.clone();
    let mut piece = smallest.events.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        let before = smallest.events.len();
        while at < smallest.events.len() {
            let mut candidate = smallest.clone();
            let end = (at + piece).min(candidate.events.len());
            candidate.events.drain(at..end);
            if fails(&candidate) {
                smallest = candidate;
            } else {
                at += piece;
            }
        }
        if smallest.events.len() == before || piece > 1 {
            piece /= 2;
        }
    }
    smallest
}
