//! Every pair of state and step, as a table.

use super::State::{Building, Completed, Consumed, Failed, Free, Pending, Ready, Running};
use super::{State, Step};

const STATES: [State; 8] = [
    Free, Building, Pending, Ready, Running, Completed, Failed, Consumed,
];
const STEPS: [Step; 8] = [
    Step::Submit,
    Step::Wait,
    Step::Release,
    Step::Dispatch,
    Step::Complete,
    Step::Fail,
    Step::Consume,
    Step::Reuse,
];

/// A row per state, a column per step in the order above; `None` is refused.
const TABLE: [[Option<State>; 8]; 8] = [
    [Some(Building), None, None, None, None, None, None, None],
    [
        None,
        Some(Pending),
        Some(Ready),
        None,
        None,
        None,
        None,
        None,
    ],
    [None, None, Some(Ready), None, None, None, None, None],
    [
        None,
        None,
        None,
        Some(Running),
        None,
        Some(Failed),
        None,
        None,
    ],
    [
        None,
        None,
        None,
        None,
        Some(Completed),
        Some(Failed),
        None,
        None,
    ],
    [None, None, None, None, None, None, Some(Consumed), None],
    [None, None, None, None, None, None, Some(Consumed), None],
    [None, None, None, None, None, None, None, Some(Free)],
];

#[test]
fn every_state_and_step_is_as_the_table_says() {
    for (state, row) in STATES.into_iter().zip(TABLE) {
        for (step, expected) in STEPS.into_iter().zip(row) {
            assert_eq!(state.next(step), expected, "{state:?} {step:?}");
        }
    }
}

#[test]
fn every_state_leads_back_to_free() {
    for state in STATES {
        let mut reached = vec![state];
        let mut at = 0;
        while at < reached.len() {
            let next = STEPS.iter().filter_map(|&step| reached[at].next(step));
            let new: Vec<_> = next.filter(|s| !reached.contains(s)).collect();
            reached.extend(new);
            at += 1;
        }
        assert!(reached.contains(&Free), "{state:?} is a dead end");
    }
}
