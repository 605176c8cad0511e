//! Who becomes the parent of an orphan.

use std::io;

use crate::sys::prctl;

/// `prctl(PR_SET_CHILD_SUBREAPER)`: makes this process the parent of every descendant that loses
/// its own, or ends that; the setting before.
///
/// Orphans can then be found below this process ([`descendants`](crate::descendants())) and reaped
/// by it, instead of by process 1. It helps where a tree runs programs that do not die with their
/// parent. The price: this process must reap what it adopts, and `getppid` of an orphan changes to
/// its number, so that a child which compares with a pid of its own making may be misled.
/// [`ParentWatch`](crate::ParentWatch) is not: it knows the number of its real parent.
///
/// The setting is not inherited by forked children.
///
/// # Errors
///
/// Those of `prctl`; none is known on Linux since 3.4.
pub fn adopt_orphans(on: bool) -> io::Result<bool> {
    let before = prctl::is_subreaper()?;
    prctl::set_subreaper(on)?;
    Ok(before)
}
