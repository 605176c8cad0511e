//! The table against a plain list, through random insertions and removals of writers that crowd it.

use proptest::prelude::*;

use super::super::records::{Records, Role};
use super::{BUCKETS_MIN, Exact};
use crate::infer::NONE;
use crate::view::View;

/// The writers that a test puts in, each with a buffer and bytes of its own.
fn writers(n: u64, records: &mut Records) -> Vec<(u32, u32, View)> {
    let writer = |i: u64| {
        let (buffer, view) = ((i % 3) as u32, View::dense(8 * i, 8 * i + 8));
        (
            records.add((0, NONE), buffer, &view, Role::Writer),
            buffer,
            view,
        )
    };
    (0..n).map(writer).collect()
}

/// Every writer is found by its own bytes exactly while it is in the table.
fn check(exact: &Exact, all: &[(u32, u32, View)], is_in: &[bool], records: &Records) {
    for ((record, buffer, view), is_in) in all.iter().zip(is_in) {
        let found = exact.find(*buffer, view, records);
        assert_eq!(found, is_in.then_some(*record));
        assert_eq!(
            exact.find(buffer + 1, view, records),
            None,
            "another buffer"
        );
    }
    assert_eq!(exact.len(), is_in.iter().filter(|is_in| **is_in).count());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_writer_is_found_while_it_is_there(turns in prop::collection::vec(0..200usize, 0..800)) {
        let (mut exact, mut records) = (Exact::default(), Records::default());
        let all = writers(200, &mut records);
        let mut is_in = vec![false; all.len()];
        for turn in turns {
            let record = all[turn].0;
            match is_in[turn] {
                true => exact.remove(record, &records),
                false => exact.insert(record, &records),
            }
            is_in[turn] ^= true;
        }
        check(&exact, &all, &is_in, &records);
    }
}

#[test]
fn a_table_that_was_emptied_grows_no_further() {
    let (mut exact, mut records) = (Exact::default(), Records::default());
    let n_writers = 3 * BUCKETS_MIN as u64 / 4;
    let all = writers(n_writers, &mut records);
    for _ in 0..10 {
        all.iter()
            .for_each(|writer| exact.insert(writer.0, &records));
        check(&exact, &all, &vec![true; all.len()], &records);
        all.iter()
            .for_each(|writer| exact.remove(writer.0, &records));
        check(&exact, &all, &vec![false; all.len()], &records);
    }
    assert_eq!(exact.table.len(), BUCKETS_MIN);
    all.iter()
        .for_each(|writer| exact.insert(writer.0, &records));
    exact.clear();
    check(&exact, &all, &vec![false; all.len()], &records);
}
