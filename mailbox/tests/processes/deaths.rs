//! One side dies: the other learns of it in bounded time, and of nothing that was not so.
#![expect(unsafe_code, reason = "robust futexes and timers have no safe wrapper")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mailbox::{
    Cause, ChildEnd, DeathWords, Doorbell, Event, Identity, Immortal, Layout, Mailbox, NextError,
    Outcome, ParentEnd, Probe, Request, Segment, SubmitError, WaitError, Waiter,
};

use crate::kid::{Kid, kill_self};

/// A parent with two children on one doorbell; the first runs `body`, the second serves honestly.
struct Family {
    doomed: ParentEnd,
    victim: Kid,
    healthy: ParentEnd,
    _sibling: Kid,
}

impl Family {
    fn start(body: impl FnOnce(ChildEnd) -> i32) -> Family {
        let doorbell = Doorbell::create().unwrap();
        let (doomed, victim) = start_child(&doorbell, body);
        let (healthy, sibling) = start_child(&doorbell, serve);
        Family {
            doomed,
            victim,
            healthy,
            _sibling: sibling,
        }
    }

    /// Waits for the victim while harmless signals come in, and checks all that must follow.
    fn notice_death(mut self) {
        let mut waiter = Waiter::new();
        let noise = Noise::start();
        let waited = loop {
            match self.doomed.wait(&mut waiter, &self.victim, None) {
                Ok(()) => while matches!(self.doomed.poll(), Ok(Some(_))) {},
                Err(error) => break error,
            }
        };
        noise.stop();
        assert_eq!(waited, WaitError::PeerDied);
        assert!(
            waiter.stats().timed_out <= 2,
            "two periods of 100 ms at most"
        );
        for _ in 0..2 {
            let poisoned = self.doomed.poll().unwrap_err();
            assert!(
                matches!(poisoned.cause(), Cause::PeerDied { .. }),
                "{poisoned}"
            );
            let refused = self.doomed.submit(Identity::default(), 0, b"").unwrap_err();
            assert!(matches!(refused, SubmitError::Poisoned(p) if p == poisoned));
        }
        round_trip(&mut self.healthy, 1);
        self.healthy.shutdown();
    }
}

fn start_child(doorbell: &Doorbell, body: impl FnOnce(ChildEnd) -> i32) -> (ParentEnd, Kid) {
    let mailbox = Mailbox::create(Layout::default(), doorbell).unwrap();
    let [fd, bell] = mailbox.fds().map(|fd| fd.try_clone_to_owned().unwrap());
    // The child maps the segment anew, so that the two sides have it at different addresses.
    let kid = Kid::fork(|| body(Mailbox::from_fds(fd, bell).unwrap().into_child().unwrap()));
    (mailbox.into_parent().unwrap(), kid)
}

/// Echoes tasks until the shutdown.
fn serve(mut child: ChildEnd) -> i32 {
    loop {
        match child.next(&Immortal, None).unwrap() {
            Request::Task(task) => {
                let echo = task.payload().to_vec();
                child.complete(task, Ok(&echo)).unwrap();
            }
            Request::Control(control) => child.reply(control, Ok(&[])).unwrap(),
            Request::Shutdown => return 0,
        }
    }
}

fn round_trip(parent: &mut ParentEnd, dispatch: u64) {
    let identity = Identity {
        dispatch,
        ..Identity::default()
    };
    parent.submit(identity, 0, &dispatch.to_le_bytes()).unwrap();
    parent.wait(&mut Waiter::new(), &Immortal, None).unwrap();
    let Some(Event::Done { outcome, .. }) = parent.poll().unwrap() else {
        panic!("no end")
    };
    assert_eq!(outcome, Outcome::Ok(&dispatch.to_le_bytes()));
}

pub(crate) fn in_a_task() {
    let mut family = Family::start(|mut child| {
        let Request::Task(mut task) = child.next(&Immortal, None).unwrap() else {
            return 1;
        };
        child.accept(&mut task).unwrap();
        kill_self()
    });
    family
        .doomed
        .submit(Identity::default(), 0, b"task")
        .unwrap();
    family.notice_death();
}

pub(crate) fn in_a_control_request() {
    let mut family = Family::start(|mut child| {
        let Request::Control(_control) = child.next(&Immortal, None).unwrap() else {
            return 1;
        };
        kill_self()
    });
    family.doomed.control(0, b"control").unwrap();
    family.notice_death();
}

pub(crate) fn before_the_request() {
    let mut family = Family::start(|_child| kill_self());
    family
        .doomed
        .submit(Identity::default(), 0, b"task")
        .unwrap();
    family.notice_death();
}

pub(crate) fn with_full_frames() {
    let mut family = Family::start(|mut child| {
        let Request::Task(_first) = child.next(&Immortal, None).unwrap() else {
            return 1;
        };
        let Request::Task(_second) = child.next(&Immortal, None).unwrap() else {
            return 1;
        };
        kill_self()
    });
    for _ in 0..2 {
        family
            .doomed
            .submit(Identity::default(), 0, b"task")
            .unwrap();
    }
    let full = family
        .doomed
        .submit(Identity::default(), 0, b"task")
        .unwrap_err();
    assert!(matches!(full, SubmitError::Full { frames: 2 }));
    family.notice_death();
}

/// The child is killed while it answers as fast as it can: whatever arrives is whole and in order.
pub(crate) fn at_any_instant() {
    for spins in (0..5).map(|i| i * 37) {
        let doorbell = Doorbell::create().unwrap();
        let (mut parent, kid) = start_child(&doorbell, serve);
        let mut waiter = Waiter::new();
        let mut expected = 0_u64;
        let end = (1..).find_map(|sent: u64| {
            let identity = Identity {
                dispatch: sent,
                ..Identity::default()
            };
            parent.submit(identity, 0, &sent.to_le_bytes()).unwrap();
            if sent == spins {
                kid.kill();
            }
            if let Err(error) = parent.wait(&mut waiter, &kid, None) {
                return Some(error);
            }
            expected += 1;
            match parent.poll().unwrap() {
                Some(Event::Done {
                    outcome: Outcome::Ok(bytes),
                    identity,
                    ..
                }) => {
                    assert_eq!(
                        (identity.dispatch, bytes),
                        (expected, &expected.to_le_bytes()[..])
                    );
                }
                other => panic!("{other:?}"),
            }
            if spins == 0 {
                kid.kill();
            }
            None
        });
        assert_eq!(end, Some(WaitError::PeerDied));
    }
}

/// SIGKILL to a parent whose children sleep: the kernel changes one word and wakes one sleeper, and every
/// child notices. No period ends the wait: with a death word there is none.
pub(crate) fn of_the_parent() {
    const CHILDREN: usize = 3;
    let shared = Segment::create("death word", 4096).unwrap();
    // SAFETY: becoming a subreaper affects this process only.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let word = ParentWord::in_segment(&shared);
    let mut parent = Kid::fork(|| {
        word.own();
        let doorbell = Doorbell::create().unwrap();
        for _ in 0..CHILDREN {
            let mailbox = Mailbox::create(Layout::default(), &doorbell).unwrap();
            std::mem::forget(Kid::fork(|| outlive(mailbox.into_child().unwrap(), &word)));
        }
        loop {
            std::thread::park();
        }
    });
    while word.asleep.load(Ordering::Acquire) < CHILDREN as u64 {
        std::thread::yield_now();
    }
    parent.kill();
    parent.reap();
    for _ in 0..CHILDREN {
        assert_eq!(
            wait_for_any(),
            7 << 8,
            "each child has noticed and ended by itself"
        );
    }
}

/// A child that sleeps until its parent dies, and tells by its exit code whether that was all.
fn outlive(mut child: ChildEnd, word: &ParentWord<'_>) -> i32 {
    // SAFETY: this child must end by itself, not by the signal that `Kid` has armed.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
    word.asleep.fetch_add(1, Ordering::Release);
    match child.next(word, None) {
        Err(NextError::Poisoned(p)) if matches!(p.cause(), Cause::PeerDied { .. }) => {
            if child.wait_stats().timed_out == 0 {
                7
            } else {
                8
            }
        }
        _ => 9,
    }
}

fn wait_for_any() -> i32 {
    let mut status = 0;
    // SAFETY: `status` is a valid place.
    while unsafe { libc::waitpid(-1, &mut status, 0) } < 0 {}
    status
}

/// A robust futex in shared memory, owned by a parent.
struct ParentWord<'a> {
    /// The node of the kernel's list; the word follows it.
    node: *mut [usize; 1],
    word: &'a AtomicU32,
    asleep: &'a AtomicU64,
}

impl<'a> ParentWord<'a> {
    const WORD_AT: usize = 64;

    fn in_segment(segment: &'a Segment) -> ParentWord<'a> {
        let at = |offset: usize| segment.as_ptr().wrapping_add(offset);
        // SAFETY: inside the page, aligned, used as an atomic only by all processes.
        let word = unsafe { &*at(Self::WORD_AT).cast::<AtomicU32>() };
        // SAFETY: as above.
        let asleep = unsafe { &*at(128).cast::<AtomicU64>() };
        ParentWord {
            node: at(0).cast(),
            word,
            asleep,
        }
    }

    /// Makes the calling process the owner: its death changes the word.
    fn own(&self) {
        // SAFETY: asks for a number.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        self.word
            .store(tid | libc::FUTEX_WAITERS, Ordering::Release);
        // The head is never freed: the kernel reads it when this process dies.
        let head = Box::leak(Box::new([self.node as usize, Self::WORD_AT, 0]));
        // SAFETY: the node is inside the page, and nobody else uses it.
        unsafe { self.node.write([head.as_ptr() as usize]) };
        // SAFETY: a list of one node, in the kernel's layout, alive until the process ends.
        let rc =
            unsafe { libc::syscall(libc::SYS_set_robust_list, head.as_ptr(), size_of_val(head)) };
        assert_eq!(rc, 0);
    }
}

impl Probe for ParentWord<'_> {
    fn alive(&self) -> bool {
        self.word.load(Ordering::Acquire) & 0x4000_0000 == 0
    }

    fn death_words<'a>(&'a self, words: &mut DeathWords<'a>) {
        words.watch(self.word, self.word.load(Ordering::Acquire));
    }
}

/// Signals that interrupt this process every millisecond and do nothing else.
struct Noise;

static HEARD: AtomicU64 = AtomicU64::new(0);

extern "C" fn hear(_: i32) {
    HEARD.fetch_add(1, Ordering::Relaxed);
}

impl Noise {
    fn start() -> Noise {
        // SAFETY: all zeros is a valid action without flags, so that system calls are interrupted.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = hear as *const () as usize;
        // SAFETY: the handler touches an atomic only.
        unsafe { libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()) };
        Noise::every(1_000);
        Noise
    }

    fn stop(self) {
        Noise::every(0);
    }

    fn every(micros: libc::suseconds_t) {
        let interval = libc::timeval {
            tv_sec: 0,
            tv_usec: micros,
        };
        let timer = libc::itimerval {
            it_interval: interval,
            it_value: interval,
        };
        // SAFETY: a valid timer.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    }
}
