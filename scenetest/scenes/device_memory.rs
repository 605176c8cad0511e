//! Memory of a chip that is kept over runs: a sum grows there, run by run, and comes back to the host
//! once at the end.

use facade::{ChipCallable, Kernel, args, core_args, on};
use scenetest::{Case, Failure, HostTensor, Scene, SceneContext, Tensors, Tolerance};

static ADD_TO: ChipCallable = ChipCallable {
    name: "add_to",
    orchestration: |orch, args| {
        let (x, sum) = (args.tensor(0)?, args.tensor(1)?);
        orch.submit("add_to", core_args().input(x).inout(sum))?;
        Ok(())
    },
    kernels: &[Kernel::vector("add_to", |cx| {
        let (x, sum) = (cx.input::<f32>(0)?, cx.output::<f32>(1)?);
        sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
        Ok(())
    })],
};

/// `sum = start + runs * x`, on the chip.
pub(crate) fn scene() -> Scene {
    Scene::new("device_memory", run)
        .inputs(|case| {
            let (mut random, n) = (case.random(), case.size("n")?);
            let (start, x) = (random.tensor(&[n], |x| x)?, random.tensor(&[n], |x| x)?);
            Ok(Tensors::new().with("start", start).with("x", x))
        })
        .reference(|case, inputs| {
            let (start, x) = (
                inputs.get("start")?.elements::<f32>()?,
                inputs.get("x")?.elements::<f32>()?,
            );
            let mut sum = start;
            for _ in 0..case.size("runs")? {
                sum.iter_mut().zip(&x).for_each(|(sum, x)| *sum += x);
            }
            Ok(Tensors::new().with("sum", HostTensor::new(&sum, &[sum.len()])?))
        })
        .tolerance("sum", Tolerance::EXACT)
        .case(Case::new("small").param("n", 16).param("runs", 3))
        .case(
            Case::new("many_runs")
                .param("n", 1_000)
                .param("runs", 50)
                .seed(1),
        )
}

fn run(cx: &mut SceneContext<'_>) -> Result<(), Failure> {
    let (n, runs) = (cx.case().size("n")?, cx.case().size("runs")?);
    let start = cx.inputs().get("start")?.elements::<f32>()?;
    let node = cx.node().build()?;
    let add_to = node.register_chip(&ADD_TO)?;
    node.init()?;
    let x = cx.input::<f32>(&node, "x")?;
    let sum = node.malloc::<f32>(0, n)?;
    cx.rounds(|round| {
        node.copy_to(sum, &start)?;
        for _ in 0..runs {
            node.run(|orch| orch.submit_next_level(&add_to, args().input(&x).inout(&sum), on(0)))?;
        }
        let mut back = vec![0.0_f32; n];
        node.copy_from(&mut back, sum)?;
        round.produced("sum", HostTensor::new(&back, &[n])?)
    })?;
    node.free(sum)?;
    Ok(node.close()?)
}
