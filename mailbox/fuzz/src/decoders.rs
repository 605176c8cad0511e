//! One function per decoder: takes any bytes, must neither panic nor read where it may not.
//!
//! The fuzz targets call these; so do the ordinary tests (`tests/it/hostile.rs` includes this file), with
//! random bytes and with every input in `regressions/` that once found a fault.

use std::os::fd::{AsFd, OwnedFd};

use mailbox::{
    ChildEnd, Doorbell, Event, FdChannel, Feed, Identity, Layout, Mailbox, Outcome, ParentEnd,
    RECORD_MAX, Request, Segment,
};

const LAYOUT: Layout = Layout {
    task_frames: 2,
    task_bytes: 96,
    control_bytes: 96,
    spill_bytes: 4096,
};

/// Where the first frame begins, and how far the next one is: 128 bytes and a gap of 256.
const FRAMES_AT: usize = 512;
const FRAME_STEP: usize = 384;

/// Bytes of the header of a message on a descriptor channel.
const HEADER_BYTES: usize = 32;

fn dup(fd: impl AsFd) -> OwnedFd {
    fd.as_fd()
        .try_clone_to_owned()
        .expect("a descriptor to spare")
}

/// A mailbox both of whose peers have gone mad: between honest steps, words of it change.
pub fn peer(bytes: &[u8]) {
    let mut world = World::new();
    let mut first = (None, None);
    for step in bytes.chunks_exact(12) {
        world.step(step[0], &step[1..]);
        first.0 = first.0.or_else(|| world.parent.poisoned().cloned());
        first.1 = first.1.or_else(|| world.child.poisoned().cloned());
        assert_eq!(
            world.parent.poisoned(),
            first.0.as_ref(),
            "the first cause stays"
        );
        assert_eq!(
            world.child.poisoned(),
            first.1.as_ref(),
            "the first cause stays"
        );
    }
}

/// An answer of any label, length and content to an honest task.
pub fn reply(bytes: &[u8]) {
    let Some((head, payload)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let mut world = World::new();
    world.submit(&[]);
    let reply_at = FRAMES_AT + 3 * FRAME_STEP;
    let identity = [0_u64, 0, world.dispatch].map(u64::to_le_bytes);
    world
        .raw
        .write_at(reply_at + 8, identity.as_flattened())
        .expect("inside");
    let shown = &payload[..payload.len().min(96)];
    world.raw.write_at(reply_at + 32, shown).expect("inside");
    let stamp = 1 << 32 | u64::from(u32::from_le_bytes(*head));
    world.write(reply_at, stamp);
    match world.parent.poll() {
        Ok(Some(Event::Done {
            outcome: Outcome::Ok(bytes),
            ..
        })) => {
            assert!(bytes.len() <= 4096 && bytes[..shown.len().min(bytes.len())].len() <= 96);
        }
        Ok(Some(Event::Done {
            outcome: Outcome::Failed(failure),
            ..
        })) => {
            assert!(failure.message.len() <= 4092);
        }
        Ok(Some(Event::Accepted(_)) | None) => {}
        Err(poisoned) => assert_eq!(world.parent.poll(), Err(poisoned)),
    }
}

/// A received segment whose header says anything.
pub fn header(bytes: &[u8]) {
    let doorbell = Doorbell::create().expect("a doorbell");
    let mailbox = Mailbox::create(LAYOUT, &doorbell).expect("a mailbox");
    let raw = raw_view(&mailbox);
    raw.write_at(0, &bytes[..bytes.len().min(64)])
        .expect("inside");
    let [segment, bell] = mailbox.fds();
    if let Ok(claimed) = Mailbox::from_fds(dup(segment), dup(bell)) {
        let _ = claimed.into_child().map(|mut child| drop(child.try_next()));
    }
}

/// A packet of any length and content on a descriptor channel.
pub fn packet(bytes: &[u8]) {
    let (ours, theirs) = FdChannel::pair().expect("a pair");
    if bytes.is_empty() || nix::unistd::write(&ours, bytes).is_err() {
        return;
    }
    match theirs.try_recv() {
        Ok(message) => {
            assert!(message.is_some_and(|m| m.fds.is_empty()) && bytes.len() == HEADER_BYTES)
        }
        Err(_) => assert_ne!(bytes.len(), HEADER_BYTES),
    }
}

/// A writer of a feed that writes anything into the pipe, between two honest records.
pub fn feed(bytes: &[u8]) {
    let mut feed = Feed::create(&Doorbell::create().expect("a doorbell")).expect("a feed");
    feed.writer().write(b"before");
    let [_, pipe, _] = feed.writer().fds();
    let chunk = &bytes[..bytes.len().min(4096)];
    if !chunk.is_empty() {
        nix::unistd::write(pipe, chunk).expect("room in an empty pipe");
    }
    let mut records = Vec::new();
    for honest in [&b"before"[..], b"after"] {
        feed.read(|record| {
            assert!((1..=RECORD_MAX).contains(&record.len()));
            records.push(record.to_vec());
        });
        let first_or_last = [records.first(), records.last()];
        assert!(first_or_last.iter().any(|r| r.is_some_and(|r| r == honest)));
        feed.writer().write(b"after");
    }
}

fn raw_view(mailbox: &Mailbox) -> Segment {
    let bytes = LAYOUT.segment_bytes().expect("a legal layout");
    Segment::from_fd(dup(mailbox.fds()[0]), bytes).expect("our own segment")
}

struct World {
    parent: ParentEnd,
    child: ChildEnd,
    raw: Segment,
    dispatch: u64,
}

impl World {
    fn new() -> World {
        let mailbox = Mailbox::create(LAYOUT, &Doorbell::create().expect("a doorbell"));
        let mailbox = mailbox.expect("a mailbox");
        let raw = raw_view(&mailbox);
        let (parent, child) = mailbox.split().expect("both sides");
        World {
            parent,
            child,
            raw,
            dispatch: 0,
        }
    }

    fn step(&mut self, kind: u8, bytes: &[u8]) {
        let word = u64::from_le_bytes(std::array::from_fn(|i| bytes[3 + i]));
        match kind % 8 {
            0 | 1 => self.submit(&vec![7; usize::from(bytes[0])]),
            2 => drop(self.parent.control(1, &vec![7; usize::from(bytes[0])])),
            3 if bytes[0] == 0 => self.parent.shutdown(),
            3 | 4 => self.poll(),
            5 => self.serve(),
            // Any word of the fixed part takes any value.
            6 => self.write(
                48 + usize::from(u16::from_le_bytes([bytes[0], bytes[1]])) % 500 * 8,
                word,
            ),
            // A stamp that is nearly right: the best chance to be believed.
            _ => {
                let stamp = u64::from(bytes[1] % 4) << 32 | word & 0xffff_ffff;
                self.write(FRAMES_AT + usize::from(bytes[0] % 6) * FRAME_STEP, stamp);
            }
        }
    }

    fn submit(&mut self, payload: &[u8]) {
        self.dispatch += 1;
        let identity = Identity {
            dispatch: self.dispatch,
            ..Identity::default()
        };
        let _ = self.parent.submit(identity, 1, payload);
    }

    fn write(&self, offset: usize, value: u64) {
        self.raw
            .write_at(offset, &value.to_le_bytes())
            .expect("inside");
    }

    fn poll(&mut self) {
        let ended = self.parent.poll().is_err() | self.parent.poll_control().is_err();
        assert_eq!(ended, self.parent.poisoned().is_some());
    }

    fn serve(&mut self) {
        match self.child.try_next() {
            Ok(Some(Request::Task(task))) => {
                let echo = task.payload().to_vec();
                let _ = self.child.complete(task, Ok(&echo));
            }
            Ok(Some(Request::Control(control))) => drop(self.child.reply(control, Ok(&[]))),
            Ok(Some(Request::Shutdown) | None) => {}
            Err(poisoned) => assert_eq!(self.child.poisoned(), Some(&poisoned)),
        }
    }
}
