//! Names and digests.

use std::sync::Arc;

use super::{Body, FunctionHandle, Registry};
use crate::error::CallableError;

fn function() -> Body {
    Body::Function(Arc::new(|_| Ok(())))
}

#[test]
fn one_name_can_stand_for_one_callable_of_each_kind() {
    let mut registry = Registry::new(1);
    let f: FunctionHandle = registry.insert("x", function(), None).unwrap();
    let o = registry.insert::<super::kind::Orchestration>(
        "x",
        Body::Orchestration(Arc::new(|_, _| Ok(()))),
        None,
    );
    assert_ne!(f.digest(), o.unwrap().digest());
    let twice = registry.insert::<super::kind::Function>("x", function(), None);
    assert!(matches!(
        twice,
        Err(CallableError::NameTwice {
            kind: "function",
            ..
        })
    ));
}

#[test]
fn a_handle_is_good_in_a_copy_of_its_registry_and_in_no_other() {
    let mut ours = Registry::new(1);
    let f: FunctionHandle = ours.insert("f", function(), None).unwrap();
    assert!(ours.clone().own(&f).is_ok());
    let mut theirs = Registry::new(2);
    theirs
        .insert::<super::kind::Function>("f", function(), None)
        .unwrap();
    assert!(matches!(theirs.own(&f), Err(CallableError::Foreign { .. })));
}
