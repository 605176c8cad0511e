//! A chip computes, and a sub worker checks it within the same graph: the check waits for the chip
//! because it reads what that writes, and looks at the memory in place.

use facade::{Args, ChipCallable, Kernel, args, core_args, on};
use scenetest::{Case, Failure, HostTensor, Scene, SceneContext, Tensors};

static SQUARE: ChipCallable = ChipCallable {
    name: "square",
    orchestration: |orch, args| {
        let (x, y) = (args.tensor(0)?, args.tensor(1)?);
        orch.submit("square", core_args().input(x).output(y))?;
        Ok(())
    },
    kernels: &[Kernel::vector("square", |cx| {
        let (x, y) = (cx.input::<i32>(0)?, cx.output::<i32>(1)?);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x * x);
        Ok(())
    })],
};

/// `y = x * x`, and how many elements a sub worker found wrong.
pub(crate) fn scene() -> Scene {
    Scene::new("sub_verification", run)
        .inputs(|case| {
            let mut random = case.random();
            let x: Vec<i32> = (0..case.size("n")?)
                .map(|_| random.below(2_000) as i32 - 1_000)
                .collect();
            Ok(Tensors::new().with("x", HostTensor::new(&x, &[x.len()])?))
        })
        .reference(|_, inputs| {
            let x = inputs.get("x")?.elements::<i32>()?;
            let y: Vec<i32> = x.iter().map(|x| x.pow(2)).collect();
            Ok(Tensors::new()
                .with("y", HostTensor::new(&y, &[y.len()])?)
                .with("checked", HostTensor::new(&[y.len() as u32], &[1])?)
                .with("wrong", HostTensor::new(&[0_u32], &[1])?))
        })
        .case(Case::new("small").param("n", 10))
        .case(Case::new("large").param("n", 300_000).seed(1))
}

fn run(cx: &mut SceneContext<'_>) -> Result<(), Failure> {
    let n = cx.case().size("n")?;
    let node = cx.node().sub_workers(1).build()?;
    let square = node.register_chip(&SQUARE)?;
    let verify = node.register_fn("verify", |args: &Args| {
        let (x, y) = (args.input::<i32>(0)?, args.input::<i32>(1)?);
        let wrong = x
            .iter()
            .zip(y)
            .filter(|(x, y)| x.checked_mul(**x) != Some(**y));
        args.output::<u32>(2)?[0] = x.len().min(y.len()) as u32;
        args.output::<u32>(3)?[0] = wrong.count() as u32;
        Ok(())
    })?;
    node.init()?;
    let x = cx.input::<i32>(&node, "x")?;
    let y = cx.output::<i32>(&node, "y", &[n])?;
    let checked = cx.output::<u32>(&node, "checked", &[1])?;
    let wrong = cx.output::<u32>(&node, "wrong", &[1])?;
    cx.rounds(|_| {
        node.run(|orch| {
            orch.submit_next_level(&square, args().input(&x).output(&y), on(0))?;
            let args = args().input(&x).input(&y).output(&checked).output(&wrong);
            orch.submit_sub(&verify, args)
        })
    })?;
    Ok(node.close()?)
}
