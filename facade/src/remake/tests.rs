//! What can be made in another process, and what cannot.

use crate::args::Args;
use crate::callable::{Body, TaskResult};
use device::{
    ChipArgs, ChipCallable, ChipOrchestrator, CoreType, Kernel, KernelBody, KernelContext,
    KernelError, KernelSource, OrchestrationError,
};

use super::Maker;

fn named(_args: &Args) -> TaskResult {
    Err("named".into())
}

fn plan(_: &mut ChipOrchestrator<'_>, _: &ChipArgs) -> Result<(), OrchestrationError> {
    Ok(())
}

fn kernel(_: &mut KernelContext<'_>) -> Result<(), KernelError> {
    Ok(())
}

/// A callable that no static holds.
fn chip() -> &'static ChipCallable {
    let source = Kernel {
        name: "compiled",
        core: CoreType::Aic,
        body: KernelBody::Source(KernelSource {
            sources: &["$DIR/a.c", "/b.cpp"],
            defines: &["N=4"],
            extra_include_dirs: &[&["$A", "/b"], &[]],
        }),
    };
    let kernels = Vec::leak(vec![Kernel::mix("mix", kernel), source]);
    Box::leak(Box::new(ChipCallable::new("chip", plan, kernels)))
}

#[test]
fn chip_callables_and_functions_without_captures_are_made_again() {
    let maker = Maker::of_chip(chip()).unwrap();
    let crossed: Maker = crate::control::decode(&crate::control::encode(&maker)).unwrap();
    let Some(Body::Chip(made)) = crossed.body() else {
        panic!("{maker:?}")
    };
    // The digest covers every part, the functions included.
    assert_eq!(made.digest(), chip().digest());

    let args = Args::new(Vec::new(), smallvec::SmallVec::new());
    for maker in [
        Maker::of_function(&named),
        Maker::of_function(&|_: &Args| Err("closure".into())),
    ] {
        let maker = maker.unwrap();
        let Some(Body::Function(function)) = maker.body() else {
            panic!("{maker:?}")
        };
        assert!(["named", "closure"].contains(&function(&args).unwrap_err().to_string().as_str()));
    }
    assert!(Maker::of_orchestration(&|_: &mut crate::Orchestrator<'_>, _: &Args| Ok(())).is_some());
}

#[test]
fn captures_are_not() {
    let captured = String::from("x");
    let closure = move |_: &Args| -> TaskResult { Err(captured.clone().into()) };
    assert_eq!(Maker::of_function(&closure), None);
}

#[test]
fn a_distance_that_leads_out_of_the_program_makes_nothing() {
    assert!(Maker::Function(1 << 40).body().is_none());
    assert!(Maker::Orchestration(u64::MAX / 2).body().is_none());
}
