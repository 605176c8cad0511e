//! Waiting across address spaces: what is seen is whole, what is rung is heard, what is idle is free.
#![expect(unsafe_code, reason = "reads the processor time of a process")]

use std::time::{Duration, Instant};

use mailbox::{
    ChildEnd, DeathWords, Doorbell, Event, Identity, Layout, Mailbox, Outcome, ParentEnd, Probe,
    Request, WaitError, Waiter,
};
use std::sync::atomic::AtomicU32;

use crate::kid::Kid;

/// A peer that never dies, with a word that never changes: sleeps have no period of their own then.
struct NoPeriods(AtomicU32);

impl Probe for NoPeriods {
    fn alive(&self) -> bool {
        true
    }

    fn death_words<'a>(&'a self, words: &mut DeathWords<'a>) {
        words.watch(&self.0, 0);
    }
}

static PROBE: NoPeriods = NoPeriods(AtomicU32::new(0));

/// As many rounds as asked for, or as the machine does in ten seconds.
fn rounds(default: u64) -> impl Iterator<Item = u64> {
    let wanted = std::env::var("MAILBOX_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok());
    let end = Instant::now() + Duration::from_secs(10);
    (1..=wanted.unwrap_or(default)).take_while(move |_| Instant::now() < end)
}

fn start(body: impl FnOnce(ChildEnd) -> i32) -> (ParentEnd, Kid) {
    let mailbox = Mailbox::create(Layout::default(), &Doorbell::create().unwrap()).unwrap();
    let [fd, bell] = mailbox.fds().map(|fd| fd.try_clone_to_owned().unwrap());
    let kid = Kid::fork(|| body(Mailbox::from_fds(fd, bell).unwrap().into_child().unwrap()));
    (mailbox.into_parent().unwrap(), kid)
}

/// Echoes tasks; answers control requests with the sleeps that timed out and the processor time used.
fn serve(mut child: ChildEnd, mut before_each: impl FnMut()) -> i32 {
    loop {
        match child.next(&PROBE, None).unwrap() {
            Request::Task(task) => {
                before_each();
                let echo = task.payload().to_vec();
                child.complete(task, Ok(&echo)).unwrap();
            }
            Request::Control(control) => {
                let numbers = [child.wait_stats().timed_out, cpu_micros()].map(u64::to_le_bytes);
                child.reply(control, Ok(numbers.as_flattened())).unwrap();
            }
            Request::Shutdown => return 0,
        }
    }
}

fn round_trip(parent: &mut ParentEnd, waiter: &mut Waiter, number: u64) {
    let payload = [number.to_le_bytes(); 12];
    let identity = Identity {
        dispatch: number,
        ..Identity::default()
    };
    parent.submit(identity, 0, payload.as_flattened()).unwrap();
    parent.wait(waiter, &PROBE, None).unwrap();
    match parent.poll().unwrap() {
        Some(Event::Done {
            identity: done,
            outcome: Outcome::Ok(bytes),
            ..
        }) => {
            assert_eq!((done, bytes), (identity, payload.as_flattened()));
        }
        other => panic!("{other:?}"),
    }
}

/// Sleeps that timed out in the child, and its processor time in microseconds.
fn ask(parent: &mut ParentEnd, waiter: &mut Waiter) -> (u64, u64) {
    parent.control(0, b"").unwrap();
    parent.wait(waiter, &PROBE, None).unwrap();
    let reply = parent.poll_control().unwrap().expect("the answer");
    let Outcome::Ok(bytes) = reply.outcome else {
        panic!("{reply:?}")
    };
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (number(0), number(8))
}

pub(crate) fn payload_carries_its_number() {
    let (mut parent, mut kid) = start(|child| serve(child, || {}));
    let mut waiter = Waiter::new();
    for number in rounds(5_000) {
        round_trip(&mut parent, &mut waiter, number);
    }
    parent.shutdown();
    assert_eq!(kid.reap(), 0);
}

/// Both sides pause at random around the moment at which the other decides to sleep.
pub(crate) fn random_pauses() {
    let mut theirs = Pauses(0x9e37_79b9_7f4a_7c15);
    let (mut parent, mut kid) = start(|child| serve(child, || theirs.pause()));
    let mut waiter = Waiter::new();
    let mut ours = Pauses(0x2545_f491_4f6c_dd1d);
    for number in rounds(2_000) {
        ours.pause();
        round_trip(&mut parent, &mut waiter, number);
    }
    let (timed_out, _) = ask(&mut parent, &mut waiter);
    assert_eq!(
        (waiter.stats().timed_out, timed_out),
        (0, 0),
        "no wake-up came by time"
    );
    assert!(waiter.stats().parked > 0, "some waits slept");
    parent.shutdown();
    assert_eq!(kid.reap(), 0);
}

/// Both sides wait for half a second in which nothing comes: the deadline of the parent's own wait ends it.
pub(crate) fn idle_child() {
    let (mut parent, mut kid) = start(|child| serve(child, || {}));
    let mut waiter = Waiter::new();
    round_trip(&mut parent, &mut waiter, 1);
    let (_, before) = ask(&mut parent, &mut waiter);
    let ours = cpu_micros();
    let deadline = Instant::now() + Duration::from_millis(500);
    assert_eq!(
        parent.wait(&mut waiter, &PROBE, Some(deadline)),
        Err(WaitError::Deadline)
    );
    let ours = cpu_micros() - ours;
    let (timed_out, after) = ask(&mut parent, &mut waiter);
    for (side, used) in [("parent", ours), ("child", after - before)] {
        assert!(
            used < 12_500,
            "{side}: {used} us of processor time in an idle half second"
        );
    }
    assert_eq!(timed_out, 0);
    parent.shutdown();
    assert_eq!(kid.reap(), 0);
}

/// Pauses of 0 to 60 us, half of them none (xorshift).
struct Pauses(u64);

impl Pauses {
    fn pause(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if self.0 & 1 == 1 {
            let end = Instant::now() + Duration::from_nanos((self.0 >> 8) % 60_000);
            while Instant::now() < end {}
        }
    }
}

fn cpu_micros() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}
