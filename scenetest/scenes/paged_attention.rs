//! Attention over a cache in pages: each sequence of a batch names its pages in a table, and the pages
//! lie anywhere. One core task for each page of a sequence, and one that merges what they found.
//!
//! How many positions a sequence has is data, which the orchestration names and never reads: it
//! submits a task for every page that the table has room for, and those beyond the end find nothing.

use facade::{
    ChipArgs, ChipCallable, ChipOrchestrator, DType, Kernel, KernelContext, KernelError,
    OrchestrationError, args, core_args, on,
};
use scenetest::{Case, Failure, HostTensor, Scene, SceneContext, Tensors, Tolerance};

static PAGED_ATTENTION: ChipCallable = ChipCallable {
    name: "paged_attention",
    orchestration,
    kernels: &[
        Kernel::matrix("attend_page", attend_page),
        Kernel::vector("merge", merge),
    ],
};

/// Arguments: q [batch, heads, dim], keys and values [pages, page, dim], table [batch, room],
/// lengths [batch], out [batch, heads, dim].
fn orchestration(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    let (q, keys, values) = (args.tensor(0)?, args.tensor(1)?, args.tensor(2)?);
    let (table, lengths, out) = (args.tensor(3)?, args.tensor(4)?, args.tensor(5)?);
    let (batch, room) = (table.shape()[0], table.shape()[1]);
    let (heads, dim) = (q.shape()[1], q.shape()[2]);
    for sequence in 0..batch {
        let this = sequence..sequence + 1;
        let (q, out) = (q.slice(0, this.clone())?, out.slice(0, this.clone())?);
        let (table, length) = (table.slice(0, this.clone())?, lengths.slice(0, this)?);
        // For each head: the weighted values, the sum of the weights, the greatest score.
        let found = orch.alloc(DType::F32, &[room, heads, dim + 2])?;
        for page in 0..room {
            let found = found.slice(0, page..page + 1)?;
            let core = core_args().input(&q).input(keys).input(values);
            let core = core.input(&table).input(&length).output(&found);
            orch.submit("attend_page", core.scalar(page as u32))?;
        }
        orch.submit("merge", core_args().input(&found).output(&out))?;
    }
    Ok(())
}

fn attend_page(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (heads, dim) = (
        cx.tensor(0)?.shape()[1] as usize,
        cx.tensor(0)?.shape()[2] as usize,
    );
    let page_size = cx.tensor(1)?.shape()[1] as usize;
    let nth = cx.scalar::<u32>(0)? as usize;
    let (q, table) = (cx.input::<f32>(0)?, cx.input::<i32>(3)?);
    let length = cx.input::<i32>(4)?[0] as usize;
    let found = cx.output::<f32>(5)?;
    let here = length.saturating_sub(nth * page_size).min(page_size);
    let begin = table[nth] as usize * page_size * dim;
    let keys = cx.input_range::<f32>(1, begin..begin + here * dim)?;
    let values = cx.input_range::<f32>(2, begin..begin + here * dim)?;
    for (q, found) in q
        .chunks_exact(dim)
        .zip(found.chunks_exact_mut(dim + 2))
        .take(heads)
    {
        let scores: Vec<f32> = keys.chunks_exact(dim).map(|key| score(q, key)).collect();
        let greatest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        found.fill(0.0);
        for (score, value) in scores.iter().zip(values.chunks_exact(dim)) {
            let weight = (score - greatest).exp();
            found
                .iter_mut()
                .zip(value)
                .for_each(|(sum, value)| *sum += weight * value);
            found[dim] += weight;
        }
        found[dim + 1] = greatest;
    }
    Ok(())
}

fn score(q: &[f32], key: &[f32]) -> f32 {
    let product: f32 = q.iter().zip(key).map(|(q, key)| q * key).sum();
    product / (q.len() as f32).sqrt()
}

fn merge(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let shape = cx.tensor(0)?.shape();
    let (heads, width) = (shape[1] as usize, shape[2] as usize);
    let (dim, found) = (width - 2, cx.input::<f32>(0)?);
    let out = cx.output::<f32>(1)?;
    for (head, out) in out.chunks_exact_mut(dim).enumerate() {
        let of_head = || found.chunks_exact(width).skip(head).step_by(heads);
        let greatest = of_head()
            .map(|page| page[dim + 1])
            .fold(f32::NEG_INFINITY, f32::max);
        let (mut weights, mut sums) = (0.0, vec![0.0; dim]);
        for page in of_head() {
            // A page beyond the end has the score minus infinity, and so no weight.
            let scale = (page[dim + 1] - greatest).exp();
            weights += scale * page[dim];
            sums.iter_mut()
                .zip(page)
                .for_each(|(sum, value)| *sum += scale * value);
        }
        out.iter_mut()
            .zip(sums)
            .for_each(|(out, sum)| *out = sum / weights);
    }
    Ok(())
}

/// Attention of one new position of each sequence over its pages.
pub(crate) fn scene() -> Scene {
    let sizes = |case: Case, batch, heads, dim, page, room| {
        let case = case
            .param("batch", batch)
            .param("heads", heads)
            .param("dim", dim);
        case.param("page", page).param("room", room)
    };
    Scene::new("paged_attention", run)
        .inputs(inputs)
        .reference(reference)
        .tolerance("out", Tolerance::both(1e-5, 1e-4))
        .case(sizes(Case::new("one_page"), 1, 1, 8, 4, 1))
        .case(sizes(Case::new("ragged").seed(1), 3, 2, 16, 8, 5))
        .case(sizes(Case::new("many").seed(2), 8, 4, 32, 16, 8))
}

fn inputs(case: &Case) -> Result<Tensors, Failure> {
    let (batch, heads, dim) = (case.size("batch")?, case.size("heads")?, case.size("dim")?);
    let (page, room) = (case.size("page")?, case.size("room")?);
    let (pages, mut random) = (batch * room, case.random());
    // Pages of all sequences in a random order.
    let mut order: Vec<i32> = (0..pages as i32).collect();
    for at in (1..pages).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let lengths: Vec<i32> = (0..batch)
        .map(|_| 1 + random.below((page * room) as u64) as i32)
        .collect();
    Ok(Tensors::new()
        .with("q", random.tensor(&[batch, heads, dim], |x| 2.0 * x)?)
        .with("keys", random.tensor(&[pages, page, dim], |x| x)?)
        .with("values", random.tensor(&[pages, page, dim], |x| x)?)
        .with("table", HostTensor::new(&order, &[batch, room])?)
        .with("lengths", HostTensor::new(&lengths, &[batch])?))
}

/// Softmax over all positions at once, in double precision.
fn reference(case: &Case, inputs: &Tensors) -> Result<Tensors, Failure> {
    let (batch, heads, dim) = (case.size("batch")?, case.size("heads")?, case.size("dim")?);
    let (page, room) = (case.size("page")?, case.size("room")?);
    let floats = |name: &str| inputs.get(name)?.elements::<f32>();
    let (q, keys, values) = (floats("q")?, floats("keys")?, floats("values")?);
    let table = inputs.get("table")?.elements::<i32>()?;
    let lengths = inputs.get("lengths")?.elements::<i32>()?;
    let mut out = Vec::new();
    for row in 0..batch * heads {
        let sequence = row / heads;
        let row_of = |position: usize| {
            let physical = table[sequence * room + position / page] as usize;
            (physical * page + position % page) * dim
        };
        let rows: Vec<usize> = (0..lengths[sequence] as usize).map(row_of).collect();
        let dot = |at: &usize| -> f64 {
            let terms = (0..dim).map(|d| f64::from(q[row * dim + d]) * f64::from(keys[at + d]));
            terms.sum::<f64>() / (dim as f64).sqrt()
        };
        let weights: Vec<f64> = rows.iter().map(|at| dot(at).exp()).collect();
        let total: f64 = weights.iter().sum();
        out.extend((0..dim).map(|d| {
            let terms = rows.iter().zip(&weights);
            let sum: f64 = terms
                .map(|(at, weight)| weight * f64::from(values[at + d]))
                .sum();
            (sum / total) as f32
        }));
    }
    Ok(Tensors::new().with("out", HostTensor::new(&out, &[batch, heads, dim])?))
}

fn run(cx: &mut SceneContext<'_>) -> Result<(), Failure> {
    let shape = cx.inputs().get("q")?.shape().to_vec();
    let node = cx.node().build()?;
    let attention = node.register_chip(&PAGED_ATTENTION)?;
    node.init()?;
    let (q, keys) = (
        cx.input::<f32>(&node, "q")?,
        cx.input::<f32>(&node, "keys")?,
    );
    let values = cx.input::<f32>(&node, "values")?;
    let (table, lengths) = (
        cx.input::<i32>(&node, "table")?,
        cx.input::<i32>(&node, "lengths")?,
    );
    let out = cx.output::<f32>(&node, "out", &shape)?;
    cx.rounds(|_| {
        let args = args().input(&q).input(&keys).input(&values);
        let args = args.input(&table).input(&lengths).output(&out);
        node.run(|orch| orch.submit_next_level(&attention, args, on(0)))
    })?;
    Ok(node.close()?)
}
