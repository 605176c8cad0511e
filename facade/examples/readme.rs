//! The README's program: one sum on a simulated chip, in a tree of processes.
#![expect(clippy::print_stdout, reason = "an example shows its result")]
// region: program
use facade::*;

static ADD: ChipCallable = ChipCallable::new("add", submit, &[Kernel::vector("add", add)]);

fn submit(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    let (a, b, c) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    orch.submit("add", core_args().input(a).input(b).output(c))
        .map(drop)
}

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

fn main() -> Result<(), Error> {
    let node = Worker::node()
        .platform(Platform::Sim(Arch::A2a3))
        .chips(2)
        .build()?;
    let add = node.register_chip(&ADD)?;
    node.init()?; // the whole tree of processes is ready, or an error, and nothing is left
    let (a, c) = (node.buffer_from(&[1.5_f32; 4])?, node.buffer::<f32>(4)?);
    node.run(|orch| orch.submit_next_level(&add, args().input(&a).input(&a).output(&c), on(1)))?;
    println!("{:?}", c.to_vec()?);
    node.close()
}
// endregion
