//! How long a task takes there and back, beside what the machine itself asks for.
//!
//! Two processes, each on a core of its own. Short rounds of the raw reference and of the mailbox
//! alternate, so that a busy neighbour disturbs both alike; the report gives the median and the minimum
//! of the rounds, and the ratio of the medians. `--json` prints it for `cargo xtask bench`; `--awake` leaves
//! out what sleeps.
//!
//! | name | measured | reference |
//! | --- | --- | --- |
//! | `mailbox_rtt` | a 64-byte task and a 64-byte answer, both sides awake | `raw_ping_pong`: one cache line each way |
//! | `mailbox_rtt_empty` | a task and an answer of no bytes | the same |
//! | `wake_idle` | a 64-byte task to a child that has slept for a second | `raw_futex_wake`: a wake, and the answer watched for |
#![expect(unsafe_code, reason = "fork and raw futex calls, to measure against")]

mod raw;
mod report;

use std::time::{Duration, Instant};

use mailbox::{
    ChildEnd, Doorbell, Event, Identity, Immortal, Layout, Mailbox, ParentEnd, Request, Segment,
    Waiter,
};

use raw::Raw;
use report::{Row, Sample};

/// Round trips in one short round: some tens of microseconds, so that most rounds run undisturbed even
/// on a busy machine.
const TRIPS: u32 = 400;
/// Short rounds of each kind.
const ROUNDS: usize = 2001;
/// Sleeps of each kind.
const SLEEPS: usize = 7;
/// How long the child sleeps before it is woken.
const IDLE: Duration = Duration::from_secs(1);

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    let plan = match () {
        // `cargo test --benches` asks only whether it runs.
        () if has("--test") => Plan {
            rounds: 3,
            sleeps: 0,
        },
        () if has("--awake") => Plan {
            rounds: ROUNDS,
            sleeps: 0,
        },
        () => Plan {
            rounds: ROUNDS,
            sleeps: SLEEPS,
        },
    };
    report::print(&measure(plan), has("--json"));
}

#[derive(Clone, Copy)]
struct Plan {
    rounds: usize,
    sleeps: usize,
}

/// Forks the child, runs the same plan on both sides, and waits for the child to end.
fn measure(plan: Plan) -> Vec<Row> {
    let doorbell = Doorbell::create().expect("create a doorbell");
    let mailbox = Mailbox::create(Layout::default(), &doorbell).expect("create a mailbox");
    let segment = Segment::create("raw", 4096).expect("create a segment");
    let raw = Raw::new(&segment);
    // SAFETY: this process has one thread, and the child only serves and exits.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            raw::pin(1);
            serve(plan, &raw, mailbox.into_child().expect("attach the child"));
            // SAFETY: ends the child without running what the parent has registered.
            unsafe { libc::_exit(0) }
        }
        child => {
            raw::pin(0);
            let rows = drive(
                plan,
                &raw,
                mailbox.into_parent().expect("attach the parent"),
            );
            raw::reap(child);
            rows
        }
    }
}

/// The child's half of the plan.
fn serve(plan: Plan, raw: &Raw<'_>, mut end: ChildEnd) {
    for _ in 0..plan.rounds {
        raw.answer(TRIPS);
        serve_tasks(&mut end, 2 * TRIPS);
    }
    for _ in 0..plan.sleeps {
        raw.sleep_and_answer();
        serve_tasks(&mut end, 1);
    }
}

fn serve_tasks(end: &mut ChildEnd, n_tasks: u32) {
    for _ in 0..n_tasks {
        match end.next(&Immortal, None).expect("a request") {
            Request::Task(task) => {
                let mut answer = [0; 64];
                let bytes = &mut answer[..task.payload().len()];
                bytes.copy_from_slice(task.payload());
                end.complete(task, Ok(bytes)).expect("an answer");
            }
            other => panic!("expected a task, got {other:?}"),
        }
    }
}

/// The parent's half of the plan, with the clock.
fn drive(plan: Plan, raw: &Raw<'_>, mut end: ParentEnd) -> Vec<Row> {
    let mut waiter = Waiter::new();
    let (mut bare, mut full, mut empty) = (Sample::new(), Sample::new(), Sample::new());
    for _ in 0..plan.rounds {
        bare.push(per_trip(|| raw.ask(TRIPS)));
        full.push(per_trip(|| {
            submit_tasks(&mut end, &mut waiter, TRIPS, &[7; 64])
        }));
        empty.push(per_trip(|| submit_tasks(&mut end, &mut waiter, TRIPS, &[])));
    }
    let (mut futex, mut wake) = (Sample::new(), Sample::new());
    for _ in 0..plan.sleeps {
        std::thread::sleep(IDLE);
        futex.push(nanos(|| raw.wake_and_watch()));
        std::thread::sleep(IDLE);
        wake.push(nanos(|| submit_tasks(&mut end, &mut waiter, 1, &[7; 64])));
    }
    let mut rows = vec![
        Row::new("mailbox_rtt", full, "raw_ping_pong", bare.clone()),
        Row::new("mailbox_rtt_empty", empty, "raw_ping_pong", bare),
    ];
    if plan.sleeps > 0 {
        rows.push(Row::new("wake_idle", wake, "raw_futex_wake", futex));
    }
    rows
}

fn submit_tasks(end: &mut ParentEnd, waiter: &mut Waiter, n_tasks: u32, payload: &[u8]) {
    for dispatch in 0..u64::from(n_tasks) {
        let identity = Identity {
            run: 1,
            slot: 2,
            generation: 3,
            dispatch,
        };
        end.submit(identity, 0, payload).expect("a free frame");
        end.wait(waiter, &Immortal, None).expect("an answer");
        match end.poll().expect("a sound endpoint") {
            Some(Event::Done { identity: done, .. }) => assert_eq!(done, identity),
            other => panic!("expected an end, got {other:?}"),
        }
    }
}

fn nanos(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64() * 1e9
}

fn per_trip(f: impl FnOnce()) -> f64 {
    nanos(f) / f64::from(TRIPS)
}
