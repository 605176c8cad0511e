//! One decoder layer of the Qwen3 kind for one new position: normalized grouped-query attention with
//! rotary positions over a cache, then a gated feed-forward part, each added to what came in.
//!
//! ```text
//! x ── norm ── q, k, v ── norm and rotate q, k by head ── attend over cache and k, v ── o ── + x = h
//! h ── norm ── gate, up ── silu(gate) * up ── down ── + h = y
//! ```
//!
//! Seventeen core tasks; their order follows from the tensors that they read and write.

use facade::{
    ChipArgs, ChipCallable, ChipOrchestrator, DType, DeviceTensor, Kernel, KernelContext,
    KernelError, OrchestrationError, args, core_args, on,
};
use scenetest::{
    Case, Failure, HostTensor, Random, Scene, SceneContext, TensorError, Tensors, Tolerance,
};

static LAYER: ChipCallable = ChipCallable {
    name: "qwen3_layer",
    orchestration,
    kernels: &[
        Kernel::vector("norm", norm),
        Kernel::matrix("multiply", multiply),
        Kernel::vector("rotate", rotate),
        Kernel::vector("attend", attend),
        Kernel::vector("gated", gated),
        Kernel::vector("add", add),
    ],
};

/// Added to a mean square before its root is taken.
const EPSILON: f32 = 1e-6;
/// The base of the angles of rotation.
const THETA: f32 = 1_000_000.0;

/// The inputs in the order of the arguments; then come the outputs `y`, `k` and `v`.
const INPUTS: [&str; 14] = [
    "x", "norm_in", "wq", "wk", "wv", "norm_q", "norm_k", "keys", "values", "wo", "norm_mid",
    "w_gate", "w_up", "w_down",
];

fn orchestration(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<(), OrchestrationError> {
    let h = attention(orch, args)?;
    feed_forward(orch, args, &h)
}

/// The input of this name.
fn input<'a>(args: &'a ChipArgs, name: &str) -> Result<&'a DeviceTensor, OrchestrationError> {
    let at = INPUTS.iter().position(|known| *known == name);
    args.tensor(at.unwrap_or(usize::MAX))
}

/// From `x` to `h`, with `k` and `v` on the way.
fn attention(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
) -> Result<DeviceTensor, OrchestrationError> {
    let input = |name: &str| input(args, name);
    let (x, position) = (input("x")?, args.scalar(0)?);
    let (k, v) = (args.tensor(15)?, args.tensor(16)?);

    let normed = orch.alloc_like(x)?;
    let core = core_args().input(x).input(input("norm_in")?);
    orch.submit("norm", core.output(&normed))?;
    let q = orch.alloc(DType::F32, &[input("wq")?.shape()[0]])?;
    for (weights, out) in [("wq", &q), ("wk", k), ("wv", v)] {
        let core = core_args().input(input(weights)?).input(&normed);
        orch.submit("multiply", core.output(out).blocks(2))?;
    }
    for (norm, heads) in [("norm_q", &q), ("norm_k", k)] {
        let core = core_args().inout(heads).input(input(norm)?);
        orch.submit("rotate", core.scalar(position))?;
    }
    let attended = orch.alloc_like(&q)?;
    let cache = core_args()
        .input(&q)
        .input(input("keys")?)
        .input(input("values")?);
    orch.submit("attend", cache.input(k).input(v).output(&attended))?;
    let (projected, h) = (orch.alloc_like(x)?, orch.alloc_like(x)?);
    let core = core_args().input(input("wo")?).input(&attended);
    orch.submit("multiply", core.output(&projected))?;
    orch.submit("add", core_args().input(x).input(&projected).output(&h))?;
    Ok(h)
}

/// From `h` to `y`.
fn feed_forward(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
    h: &DeviceTensor,
) -> Result<(), OrchestrationError> {
    let input = |name: &str| input(args, name);
    let y = args.tensor(14)?;

    let normed = orch.alloc_like(h)?;
    let core = core_args().input(h).input(input("norm_mid")?);
    orch.submit("norm", core.output(&normed))?;
    let gate = orch.alloc(DType::F32, &[input("w_gate")?.shape()[0]])?;
    let up = orch.alloc_like(&gate)?;
    for (weights, out) in [("w_gate", &gate), ("w_up", &up)] {
        let core = core_args().input(input(weights)?).input(&normed);
        orch.submit("multiply", core.output(out).blocks(2))?;
    }
    let (inner, down) = (orch.alloc_like(&gate)?, orch.alloc_like(h)?);
    orch.submit("gated", core_args().input(&gate).input(&up).output(&inner))?;
    let core = core_args().input(input("w_down")?).input(&inner);
    orch.submit("multiply", core.output(&down))?;
    orch.submit("add", core_args().input(h).input(&down).output(y))?;
    Ok(())
}

/// `out = x / rms(x) * weights`.
fn norm(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (x, weights) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?);
    let scale = inverse_rms(x);
    let parts = cx.output::<f32>(2)?.iter_mut().zip(x).zip(weights);
    parts.for_each(|((out, x), weight)| *out = x * scale * weight);
    Ok(())
}

fn inverse_rms(x: &[f32]) -> f32 {
    let squares: f32 = x.iter().map(|x| x * x).sum();
    1.0 / (squares / x.len() as f32 + EPSILON).sqrt()
}

/// This block's rows of a matrix times a vector.
fn multiply(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (rows, x) = (cx.tensor(0)?.shape()[0] as usize, cx.input::<f32>(1)?);
    let share = cx.block_range(rows);
    let weights = cx.input_range::<f32>(0, share.start * x.len()..share.end * x.len())?;
    let out = cx.output_block::<f32>(2)?;
    for (out, row) in out.iter_mut().zip(weights.chunks_exact(x.len())) {
        *out = row.iter().zip(x).map(|(weight, x)| weight * x).sum();
    }
    Ok(())
}

/// Each head normalized, then its halves rotated against each other by the position.
fn rotate(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (weights, position) = (cx.input::<f32>(1)?, cx.scalar::<u32>(0)? as f32);
    let half = weights.len() / 2;
    for head in cx.output::<f32>(0)?.chunks_exact_mut(weights.len()) {
        let scale = inverse_rms(head);
        head.iter_mut()
            .zip(weights)
            .for_each(|(x, weight)| *x *= scale * weight);
        for at in 0..half {
            let angle = position * THETA.powf(-(at as f32) / half as f32);
            let ((a, b), (sin, cos)) = ((head[at], head[at + half]), angle.sin_cos());
            (head[at], head[at + half]) = (a * cos - b * sin, b * cos + a * sin);
        }
    }
    Ok(())
}

/// Several heads of the query share one of the cache, whose rows are the positions before.
fn attend(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let shape = cx.tensor(1)?.shape();
    let (past, shared, dim) = (shape[0] as usize, shape[1] as usize, shape[2] as usize);
    let (q, keys, values) = (
        cx.input::<f32>(0)?,
        cx.input::<f32>(1)?,
        cx.input::<f32>(2)?,
    );
    let (k, v, out) = (
        cx.input::<f32>(3)?,
        cx.input::<f32>(4)?,
        cx.output::<f32>(5)?,
    );
    let group = q.len() / dim / shared;
    for (head, (q, out)) in q
        .chunks_exact(dim)
        .zip(out.chunks_exact_mut(dim))
        .enumerate()
    {
        let of = head / group;
        let row = |cache: &'_ [f32], new: &'_ [f32], at: usize| -> Vec<f32> {
            let (from, at) = if at < past {
                (cache, at * shared + of)
            } else {
                (new, of)
            };
            from[at * dim..(at + 1) * dim].to_vec()
        };
        let score = |at| {
            let key = row(keys, k, at);
            q.iter().zip(&key).map(|(q, key)| q * key).sum::<f32>() / (dim as f32).sqrt()
        };
        let scores: Vec<f32> = (0..=past).map(score).collect();
        let greatest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores
            .iter()
            .map(|score| (score - greatest).exp())
            .collect();
        let total: f32 = weights.iter().sum();
        out.fill(0.0);
        for (at, weight) in weights.iter().enumerate() {
            let value = row(values, v, at);
            out.iter_mut()
                .zip(&value)
                .for_each(|(out, value)| *out += weight / total * value);
        }
    }
    Ok(())
}

fn gated(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (gate, up) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?);
    let parts = cx.output::<f32>(2)?.iter_mut().zip(gate).zip(up);
    parts.for_each(|((out, gate), up)| *out = gate / (1.0 + (-gate).exp()) * up);
    Ok(())
}

fn add(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (a, b) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?);
    let parts = cx.output::<f32>(2)?.iter_mut().zip(a).zip(b);
    parts.for_each(|((out, a), b)| *out = a + b);
    Ok(())
}

/// The sizes of a layer.
struct Sizes {
    hidden: usize,
    heads: usize,
    shared: usize,
    dim: usize,
    inner: usize,
    past: usize,
}

impl Sizes {
    fn of(case: &Case) -> Result<Self, Failure> {
        Ok(Self {
            hidden: case.size("hidden")?,
            heads: case.size("heads")?,
            shared: case.size("kv_heads")?,
            dim: case.size("dim")?,
            inner: case.size("inner")?,
            past: case.size("past")?,
        })
    }
}

/// One layer, one new position.
pub(crate) fn scene() -> Scene {
    let sizes = |case: Case, hidden, heads, kv_heads, dim, inner, past| {
        let case = case.param("hidden", hidden).param("heads", heads);
        let case = case.param("kv_heads", kv_heads).param("dim", dim);
        case.param("inner", inner).param("past", past)
    };
    Scene::new("qwen3_layer", run)
        .inputs(inputs)
        .reference(reference)
        .tolerance("y", Tolerance::both(1e-4, 1e-4))
        .tolerance("k", Tolerance::both(1e-4, 1e-4))
        .tolerance("v", Tolerance::both(1e-5, 1e-4))
        .case(sizes(Case::new("first_position"), 32, 4, 2, 8, 48, 1))
        .case(sizes(Case::new("small").seed(1), 64, 4, 2, 16, 96, 37))
        .case(sizes(Case::new("wide").seed(2), 256, 16, 8, 32, 512, 100))
}

fn inputs(case: &Case) -> Result<Tensors, Failure> {
    let sizes = Sizes::of(case)?;
    let Sizes {
        hidden,
        dim,
        inner,
        past,
        shared,
        ..
    } = sizes;
    let (wide, narrow) = (sizes.heads * dim, shared * dim);
    let mut random = case.random();
    // Weights small enough for sums to stay of the order of one.
    let matrix = |random: &mut Random, rows: usize, columns: usize| {
        let scale = 1.0 / (columns as f32).sqrt();
        random.tensor(&[rows, columns], |x| x * scale)
    };
    let around_one = |random: &mut Random, n: usize| random.tensor(&[n], |x| 1.0 + 0.1 * x);
    let made: Result<Vec<HostTensor>, TensorError> = INPUTS
        .iter()
        .map(|name| match *name {
            "x" => random.tensor(&[hidden], |x| x),
            "norm_in" | "norm_mid" => around_one(&mut random, hidden),
            "norm_q" | "norm_k" => around_one(&mut random, dim),
            "wq" => matrix(&mut random, wide, hidden),
            "wk" | "wv" => matrix(&mut random, narrow, hidden),
            "keys" | "values" => random.tensor(&[past, shared, dim], |x| x),
            "wo" => matrix(&mut random, hidden, wide),
            "w_gate" | "w_up" => matrix(&mut random, inner, hidden),
            _ => matrix(&mut random, hidden, inner),
        })
        .collect();
    let named = INPUTS.iter().zip(made?);
    Ok(named.fold(Tensors::new(), |all, (name, tensor)| {
        all.with(*name, tensor)
    }))
}

/// The same layer in double precision, without a thought for speed.
fn reference(case: &Case, inputs: &Tensors) -> Result<Tensors, Failure> {
    let sizes = Sizes::of(case)?;
    let Sizes {
        heads,
        shared,
        dim,
        past,
        ..
    } = sizes;
    let get = |name: &str| -> Result<Vec<f64>, TensorError> {
        let elements = inputs.get(name)?.elements::<f32>()?;
        Ok(elements.into_iter().map(f64::from).collect())
    };
    let x = get("x")?;
    let normed = exact::norm(&x, &get("norm_in")?);
    let mut q = exact::multiply(&get("wq")?, &normed);
    let mut k = exact::multiply(&get("wk")?, &normed);
    let v = exact::multiply(&get("wv")?, &normed);
    exact::rotate(&mut q, &get("norm_q")?, past);
    exact::rotate(&mut k, &get("norm_k")?, past);
    let (mut keys, mut values) = (get("keys")?, get("values")?);
    keys.extend(&k);
    values.extend(&v);
    let attended: Vec<f64> = (0..heads)
        .flat_map(|head| {
            let of = head / (heads / shared);
            let rows = |all: &[f64]| -> Vec<Vec<f64>> {
                let row = |at: usize| (at * shared + of) * dim;
                (0..=past)
                    .map(|at| all[row(at)..row(at) + dim].to_vec())
                    .collect()
            };
            exact::attend(
                &q[head * dim..(head + 1) * dim],
                &rows(&keys),
                &rows(&values),
            )
        })
        .collect();
    let h = exact::add(&x, &exact::multiply(&get("wo")?, &attended));
    let normed = exact::norm(&h, &get("norm_mid")?);
    let gate = exact::multiply(&get("w_gate")?, &normed);
    let up = exact::multiply(&get("w_up")?, &normed);
    let inner: Vec<f64> = gate
        .iter()
        .zip(&up)
        .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
        .collect();
    let y = exact::add(&h, &exact::multiply(&get("w_down")?, &inner));
    let tensor = |values: &[f64]| {
        let values: Vec<f32> = values.iter().map(|x| *x as f32).collect();
        HostTensor::new(&values, &[values.len()])
    };
    Ok(Tensors::new()
        .with("y", tensor(&y)?)
        .with("k", tensor(&k)?)
        .with("v", tensor(&v)?))
}

/// The parts of the reference.
mod exact {
    fn inverse_rms(x: &[f64]) -> f64 {
        let squares: f64 = x.iter().map(|x| x * x).sum();
        1.0 / (squares / x.len() as f64 + f64::from(super::EPSILON)).sqrt()
    }

    pub(super) fn norm(x: &[f64], weights: &[f64]) -> Vec<f64> {
        let scale = inverse_rms(x);
        x.iter()
            .zip(weights)
            .map(|(x, weight)| x * scale * weight)
            .collect()
    }

    pub(super) fn multiply(weights: &[f64], x: &[f64]) -> Vec<f64> {
        let rows = weights.chunks_exact(x.len());
        rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum())
            .collect()
    }

    pub(super) fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
        a.iter().zip(b).map(|(a, b)| a + b).collect()
    }

    pub(super) fn rotate(heads: &mut [f64], weights: &[f64], position: usize) {
        let half = weights.len() / 2;
        for head in heads.chunks_exact_mut(weights.len()) {
            let normed = norm(head, weights);
            for at in 0..half {
                let power = -(at as f64) / half as f64;
                let angle = position as f64 * f64::from(super::THETA).powf(power);
                let (a, b) = (normed[at], normed[at + half]);
                head[at] = a * angle.cos() - b * angle.sin();
                head[at + half] = b * angle.cos() + a * angle.sin();
            }
        }
    }

    pub(super) fn attend(q: &[f64], keys: &[Vec<f64>], values: &[Vec<f64>]) -> Vec<f64> {
        let score = |key: &Vec<f64>| -> f64 {
            let product: f64 = q.iter().zip(key).map(|(q, key)| q * key).sum();
            product / (q.len() as f64).sqrt()
        };
        let weights: Vec<f64> = keys.iter().map(|key| score(key).exp()).collect();
        let total: f64 = weights.iter().sum();
        let element = |d: usize| {
            let terms = weights
                .iter()
                .zip(values)
                .map(|(weight, value)| weight * value[d]);
            terms.sum::<f64>() / total
        };
        (0..q.len()).map(element).collect()
    }
}

fn run(cx: &mut SceneContext<'_>) -> Result<(), Failure> {
    let sizes = Sizes::of(cx.case())?;
    let node = cx.node().build()?;
    let layer = node.register_chip(&LAYER)?;
    node.init()?;
    let mut inputs = Vec::new();
    for name in INPUTS {
        inputs.push(cx.input::<f32>(&node, name)?);
    }
    let y = cx.output::<f32>(&node, "y", &[sizes.hidden])?;
    let k = cx.output::<f32>(&node, "k", &[sizes.shared * sizes.dim])?;
    let v = cx.output::<f32>(&node, "v", &[sizes.shared * sizes.dim])?;
    cx.rounds(|_| {
        let args = inputs.iter().fold(args(), |args, input| args.input(input));
        let args = args.output(&y).output(&k).output(&v);
        let args = args.scalar(sizes.past as u32);
        node.run(|orch| orch.submit_next_level(&layer, args, on(0)))
    })?;
    Ok(node.close()?)
}
