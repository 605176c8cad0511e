//! A blocked matrix product: one core task for each tile of the result and of the depth, whose order
//! follows from the tiles that they read and write. In Rust, and in C++ with a header of its own.

use std::ops::Range;

use facade::{
    ChipArgs, ChipCallable, ChipOrchestrator, CoreType, Kernel, KernelBody, KernelContext,
    KernelError, KernelSource, OrchestrationError, Platform, args, core_args, on,
};
use scenetest::{Case, Failure, HostTensor, Scene, SceneContext, Tensors, Tolerance};

/// Rows and columns of a tile; the last ones may be smaller.
const TILE: u64 = 16;

static BGEMM: ChipCallable = ChipCallable {
    name: "bgemm",
    orchestration: multiply_tiles,
    kernels: &[Kernel::matrix("multiply", multiply)],
};

static BGEMM_CPP: ChipCallable = ChipCallable {
    name: "bgemm_cpp",
    orchestration: multiply_tiles,
    kernels: &[Kernel {
        name: "multiply",
        core: CoreType::Aic,
        body: KernelBody::Source(KernelSource {
            sources: &[concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/scenes/kernels/bgemm.cpp"
            )],
            defines: &[],
            extra_include_dirs: &[&[concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/scenes/kernels/include"
            )]],
        }),
    }],
};

fn multiply_tiles(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    let (a, b, c) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    let (m, k, n) = (a.shape()[0], a.shape()[1], b.shape()[1]);
    for rows in tiles(m) {
        for columns in tiles(n) {
            let c = c.tile(rows.clone(), columns.clone())?;
            for depth in tiles(k) {
                let a = a.tile(rows.clone(), depth.clone())?;
                let b = b.tile(depth.clone(), columns.clone())?;
                let first = depth.start == 0;
                let core = core_args().input(&a).input(&b);
                let core = if first {
                    core.output(&c)
                } else {
                    core.inout(&c)
                };
                orch.submit("multiply", core.scalar(u32::from(!first)))?;
            }
        }
    }
    Ok(())
}

fn tiles(size: u64) -> impl Iterator<Item = Range<u64>> {
    let begins = (0..size).step_by(TILE as usize);
    begins.map(move |begin| begin..size.min(begin + TILE))
}

fn multiply(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let sizes = |idx: usize| -> Result<(usize, usize), KernelError> {
        let shape = cx.tensor(idx)?.shape();
        Ok((shape[0] as usize, shape[1] as usize))
    };
    let ((m, k), (_, n)) = (sizes(0)?, sizes(1)?);
    let (mut a, mut b, mut c) = (vec![0.0_f32; m * k], vec![0.0; k * n], vec![0.0; m * n]);
    cx.load(0, &mut a)?;
    cx.load(1, &mut b)?;
    if cx.scalar::<u32>(0)? != 0 {
        cx.load(2, &mut c)?;
    }
    for (row, c) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)) {
        for (a, b) in row.iter().zip(b.chunks_exact(n)) {
            c.iter_mut().zip(b).for_each(|(c, b)| *c += a * b);
        }
    }
    cx.store(2, &c)
}

/// `c = a b`.
pub(crate) fn scene() -> Scene {
    product(Scene::new("bgemm", |cx| run(cx, &BGEMM)))
}

/// The same in C++.
pub(crate) fn cpp() -> Scene {
    product(
        Scene::new("bgemm_cpp", |cx| run(cx, &BGEMM_CPP))
            .platforms(Platform::ALL)
            .callables([&BGEMM_CPP]),
    )
}

fn product(scene: Scene) -> Scene {
    let sizes = |case: Case, m, k, n| case.param("m", m).param("k", k).param("n", n);
    scene
        .inputs(|case| {
            let (m, k, n) = (case.size("m")?, case.size("k")?, case.size("n")?);
            let mut random = case.random();
            let (a, b) = (
                random.tensor(&[m, k], |x| x)?,
                random.tensor(&[k, n], |x| x)?,
            );
            Ok(Tensors::new().with("a", a).with("b", b))
        })
        .reference(|case, inputs| {
            let (m, k, n) = (case.size("m")?, case.size("k")?, case.size("n")?);
            let (a, b) = (
                inputs.get("a")?.elements::<f32>()?,
                inputs.get("b")?.elements::<f32>()?,
            );
            let element = |at: usize| {
                let (row, column) = (at / n, at % n);
                let terms =
                    (0..k).map(|d| f64::from(a[row * k + d]) * f64::from(b[d * n + column]));
                terms.sum::<f64>() as f32
            };
            let c: Vec<f32> = (0..m * n).map(element).collect();
            Ok(Tensors::new().with("c", HostTensor::new(&c, &[m, n])?))
        })
        .tolerance("c", Tolerance::both(1e-5, 1e-5))
        .case(sizes(Case::new("one_tile"), 16, 16, 16))
        .case(sizes(Case::new("ragged").seed(1), 33, 70, 17))
        .case(sizes(Case::new("square").seed(2), 96, 96, 96))
}

fn run(cx: &mut SceneContext<'_>, callable: &'static ChipCallable) -> Result<(), Failure> {
    let (m, n) = (cx.case().size("m")?, cx.case().size("n")?);
    let node = cx.node().build()?;
    let product = node.register_chip(callable)?;
    node.init()?;
    let (a, b) = (cx.input::<f32>(&node, "a")?, cx.input::<f32>(&node, "b")?);
    let c = cx.output::<f32>(&node, "c", &[m, n])?;
    cx.rounds(|_| {
        let args = args().input(&a).input(&b).output(&c);
        node.run(|orch| orch.submit_next_level(&product, args, on(0)))
    })?;
    Ok(node.close()?)
}
