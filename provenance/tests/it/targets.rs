//! Where a task runs.

use provenance::{Cause, NoTarget, Refused, Span, Table, Wanted};

use crate::fixture::{CHIP0, CHIP1, free, record};

fn spans() -> (Table, Span, Span) {
    let table = Table::new();
    let a = record(&table, CHIP0, 0x1000, 64);
    let b = record(&table, CHIP1, 0x1000, 64);
    (table, a.span(64), b.span(64))
}

#[test]
fn an_open_wish_and_an_explicit_one_lead_to_one_worker() {
    let (table, _, b) = spans();
    assert_eq!(table.resolve_target(&[b], Wanted::On(1)), Ok(1));
    assert_eq!(table.resolve_target(&[b, b], Wanted::Any(&[0, 1])), Ok(1));
}

#[test]
fn without_device_arguments_there_must_be_one_candidate() {
    let (table, ..) = spans();
    assert_eq!(table.resolve_target(&[], Wanted::On(7)), Ok(7));
    assert_eq!(table.resolve_target(&[], Wanted::Any(&[1])), Ok(1));
    for candidates in [&[][..], &[0, 1]] {
        let ambiguous = NoTarget::Ambiguous {
            candidates: candidates.to_vec(),
        };
        assert_eq!(
            table.resolve_target(&[], Wanted::Any(candidates)),
            Err(ambiguous)
        );
    }
}

#[test]
fn arguments_on_two_workers_are_refused_with_both() {
    let (table, a, b) = spans();
    let split = NoTarget::Split {
        first: a,
        second: Box::new(b),
    };
    assert_eq!(
        table.resolve_target(&[a, a, b], Wanted::Any(&[0, 1])),
        Err(split)
    );
}

#[test]
fn an_owner_that_is_no_candidate_is_refused_with_the_list() {
    let (table, a, _) = spans();
    let refused = NoTarget::NotEligible {
        span: a,
        owner: 0,
        candidates: vec![1, 2],
    };
    assert_eq!(
        table.resolve_target(&[a], Wanted::Any(&[1, 2])),
        Err(refused)
    );
}

#[test]
fn a_dead_argument_is_refused_before_anything_else() {
    let (table, a, b) = spans();
    free(&table, b.ptr);
    let refused = table.resolve_target(&[a, b], Wanted::Any(&[0, 1]));
    assert!(matches!(
        refused,
        Err(NoTarget::Refused(Refused {
            cause: Cause::Stale,
            ..
        }))
    ));
}

#[test]
fn members_of_a_group_are_on_distinct_workers() {
    let (table, a, b) = spans();
    let (on_a, on_b): (&[_], &[_]) = (&[a], &[b]);
    let any = Wanted::Any(&[0, 1]);
    assert_eq!(
        table.resolve_group(&[(on_b, any), (on_a, Wanted::On(0))]),
        Ok(vec![1, 0])
    );
    let twice = NoTarget::Duplicate {
        worker: 0,
        first: 0,
        second: 1,
    };
    assert_eq!(
        table.resolve_group(&[(on_a, any), (&[], Wanted::On(0))]),
        Err(twice)
    );
}

#[test]
fn a_window_can_be_used_where_it_is_seen_and_an_open_wish_for_it_is_ambiguous() {
    let table = Table::new();
    let memory = record(&table, CHIP0, 0x1000, 4096);
    let window = table
        .record_window(CHIP1, 0x9000, 4096, Some(memory))
        .expect("recorded");
    let own = record(&table, CHIP1, 0x1000, 4096);
    let (shown, window, own) = (memory.span(64), window.span(64), own.span(64));
    for worker in [0, 1] {
        assert_eq!(
            table.resolve_target(&[shown], Wanted::On(worker)),
            Ok(worker)
        );
    }
    let both = NoTarget::Ambiguous {
        candidates: vec![0, 1],
    };
    assert_eq!(
        table.resolve_target(&[shown], Wanted::Any(&[0, 1, 2])),
        Err(both)
    );
    // What only one worker sees decides for the others.
    assert_eq!(
        table.resolve_target(&[shown, own], Wanted::Any(&[0, 1])),
        Ok(1)
    );
    assert_eq!(table.resolve_target(&[shown], Wanted::Any(&[0, 2])), Ok(0));
    assert_eq!(table.resolve_target(&[window], Wanted::Any(&[1, 2])), Ok(1));
    assert!(matches!(
        table.resolve_target(&[shown], Wanted::On(2)),
        Err(NoTarget::Refused(_))
    ));
}
