//! Compiled kernels that write behind their tensors: who is blamed, and who is not.

use device::{ChipArgs, ChipCallable, DeviceError, KernelError, core_args};
use rstest::rstest;

use crate::kernels::{Bench, LOCAL, upload};
use crate::support::chain;

#[test]
fn a_compiled_kernel_that_writes_behind_its_output_is_found_out() {
    let bench = Bench::new();
    bench.write(
        "local.c",
        "#include \"device_kernel.h\"\nDEVICE_KERNEL(local) {\n\
         float *x = (float *)device_tensor_at(task, 0)->data;\n\
         for (int i = 0; i <= 4; i++) x[i] = i;\nDEVICE_RETURN(0); }\n",
    );
    static STRAY: ChipCallable = ChipCallable {
        name: "stray",
        orchestration: |orch, args| {
            orch.submit("local", core_args().output(args.tensor(0)?))?;
            Ok(())
        },
        kernels: &[LOCAL],
    };
    let mut chip = bench.chip();
    let slot = chip.register(&STRAY).unwrap();
    let four = upload::<f32>(&mut *chip, &[0.0; 4]);
    let five = upload::<f32>(&mut *chip, &[0.0; 5]);
    let error = device::run(&mut *chip, slot, ChipArgs::new().with_tensor(four)).unwrap_err();
    assert!(
        chain(&error).contains("stay inside tensor argument 0"),
        "{}",
        chain(&error)
    );
    device::run(&mut *chip, slot, ChipArgs::new().with_tensor(five)).unwrap();
}

/// Writes as many floats as its scalars say into its two tensors, and returns the third scalar.
const WRITES_SO_MANY: &str = "#include \"device_kernel.h\"\nDEVICE_KERNEL(local) {\n\
    for (unsigned t = 0; t < 2; t++) {\n\
        float *x = (float *)device_tensor_at(task, t)->data;\n\
        for (uint64_t i = 0; i < device_scalar_bits(task, t); i++) x[i] = 1;\n\
    }\n\
    DEVICE_RETURN((int)device_scalar_bits(task, 2));\n}\n";

/// One task with two outputs, which writes so many floats and returns a code as its scalars say.
static TWO_OUTPUTS: ChipCallable = ChipCallable {
    name: "two_outputs",
    orchestration: |orch, args| {
        let task = core_args().output(args.tensor(0)?).output(args.tensor(1)?);
        let task = task.scalar(args.scalar(0)?).scalar(args.scalar(1)?);
        orch.submit("local", task.scalar(args.scalar(2)?)).map(drop)
    },
    kernels: &[LOCAL],
};

/// A task that writes behind the end of its input, and one that writes just there what it may.
static BEHIND_INPUT: ChipCallable = ChipCallable {
    name: "behind_input",
    orchestration: |orch, args| {
        let (a, b) = (args.tensor(0)?, args.tensor(1)?);
        let strays = core_args().input(a).output(b);
        orch.submit("local", strays.scalar(5_u64).scalar(4_u64).scalar(0_u64))?;
        let innocent = core_args().output(a).output(b);
        orch.submit("local", innocent.scalar(4_u64).scalar(4_u64).scalar(0_u64))?;
        let strays = core_args().input(a).output(b);
        orch.submit("local", strays.scalar(5_u64).scalar(4_u64).scalar(0_u64))
            .map(drop)
    },
    kernels: &[LOCAL],
};

#[rstest]
#[case::a_code_is_returned_as_well([5, 4, 3], 0)]
#[case::the_second_one([4, 5, 0], 1)]
#[case::both([5, 5, 0], 0)]
#[case::both_and_a_code([5, 5, 3], 0)]
fn a_kernel_that_strays_is_blamed_and_the_next_one_is_not(
    #[case] scalars: [u64; 3],
    #[case] tensor: usize,
) {
    let bench = Bench::new();
    bench.write("local.c", WRITES_SO_MANY);
    let mut chip = bench.chip();
    let slot = chip.register(&TWO_OUTPUTS).unwrap();
    let tensors = [(); 2].map(|()| upload::<f32>(&mut *chip, &[0.0; 4]));
    let args = |scalars: [u64; 3]| {
        let args = tensors
            .into_iter()
            .fold(ChipArgs::new(), ChipArgs::with_tensor);
        scalars.into_iter().fold(args, ChipArgs::with_scalar)
    };
    let error = device::run(&mut *chip, slot, args(scalars)).unwrap_err();
    assert!(
        matches!(
            &error,
            DeviceError::Kernel { source: KernelError::StrayWrite { idx }, .. } if *idx == tensor
        ),
        "{}",
        chain(&error)
    );
    device::run(&mut *chip, slot, args([4, 4, 0])).unwrap();
}

#[test]
fn a_write_behind_an_input_is_blamed_on_no_later_task() {
    let bench = Bench::new();
    bench.write("local.c", WRITES_SO_MANY);
    let mut chip = bench.chip();
    let slot = chip.register(&BEHIND_INPUT).unwrap();
    let tensors = [(); 2].map(|()| upload::<f32>(&mut *chip, &[0.0; 4]));
    let args = tensors
        .into_iter()
        .fold(ChipArgs::new(), ChipArgs::with_tensor);
    for _run in 0..2 {
        device::run(&mut *chip, slot, args.clone()).unwrap();
    }
    let slot = chip.register(&TWO_OUTPUTS).unwrap();
    let args = [4_u64, 4, 0].into_iter().fold(args, ChipArgs::with_scalar);
    device::run(&mut *chip, slot, args).unwrap();
}
