//! Random programs from seeds; `cargo xtask sim-test` runs as many as one likes.
//!
//! `TASKGRAPH_SEEDS` sets how many run here.

use crate::play::{Tally, check_seed};

#[test]
fn every_rule_holds_after_every_event_of_random_programs() {
    let seeds = std::env::var("TASKGRAPH_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok());
    let mut total = Tally::default();
    for seed in 0..seeds.unwrap_or(150) {
        match check_seed(seed) {
            Ok(tally) => total.add(&tally),
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(
        total.dispatches > total.tasks / 4,
        "hardly anything ran: {total:?}"
    );
    assert!(
        total.refused < total.tasks,
        "hardly anything was accepted: {total:?}"
    );
}
