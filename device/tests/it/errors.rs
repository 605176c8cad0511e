//! What users read when something goes wrong, all in one place. Errors that other tests provoke are
//! here too, so that their wording is seen side by side.

use std::time::Duration;

use device::{
    CallableSlot, Chip, ChipArgs, CoreType, DeviceAddress, DeviceError, KernelError, Lane,
    MemoryReport, OrchestrationError, Platform, SimOptions, TaskPlace,
};

use crate::support::{FOUR_TASKS, sim};

const PLACE: TaskPlace = TaskPlace {
    kernel: "add",
    task: 7,
    block: 2,
    core: CoreType::Aiv,
    core_idx: 31,
};

fn lines(errors: &[&dyn std::error::Error]) -> String {
    errors.iter().map(|error| format!("{error}\n")).collect()
}

#[test]
fn errors_of_a_chip_read_well() {
    let report = MemoryReport {
        total_bytes: 4096,
        used_bytes: 1024,
        free_bytes: 3072,
        largest_block_bytes: 2048,
        allocations: 2,
    };
    let (chip, callable, limit) = (1, "vector_add", Duration::from_secs(3));
    let address = DeviceAddress(0x1240_0000_0200);
    let (slot, run) = identities();
    insta::assert_snapshot!(lines(&[
        &DeviceError::OutOfMemory { chip, wanted_bytes: 3000, report },
        &DeviceError::Forked { chip, opened_in: 10, here: 11 },
        &DeviceError::TouchedBeforeFork { touched_in: 10, here: 11 },
        &DeviceError::UnknownCallable { chip, slot, known: 0 },
        &DeviceError::UnknownRun { operation: "poll", chip, run },
        &DeviceError::RunState { operation: "launch", chip, run, state: "executing" },
        &DeviceError::TooManyPrepared { chip, max: 2 },
        &DeviceError::InUse { chip, address, run },
        &DeviceError::Fault { chip, callable, task: PLACE },
        &DeviceError::Timeout { chip, callable, task: PLACE, limit },
        &DeviceError::RunTimeout { chip, callable, limit },
        &DeviceError::Unusable { operation: "launch a run", chip, cause: "a fault".to_owned() },
        &DeviceError::FreeFailed { chip, address },
        &DeviceError::ProbeMismatch { chip, address },
        &DeviceError::NoSuchDevice { platform: Platform::A5, device_id: 8, count: 8 },
        &DeviceError::Closed { operation: "allocate", chip },
    ]), @r#"
    allocate 3000 bytes on chip 1: 3072 of 4096 bytes are free, the largest block has 2048
    use chip 1 in process 11: it was opened in process 10; open it after the fork
    open a chip in process 11: process 10 touched a device before it forked; open chips in children only
    find callable slot 0 on chip 1, which has 0 callables
    poll run 0 on chip 1: no such run, or it was finalized
    launch run 0 on chip 1: it is executing
    prepare a run on chip 1: 2 runs are prepared already; launch or finalize one
    free 0x124000000200 on chip 1: run 0 uses it; finalize the run first
    execute task 7 (kernel `add`, block 2, AIV core 31) of `vector_add` on chip 1: hardware fault; the chip is unusable until a probe passes
    execute task 7 (kernel `add`, block 2, AIV core 31) of `vector_add` on chip 1: no end after 3s; the chip is unusable until a probe passes
    execute `vector_add` on chip 1: no end after 3s; the chip is unusable until a probe passes
    launch a run on chip 1: it is unusable since an earlier fault (a fault); probe it, or use another chip
    free 0x124000000200 on chip 1: the device refused; the memory is leaked until the chip is closed
    probe chip 1: the memory at 0x124000000200 does not hold what was written
    open device 8 of a5: this process sees 8 devices, numbered from 0
    allocate on chip 1: it is closed
    "#);
}

#[test]
fn errors_of_orchestrations_and_kernels_read_well() {
    insta::assert_snapshot!(lines(&[
        &OrchestrationError::NoArgument { kind: "tensor", idx: 3, count: 3 },
        &OrchestrationError::UnknownKernel { kernel: "ad".to_owned(), known: vec!["add", "mul"] },
        &OrchestrationError::RunFailed,
        &OrchestrationError::refuse("the batch is empty"),
        &KernelError::NoArgument { kind: "scalar", idx: 1, count: 1 },
        &KernelError::Gang { lane: Lane::Aic, ended: Lane::Aiv1 },
        &KernelError::StrayWrite { idx: 2 },
        &KernelError::Code { code: -1 },
        &KernelError::fail("the page table is empty"),
    ]), @r#"
    use tensor argument 3 of 3
    submit kernel `ad`: the callable has ["add", "mul"]
    submit to a run of which a task failed
    the batch is empty
    use scalar argument 1 of 1
    synchronize core AIC: core AIV 1 of the block has ended
    stay inside tensor argument 2: bytes behind its allocation were overwritten
    finish: it returned -1
    the page table is empty
    "#);
}

/// A slot and a run id, which only a chip gives out.
fn identities() -> (CallableSlot, device::RunId) {
    let mut chip: Box<dyn Chip> = sim(SimOptions::default());
    let slot = chip.register(&FOUR_TASKS).unwrap();
    (slot, chip.prepare(slot, ChipArgs::new()).unwrap())
}
