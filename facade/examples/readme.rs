//! The smallest whole program: one sum on a simulated chip.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use facade::*;

static VECTOR_ADD: ChipCallable = ChipCallable {
    name: "vector_add",
    orchestration: |orch, args| {
        orch.submit("add", core_args().input(args.tensor(0)?).input(args.tensor(1)?).output(args.tensor(2)?))?;
        Ok(())
    },
    kernels: &[Kernel::vector("add", |cx| {
        let (a, b, c) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(2)?);
        c.iter_mut().zip(a).zip(b).for_each(|((c, a), b)| *c = a + b);
        Ok(())
    })],
};

fn main() -> Result<(), Error> {
    let node = Worker::node().platform(Platform::Sim(Arch::A2a3)).chips(2).build()?;
    let add = node.register_chip(&VECTOR_ADD)?;
    node.init()?; // the whole tree of processes is ready, or an error and nothing is left
    let (a, b, c) = (node.buffer_from(&[1.0_f32; 8])?, node.buffer_from(&[2.0_f32; 8])?, node.buffer::<f32>(8)?);
    node.run(|orch| orch.submit_next_level(&add, args().input(&a).input(&b).output(&c), on(1)))?;
    println!("{:?}", c.to_vec()?);
    node.close()
}
