//! A mailbox is attached once per side, and only if it is one.

use std::os::fd::{AsFd, OwnedFd};

use mailbox::{AttachError, Doorbell, Layout, Mailbox, Segment, Side};

fn dup(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

fn reopened(mailbox: &Mailbox) -> Result<Mailbox, AttachError> {
    let [segment, doorbell] = mailbox.fds();
    Mailbox::from_fds(dup(segment), dup(doorbell))
}

#[test]
fn each_side_attaches_once() {
    let mailbox = Mailbox::create(Layout::default(), &Doorbell::create().unwrap()).unwrap();
    let [second_parent, child, second_child] = std::array::from_fn(|_| reopened(&mailbox).unwrap());
    let _parent = mailbox.into_parent().unwrap();
    let _child = child.into_child().unwrap();
    let refused = second_parent.into_parent().unwrap_err();
    assert!(
        matches!(refused, AttachError::Taken { side: Side::Parent }),
        "{refused}"
    );
    let refused = second_child.into_child().unwrap_err();
    assert!(
        matches!(refused, AttachError::Taken { side: Side::Child }),
        "{refused}"
    );
}

#[test]
fn a_layout_out_of_range_is_refused_with_its_field() {
    let doorbell = Doorbell::create().unwrap();
    let layouts = [
        Layout {
            task_frames: 0,
            ..Layout::default()
        },
        Layout {
            task_frames: 3,
            ..Layout::default()
        },
        Layout {
            task_bytes: usize::MAX,
            ..Layout::default()
        },
        Layout {
            control_bytes: 1 << 24,
            ..Layout::default()
        },
        Layout {
            spill_bytes: 1 << 25,
            ..Layout::default()
        },
    ];
    let fields = layouts.map(
        |layout| match Mailbox::create(layout, &doorbell).unwrap_err() {
            AttachError::Layout { what, .. } => what,
            other => panic!("{other}"),
        },
    );
    let expected = [
        "task_frames",
        "task_frames",
        "task_bytes",
        "control_bytes",
        "spill_bytes",
    ];
    assert_eq!(fields, expected);
}

#[test]
fn a_segment_that_is_no_mailbox_is_refused() {
    let segment = Segment::create("other", 65536).unwrap();
    let doorbell = Doorbell::create().unwrap();
    let refused = Mailbox::from_fds(dup(&segment), dup(&doorbell)).unwrap_err();
    assert!(
        matches!(refused, AttachError::NotAMailbox { found: 0, .. }),
        "{refused}"
    );
}

#[test]
fn a_header_that_does_not_fit_its_segment_is_refused() {
    let mailbox = Mailbox::create(Layout::default(), &Doorbell::create().unwrap()).unwrap();
    let bytes = Layout::default().segment_bytes().unwrap();
    let raw = Segment::from_fd(dup(mailbox.fds()[0]), bytes).unwrap();
    for value in [0_u64, 1, 2, 1 << 15, 1 << 20, 1 << 40, u64::MAX] {
        for field in 1..5 {
            let mut honest = [0; 8];
            raw.read_at(field * 8, &mut honest).unwrap();
            raw.write_at(field * 8, &value.to_le_bytes()).unwrap();
            let attached = reopened(&mailbox);
            raw.write_at(field * 8, &honest).unwrap();
            assert!(
                attached.is_err() || value.to_le_bytes() == honest,
                "field {field} = {value} was believed"
            );
        }
    }
    reopened(&mailbox).unwrap();
}
