//! What runs on the chip: the orchestrations of a decoder, over the kernels of `kernels.rs`.
//!
//! A matrix product is cut into tiles of some output columns, each a task of its own: they read the same row of
//! activations and write disjoint columns, so the graph lets all of them run at once.
//!
//! What a layer does is recorded when the chip sees its first layer, and replayed for all others: the bodies see the
//! weights of their layer as arguments.

use half::bf16;
use taskgraph::capture::IntoScalar;

use facade::{
    ChipArgs, ChipCallable, ChipGraphArgs, ChipOrchestrator, CoreArgs, DeviceTensor, GraphBody,
    Kernel, OrchestrationError, Scalar, core_args,
};

use super::kernels::{self, Activation};

/// How an orchestration ends.
type Built = Result<(), OrchestrationError>;

/// Matrix products are cut into at most this many tiles: one per matrix core of the smaller chip.
const TILES_MAX: u64 = 24;

/// Columns of the smallest tile.
const TILE_MIN: u64 = 16;

/// The callables of a decoder with activations of one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callables {
    /// `(tokens, table, positions, slots, pages) -> (x, positions, slots, pages)`: the last three are copies on the chip.
    pub(crate) embed: &'static ChipCallable,
    /// `(x, positions, slots, pages, k_cache, v_cache, norm, q, k, v, q_norm, k_norm, o;
    /// as a graph, eps, theta) -> (x, caches)`.
    pub(crate) attention: &'static ChipCallable,
    /// `(x, norm, gate, up, down; as a graph, eps) -> x`.
    pub(crate) mlp: &'static ChipCallable,
    /// `(x, norm, weight; eps) -> (logits, tokens)`.
    pub(crate) head: &'static ChipCallable,
}

/// With `bf16` activations.
pub(crate) static BF16: Callables = Decoder::<bf16>::CALLABLES;

/// With `f32` activations.
pub(crate) static F32: Callables = Decoder::<f32>::CALLABLES;

struct Decoder<T>(std::marker::PhantomData<T>);

impl<T: Activation> Decoder<T> {
    const CALLABLES: Callables = Callables {
        embed: &ChipCallable::new("embed", embed, Self::EMBED),
        attention: &ChipCallable::new("attention", attention::<T>, Self::ATTENTION),
        mlp: &ChipCallable::new("mlp", mlp::<T>, Self::MLP),
        head: &ChipCallable::new("head", head::<T>, Self::HEAD),
    };

    const EMBED: &[Kernel] = &[
        Kernel::vector("embed", kernels::embed),
        Kernel::vector("copy", kernels::copy),
    ];

    const ATTENTION: &[Kernel] = &[
        Kernel::vector("rms_norm", kernels::rms_norm::<T>),
        Kernel::matrix("linear", kernels::linear::<T>),
        Kernel::vector("norm_rope", kernels::norm_rope::<T>),
        Kernel::vector("write_kv", kernels::write_kv::<T>),
        Kernel::mix("attention", kernels::attention::<T>),
        Kernel::vector("add", kernels::add::<T>),
    ];

    const MLP: &[Kernel] = &[
        Kernel::vector("rms_norm", kernels::rms_norm::<T>),
        Kernel::matrix("linear", kernels::linear::<T>),
        Kernel::vector("silu_mul", kernels::silu_mul::<T>),
        Kernel::vector("add", kernels::add::<T>),
    ];

    const HEAD: &[Kernel] = &[
        Kernel::vector("rms_norm", kernels::rms_norm::<T>),
        Kernel::matrix("logits", kernels::logits::<T>),
        Kernel::vector("likeliest", kernels::likeliest),
    ];
}

fn embed(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Built {
    let (tokens, table, x) = (args.tensor(0)?, args.tensor(1)?, args.tensor(5)?);
    orch.submit("embed", core_args().input(tokens).input(table).output(x))?;
    for at in 2..5 {
        let (from, to) = (args.tensor(at)?, args.tensor(at + 4)?);
        orch.submit("copy", core_args().input(from).output(to))?;
    }
    Ok(())
}

fn attention<T: Activation>(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Built {
    let mut all = core_args().inout(args.tensor(0)?);
    for at in 1..13 {
        let is_cache = at == 4 || at == 5;
        let tensor = args.tensor(at)?;
        all = if is_cache {
            all.inout(tensor)
        } else {
            all.input(tensor)
        };
    }
    let all = all.scalar(args.scalar(1)?).scalar(args.scalar(2)?);
    graph_or_tasks(orch, args, attention_body::<T>, all)
}

fn mlp<T: Activation>(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Built {
    let mut all = core_args().inout(args.tensor(0)?);
    for at in 1..5 {
        all = all.input(args.tensor(at)?);
    }
    let all = all.scalar(args.scalar(1)?);
    graph_or_tasks(orch, args, mlp_body::<T>, all)
}

/// One recorded layer serves all: as a graph, or task by task, as the first scalar says.
fn graph_or_tasks(
    orch: &mut ChipOrchestrator<'_>,
    args: &ChipArgs,
    body: GraphBody,
    all: CoreArgs<'_>,
) -> Built {
    match args.scalar(0)? {
        Scalar::Bool(true) => orch.graph(body, &[], all),
        _ => orch.call(body, &[], all),
    }
}

fn attention_body<T: Activation>(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let arg = |at| args.tensor(at);
    let (x, positions, slots, pages) = (arg(0)?, arg(1)?, arg(2)?, arg(3)?);
    let (k_cache, v_cache) = (arg(4)?, arg(5)?);
    let (eps, theta) = (args.scalar(0)?, args.scalar(1)?);
    let (batch, [_, page, kv_heads, head_dim]) = (x.shape()[0], dims(k_cache)?);
    let heads = arg(7)?.shape()[0] / head_dim;

    let y = normalized::<T>(orch, x, arg(6)?, eps)?;
    let q = orch.alloc(T::DTYPE, &[batch, heads * head_dim])?;
    let k = orch.alloc(T::DTYPE, &[batch, kv_heads * head_dim])?;
    let v = orch.alloc_like(&k)?;
    for (weight, out) in [(7, &q), (8, &k), (9, &v)] {
        linear(orch, "linear", &y, arg(weight)?, out)?;
    }
    for (x, weight, heads) in [(&q, 10, heads), (&k, 11, kv_heads)] {
        let of_head = core_args().inout(x).input(arg(weight)?).input(positions);
        orch.submit(
            "norm_rope",
            of_head
                .scalar(eps)
                .scalar(theta)
                .blocks((batch * heads) as u32),
        )?;
    }
    let kv = core_args().input(&k).input(&v).input(slots);
    orch.submit("write_kv", kv.inout(k_cache).inout(v_cache))?;

    let room = pages.shape()[1] * page;
    let scores = orch.alloc(
        facade::DType::F32,
        &[batch * kv_heads, heads / kv_heads, room],
    )?;
    let context = orch.alloc_like(&q)?;
    let over_pages = core_args()
        .input(&q)
        .input(k_cache)
        .input(v_cache)
        .input(pages)
        .input(positions);
    let blocks = (batch * kv_heads) as u32;
    orch.submit(
        "attention",
        over_pages.output(&scores).output(&context).blocks(blocks),
    )?;

    let out = orch.alloc(T::DTYPE, x.shape())?;
    linear(orch, "linear", &context, arg(12)?, &out)?;
    add(orch, &out, x)
}

fn mlp_body<T: Activation>(orch: &mut ChipOrchestrator<'_>, args: &ChipGraphArgs) -> Built {
    let (x, gate_weight, up_weight) = (args.tensor(0)?, args.tensor(2)?, args.tensor(3)?);
    let (batch, inside) = (x.shape()[0], gate_weight.shape()[0]);
    let y = normalized::<T>(orch, x, args.tensor(1)?, args.scalar(0)?)?;
    let gate = orch.alloc(T::DTYPE, &[batch, inside])?;
    let (up, product) = (orch.alloc_like(&gate)?, orch.alloc_like(&gate)?);
    linear(orch, "linear", &y, gate_weight, &gate)?;
    linear(orch, "linear", &y, up_weight, &up)?;
    let blocks = blocks_of(&gate);
    orch.submit(
        "silu_mul",
        core_args()
            .input(&gate)
            .input(&up)
            .output(&product)
            .blocks(blocks),
    )?;
    let out = orch.alloc(T::DTYPE, x.shape())?;
    linear(orch, "linear", &product, args.tensor(4)?, &out)?;
    add(orch, &out, x)
}

fn head<T: Activation>(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Built {
    let (x, weight) = (args.tensor(0)?, args.tensor(2)?);
    let (logits, tokens) = (args.tensor(3)?, args.tensor(4)?);
    let y = normalized::<T>(orch, x, args.tensor(1)?, args.scalar(0)?)?;
    linear(orch, "logits", &y, weight, logits)?;
    orch.submit("likeliest", core_args().input(logits).output(tokens))?;
    Ok(())
}

/// `x`, normalized, in memory of its own.
fn normalized<T: Activation>(
    orch: &mut ChipOrchestrator<'_>,
    x: &DeviceTensor,
    weight: &DeviceTensor,
    eps: impl IntoScalar,
) -> Result<DeviceTensor, OrchestrationError> {
    let y = orch.alloc(T::DTYPE, x.shape())?;
    orch.submit(
        "rms_norm",
        core_args().input(x).input(weight).output(&y).scalar(eps),
    )?;
    Ok(y)
}

/// `y = x * weight^T`, tile by tile.
fn linear(
    orch: &mut ChipOrchestrator<'_>,
    kernel: &str,
    x: &DeviceTensor,
    weight: &DeviceTensor,
    y: &DeviceTensor,
) -> Built {
    let columns = weight.shape()[0];
    let tile = columns
        .div_ceil(TILES_MAX)
        .next_multiple_of(16)
        .max(TILE_MIN);
    for first in (0..columns).step_by(tile as usize) {
        let tile = first..columns.min(first + tile);
        let (weight, y) = (weight.slice(0, tile.clone())?, y.slice(1, tile)?);
        orch.submit(kernel, core_args().input(x).input(&weight).output(&y))?;
    }
    Ok(())
}

/// `x += y`.
fn add(orch: &mut ChipOrchestrator<'_>, y: &DeviceTensor, x: &DeviceTensor) -> Built {
    orch.submit("add", core_args().input(y).inout(x).blocks(blocks_of(x)))?;
    Ok(())
}

/// Vector cores that are worth using for something element by element.
fn blocks_of(tensor: &DeviceTensor) -> u32 {
    tensor.num_elements().div_ceil(4096).clamp(1, 48) as u32
}

/// The dimensions of a cache.
fn dims(cache: &DeviceTensor) -> Result<[u64; 4], OrchestrationError> {
    let shape = cache.shape();
    let wanted = || {
        OrchestrationError::refuse(format!(
            "use a cache of shape {shape:?}: [page, token, kv_head, dim] is wanted"
        ))
    };
    shape.try_into().map_err(|_| wanted())
}
