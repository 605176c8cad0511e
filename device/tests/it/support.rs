//! Callables and helpers that several modules use.

use device::{
    Arch, Chip, ChipArgs, ChipCallable, ChipOrchestrator, CoreType, DeviceAddress, DeviceTensor,
    Kernel, KernelBody, KernelContext, KernelError, KernelSource, OpenOptions, OrchestrationError,
    Platform, SimOptions, core_args,
};
use taskgraph::DType;

/// (a + b) * (a - b), in four tasks: two that may run together, one that needs both, and a scaling
/// by a scalar.
pub(crate) static FOUR_TASKS: ChipCallable = ChipCallable {
    name: "four_tasks",
    orchestration: four_tasks,
    kernels: &[
        Kernel::vector("add", add),
        Kernel::vector("sub", sub),
        Kernel::matrix("mul", mul),
        Kernel::vector("scale", scale),
    ],
};

/// The same, with kernels from C sources.
pub(crate) static FOUR_TASKS_IN_C: ChipCallable = ChipCallable {
    name: "four_tasks",
    orchestration: four_tasks,
    kernels: &[
        from_c("add", CoreType::Aiv),
        from_c("sub", CoreType::Aiv),
        from_c("mul", CoreType::Aic),
        from_c("scale", CoreType::Aiv),
    ],
};

const fn from_c(name: &'static str, core: CoreType) -> Kernel {
    let sources = &["$KERNELS/four_tasks.c"];
    let source = KernelSource {
        sources,
        defines: &[],
        extra_include_dirs: &[],
    };
    Kernel {
        name,
        core,
        body: KernelBody::Source(source),
    }
}

fn four_tasks(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    let (a, b, out) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    let (sum, difference) = (orch.alloc_like(a)?, orch.alloc_like(a)?);
    orch.submit("add", core_args().input(a).input(b).output(&sum))?;
    orch.submit("sub", core_args().input(a).input(b).output(&difference))?;
    orch.submit(
        "mul",
        core_args().input(&sum).input(&difference).output(out),
    )?;
    orch.submit("scale", core_args().inout(out).scalar(args.scalar(0)?))?;
    Ok(())
}

fn add(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    zip(cx, |a, b| a + b)
}

fn sub(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    zip(cx, |a, b| a - b)
}

fn mul(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    zip(cx, |a, b| a * b)
}

fn zip(cx: &KernelContext<'_>, f: impl Fn(f32, f32) -> f32) -> Result<(), KernelError> {
    let (a, b, out) = (
        cx.input::<f32>(0)?,
        cx.input::<f32>(1)?,
        cx.output::<f32>(2)?,
    );
    out.iter_mut()
        .zip(a.iter().zip(b))
        .for_each(|(out, (a, b))| *out = f(*a, *b));
    Ok(())
}

fn scale(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let by: f32 = cx.scalar(0)?;
    cx.output::<f32>(0)?.iter_mut().for_each(|x| *x *= by);
    Ok(())
}

/// The arguments of [`FOUR_TASKS`] on a chip, and what must come out.
pub(crate) struct FourTasks {
    pub(crate) args: ChipArgs,
    out: DeviceAddress,
    expected: Vec<f32>,
}

impl FourTasks {
    pub(crate) fn on(chip: &mut dyn Chip, n: usize) -> Self {
        let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
        let upload = |chip: &mut dyn Chip, values: &[f32]| {
            let address = chip.malloc(size_of_val(values) as u64).unwrap();
            chip.copy_to(address, bytemuck::cast_slice(values)).unwrap();
            address
        };
        let (at, bt) = (upload(chip, &a), upload(chip, &b));
        let out = chip.malloc(4 * n as u64).unwrap();
        let tensors =
            [at, bt, out].map(|at| DeviceTensor::contiguous(at, DType::F32, &[n as u64]).unwrap());
        let args = tensors
            .into_iter()
            .fold(ChipArgs::new(), ChipArgs::with_tensor);
        let expected = a
            .iter()
            .zip(&b)
            .map(|(a, b)| (a + b) * (a - b) * 0.5)
            .collect();
        Self {
            args: args.with_scalar(0.5_f32),
            out,
            expected,
        }
    }

    #[track_caller]
    pub(crate) fn check(&self, chip: &mut dyn Chip) {
        let mut found = vec![0.0_f32; self.expected.len()];
        chip.copy_from(bytemuck::cast_slice_mut(&mut found), self.out)
            .unwrap();
        assert_eq!(found, self.expected);
    }
}

/// A simulated chip with settings.
pub(crate) fn sim(options: SimOptions) -> Box<dyn Chip> {
    device::open(
        Platform::Sim(Arch::A2a3),
        0,
        &OpenOptions {
            sim: options,
            ..OpenOptions::default()
        },
    )
    .unwrap()
}

/// An error with all of its causes, one after the other.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut at = error.source();
    while let Some(cause) = at {
        text = format!("{text}: {cause}");
        at = cause.source();
    }
    text
}
