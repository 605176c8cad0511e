//! One sum on one chip: the smallest scene, and the one to copy.

use facade::{ChipCallable, Kernel, args, core_args, on};
use scenetest::{Case, Failure, HostTensor, Scene, SceneContext, Tensors, Tolerance};

static VECTOR_ADD: ChipCallable = ChipCallable {
    name: "vector_add",
    orchestration: |orch, args| {
        let (x, y, z) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
        orch.submit("add", core_args().input(x).input(y).output(z))?;
        Ok(())
    },
    kernels: &[Kernel::vector("add", |cx| {
        let (x, y, z) = (
            cx.input::<f32>(0)?,
            cx.input::<f32>(1)?,
            cx.output::<f32>(2)?,
        );
        z.iter_mut()
            .zip(x)
            .zip(y)
            .for_each(|((z, x), y)| *z = x + y);
        Ok(())
    })],
};

/// `z = x + y`.
pub(crate) fn scene() -> Scene {
    Scene::new("vector_add", run)
        .inputs(|case| {
            let (mut random, n) = (case.random(), case.size("n")?);
            let (x, y) = (random.tensor(&[n], |x| x)?, random.tensor(&[n], |y| y)?);
            Ok(Tensors::new().with("x", x).with("y", y))
        })
        .reference(|_, inputs| {
            let (x, y) = (
                inputs.get("x")?.elements::<f32>()?,
                inputs.get("y")?.elements::<f32>()?,
            );
            let z: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            Ok(Tensors::new().with("z", HostTensor::new(&z, &[z.len()])?))
        })
        .tolerance("z", Tolerance::EXACT)
        .case(Case::new("one").param("n", 1))
        .case(Case::new("ragged").param("n", 1_000).seed(1))
        .case(Case::new("large").param("n", 1 << 20).seed(2))
        .case(Case::new("huge").param("n", 1 << 26).seed(3).manual())
}

fn run(cx: &mut SceneContext<'_>) -> Result<(), Failure> {
    let n = cx.case().size("n")?;
    let node = cx.node().build()?;
    let add = node.register_chip(&VECTOR_ADD)?;
    node.init()?;
    let (x, y) = (cx.input::<f32>(&node, "x")?, cx.input::<f32>(&node, "y")?);
    let z = cx.output::<f32>(&node, "z", &[n])?;
    cx.rounds(|_| {
        node.run(|orch| orch.submit_next_level(&add, args().input(&x).input(&y).output(&z), on(0)))
    })?;
    Ok(node.close()?)
}
