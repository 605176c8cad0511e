//! Digests tell callables apart, and malformed callables are named.

use super::*;
use crate::context::KernelContext;
use crate::error::KernelError;
use crate::kernel::{CoreType, KernelSource};

fn nothing(_: &mut ChipOrchestrator<'_>, _: &ChipArgs) -> Result<(), OrchestrationError> {
    Ok(())
}

fn idle(_: &mut KernelContext<'_>) -> Result<(), KernelError> {
    Ok(())
}

fn busy(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    cx.output::<u8>(0)?.fill(1);
    Ok(())
}

fn callable(name: &'static str, kernels: &'static [Kernel]) -> ChipCallable {
    ChipCallable {
        name,
        orchestration: nothing,
        kernels,
    }
}

const SOURCE: KernelSource = KernelSource {
    sources: &["a.c"],
    defines: &[],
    extra_include_dirs: &[],
};
const NO_SOURCE: KernelSource = KernelSource {
    sources: &[],
    ..SOURCE
};

const IDLE: Kernel = Kernel::vector("k", idle);
const BUSY: Kernel = Kernel::matrix("k", busy);
const NAMELESS: Kernel = Kernel { name: "", ..IDLE };
const OTHER: Kernel = Kernel { name: "l", ..IDLE };
const CORE: Kernel = Kernel {
    core: CoreType::Aic,
    ..IDLE
};
const BODY: Kernel = Kernel {
    body: KernelBody::Rust(busy),
    ..IDLE
};
const FROM_C: Kernel = source("k", SOURCE);
const DEFINED: Kernel = source(
    "k",
    KernelSource {
        defines: &["N=1"],
        ..SOURCE
    },
);
const TWO_FILES: Kernel = source(
    "k",
    KernelSource {
        sources: &["a.c", "b.c"],
        ..SOURCE
    },
);
const NO_FILES: Kernel = source("k", NO_SOURCE);

const fn source(name: &'static str, source: KernelSource) -> Kernel {
    Kernel {
        name,
        core: CoreType::Aiv,
        body: KernelBody::Source(source),
    }
}

#[test]
fn every_part_of_a_callable_changes_its_digest() {
    let all = [
        callable("a", &[]),
        callable("b", &[]),
        callable("a", &[IDLE]),
        callable("a", &[BODY]),
        callable("a", &[CORE]),
        callable("a", &[OTHER]),
        callable("a", &[FROM_C]),
        callable("a", &[DEFINED]),
        callable("a", &[TWO_FILES]),
    ];
    let mut digests: Vec<Digest> = all.iter().map(ChipCallable::digest).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), all.len());
}

#[test]
fn equal_callables_have_equal_digests() {
    assert_eq!(
        callable("a", &[IDLE]).digest(),
        callable("a", &[IDLE]).digest()
    );
    assert_eq!(callable("a", &[]).digest().to_string().len(), 64);
    assert_eq!(format!("{:#}", callable("a", &[]).digest()).len(), 12);
}

#[test]
fn a_malformed_callable_is_refused_with_its_fault() {
    let fault = |name, kernels| callable(name, kernels).fault().unwrap_or_default();
    assert_eq!(fault("fine", &[IDLE]), "");
    assert_eq!(fault("", &[]), "its name is empty");
    assert_eq!(fault("a", &[NAMELESS]), "the name of kernel 0 is empty");
    assert_eq!(fault("a", &[IDLE, BUSY]), "two kernels are named `k`");
    assert_eq!(fault("a", &[NO_FILES]), "kernel `k` has no source file");
}
