//! What may cross threads. What may not is shown by the `compile_fail` examples of the types themselves.

use std::rc::Rc;

use lifecycle::{
    CancelToken, CloseError, Journal, Lifecycle, OwnedLease, Owner, StartError, Step, ThreadBound,
};

use crate::fixture::Fault;

fn crosses_threads<T: Send + Sync>() {}
fn moves_to_threads<T: Send>() {}

#[test]
fn shared_types_cross_threads() {
    crosses_threads::<Lifecycle<Fault>>();
    crosses_threads::<Journal<Fault>>();
    crosses_threads::<OwnedLease<Fault>>();
    crosses_threads::<CancelToken>();
    crosses_threads::<CloseError<Fault>>();
    crosses_threads::<StartError<Fault>>();
    crosses_threads::<Owner>();
    crosses_threads::<ThreadBound<Rc<()>>>();
    moves_to_threads::<Step<Fault>>();
}
