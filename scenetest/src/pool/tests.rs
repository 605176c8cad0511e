//! Taking devices and giving them back.

use super::*;

#[test]
fn the_lowest_free_devices_are_given_out() {
    let mut pool = Pool::new(&[5, 1, 3]);
    assert_eq!(pool.take(2), Some(vec![1, 3]));
    assert_eq!(pool.take(2), None);
    assert_eq!(pool.take(0), Some(vec![]));
    pool.give_back(&[1, 3]);
    assert_eq!(pool.take(3), Some(vec![1, 3, 5]));
}

#[test]
fn a_broken_device_stays_out_taken_or_free() {
    let mut pool = Pool::new(&[0, 1, 2]);
    let taken = pool.take(1).expect("free");
    pool.break_device(0);
    pool.break_device(2);
    pool.break_device(2);
    assert_eq!(pool.usable(), 1);
    pool.give_back(&taken);
    assert_eq!((pool.take(1), pool.take(1)), (Some(vec![1]), None));
    assert!(pool.could_fit(1) && !pool.could_fit(2));
    assert_eq!(pool.broken(), [0, 2]);
}
