//! The README's program: a kernel on a simulated chip, in a tree of processes.
#![expect(clippy::print_stdout, reason = "an example shows its result")]
// region: program
use facade::*;

static DOUBLE: ChipCallable = ChipCallable::new("double", plan, &[Kernel::vector("x2", twice)]);

fn plan(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    let (x, y) = (args.tensor(0)?, args.tensor(1)?);
    orch.submit("x2", core_args().input(x).output(y)).map(drop)
}

fn twice(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (x, y) = (cx.input::<f32>(0)?, cx.output::<f32>(1)?);
    y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
    Ok(())
}

fn main() -> Result<(), Error> {
    let node = Worker::node().chips(2).build()?; // two simulated chips
    let double = node.register_chip(&DOUBLE)?;
    node.init()?; // the whole tree of processes is ready, or an error, and nothing is left
    let (x, y) = (node.buffer_from(&[1.5_f32; 4])?, node.buffer::<f32>(4)?);
    node.run(|orch| orch.submit_next_level(&double, args().input(&x).output(&y), on(1)))?;
    println!("{:?}", y.to_vec()?);
    node.close()
}
// endregion
