//! One sum on one chip: the smallest scene, and the one to copy. With a Rust kernel, and with the same
//! kernel in C++.

use facade::{
    ChipArgs, ChipCallable, ChipOrchestrator, CoreType, Kernel, KernelBody, KernelSource,
    OrchestrationError, Platform, args, core_args, on,
};
use scenetest::{Case, Failure, HostTensor, Scene, SceneContext, Tensors, Tolerance};

static VECTOR_ADD: ChipCallable = ChipCallable {
    name: "vector_add",
    orchestration: add_on_every_core,
    kernels: &[Kernel::vector("add", |cx| {
        let range = cx.block_range(cx.tensor(2)?.num_elements() as usize);
        let x = cx.input_range::<f32>(0, range.clone())?;
        let y = cx.input_range::<f32>(1, range)?;
        let z = cx.output_block::<f32>(2)?;
        z.iter_mut()
            .zip(x)
            .zip(y)
            .for_each(|((z, x), y)| *z = x + y);
        Ok(())
    })],
};

static VECTOR_ADD_CPP: ChipCallable = ChipCallable {
    name: "vector_add_cpp",
    orchestration: add_on_every_core,
    kernels: &[Kernel {
        name: "add",
        core: CoreType::Aiv,
        body: KernelBody::Source(KernelSource {
            sources: &[concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/scenes/kernels/vector_add.cpp"
            )],
            defines: &[],
            extra_include_dirs: &[],
        }),
    }],
};

fn add_on_every_core(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    let (x, y, z) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    orch.submit("add", core_args().input(x).input(y).output(z).blocks(4))?;
    Ok(())
}

/// `z = x + y`.
pub(crate) fn scene() -> Scene {
    sum(Scene::new("vector_add", |cx| run(cx, &VECTOR_ADD))
        .case(Case::new("huge").param("n", 1 << 26).seed(3).manual()))
}

/// The same in C++.
pub(crate) fn cpp() -> Scene {
    sum(Scene::new("vector_add_cpp", |cx| run(cx, &VECTOR_ADD_CPP))
        .platforms(Platform::ALL)
        .callables([&VECTOR_ADD_CPP]))
}

fn sum(scene: Scene) -> Scene {
    scene
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
}

fn run(cx: &mut SceneContext<'_>, callable: &'static ChipCallable) -> Result<(), Failure> {
    let n = cx.case().size("n")?;
    let node = cx.node().build()?;
    let add = node.register_chip(callable)?;
    node.init()?;
    let (x, y) = (cx.input::<f32>(&node, "x")?, cx.input::<f32>(&node, "y")?);
    let z = cx.output::<f32>(&node, "z", &[n])?;
    cx.rounds(|_| {
        node.run(|orch| orch.submit_next_level(&add, args().input(&x).input(&y).output(&z), on(0)))
    })?;
    Ok(node.close()?)
}
