//! `y = 3 x` on one chip, with a kernel in C++: the first scene of `docs/scenes.md`.

use facade::{ChipCallable, CoreType, Kernel, KernelBody, KernelSource, args, core_args, on};
use scenetest::{Case, Failure, HostTensor, Scene, SceneContext, Tensors, Tolerance};

static SCALE: ChipCallable = ChipCallable {
    name: "scale",
    orchestration: |orch, args| {
        let (x, y) = (args.tensor(0)?, args.tensor(1)?);
        orch.submit(
            "scale",
            core_args().input(x).output(y).scalar(3.0_f32).blocks(4),
        )?;
        Ok(())
    },
    kernels: &[Kernel {
        name: "scale",
        core: CoreType::Aiv,
        body: KernelBody::Source(KernelSource {
            sources: &[concat!(env!("CARGO_MANIFEST_DIR"), "/scenes/scale.cpp")],
            defines: &[],
            extra_include_dirs: &[],
        }),
    }],
};

/// `y = 3 x`.
pub(crate) fn scene() -> Scene {
    Scene::new("scale", run)
        .callables([&SCALE])
        .inputs(|case| {
            let x = case.random().tensor(&[case.size("n")?], |x| x)?;
            Ok(Tensors::new().with("x", x))
        })
        .reference(|_, inputs| {
            let x = inputs.get("x")?.elements::<f32>()?;
            let y: Vec<f32> = x.iter().map(|x| 3.0 * x).collect();
            Ok(Tensors::new().with("y", HostTensor::new(&y, &[y.len()])?))
        })
        .tolerance("y", Tolerance::EXACT)
        .case(Case::new("small").param("n", 10))
        .case(Case::new("large").param("n", 100_000).seed(1))
}

fn run(cx: &mut SceneContext<'_>) -> Result<(), Failure> {
    let node = cx.node().build()?;
    let scale = node.register_chip(&SCALE)?;
    node.init()?;
    let x = cx.input::<f32>(&node, "x")?;
    let y = cx.output::<f32>(&node, "y", &[cx.case().size("n")?])?;
    cx.rounds(|_| {
        node.run(|orch| orch.submit_next_level(&scale, args().input(&x).output(&y), on(0)))
    })?;
    Ok(node.close()?)
}
