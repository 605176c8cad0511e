//! A Qwen3 decoder on a simulated chip, held against candle's Qwen3 and against a reference in `f64`.
//!
//! ```text
//! cargo run --release -p facade --example qwen3_decode
//! cargo run --release -p facade --example qwen3_decode -- --size 14b-shape --layers 1
//! cargo run --release -p facade --example qwen3_decode -- --weights FOLDER --prompt 9707,11,1879
//! ```
//!
//! Weights and a paged KV cache live in the memory of the chip; a step is embedding, two chip tasks per layer (attention,
//! MLP), head. A layer is recorded once, on the node and on the chip, and replayed for all others. `chip.rs` has the
//! orchestrations of these tasks, `kernels.rs` what runs on the cores.
//!
//! Every step is checked: its logits, what it wrote to the cache and what it left alone there. Without arguments two
//! models are decoded, one of forty small layers with seeded weights and one of two layers from safetensors files, each
//! with `bf16` and with `f32` activations, task by task and replayed.
//!
//! xtask: run with --steps 5
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that talks to its user"
)]

mod chip;
mod compare;
mod config;
mod decode;
mod golden;
mod kernels;
mod model;
mod paging;
mod reference;
mod room;
mod safetensors;
#[cfg(test)]
mod tests;
mod weights;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use half::bf16;

use config::Config;
use decode::{Task, decode};
use golden::Golden;
use weights::Weights;

/// The seed that the golden files were made with.
const GOLDEN_SEED: u64 = 1;

/// Decodes with a Qwen3 on a simulated chip, and checks every step.
#[derive(Debug, Parser)]
struct Options {
    /// A size by name, with weights from the seed.
    #[arg(long, value_enum, conflicts_with = "weights")]
    size: Option<Size>,
    /// A folder with a published model (`config.json` and safetensors files in bf16).
    #[arg(long)]
    weights: Option<PathBuf>,
    /// What the logits of `--weights` shall be, as `tools/qwen3-golden` writes it.
    #[arg(long, requires = "weights")]
    golden: Option<PathBuf>,
    /// Type of the activations and of the cache; both, one after the other, unless said (14b-shape: bf16).
    #[arg(long, value_enum)]
    dtype: Option<Activations>,
    /// Only the first layers; 14b-shape has 1 unless said.
    #[arg(long)]
    layers: Option<usize>,
    /// Sequences that are decoded together.
    #[arg(long, default_value_t = 2, value_parser = at_least_one)]
    batch: usize,
    /// Tokens of each sequence, the prompt's included.
    #[arg(long, value_parser = at_least_one)]
    steps: Option<usize>,
    /// Tokens of a page of the cache.
    #[arg(long, default_value_t = 4, value_parser = at_least_one)]
    page: usize,
    /// The first tokens of every sequence.
    #[arg(long, value_delimiter = ',')]
    prompt: Vec<i32>,
    /// The seed of the weights.
    #[arg(long, default_value_t = GOLDEN_SEED)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Size {
    /// Forty layers of a few thousand parameters.
    Tiny,
    /// The dimensions of Qwen3-14B.
    #[value(name = "14b-shape")]
    Shape14b,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Activations {
    Bf16,
    F32,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("at least 1 is needed".to_owned()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let tasks = match (&options.weights, options.size) {
        (Some(folder), _) => vec![from_files(options, folder, options.golden.as_deref())?],
        (None, Some(size)) => vec![seeded(options, size)?],
        (None, None) => {
            let micro = golden_folder().join("micro");
            let golden = micro.with_extension("safetensors");
            vec![
                seeded(options, Size::Tiny)?,
                from_files(options, &micro, Some(&golden))?,
            ]
        }
    };
    for task in &tasks {
        let mut references = task.references();
        let is_large = options.size == Some(Size::Shape14b);
        if options.dtype != Some(Activations::F32) {
            decode::<bf16>(task, &mut references)?;
        }
        if options.dtype == Some(Activations::F32) || (options.dtype.is_none() && !is_large) {
            decode::<f32>(task, &mut references)?;
        }
    }
    Ok(())
}

/// Where the golden files lie in the repository.
fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/qwen3_decode/golden")
}

fn seeded(options: &Options, size: Size) -> Result<Task, String> {
    let (mut config, name, layers, steps) = match size {
        Size::Tiny => (Config::TINY, "tiny", options.layers, 10),
        Size::Shape14b => (
            Config::SHAPE_14B,
            "14b-shape",
            options.layers.or(Some(1)),
            3,
        ),
    };
    let golden = if size == Size::Tiny && options.seed == GOLDEN_SEED && layers.is_none() {
        Some(Golden::read(
            &golden_folder().join("tiny.safetensors"),
            config.vocab_size,
        )?)
    } else {
        None
    };
    config.num_hidden_layers = layers.unwrap_or(config.num_hidden_layers);
    task(
        options,
        name.to_owned(),
        config,
        Weights::Seeded(options.seed),
        golden,
        steps,
    )
}

fn from_files(options: &Options, folder: &Path, golden: Option<&Path>) -> Result<Task, String> {
    let mut config = Config::read(&folder.join("config.json"))?;
    let golden = golden
        .map(|path| Golden::read(path, config.vocab_size))
        .transpose()?;
    config.num_hidden_layers = options.layers.map_or(config.num_hidden_layers, |n| {
        n.min(config.num_hidden_layers)
    });
    let name = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    task(options, name, config, Weights::open(folder)?, golden, 10)
}

fn task(
    options: &Options,
    name: String,
    config: Config,
    weights: Weights,
    golden: Option<Golden>,
    steps: usize,
) -> Result<Task, String> {
    if let Some(fault) = config.fault() {
        return Err(format!("decode with {name}: {fault}"));
    }
    let in_vocab =
        |token: &&i32| usize::try_from(**token).is_ok_and(|token| token < config.vocab_size);
    if let Some(wrong) = options.prompt.iter().find(|token| !in_vocab(token)) {
        return Err(format!(
            "use prompt token {wrong}: {name} has tokens 0 to {}",
            config.vocab_size - 1
        ));
    }
    // Golden logits are of golden tokens.
    let golden =
        golden.filter(|golden| options.prompt.is_empty() && golden.batch() == options.batch);
    Ok(Task {
        name,
        config,
        weights,
        golden,
        batch: options.batch,
        steps: options.steps.unwrap_or(steps),
        page: options.page,
        prompt: options.prompt.clone(),
    })
}
