//! How long to spin before parking: learnt from whether it paid.
//!
//! Spinning for longer than a wake costs can only lose, so that is the most. A spin that ended in what it
//! waited for raises the next one, a spin in vain lowers it, down to none: so a child that is idle, a
//! parent of slow tasks, and two processes on one core stop burning time. From there a full spin is
//! tried again after a few waits, and each trial in vain doubles the number of waits until the next.

use std::sync::OnceLock;
use std::time::Duration;

/// The budgets in microseconds, from none to about what a wake costs.
const BUDGETS_US: [u64; 6] = [0, 3, 6, 12, 25, 50];
const TOP: usize = BUDGETS_US.len() - 1;
/// Waits without a spin before a full spin is tried again: the least and the most.
const TRIAL_AFTER: (u32, u32) = (4, 1024);
/// Looks before anything else: about a microsecond, too short to be worth learning about.
const BARE_LOOKS: u32 = 600;

/// What one waiter has learnt.
#[derive(Clone, Debug)]
pub(crate) struct SpinMemory {
    level: usize,
    /// Waits since the budget fell to none, or since the last trial.
    since: u32,
    trial_after: u32,
    cores: Cores,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    One,
    Many,
}

impl SpinMemory {
    pub(crate) fn new() -> SpinMemory {
        SpinMemory::on(machine_cores())
    }

    pub(crate) fn on(cores: Cores) -> SpinMemory {
        SpinMemory {
            level: TOP,
            since: 0,
            trial_after: TRIAL_AFTER.0,
            cores,
        }
    }

    /// Of a process that has just come up: its first wait parks at once, and the second is a trial. While a tree starts,
    /// whoever is up only stands in the way of those that are not.
    pub(crate) fn of_newborn() -> SpinMemory {
        SpinMemory {
            level: 0,
            since: TRIAL_AFTER.0 - 1,
            ..SpinMemory::new()
        }
    }

    /// Looks to take before reading any clock. On one core the peer cannot run meanwhile: one.
    #[inline(always)]
    pub(crate) fn bare_looks(&self) -> u32 {
        match self.cores {
            Cores::Many if !cfg!(loom) => BARE_LOOKS,
            _ => 1,
        }
    }

    /// How long this wait may spin after its bare looks.
    pub(crate) fn budget(&self) -> Duration {
        match self.cores {
            Cores::Many if !cfg!(loom) => Duration::from_micros(BUDGETS_US[self.planned()]),
            _ => Duration::ZERO,
        }
    }

    /// The spin ended in what it waited for.
    pub(crate) fn paid(&mut self) {
        self.level = (self.planned() + 1).min(TOP);
        self.since = 0;
        self.trial_after = TRIAL_AFTER.0;
    }

    /// The spin was in vain, or there was none.
    pub(crate) fn failed(&mut self) {
        if self.is_trial() {
            self.since = 0;
            self.trial_after = (self.trial_after * 2).min(TRIAL_AFTER.1);
        } else if self.level == 0 {
            self.since += 1;
        }
        self.level = self.level.saturating_sub(1);
    }

    fn planned(&self) -> usize {
        if self.is_trial() { TOP } else { self.level }
    }

    fn is_trial(&self) -> bool {
        self.level == 0 && self.since >= self.trial_after
    }
}

fn machine_cores() -> Cores {
    match n_cores() {
        1 => Cores::One,
        _ => Cores::Many,
    }
}

/// Cores of the machine, not of this process: a peer may run on a core that is closed to us. Unknown counts as many.
pub(crate) fn n_cores() -> u64 {
    use nix::unistd::{SysconfVar, sysconf};
    static CORES: OnceLock<u64> = OnceLock::new();
    *CORES.get_or_init(|| match sysconf(SysconfVar::_NPROCESSORS_ONLN) {
        Ok(Some(n)) => n.unsigned_abs(),
        _ => u64::MAX,
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
