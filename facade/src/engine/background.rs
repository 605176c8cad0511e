//! The background driver: a thread that drives while nobody waits and something is unfinished all the same.
//!
//! It is started by the first detached run, and ended by the close. While it has nothing to do it sleeps in one call on two
//! descriptors: an event by which whoever leaves the drive hands it over, and the pipe of the tree's log, so that what a
//! worker logs is heard although nobody waits. It is not on the doorbell then: a bell with a sleeper costs every ring a
//! system call.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;

use super::Engine;
use crate::error::Error;

/// The thread, where there is one.
#[derive(Default)]
pub(super) struct Background {
    thread: Mutex<Option<JoinHandle<()>>>,
    stopping: AtomicBool,
}

/// Wakes the sleeping background driver. Kept in core while it sleeps.
pub(super) struct Nudge {
    event: EventFd,
    /// One is enough.
    given: AtomicBool,
}

impl Nudge {
    fn new() -> nix::Result<Arc<Self>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Arc::new(Self {
            event: EventFd::from_flags(flags)?,
            given: AtomicBool::new(false),
        }))
    }

    /// Wakes it, also where it is only about to sleep. Under core.
    pub(super) fn give(&self) {
        // Relaxed: under core only.
        if !self.given.swap(true, Ordering::Relaxed) {
            // The count cannot overflow.
            let _ = self.event.write(1);
        }
    }

    /// Ready for the next one. Under core.
    fn renew(&self) {
        if self.given.swap(false, Ordering::Relaxed) {
            let _ = self.event.read();
        }
    }
}

impl Engine {
    /// Starts the background driver, once: needed only by what nobody may be waiting for.
    pub(crate) fn ensure_background(&self) -> Result<(), Error> {
        let mut thread = self.background.thread.lock();
        if thread.is_some() {
            return Ok(());
        }
        let me = self.me.upgrade().expect("its own caller holds it");
        self.background.stopping.store(false, Ordering::Release);
        let failed = |error: std::io::Error| Error::Driver {
            worker: self.path.to_string(),
            reason: error.to_string(),
        };
        let nudge = Nudge::new().map_err(|errno| failed(errno.into()))?;
        let spawned = std::thread::Builder::new().name("driver".to_owned());
        *thread = Some(
            spawned
                .spawn(move || me.drive_in_background(&nudge))
                .map_err(failed)?,
        );
        Ok(())
    }

    /// Ends the background driver, so that a process that closed its worker has no thread of it left. Says whether there
    /// was one; [`Engine::ensure_background`] starts it again.
    pub(crate) fn stop_background(&self) -> bool {
        self.background.stopping.store(true, Ordering::Release);
        if let Some(nudge) = &self.core().background {
            nudge.give();
        }
        self.doorbell.ring();
        // Held over the join: a new one must not be started before the old one has seen that it is to stop.
        let mut thread = self.background.thread.lock();
        let old = thread.take();
        let was_there = old.is_some();
        // A panic of the driver was reported when it happened.
        let _ = old.map(JoinHandle::join);
        was_there
    }

    /// Drives while detached runs are unfinished or memory is given back, and nobody waits; sleeps otherwise.
    fn drive_in_background(&self, nudge: &Arc<Nudge>) {
        let stopping = || self.background.stopping.load(Ordering::Acquire);
        let wanted = || self.wanted.load(Ordering::Acquire) > 0;
        while !stopping() {
            let lines = {
                let mut core = self.core();
                let needed = core.has_detached_runs() || self.is_reclaiming();
                let useful = needed && !wanted() && !self.is_claimed();
                let lines = if useful { self.lines.try_lock() } else { None };
                // Nudged by a driver that leaves with such work unfinished, and by the stop: both look under core.
                nudge.renew();
                let sleeps = lines.is_none() && !stopping();
                core.background = sleeps.then(|| Arc::clone(nudge));
                lines
            };
            let Some(mut lines) = lines else {
                self.sleep_in_background(nudge);
                continue;
            };
            let idle = || self.detached.load(Ordering::Relaxed) == 0 && !self.is_reclaiming();
            let leave = || stopping() || wanted() || idle() || self.is_claimed();
            self.drive(&mut lines, None, &leave);
            drop(lines);
            self.hand_over(&self.core());
        }
        self.core().background = None;
    }

    /// Sleeps until it is nudged, replaying meanwhile what workers log.
    fn sleep_in_background(&self, nudge: &Nudge) {
        let mut fds = vec![PollFd::new(nudge.event.as_fd(), PollFlags::POLLIN)];
        let pipe = self.logs.pipe();
        fds.extend(pipe.map(|pipe| PollFd::new(pipe, PollFlags::POLLIN)));
        while !self.background.stopping.load(Ordering::Acquire) {
            // An error is an interruption: look again.
            let _ = poll(&mut fds, PollTimeout::NONE);
            if fds.get(1).is_some_and(|pipe| pipe.any() == Some(true)) {
                self.logs.drain();
            }
            if fds[0].any() == Some(true) {
                return;
            }
        }
    }
}
