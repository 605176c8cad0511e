//! Two chips with a barrier between two steps: a group runs on both at once and completes once, so
//! that what follows it sees what both have written. Each adds up its half; after the barrier
//! each divides its half by the whole sum.

use facade::{ChipCallable, Kernel, args, core_args, on};
use scenetest::{Case, Failure, HostTensor, Scene, SceneContext, Tensors, Tolerance};

static ADD_UP: ChipCallable = ChipCallable {
    name: "add_up",
    orchestration: |orch, args| {
        let (x, sum) = (args.tensor(0)?, args.tensor(1)?);
        orch.submit("add_up", core_args().input(x).output(sum))?;
        Ok(())
    },
    kernels: &[Kernel::vector("add_up", |cx| {
        let sum: f64 = cx.input::<f32>(0)?.iter().copied().map(f64::from).sum();
        cx.output::<f32>(1)?[0] = sum as f32;
        Ok(())
    })],
};

static DIVIDE: ChipCallable = ChipCallable {
    name: "divide",
    orchestration: |orch, args| {
        let (x, sums, y) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
        orch.submit("divide", core_args().input(x).input(sums).output(y))?;
        Ok(())
    },
    kernels: &[Kernel::vector("divide", |cx| {
        let (x, sums, y) = (
            cx.input::<f32>(0)?,
            cx.input::<f32>(1)?,
            cx.output::<f32>(2)?,
        );
        let whole: f32 = sums.iter().sum();
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x / whole);
        Ok(())
    })],
};

/// `y = x / sum(x)`, on two chips.
pub(crate) fn scene() -> Scene {
    Scene::new("two_chips", run)
        .inputs(|case| {
            let x = case
                .random()
                .tensor(&[case.size("n")?], |x| x.abs() + 0.1)?;
            Ok(Tensors::new().with("x", x))
        })
        .reference(|_, inputs| {
            let x = inputs.get("x")?.elements::<f32>()?;
            let whole: f64 = x.iter().copied().map(f64::from).sum();
            let y: Vec<f32> = x.iter().map(|x| (f64::from(*x) / whole) as f32).collect();
            Ok(Tensors::new().with("y", HostTensor::new(&y, &[y.len()])?))
        })
        .tolerance("y", Tolerance::relative(1e-5))
        .case(Case::new("small").param("n", 64).devices(2))
        .case(Case::new("uneven").param("n", 100_001).seed(1).devices(2))
}

fn run(cx: &mut SceneContext<'_>) -> Result<(), Failure> {
    let n = cx.case().size("n")?;
    let node = cx.node().build()?;
    let (add_up, divide) = (node.register_chip(&ADD_UP)?, node.register_chip(&DIVIDE)?);
    node.init()?;
    let x = cx.input::<f32>(&node, "x")?;
    let y = cx.output::<f32>(&node, "y", &[n])?;
    let sums = node.buffer::<f32>(2)?;
    let halves = [0..n / 2, n / 2..n];
    cx.rounds(|_| {
        node.run(|orch| {
            let mut members = Vec::new();
            for (chip, half) in (0..).zip(&halves) {
                let sum = sums.slice(chip as usize..chip as usize + 1)?;
                members.push((
                    args().input(&x.slice(0, half.clone())?).output(&sum),
                    on(chip),
                ));
            }
            orch.submit_next_level_group(&add_up, members)?;
            let mut members = Vec::new();
            for (chip, half) in (0..).zip(&halves) {
                let (x, y) = (x.slice(0, half.clone())?, y.slice(0, half.clone())?);
                members.push((args().input(&x).input(&sums).output(&y), on(chip)));
            }
            orch.submit_next_level_group(&divide, members)
        })
    })?;
    Ok(node.close()?)
}
