//! Staging: a body that lies in a frame, and the stamp that comes later or never.
//!
//! The parent alone decides. The child looks at stamps, so what has none is nothing to it, whatever the body says
//! meanwhile; there is no word that both sides write, and taking a staged task back needs no agreement.

use super::*;

/// A task is staged behind a running one and activated, under its final number, when that has ended. The child never
/// takes it before, and then whole.
#[test]
fn a_staged_task_is_taken_after_its_activation_and_whole() {
    model(|| {
        let (mut parent, mut child) = ends(2);
        let server = thread::spawn(move || serve(&mut child, 2));
        submit(&mut parent, 1);
        // Of no number yet: whoever took it now would find that it does not belong to its payload.
        let staged = parent.stage(identity(0), 0, &[20]).unwrap();
        await_done(&mut parent, 1);
        parent.activate_as(staged, identity(2)).unwrap();
        await_done(&mut parent, 2);
        server.join().unwrap();
    });
}

/// A staged task is taken back while the child looks for work, and another one is written into its frame: the child sees
/// that one only.
#[test]
fn a_discarded_task_is_never_seen() {
    model(|| {
        let (mut parent, mut child) = ends(2);
        let server = thread::spawn(move || serve(&mut child, 2));
        let staged = parent.stage(identity(9), 0, &[99]).unwrap();
        submit(&mut parent, 1);
        parent.discard(staged);
        submit(&mut parent, 2);
        await_done(&mut parent, 1);
        await_done(&mut parent, 2);
        server.join().unwrap();
    });
}

/// A shutdown is served although a task lies in a frame, which is never activated then.
#[test]
fn a_shutdown_goes_past_a_staged_task() {
    model(|| {
        let (mut parent, mut child) = ends(2);
        let staged = parent.stage(identity(9), 0, &[99]).unwrap();
        let server = thread::spawn(move || {
            serve(&mut child, 1);
            let last = child.next(&Immortal, None).unwrap();
            assert!(matches!(last, Request::Shutdown), "nothing was activated");
        });
        submit(&mut parent, 1);
        parent.shutdown();
        await_done(&mut parent, 1);
        assert!(parent.activate(staged).is_err(), "it is shut down");
        server.join().unwrap();
    });
}
