//! Whatever a peer writes: nothing panics, nothing outside is read, and poison stays.

use std::os::fd::AsFd;

use mailbox::{ChildEnd, Doorbell, Identity, Layout, Mailbox, ParentEnd, Request, Segment};
use proptest::prelude::*;

const LAYOUT: Layout = Layout {
    task_frames: 2,
    task_bytes: 96,
    control_bytes: 96,
    spill_bytes: 4096,
};

/// One thing that happens to a mailbox whose peer has gone mad.
#[derive(Clone, Debug)]
enum Step {
    Submit(u8),
    Control(u8),
    Shutdown,
    Poll,
    Serve,
    /// Any word of the fixed part takes any value.
    Scribble(usize, u64),
    /// A stamp that is nearly right: the best chance to be believed.
    Forge {
        frame: usize,
        sequence: u32,
        label: u8,
        len: u32,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..=255_u8).prop_map(Step::Submit),
        (0..=255_u8).prop_map(Step::Control),
        Just(Step::Shutdown),
        Just(Step::Poll),
        Just(Step::Serve),
        (6..512_usize, any::<u64>()).prop_map(|(word, value)| Step::Scribble(word, value)),
        (
            0..6_usize,
            0..4_u32,
            0..8_u8,
            prop_oneof![0..100_u32, any::<u32>()]
        )
            .prop_map(|(frame, sequence, label, len)| Step::Forge {
                frame,
                sequence,
                label,
                len
            }),
    ];
    prop::collection::vec(step, 0..40)
}

struct World {
    parent: ParentEnd,
    child: ChildEnd,
    raw: Segment,
    dispatch: u64,
}

impl World {
    fn new() -> World {
        let mailbox = Mailbox::create(LAYOUT, &Doorbell::create().unwrap()).unwrap();
        let fd = mailbox.fds()[0].as_fd().try_clone_to_owned().unwrap();
        let raw = Segment::from_fd(fd, LAYOUT.segment_bytes().unwrap()).unwrap();
        let (parent, child) = mailbox.split().unwrap();
        World {
            parent,
            child,
            raw,
            dispatch: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit(len) => {
                self.dispatch += 1;
                let identity = Identity {
                    dispatch: self.dispatch,
                    ..Identity::default()
                };
                let _ = self.parent.submit(identity, 1, &vec![7; usize::from(len)]);
            }
            Step::Control(len) => drop(self.parent.control(1, &vec![7; usize::from(len)])),
            Step::Shutdown => self.parent.shutdown(),
            Step::Poll => self.poll(),
            Step::Serve => self.serve(),
            Step::Scribble(word, value) => self.write(word * 8, value),
            Step::Forge {
                frame,
                sequence,
                label,
                len,
            } => {
                // Frames of 128 bytes, each followed by a gap of 256, from byte 512 on.
                let stamp = u64::from(sequence) << 32 | u64::from(label) << 24;
                self.write(512 + frame * 384, stamp | u64::from(len & 0xff_ffff));
            }
        }
    }

    fn write(&self, offset: usize, value: u64) {
        self.raw.write_at(offset, &value.to_le_bytes()).unwrap();
    }

    fn poll(&mut self) {
        let ended = self.parent.poll().is_err() | self.parent.poll_control().is_err();
        assert!(!ended || self.parent.poisoned().is_some());
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

/// Cases per property; `MAILBOX_CASES` raises it.
fn cases() -> u32 {
    std::env::var("MAILBOX_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_mad_peer_is_survived(steps in steps()) {
        let mut world = World::new();
        let mut first = (None, None);
        for step in steps {
            world.step(step);
            first.0 = first.0.or_else(|| world.parent.poisoned().cloned());
            first.1 = first.1.or_else(|| world.child.poisoned().cloned());
            prop_assert_eq!(world.parent.poisoned(), first.0.as_ref());
            prop_assert_eq!(world.child.poisoned(), first.1.as_ref());
        }
    }
}
