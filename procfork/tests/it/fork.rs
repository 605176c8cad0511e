//! What a forked child's function may return, and when a fork is refused.

use std::fs;
use std::sync::mpsc;
use std::thread;

use procfork::{Child, ExitCause, ForkOptions, Group, Pid, StartError, exit_code, fork};

use crate::support::{cause_of, child, soon};

pub(crate) fn a_result_becomes_the_exit_code() {
    assert_eq!(cause_of(|_| ()), ExitCause::Exited(0));
    assert_eq!(cause_of(|_| 3), ExitCause::Exited(3));
    assert_eq!(cause_of(|_| Ok::<u8, String>(255)), ExitCause::Exited(255));
}

pub(crate) fn an_error_reaches_the_parent_as_last_words() {
    let child = child("child", |_| Err::<(), _>("E7: no such device"));
    assert_eq!(child.wait(soon()).unwrap(), ExitCause::Exited(1));
    assert_eq!(child.last_words().unwrap(), "E7: no such device");
}

pub(crate) fn a_panic_ends_with_its_own_code_and_its_message_reaches_the_parent() {
    let child = child("child", |_| -> () { panic!("boom {}", 7) });
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(exit_code::PANICKED)
    );
    let words = child.last_words().unwrap();
    assert!(
        words.starts_with("panicked at ") && words.ends_with("boom 7"),
        "{words}"
    );
}

pub(crate) fn last_words_longer_than_their_page_are_cut() {
    let child = child("child", |_| Err::<(), _>("x".repeat(10_000)));
    child.wait(soon()).unwrap();
    let words = child.last_words().unwrap();
    assert!((3000..4096).contains(&words.len()), "{}", words.len());
    assert!(words.bytes().all(|byte| byte == b'x'));
}

pub(crate) fn a_panic_that_the_function_catches_is_not_its_last_word() {
    let child = child("child", |_| {
        let _ = std::panic::catch_unwind(|| panic!("caught"));
        4
    });
    assert_eq!(child.wait(soon()).unwrap(), ExitCause::Exited(4));
    assert_eq!(child.last_words(), None);
}

pub(crate) fn the_kernel_shows_the_name_cut_at_a_character() {
    // The 15th byte is the first half of the last letter.
    let child = child("abcdefghijklmnä", |context| {
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(context.name, "abcdefghijklmnä");
        assert_eq!(comm, "abcdefghijklmn\n");
    });
    assert_eq!(child.name(), "abcdefghijklmnä");
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "{:?}",
        child.last_words()
    );
}

pub(crate) fn a_process_with_threads_is_refused_and_the_threads_are_named() {
    let (gate, held) = mpsc::channel::<()>();
    let thread = thread::Builder::new()
        .name("busy-bee".into())
        .spawn(move || held.recv());
    let thread = thread.unwrap();
    let error = fork(ForkOptions::new("child"), |_| ()).unwrap_err();
    assert!(matches!(&error, StartError::OtherThreads { threads, .. } if threads.len() == 1));
    let text = error.to_string();
    assert!(
        text.contains("busy-bee") && text.contains("spawn"),
        "{text}"
    );
    drop(gate);
    let _ = thread.join().unwrap();
    assert_eq!(cause_of(|_| ()), ExitCause::Exited(0), "alone again");
}

pub(crate) fn a_parent_that_ignores_sigchld_is_refused() {
    // SAFETY: sets a disposition without a function of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let error = fork(ForkOptions::new("child"), |_| ()).unwrap_err();
    assert!(
        matches!(error, StartError::ChildrenDiscarded { .. }),
        "{error}"
    );
}

pub(crate) fn a_name_with_a_zero_byte_is_refused() {
    let error = fork(ForkOptions::new("a\0b"), |_| ()).unwrap_err();
    assert!(matches!(error, StartError::BadName { .. }), "{error}");
}

pub(crate) fn a_group_that_is_gone_cannot_be_joined() {
    let gone = {
        let leader = fork(ForkOptions::new("leader").group(Group::New), |_| ()).unwrap();
        leader.wait(soon()).unwrap();
        leader.pid()
    };
    let error = fork(ForkOptions::new("late").group(Group::Join(gone)), |_| ()).unwrap_err();
    assert!(
        matches!(&error, StartError::GroupGone { group, .. } if *group == gone),
        "{error}"
    );
}

pub(crate) fn a_child_forks_children_of_its_own() {
    let cause = cause_of(|_| {
        let grandchild = child("grandchild", |context| {
            assert_eq!(
                context.parent.death_words().count(),
                2,
                "its parent's and the root's"
            );
            assert!(context.parent.is_alive_now());
            9
        });
        grandchild.wait(soon()).unwrap().code().unwrap()
    });
    assert_eq!(cause, ExitCause::Exited(9));
}

pub(crate) fn what_the_closure_captured_is_dropped_in_the_parent() {
    let (reader, writer) = std::io::pipe().unwrap();
    let options = ForkOptions::new("child").keep(std::os::fd::AsFd::as_fd(&writer));
    // Moved into the closure: when the fork returns nobody here has the writing end. It is kept
    // open by a borrow that ends with the call.
    let duplicate = writer.try_clone().unwrap();
    let child: Child = fork(options, move |_| drop(duplicate)).unwrap();
    child.wait(soon()).unwrap();
    drop(writer);
    assert_eq!(std::io::read_to_string(reader).unwrap(), "");
}

pub(crate) fn a_copy_of_a_child_in_a_forked_process_is_inert() {
    let sibling = child("sibling", |context| {
        let _ = context.parent.wait_gone(None);
    });
    let (pid, parent) = (sibling.pid(), Pid::this());
    let cause = cause_of(|_| {
        let error = sibling.terminate(std::time::Duration::ZERO).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(&format!("a child of process {parent}")),
            "{text}"
        );
    });
    assert_eq!(cause, ExitCause::Exited(0));
    assert_eq!(sibling.try_wait().unwrap(), None, "{pid} was not hit");
}
