//! The kernels of a decoder layer, as functions on cores of a simulated chip.
//!
//! Activations and the KV cache are `f32` or `bf16` (`T` below), weights are `bf16`, and every sum is taken in `f32`,
//! the one along the layers (`x`) included.

use half::bf16;
use taskgraph::Element;

use facade::{KernelContext, KernelError, Lane};

/// How a kernel ends.
pub(crate) type Ended = Result<(), KernelError>;

/// An element type of activations.
pub(crate) trait Activation: Element {
    /// The value, without loss.
    fn wide(self) -> f32;
    /// The nearest value.
    fn narrow(value: f32) -> Self;
}

impl Activation for f32 {
    fn wide(self) -> f32 {
        self
    }

    fn narrow(value: f32) -> Self {
        value
    }
}

impl Activation for bf16 {
    fn wide(self) -> f32 {
        // As the weights are read in inner loops, where a check for NaN would keep the compiler from using vectors.
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    fn narrow(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// `embed(tokens i32[B], table[V, H]) -> x f32[B, H]`: the rows of the table that the tokens name.
pub(crate) fn embed(cx: &mut KernelContext<'_>) -> Ended {
    let [vocab, hidden] = matrix(cx, 1)?;
    let (tokens, table, x) = (
        cx.input::<i32>(0)?,
        cx.input::<bf16>(1)?,
        cx.output::<f32>(2)?,
    );
    for (token, row) in tokens.iter().zip(x.chunks_exact_mut(hidden)) {
        let token = index(*token, vocab, "token")?;
        let from = &table[token * hidden..][..hidden];
        row.iter_mut()
            .zip(from)
            .for_each(|(x, from)| *x = from.wide());
    }
    Ok(())
}

/// `copy(from i32[..]) -> to i32[..]`.
pub(crate) fn copy(cx: &mut KernelContext<'_>) -> Ended {
    cx.output::<i32>(1)?.copy_from_slice(cx.input::<i32>(0)?);
    Ok(())
}

/// `rms_norm(x f32[B, H], weight[H]; eps) -> y T[B, H]`.
pub(crate) fn rms_norm<T: Activation>(cx: &mut KernelContext<'_>) -> Ended {
    let eps: f32 = cx.scalar(0)?;
    let (x, weight) = (cx.input::<f32>(0)?, cx.input::<bf16>(1)?);
    let (len, y) = (weight.len(), cx.output::<T>(2)?);
    for (x, y) in x.chunks_exact(len).zip(y.chunks_exact_mut(len)) {
        normalize(x, weight, eps, y);
    }
    Ok(())
}

/// `linear(x[B, K], weight[N, K]) -> y[B, N]`: `y` may be some columns of a wider matrix.
pub(crate) fn linear<T: Activation>(cx: &mut KernelContext<'_>) -> Ended {
    let [n, k] = matrix(cx, 1)?;
    let x: Vec<f32> = cx.input::<T>(0)?.iter().map(|x| x.wide()).collect();
    let weight = cx.input::<bf16>(1)?;
    let mut y = vec![T::narrow(0.0); x.len() / k * n];
    for (column, weights) in weight.chunks_exact(k).enumerate() {
        for (row, x) in x.chunks_exact(k).enumerate() {
            y[row * n + column] = T::narrow(dot(x, weights));
        }
    }
    cx.store(2, &y)
}

/// `norm_rope(x[B, heads, D], weight[D], positions i32[B]; eps, theta) -> x`: normalizes each head, then turns it by its
/// token's position. One block per head.
pub(crate) fn norm_rope<T: Activation>(cx: &mut KernelContext<'_>) -> Ended {
    let (eps, theta): (f32, f64) = (cx.scalar(0)?, cx.scalar(1)?);
    let (weight, positions) = (cx.input::<bf16>(1)?, cx.input::<i32>(2)?);
    let heads = (cx.block_count() as usize / positions.len()).max(1);
    let position = positions[cx.block_index() as usize / heads];
    let head = cx.output_block::<T>(0)?;
    let before: Vec<f32> = head.iter().map(|x| x.wide()).collect();
    normalize(&before, weight, eps, head);
    rotate(head, position, theta);
    Ok(())
}

/// `write_kv(k[B, KV * D], v[B, KV * D], slots i32[B]) -> (k_cache, v_cache)[page, token, KV, D]`: a slot is directly the
/// index of a row of the cache.
pub(crate) fn write_kv<T: Activation>(cx: &mut KernelContext<'_>) -> Ended {
    for (from, to) in [(0, 3), (1, 4)] {
        let [_, len] = matrix(cx, from)?;
        let (rows, slots, cache) = (
            cx.input::<T>(from)?,
            cx.input::<i32>(2)?,
            cx.output::<T>(to)?,
        );
        for (row, slot) in rows.chunks_exact(len).zip(slots) {
            let slot = index(*slot, cache.len() / len, "slot")?;
            cache[slot * len..][..len].copy_from_slice(row);
        }
    }
    Ok(())
}

/// `add(y T[B, H]) -> x f32[B, H]`: `x += y`, a share per block.
pub(crate) fn add<T: Activation>(cx: &mut KernelContext<'_>) -> Ended {
    let x = cx.output_block::<f32>(1)?;
    let y = cx.input_range::<T>(0, cx.block_range(cx.tensor(0)?.num_elements() as usize))?;
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y.wide());
    Ok(())
}

/// `silu_mul(gate[B, I], up[B, I]) -> y[B, I]`, a share per block.
pub(crate) fn silu_mul<T: Activation>(cx: &mut KernelContext<'_>) -> Ended {
    let share = cx.block_range(cx.tensor(0)?.num_elements() as usize);
    let (gate, up) = (
        cx.input_range::<T>(0, share.clone())?,
        cx.input_range::<T>(1, share)?,
    );
    for (y, (gate, up)) in cx.output_block::<T>(2)?.iter_mut().zip(gate.iter().zip(up)) {
        let gate = gate.wide();
        *y = T::narrow(gate / (1.0 + (-gate).exp()) * up.wide());
    }
    Ok(())
}

/// `logits(x[B, H], weight[N, H]) -> y f32[B, N]`.
pub(crate) fn logits<T: Activation>(cx: &mut KernelContext<'_>) -> Ended {
    let [n, k] = matrix(cx, 1)?;
    let x: Vec<f32> = cx.input::<T>(0)?.iter().map(|x| x.wide()).collect();
    let weight = cx.input::<bf16>(1)?;
    let rows = x.chunks_exact(k);
    let y: Vec<f32> = rows
        .flat_map(|x| weight.chunks_exact(k).map(|weights| dot(x, weights)))
        .collect();
    debug_assert_eq!(y.len(), x.len() / k * n);
    cx.store(2, &y)
}

/// `likeliest(logits f32[B, V]) -> tokens i32[B]`: the first of the largest.
pub(crate) fn likeliest(cx: &mut KernelContext<'_>) -> Ended {
    let [_, vocab] = matrix(cx, 0)?;
    let (logits, tokens) = (cx.input::<f32>(0)?, cx.output::<i32>(1)?);
    for (row, token) in logits.chunks_exact(vocab).zip(tokens) {
        let best = (0..vocab).reduce(|best, at| if row[at] > row[best] { at } else { best });
        *token = best.unwrap_or(0) as i32;
    }
    Ok(())
}

/// Attention of the queries of one sequence that share a key and value head, over the pages of that sequence:
///
/// `attention(q[B, heads, D], (k_cache, v_cache)[page, token, KV, D], table i32[B, P], positions i32[B])
///     -> (scores f32[B * KV, group, P * token], out[B, heads, D])`
///
/// One block per sequence and key head, on three cores: the matrix core multiplies, the vector cores turn scores into
/// weights, half of the queries each.
pub(crate) fn attention<T: Activation>(cx: &mut KernelContext<'_>) -> Ended {
    let block = Block::of(cx)?;
    if cx.lane() == Lane::Aic {
        block.score::<T>(cx)?;
    }
    cx.sync()?;
    match cx.lane() {
        Lane::Aic => {}
        Lane::Aiv0 => block.weigh(cx, 0..block.group / 2)?,
        Lane::Aiv1 => block.weigh(cx, block.group / 2..block.group)?,
    }
    cx.sync()?;
    if cx.lane() == Lane::Aic {
        block.mix::<T>(cx)?;
    }
    Ok(())
}

/// What one block of the attention works on.
struct Block {
    sequence: usize,
    kv_head: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Queries of this block.
    group: usize,
    /// Tokens that a row of scores has room for, and those that are there.
    room: usize,
    context: usize,
    page: usize,
    pages: usize,
}

impl Block {
    fn of(cx: &KernelContext<'_>) -> Result<Self, KernelError> {
        let (block, blocks) = (cx.block_index() as usize, cx.block_count() as usize);
        let shape = |idx| -> Result<Vec<usize>, KernelError> {
            Ok(cx
                .tensor(idx)?
                .shape()
                .iter()
                .map(|len| *len as usize)
                .collect())
        };
        let (cache, scores, table) = (shape(1)?, shape(5)?, shape(3)?);
        let (kv_heads, sequence) = (cache[2], block / cache[2]);
        let room = scores[2];
        debug_assert_eq!(blocks, table[0] * kv_heads);
        let position = cx.input::<i32>(4)?[sequence];
        Ok(Self {
            sequence,
            kv_head: block % kv_heads,
            kv_heads,
            head_dim: cache[3],
            group: scores[1],
            room,
            context: index(position, room, "position")? + 1,
            page: cache[1],
            pages: table[1],
        })
    }

    /// Where the key or value of each token begins in the cache.
    fn rows(&self, cx: &KernelContext<'_>, cache_idx: usize) -> Result<Vec<usize>, KernelError> {
        let pages = cx.tensor(cache_idx)?.shape()[0] as usize;
        let table = &cx.input::<i32>(3)?[self.sequence * self.pages..][..self.pages];
        let row = |token: usize| {
            let page = index(table[token / self.page], pages, "page")?;
            let row = page * self.page + token % self.page;
            Ok((row * self.kv_heads + self.kv_head) * self.head_dim)
        };
        (0..self.context).map(row).collect()
    }

    /// Where the block's part of something begins that has `len` elements per query.
    fn first(&self, len: usize) -> usize {
        (self.sequence * self.kv_heads + self.kv_head) * self.group * len
    }

    /// Query times key, scaled.
    fn score<T: Activation>(&self, cx: &KernelContext<'_>) -> Ended {
        let (d, rows) = (self.head_dim, self.rows(cx, 1)?);
        let queries = cx.input_range::<T>(0, self.first(d)..self.first(d) + self.group * d)?;
        let (keys, scores) = (cx.input::<T>(1)?, cx.output_block::<f32>(5)?);
        let scale = 1.0 / (d as f32).sqrt();
        for (query, scores) in queries
            .chunks_exact(d)
            .zip(scores.chunks_exact_mut(self.room))
        {
            let query: Vec<f32> = query.iter().map(|q| q.wide()).collect();
            for (score, row) in scores.iter_mut().zip(&rows) {
                *score = scale * dot(&query, &keys[*row..][..d]);
            }
        }
        Ok(())
    }

    /// Scores to weights that add up to one.
    fn weigh(&self, cx: &KernelContext<'_>, queries: std::ops::Range<usize>) -> Ended {
        let first = self.first(self.room);
        let share = first + queries.start * self.room..first + queries.end * self.room;
        for row in cx
            .output_range::<f32>(5, share)?
            .chunks_exact_mut(self.room)
        {
            let row = &mut row[..self.context];
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter_mut().for_each(|x| *x = (*x - largest).exp());
            let sum: f32 = row.iter().sum();
            row.iter_mut().for_each(|x| *x /= sum);
        }
        Ok(())
    }

    /// Weights times values.
    fn mix<T: Activation>(&self, cx: &KernelContext<'_>) -> Ended {
        let (d, rows) = (self.head_dim, self.rows(cx, 2)?);
        let weights = cx.output_block::<f32>(5)?;
        let (values, out) = (cx.input::<T>(2)?, cx.output_block::<T>(6)?);
        for (weights, out) in weights.chunks_exact(self.room).zip(out.chunks_exact_mut(d)) {
            let mut sum = vec![0.0_f32; d];
            for (weight, row) in weights.iter().zip(&rows) {
                let value = &values[*row..][..d];
                sum.iter_mut()
                    .zip(value)
                    .for_each(|(sum, value)| *sum += weight * value.wide());
            }
            out.iter_mut()
                .zip(sum)
                .for_each(|(out, sum)| *out = T::narrow(sum));
        }
        Ok(())
    }
}

/// Root mean square normalization of one row.
fn normalize<T: Activation>(x: &[f32], weight: &[bf16], eps: f32, y: &mut [T]) {
    let squares: f32 = x.iter().map(|x| x * x).sum();
    let scale = 1.0 / (squares / x.len() as f32 + eps).sqrt();
    for (y, (x, weight)) in y.iter_mut().zip(x.iter().zip(weight)) {
        *y = T::narrow(x * scale * weight.wide());
    }
}

/// Rotary embedding of one head, whose pairs are its two halves.
fn rotate<T: Activation>(head: &mut [T], position: i32, theta: f64) {
    let (len, half) = (head.len(), head.len() / 2);
    let (low, high) = head.split_at_mut(half);
    for (at, (a, b)) in low.iter_mut().zip(high).enumerate() {
        let frequency = theta.powf(-2.0 * at as f64 / len as f64);
        let (sin, cos) = (f64::from(position) * frequency).sin_cos();
        let (x, y, sin, cos) = (a.wide(), b.wide(), sin as f32, cos as f32);
        (*a, *b) = (T::narrow(x * cos - y * sin), T::narrow(y * cos + x * sin));
    }
}

/// The sum of products; sixteen running sums, so that the compiler can use vectors.
fn dot<T: Activation>(x: &[f32], y: &[T]) -> f32 {
    let mut sums = [0.0_f32; 16];
    let (x_chunks, y_chunks) = (x.chunks_exact(16), y.chunks_exact(16));
    let rest = x_chunks.remainder().iter().zip(y_chunks.remainder());
    let rest: f32 = rest.map(|(x, y)| x * y.wide()).sum();
    for (x, y) in x_chunks.zip(y_chunks) {
        for at in 0..16 {
            sums[at] += x[at] * y[at].wide();
        }
    }
    rest + sums.iter().sum::<f32>()
}

/// Rows and columns of a tensor, of which the first dimensions are rows.
fn matrix(cx: &KernelContext<'_>, idx: usize) -> Result<[usize; 2], KernelError> {
    let tensor = cx.tensor(idx)?;
    let columns = tensor.shape().last().copied().unwrap_or(1).max(1);
    Ok([(tensor.num_elements() / columns) as usize, columns as usize])
}

/// A number that came as data and indexes `len` things.
fn index(found: i32, len: usize, what: &str) -> Result<usize, KernelError> {
    let at = usize::try_from(found).ok().filter(|at| *at < len);
    at.ok_or_else(|| KernelError::fail(format!("{what} {found} is not one of {len}")))
}
