//! The decoder on a node: weights and cache in the memory of one chip, one run per step.

use std::time::{Duration, Instant};

use facade::{
    Buffer, ChipHandle, DeviceBuffer, Element, Error, GraphArgs, Orchestrator, Worker, args, on,
};
use half::bf16;

use super::chip::Callables;
use super::config::{Config, Part};
use super::kernels::Activation;
use super::paging::Paging;
use super::weights::{Weights, pieces};

/// The chip that everything is on.
const CHIP: u32 = 0;

/// Weights are read, and copied to the chip, so many elements at a time.
const UPLOAD_ELEMENTS: usize = 16 << 20;

/// How many of a layer's weights its attention uses; the rest is for its MLP.
const N_ATTENTION: usize = 7;

/// What the cache holds before anything is written, so that a stray write is seen.
pub(crate) const UNWRITTEN: f32 = -123.0;

/// The callables of the decoder, as the node knows them.
#[derive(Debug)]
pub(crate) struct Handles {
    embed: ChipHandle,
    attention: ChipHandle,
    mlp: ChipHandle,
    head: ChipHandle,
}

impl Handles {
    /// Registers the callables at a node that has not started.
    pub(crate) fn register(node: &Worker, callables: &Callables) -> Result<Self, Error> {
        Ok(Self {
            embed: node.register_chip(callables.embed)?,
            attention: node.register_chip(callables.attention)?,
            mlp: node.register_chip(callables.mlp)?,
            head: node.register_chip(callables.head)?,
        })
    }
}

/// A decoder that is ready for the first token.
#[derive(Debug)]
pub(crate) struct Model<'n, T: Element> {
    node: &'n Worker,
    handles: Handles,
    config: Config,
    paging: Paging,
    /// On the chip.
    embedding: DeviceBuffer<bf16>,
    layers: Vec<Layer<T>>,
    /// The keys, and the values, of all layers.
    caches: [DeviceBuffer<T>; 2],
    final_norm: DeviceBuffer<bf16>,
    head: DeviceBuffer<bf16>,
    x: DeviceBuffer<f32>,
    on_chip: [DeviceBuffer<i32>; 3],
    /// Shared with the chip: what goes in and what comes out.
    tokens: Buffer<i32>,
    positions: Buffer<i32>,
    slots: Buffer<i32>,
    pages: Buffer<i32>,
    logits: Buffer<f32>,
    next: Buffer<i32>,
}

/// The weights of one layer, and its part of the caches.
#[derive(Debug)]
struct Layer<T: Element> {
    weights: Vec<DeviceBuffer<bf16>>,
    caches: [DeviceBuffer<T>; 2],
}

/// Whether layers are recorded once and replayed, on the node and on the chip, or built task by task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    Off,
    On,
}

/// What one step gave.
#[derive(Debug)]
pub(crate) struct Step {
    /// Row by row, one row per sequence.
    pub(crate) logits: Vec<f32>,
    /// The likeliest token of each sequence.
    pub(crate) next: Vec<i32>,
    pub(crate) times: Times,
}

/// Where the time of one step went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// The whole step.
    pub(crate) step: Duration,
    /// Embedding and layers.
    pub(crate) layers: Duration,
    /// Of that, building the graph on the host.
    pub(crate) host: Duration,
}

impl<'n, T: Element + Activation> Model<'n, T> {
    /// Allocates everything on the chip and copies the weights there.
    pub(crate) fn load(
        node: &'n Worker,
        handles: Handles,
        config: &Config,
        weights: &Weights,
        paging: &Paging,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let upload = |part, layer| upload(node, config, weights, part, layer);
        let shape = [
            paging.pages(),
            paging.page,
            config.num_key_value_heads,
            config.head_dim,
        ];
        let len: usize = shape.iter().product();
        let cache = || node.malloc::<T>(CHIP, config.num_hidden_layers * len);
        let caches = [cache()?, cache()?];
        let layer = |at| -> Result<Layer<T>, Box<dyn std::error::Error>> {
            let part =
                |cache: &DeviceBuffer<T>| cache.slice(at * len..(at + 1) * len)?.reshape(&shape);
            let weights = Part::LAYER
                .into_iter()
                .map(|part| upload(part, at))
                .collect::<Result<_, _>>()?;
            Ok(Layer {
                weights,
                caches: [part(&caches[0])?, part(&caches[1])?],
            })
        };
        let batch = paging.batch;
        let pages = node.buffer_from(paging.table())?;
        let x = node
            .malloc::<f32>(CHIP, batch * config.hidden_size)?
            .reshape(&[batch, config.hidden_size])?;
        let ids = |n| node.malloc::<i32>(CHIP, n);
        Ok(Self {
            node,
            handles,
            embedding: upload(Part::Embedding, 0)?,
            layers: (0..config.num_hidden_layers)
                .map(layer)
                .collect::<Result<_, _>>()?,
            caches,
            final_norm: upload(Part::FinalNorm, 0)?,
            head: upload(Part::Head, 0)?,
            x,
            on_chip: [
                ids(batch)?,
                ids(batch)?,
                ids(pages.len())?.reshape(&[batch, paging.pages_per_sequence])?,
            ],
            tokens: node.buffer(batch)?,
            positions: node.buffer(batch)?,
            slots: node.buffer(batch)?,
            pages,
            logits: node.buffer(batch * config.vocab_size)?,
            next: node.buffer(batch)?,
            config: config.clone(),
            paging: paging.clone(),
        })
    }

    /// Puts one token of each sequence in, at a position that all of them are at.
    pub(crate) fn step(
        &self,
        tokens: &[i32],
        position: usize,
        capture: Capture,
    ) -> Result<Step, Error> {
        self.tokens.copy_from(tokens)?;
        self.positions
            .copy_from(&vec![position as i32; tokens.len()])?;
        self.slots.copy_from(&self.paging.slots(position))?;
        let began = Instant::now();
        let host = self.node.run(|orch| {
            let building = Instant::now();
            self.embed(orch)?;
            for layer in &self.layers {
                self.layer(orch, layer, capture)?;
            }
            Ok(building.elapsed())
        })?;
        let layers = began.elapsed();
        self.node.run(|orch| self.head(orch))?;
        let times = Times {
            step: began.elapsed(),
            layers,
            host,
        };
        Ok(Step {
            logits: self.logits.to_vec()?,
            next: self.next.to_vec()?,
            times,
        })
    }

    /// Forgets all tokens. To be called before the first one, too.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        let clear = |cache: &DeviceBuffer<T>| {
            let nothing = vec![T::narrow(UNWRITTEN); cache.len()];
            self.node.copy_to(*cache, &nothing)
        };
        self.caches.iter().try_for_each(clear)
    }

    /// The keys and the values of all layers, as they lie in the caches.
    pub(crate) fn caches(&self) -> Result<[Vec<f32>; 2], Error> {
        let read = |cache: &DeviceBuffer<T>| -> Result<Vec<f32>, Error> {
            let mut values = vec![T::narrow(0.0); cache.len()];
            self.node.copy_from(&mut values, *cache)?;
            Ok(values.into_iter().map(Activation::wide).collect())
        };
        Ok([read(&self.caches[0])?, read(&self.caches[1])?])
    }

    fn embed(&self, orch: &mut Orchestrator<'_>) -> Result<(), Error> {
        let [positions, slots, pages] = &self.on_chip;
        let table = self
            .pages
            .reshape(&[self.paging.batch, self.paging.pages_per_sequence])?;
        let list = args().input(&self.tokens).input(&self.embedding);
        let list = list.input(&self.positions).input(&self.slots).input(&table);
        let list = list
            .output(&self.x)
            .output(positions)
            .output(slots)
            .output(pages);
        orch.submit_next_level(&self.handles.embed, list, on(CHIP))?;
        Ok(())
    }

    /// The tasks of one layer: one by one, or as the graph that was recorded of the first one.
    fn layer(
        &self,
        orch: &mut Orchestrator<'_>,
        layer: &Layer<T>,
        capture: Capture,
    ) -> Result<(), Error> {
        let (eps, theta) = (self.config.rms_norm_eps as f32, self.config.rope_theta);
        let [positions, slots, pages] = &self.on_chip;
        let list = args()
            .inout(&self.x)
            .input(positions)
            .input(slots)
            .input(pages);
        let list = list.inout(&layer.caches[0]).inout(&layer.caches[1]);
        if capture == Capture::On {
            let list = layer
                .weights
                .iter()
                .fold(list, |list, weight| list.input(weight));
            orch.graph(
                "layer",
                list.scalar(true).scalar(eps).scalar(theta),
                layer_body,
            )?;
            return Ok(());
        }
        let (attention, mlp) = layer.weights.split_at(N_ATTENTION);
        let list = attention
            .iter()
            .fold(list, |list, weight| list.input(weight));
        let list = list.scalar(false).scalar(eps).scalar(theta);
        orch.submit_next_level(&self.handles.attention, list, on(CHIP))?;
        let list = mlp
            .iter()
            .fold(args().inout(&self.x), |list, weight| list.input(weight));
        let list = list.scalar(false).scalar(eps);
        orch.submit_next_level(&self.handles.mlp, list, on(CHIP))?;
        Ok(())
    }

    fn head(&self, orch: &mut Orchestrator<'_>) -> Result<(), Error> {
        let logits = self
            .logits
            .reshape(&[self.paging.batch, self.config.vocab_size])?;
        let list = args()
            .input(&self.x)
            .input(&self.final_norm)
            .input(&self.head);
        let list = list
            .output(&logits)
            .output(&self.next)
            .scalar(self.config.rms_norm_eps as f32);
        orch.submit_next_level(&self.handles.head, list, on(CHIP))?;
        Ok(())
    }
}

/// What a layer consists of, for any layer: its weights and its part of the caches are arguments.
fn layer_body(g: &mut Orchestrator<'_>, a: &GraphArgs<'_, &'static str>) -> Result<(), Error> {
    let (attention, mlp) = (g.chip("attention")?, g.chip("mlp")?);
    let (as_graph, eps, theta) = (a.scalar(0)?, a.scalar(1)?, a.scalar(2)?);
    let mut list = args().inout(&a.tensor(0)?);
    for at in 1..6 + N_ATTENTION {
        let is_cache = at == 4 || at == 5;
        let tensor = a.tensor(at)?;
        list = if is_cache {
            list.inout(&tensor)
        } else {
            list.input(&tensor)
        };
    }
    let list = list.scalar(as_graph).scalar(eps).scalar(theta);
    g.submit_next_level(&attention, list, on(CHIP))?;
    let mut list = args().inout(&a.tensor(0)?);
    for at in 6 + N_ATTENTION..a.n_tensors() {
        list = list.input(&a.tensor(at)?);
    }
    g.submit_next_level(&mlp, list.scalar(as_graph).scalar(eps), on(CHIP))?;
    Ok(())
}

/// Copies one weight to the chip, a bounded number of rows at a time.
fn upload(
    node: &Worker,
    config: &Config,
    weights: &Weights,
    part: Part,
    layer: usize,
) -> Result<DeviceBuffer<bf16>, Box<dyn std::error::Error>> {
    let [rows, columns] = config.shape(part);
    let all = node.malloc::<bf16>(CHIP, rows * columns)?;
    for rows in pieces(rows, UPLOAD_ELEMENTS.div_ceil(columns)) {
        let values = weights.rows(config, part, layer, rows.clone())?;
        node.copy_to(
            all.slice(rows.start * columns..rows.end * columns)?,
            &values,
        )?;
    }
    Ok(if part.is_norm() {
        all
    } else {
        all.reshape(&[rows, columns])?
    })
}
