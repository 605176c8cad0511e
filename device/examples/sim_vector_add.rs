//! Adds two vectors on a simulated chip, in four tiles that run as tasks of their own, and checks
//! the sum.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::error::Error;

use device::{
    Arch, ChipArgs, ChipCallable, ChipOrchestrator, DeviceTensor, Kernel, KernelContext,
    KernelError, OpenOptions, OrchestrationError, Platform, core_args,
};
use taskgraph::DType;

const ELEMENTS: u64 = 1 << 16;
const TILES: u64 = 4;

static VECTOR_ADD: ChipCallable = ChipCallable {
    name: "vector_add",
    orchestration,
    kernels: &[Kernel::vector("add", add)],
};

/// Names the data: each tile of the output needs its tile of both inputs, and no other.
fn orchestration(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    let (a, b, c) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    let tile = ELEMENTS / TILES;
    for start in (0..ELEMENTS).step_by(tile as usize) {
        let part = start..start + tile;
        let (a, b) = (a.slice(0, part.clone())?, b.slice(0, part.clone())?);
        orch.submit(
            "add",
            core_args().input(&a).input(&b).output(&c.slice(0, part)?),
        )?;
    }
    Ok(())
}

/// Touches the data: one tile, on one vector core.
fn add(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (a, b, c) = (
        cx.input::<f32>(0)?,
        cx.input::<f32>(1)?,
        cx.output::<f32>(2)?,
    );
    c.iter_mut()
        .zip(a.iter().zip(b))
        .for_each(|(c, (a, b))| *c = a + b);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut chip = device::open(Platform::Sim(Arch::A2a3), 0, &OpenOptions::default())?;
    let slot = chip.register(&VECTOR_ADD)?;

    let xs: Vec<f32> = (0..ELEMENTS).map(|i| i as f32).collect();
    let ys: Vec<f32> = xs.iter().map(|x| 2.0 * x).collect();
    let bytes = size_of_val(&xs[..]) as u64;
    let (a, b, c) = (
        chip.malloc(bytes)?,
        chip.malloc(bytes)?,
        chip.malloc(bytes)?,
    );
    chip.copy_to(a, bytemuck::cast_slice(&xs))?;
    chip.copy_to(b, bytemuck::cast_slice(&ys))?;

    let mut args = ChipArgs::new();
    for address in [a, b, c] {
        args = args.with_tensor(DeviceTensor::contiguous(address, DType::F32, &[ELEMENTS])?);
    }
    let started = std::time::Instant::now();
    let report = device::run(&mut *chip, slot, args)?;
    let elapsed = started.elapsed();

    let mut sums = vec![0.0_f32; xs.len()];
    chip.copy_from(bytemuck::cast_slice_mut(&mut sums), c)?;
    let worst = sums
        .iter()
        .zip(&xs)
        .map(|(sum, x)| (sum - 3.0 * x).abs())
        .fold(0.0, f32::max);
    println!("{} tasks in {elapsed:?}", report.tasks);
    println!("largest difference from the reference: {worst}");
    chip.close()?;
    if worst == 0.0 {
        Ok(())
    } else {
        Err("the sum is wrong".into())
    }
}
