//! What can be found again, and what cannot.

use crate::args::Args;
use crate::callable::{Body, TaskResult};
use device::{ChipArgs, ChipCallable, ChipOrchestrator, OrchestrationError};

use super::Maker;

fn named(_args: &Args) -> TaskResult {
    Err("named".into())
}

fn plan(_: &mut ChipOrchestrator<'_>, _: &ChipArgs) -> Result<(), OrchestrationError> {
    Ok(())
}

static CHIP: ChipCallable = ChipCallable::new("chip", plan, &[]);

#[test]
fn statics_and_functions_without_captures_are_found_again() {
    let Some(maker) = Maker::of_chip(&CHIP) else {
        panic!("a static of this program")
    };
    let Body::Chip(found) = maker.body() else {
        panic!("{maker:?}")
    };
    assert!(std::ptr::eq(found, &CHIP));

    let args = Args::new(smallvec::SmallVec::new(), smallvec::SmallVec::new());
    for maker in [
        Maker::of_function(&named),
        Maker::of_function(&|_: &Args| Err("closure".into())),
    ] {
        let Body::Function(function) = maker.unwrap().body() else {
            panic!("{maker:?}")
        };
        assert!(["named", "closure"].contains(&function(&args).unwrap_err().to_string().as_str()));
    }
    assert!(Maker::of_orchestration(&|_: &mut crate::Orchestrator<'_>, _: &Args| Ok(())).is_some());
}

#[test]
fn captures_and_the_heap_are_not() {
    let captured = String::from("x");
    let closure = move |_: &Args| -> TaskResult { Err(captured.clone().into()) };
    assert_eq!(Maker::of_function(&closure), None);
    let leaked: &'static ChipCallable = Box::leak(Box::new(ChipCallable::new("heap", plan, &[])));
    assert_eq!(Maker::of_chip(leaked), None);
}
