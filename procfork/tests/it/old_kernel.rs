//! What an older kernel lacks: a filter makes newer system calls fail as unknown ones do.

use std::fs;
use std::os::fd::AsRawFd as _;

use procfork::{Child, ExitCause, ForkOptions, Pid, Signal, adopt_orphans, fork};

use crate::support::{Line, running_below, sleeps, soon, until};

/// From here on this system call fails with `ENOSYS` in this process and its children.
fn forget(call: i64) {
    refuse(call, libc::ENOSYS);
}

/// From here on this system call fails with this error in this process and its children.
fn refuse(call: i64, error: i32) {
    let call = u32::try_from(call).unwrap();
    let statement = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let compare = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let give = (libc::BPF_RET | libc::BPF_K) as u16;
    let refuse = libc::SECCOMP_RET_ERRNO | error.cast_unsigned();
    let mut filter = [
        statement(load, 0), // the number of the call
        libc::sock_filter {
            code: compare,
            jt: 0,
            jf: 1,
            k: call,
        },
        statement(give, refuse),
        statement(give, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: plain numbers.
    let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(set, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: a program of four statements that lives for the call.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

pub(crate) fn without_futex_waitv_an_idle_child_still_follows() {
    adopt_orphans(true).unwrap();
    let line = Line::new();
    let root = fork(ForkOptions::new("root").keep(line.fd()), |context| {
        forget(libc::SYS_futex_waitv);
        let quiet = ForkOptions::new("leaf").death_signal(None).keep(line.fd());
        let _leaf: Child = fork(quiet, |context| {
            line.say(Pid::this());
            let _ = context.parent.wait_gone(None);
            context.parent.leave();
        })
        .unwrap();
        let _ = context.parent.wait_gone(None);
    });
    let root = root.unwrap();
    let leaf = line.hear_pid();
    until(|| sleeps(leaf));
    root.signal(Signal::KILL).unwrap();
    until(|| running_below().is_empty());
}

pub(crate) fn without_close_range_only_given_descriptors_are_open() {
    check_close_range(libc::ENOSYS);
}

/// Filters that are older than the call refuse it with this.
pub(crate) fn where_close_range_is_refused_only_given_descriptors_are_open() {
    check_close_range(libc::EPERM);
}

#[track_caller]
fn check_close_range(error: i32) {
    let line = Line::new();
    let _other = fs::File::open("/dev/null").unwrap();
    refuse(libc::SYS_close_range, error);
    let kept = line.fd().as_raw_fd();
    let child = fork(ForkOptions::new("child").keep(line.fd()), |_| {
        let listed = fs::read_dir("/proc/self/fd").unwrap();
        let open = listed.filter(|entry| {
            let link = fs::read_link(entry.as_ref().unwrap().path()).unwrap();
            !link.starts_with("/proc")
        });
        let mut fds: Vec<i32> = open
            .map(|entry| {
                entry
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect();
        fds.sort_unstable();
        assert_eq!(fds, [0, 1, 2, kept]);
    });
    let child = child.unwrap();
    assert_eq!(
        child.wait(soon()).unwrap(),
        ExitCause::Exited(0),
        "{:?}",
        child.last_words()
    );
}
