//! Decodes with one model, checks every step, and says how fast it was.

use std::error::Error;
use std::time::{Duration, Instant};

use facade::{Element, Worker};

use super::chip::{self, Callables};
use super::compare::{Comparison, Tolerance};
use super::config::Config;
use super::golden::Golden;
use super::kernels::Activation;
use super::model::{Capture, Handles, Model, Step, Times, UNWRITTEN};
use super::paging::Paging;
use super::reference::Reference;
use super::weights::Weights;

/// What to decode.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) config: Config,
    pub(crate) weights: Weights,
    pub(crate) golden: Option<Golden>,
    /// Sequences.
    pub(crate) batch: usize,
    /// Tokens of each sequence.
    pub(crate) steps: usize,
    /// Tokens of a page of the cache.
    pub(crate) page: usize,
    /// The first tokens of every sequence; a fixed choice if there are none.
    pub(crate) prompt: Vec<i32>,
}

impl Task {
    /// A reference for each sequence, without any token.
    pub(crate) fn references(&self) -> Vec<Reference<'_>> {
        let reference = |_| Reference::new(&self.config, &self.weights);
        (0..self.batch).map(reference).collect()
    }
}

/// What differs between the types of activations.
pub(crate) trait Arith: Element + Activation {
    const NAME: &'static str;
    const TOLERANCE: Tolerance;
    fn callables() -> &'static Callables;
}

impl Arith for f32 {
    const NAME: &'static str = "f32";
    const TOLERANCE: Tolerance = Tolerance::F32;

    fn callables() -> &'static Callables {
        &chip::F32
    }
}

impl Arith for half::bf16 {
    const NAME: &'static str = "bf16";
    const TOLERANCE: Tolerance = Tolerance::BF16;

    fn callables() -> &'static Callables {
        &chip::BF16
    }
}

/// Starts a node, decodes, checks, closes.
pub(crate) fn decode<'t, T: Arith>(
    task: &'t Task,
    references: &mut [Reference<'t>],
) -> Result<(), Box<dyn Error>> {
    let Task {
        name,
        config,
        batch,
        page,
        ..
    } = task;
    println!(
        "{name}: {} layers, hidden {}, {} and {} heads of {}; {batch} sequences, pages of {page} tokens, {} activations",
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        T::NAME
    );
    let node = Worker::node().chips(1).build()?;
    let handles = Handles::register(&node, T::callables())?;
    let paging = Paging::new(*batch, *page, task.steps);
    let rows = paging.pages() * page * config.num_hidden_layers;
    let cache_bytes = 2 * rows * config.kv_len() * size_of::<T>();
    super::room::check(name, config, cache_bytes as u64)?;
    node.init()?;
    let began = Instant::now();
    let model = Model::<T>::load(&node, handles, config, &task.weights, &paging)?;
    println!(
        "  weights: {:.1} MB on the chip after {:.2} s",
        config.weight_bytes() as f64 / 1e6,
        began.elapsed().as_secs_f64()
    );
    for capture in [Capture::Off, Capture::On] {
        model.reset()?;
        let mut checks = Checks::new::<T>(task, &paging, references);
        let times = steps(task, &model, capture, &mut checks)?;
        report(task, capture, &times);
        if capture == Capture::On {
            let graphs = node.graph_stats()?;
            println!(
                "    graphs of the node: {} replayed, {} recorded, {} that did not fit, {} not recordable",
                graphs.hits, graphs.recorded, graphs.mismatches, graphs.uncacheable
            );
        }
        checks.report()?;
    }
    node.close()?;
    Ok(())
}

/// All steps, each checked before the next one.
fn steps<T: Arith>(
    task: &Task,
    model: &Model<'_, T>,
    capture: Capture,
    checks: &mut Checks<'_, '_>,
) -> Result<Vec<Times>, Box<dyn Error>> {
    let mut next = Vec::new();
    let mut times = Vec::new();
    for position in 0..task.steps {
        let tokens = tokens(task, position, &next);
        let step = model.step(&tokens, position, capture)?;
        checks.step(&tokens, position, &step)?;
        checks.caches(position, model.caches()?)?;
        times.push(step.times);
        next = step.next;
    }
    Ok(times)
}

/// What goes in: what the golden file says, the prompt, or what came out last.
fn tokens(task: &Task, position: usize, last: &[i32]) -> Vec<i32> {
    if let Some(tokens) = task
        .golden
        .as_ref()
        .and_then(|golden| golden.tokens.get(position))
    {
        return tokens.clone();
    }
    let choice = |sequence| ((7 + 31 * position + 101 * sequence) % task.config.vocab_size) as i32;
    match task.prompt.get(position) {
        Some(token) => vec![*token; task.batch],
        None if task.prompt.is_empty() && position < 4 => (0..task.batch).map(choice).collect(),
        None => last.to_vec(),
    }
}

/// What each step is compared with.
struct Checks<'c, 't> {
    task: &'t Task,
    paging: &'c Paging,
    references: &'c mut [Reference<'t>],
    candle: Option<Comparison>,
    logits: Comparison,
    cache: Comparison,
    /// What the caches held after the last step, whole.
    before: Option<[Vec<f32>; 2]>,
    /// The likeliest tokens that are those of the reference, of so many.
    same: usize,
    of: usize,
}

impl<'c, 't> Checks<'c, 't> {
    fn new<T: Arith>(
        task: &'t Task,
        paging: &'c Paging,
        references: &'c mut [Reference<'t>],
    ) -> Self {
        let candle = |_: &Golden| Comparison::new("logits", "candle's Qwen3", T::TOLERANCE);
        Self {
            task,
            paging,
            references,
            candle: task.golden.as_ref().map(candle),
            logits: Comparison::new("logits", "the f64 reference", T::TOLERANCE),
            cache: Comparison::new("keys and values", "the f64 reference", T::TOLERANCE),
            before: None,
            same: 0,
            of: 0,
        }
    }

    /// Compares the logits of all sequences.
    fn step(&mut self, tokens: &[i32], position: usize, step: &Step) -> Result<(), String> {
        let place = || format!("step {position}");
        let (batch, vocab) = (self.task.batch, self.task.config.vocab_size);
        if (step.logits.len(), step.next.len(), tokens.len()) != (batch * vocab, batch, batch) {
            return Err(format!(
                "step {position} gave {} logits and {} tokens for {batch} sequences",
                step.logits.len(),
                step.next.len()
            ));
        }
        let golden = self.task.golden.as_ref();
        let golden = golden.and_then(|golden| golden.logits(position));
        if let (Some(golden), Some(candle)) = (golden, &mut self.candle) {
            candle.add(&step.logits, golden.iter().map(|x| f64::from(*x)), place);
        }
        let sequences = self
            .references
            .iter_mut()
            .zip(tokens)
            .zip(step.logits.chunks_exact(vocab));
        for (((reference, token), logits), next) in sequences.zip(&step.next) {
            let expected = reference.step(position, *token)?;
            let largest = (0..vocab).max_by(|a, b| expected[*a].total_cmp(&expected[*b]));
            self.same += usize::from(largest == Some(*next as usize));
            self.of += 1;
            self.logits.add(logits, expected.iter().copied(), place);
        }
        Ok(())
    }

    /// Compares the whole caches with what they should hold: the rows of this step's tokens are those of the reference,
    /// and every other one is what it was before the step, to the bit.
    fn caches(&mut self, position: usize, found: [Vec<f32>; 2]) -> Result<(), String> {
        let (layers, len) = (
            self.task.config.num_hidden_layers,
            self.task.config.kv_len(),
        );
        let before = self.before.take();
        let before = before.unwrap_or_else(|| [0, 1].map(|at| vec![UNWRITTEN; found[at].len()]));
        let n_rows = found[0].len() / (layers * len);
        let slots: Vec<usize> = (0..self.task.batch)
            .map(|sequence| self.paging.slot(sequence, position))
            .collect();
        for (which, (found, before)) in found.iter().zip(&before).enumerate() {
            if found.len() != layers * n_rows * len || found.len() != before.len() {
                return Err(format!(
                    "the cache has {} values in step {position}",
                    found.len()
                ));
            }
            for (row, (found, before)) in found
                .chunks_exact(len)
                .zip(before.chunks_exact(len))
                .enumerate()
            {
                let (layer, row) = (row / n_rows, row % n_rows);
                let place = || format!("row {row} of layer {layer}, step {position}");
                match slots.iter().position(|slot| *slot == row) {
                    Some(sequence) => {
                        let expected = self.references[sequence].kept(layer, position)[which];
                        self.cache.add(found, expected.iter().copied(), place);
                    }
                    None if found
                        .iter()
                        .map(|x| x.to_bits())
                        .ne(before.iter().map(|x| x.to_bits())) =>
                    {
                        return Err(format!(
                            "{} was overwritten, and is not of this step",
                            place()
                        ));
                    }
                    None => {}
                }
            }
        }
        self.before = Some(found);
        Ok(())
    }

    fn report(&self) -> Result<(), String> {
        let comparisons = || self.candle.iter().chain([&self.logits, &self.cache]);
        comparisons().for_each(|comparison| println!("    {comparison}"));
        println!(
            "    {} of {} likeliest tokens are the reference's",
            self.same, self.of
        );
        comparisons().try_for_each(Comparison::outcome)
    }
}

/// Prints how fast it was. The first step maps memory, so the others are what counts.
fn report(task: &Task, capture: Capture, times: &[Times]) {
    let counted = if times.len() > 1 { &times[1..] } else { times };
    let mean = |part: fn(&Times) -> Duration| {
        counted
            .iter()
            .map(|times| part(times).as_secs_f64())
            .sum::<f64>()
            / counted.len() as f64
    };
    println!(
        "  {}: {} steps, {:.1} tokens per second, {:.1} us per layer, {:.1} us on the host per step",
        match capture {
            Capture::Off => "task by task",
            Capture::On => "layers replayed",
        },
        times.len(),
        task.batch as f64 / mean(|it| it.step),
        1e6 * mean(|it| it.layers) / task.config.num_hidden_layers as f64,
        1e6 * mean(|it| it.host)
    );
}
