//! What spinning learns.

use super::*;

const fn micros(level: usize) -> Duration {
    Duration::from_micros(BUDGETS_US[level])
}

fn after_failures(n: usize) -> SpinMemory {
    let mut memory = SpinMemory::on(Cores::Many);
    (0..n).for_each(|_| memory.failed());
    memory
}

#[test]
fn one_core_never_spins() {
    let memory = SpinMemory::on(Cores::One);
    assert_eq!((memory.bare_looks(), memory.budget()), (1, Duration::ZERO));
}

#[test]
fn spins_in_vain_shrink_to_none() {
    assert_eq!(after_failures(0).budget(), micros(TOP));
    assert_eq!(after_failures(1).budget(), micros(TOP - 1));
    assert_eq!(after_failures(TOP).budget(), Duration::ZERO);
}

#[test]
fn a_spin_that_paid_restores_the_budget_by_a_step() {
    let mut memory = after_failures(2);
    memory.paid();
    assert_eq!(memory.budget(), micros(TOP - 1));
}

#[test]
fn a_full_spin_is_tried_ever_more_rarely() {
    let mut memory = after_failures(0);
    let mut trials = Vec::new();
    for wait in 0..5000 {
        if memory.is_trial() {
            trials.push(wait);
        }
        memory.failed();
    }
    let gaps: Vec<i32> = trials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [9, 17, 33, 65, 129, 257, 513, 1025, 1025, 1025]);
}

#[test]
fn a_trial_that_paid_restores_everything() {
    let mut memory = after_failures(TOP + TRIAL_AFTER.0 as usize);
    assert!(memory.is_trial());
    memory.paid();
    assert_eq!(
        (memory.budget(), memory.trial_after),
        (micros(TOP), TRIAL_AFTER.0)
    );
}
