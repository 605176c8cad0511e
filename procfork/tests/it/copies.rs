//! Copies of a parent's values in a forked process: they signal, close and unmap nothing.

use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use procfork::{Child, ChildContext, Children, ExitCause, Pid, Signal};

use crate::support::{cause_of, child, soon};

fn idle(context: ChildContext) {
    let _ = context.parent.wait_gone(None);
}

fn one_child() -> Children {
    let mut children = Children::new().unwrap();
    children.push(child("sibling", idle)).unwrap();
    children
}

/// The first signal to end it is this request. A kill before it would be the cause, however late it is noticed.
#[track_caller]
fn check_unhurt(child: &Child) {
    child.signal(Signal::TERM).unwrap();
    let cause = child.wait(soon()).unwrap();
    assert_eq!(cause.signal(), Some(Signal::TERM), "{}", child.name());
}

/// An attempt in a copy: it reaches nobody and says so.
fn end_in_a_copy(children: &mut Children) {
    let closing = children.terminate(Duration::ZERO, Instant::now());
    assert_eq!((closing.ended.len(), closing.survivors.len()), (0, 1));
}

pub(crate) fn a_copied_set_does_not_hit_a_child_whose_pidfd_has_the_same_number() {
    let mut children = one_child();
    let number = children.iter().next().unwrap().pidfd().as_raw_fd();
    let cause = cause_of(|_| {
        let kids: Vec<Child> = (0..=number).map(|_| child("kid", idle)).collect();
        let numbers = kids.iter().map(|kid| kid.pidfd().as_raw_fd());
        assert!(numbers.into_iter().any(|kid| kid == number));
        end_in_a_copy(&mut children);
        assert!(children.push(child("late", idle)).is_err());
        kids.iter().for_each(check_unhurt);
    });
    assert_eq!(cause, ExitCause::Exited(0));
    check_unhurt(children.iter().next().unwrap());
}

pub(crate) fn a_copy_that_was_forked_by_other_means_is_inert_too() {
    let mut children = one_child();
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        end_in_a_copy(&mut children);
        drop(children);
        // SAFETY: ends the process.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: valid for writes; the number is an own child's.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(libc::WEXITSTATUS(status), 7);
    check_unhurt(children.iter().next().unwrap());
}

/// Memory of this process's own at an address where nothing is mapped.
fn map_page(address: usize) {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let at = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: replaces nothing.
    let mapped = unsafe { libc::mmap(at, PAGE, access, flags, -1, 0) };
    assert_eq!(mapped, at, "{}", std::io::Error::last_os_error());
}

fn is_mapped(address: usize) -> bool {
    let (at, mut resident) = (std::ptr::with_exposed_provenance_mut(address), 0);
    // SAFETY: one byte for one page; the kernel checks the range.
    unsafe { libc::mincore(at, PAGE, &raw mut resident) == 0 }
}

const PAGE: usize = 4096;

pub(crate) fn a_dropped_copy_closes_and_unmaps_nothing() {
    let sibling = child("sibling", idle);
    let number = sibling.pidfd().as_raw_fd();
    let page = std::ptr::from_ref(sibling.death_word().address()).expose_provenance() & !(PAGE - 1);
    let mut slot = Some(sibling);
    let cause = cause_of(|_| {
        let copy = slot.take().unwrap();
        assert!(!copy.death_word().is_born() && !copy.death_word().owner_died());
        assert_eq!(copy.last_words(), None);
        assert!(!is_mapped(page), "hidden from children");
        map_page(page);
        // SAFETY: plain numbers; the descriptor was closed before this function began.
        assert_eq!(unsafe { libc::dup2(2, number) }, number);
        drop(copy);
        assert!(is_mapped(page));
        // SAFETY: plain numbers.
        assert_ne!(unsafe { libc::fcntl(number, libc::F_GETFD) }, -1);
    });
    assert_eq!(cause, ExitCause::Exited(0), "of process {}", Pid::this());
    check_unhurt(&slot.unwrap());
}
