//! Writes the golden files of facade's example `qwen3_decode`: what candle's Qwen3 says to the same weights.
//!
//! ```text
//! cargo run --manifest-path tools/qwen3-golden/Cargo.toml
//! ```
//!
//! Configuration and weights are the example's own files, compiled in here, so both sides see the same numbers; the
//! model is candle's alone.

#[path = "../../../facade/examples/qwen3_decode/config.rs"]
#[expect(dead_code, reason = "the example uses more of it")]
mod config;
#[path = "../../../facade/examples/qwen3_decode/safetensors.rs"]
#[expect(dead_code, reason = "the example uses more of it")]
mod safetensors;
#[path = "../../../facade/examples/qwen3_decode/weights.rs"]
#[expect(dead_code, reason = "the example uses more of it")]
mod weights;

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use candle_nn::{Activation, VarBuilder};
use candle_transformers::models::qwen3;

use config::{Config, Part};
use weights::Weights;

/// The seed of all weights and prompts.
const SEED: u64 = 1;

/// Sequences that are decoded together.
const BATCH: usize = 2;

/// Tokens of each prompt; what follows is chosen by the model.
const PROMPT: usize = 4;

/// Steps, the prompt's included.
const STEPS: usize = 10;

/// A model of two layers whose weights are small enough to be committed: one key and value head, tied embeddings.
const MICRO: Config = Config {
    hidden_size: 32,
    intermediate_size: 48,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 1,
    head_dim: 8,
    vocab_size: 64,
    rope_theta: 1e4,
    rms_norm_eps: 1e-6,
    tie_word_embeddings: true,
};

/// What can go wrong here.
type Failure = Box<dyn Error>;

/// Tensors by name.
type Named = HashMap<String, Tensor>;

fn main() -> Result<(), Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../facade/examples/qwen3_decode/golden");
    let micro = folder.join("micro");
    std::fs::create_dir_all(&micro)?;
    write_model(&MICRO, &micro)?;
    for (config, name, weights) in [
        (Config::TINY, "tiny", Weights::Seeded(SEED)),
        (MICRO, "micro", Weights::open(&micro)?),
    ] {
        let path = folder.join(name).with_extension("safetensors");
        write_golden(&config, &weights, &path)?;
        println!("{}", path.canonicalize()?.display());
    }
    Ok(())
}

/// Writes a seeded model as it would be published: two safetensors files and a `config.json`.
fn write_model(config: &Config, folder: &Path) -> Result<(), Failure> {
    let all = tensors(config, &Weights::Seeded(SEED))?;
    let (of_layers, others): (Named, Named) = all.into_iter().partition(|(name, _)| name.contains("layers"));
    for (idx, part) in [of_layers, others].iter().enumerate() {
        candle_core::safetensors::save(part, shard(folder, idx))?;
    }
    let json = serde_json::json!({
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
    });
    std::fs::write(folder.join("config.json"), format!("{json:#}\n"))?;
    Ok(())
}

fn shard(folder: &Path, idx: usize) -> PathBuf {
    folder.join(format!("model-{:05}-of-00002.safetensors", idx + 1))
}

/// Writes what was put in and what came out: `tokens` and `logits`. The weights are bf16, the arithmetic is f32.
fn write_golden(config: &Config, weights: &Weights, path: &Path) -> Result<(), Failure> {
    let (tokens, logits) = decode(config, weights)?;
    let inputs: Vec<i32> = tokens.iter().flatten().map(|token| *token as i32).collect();
    let inputs = Tensor::from_vec(inputs, (tokens.len(), BATCH), &Device::Cpu)?;
    let named = [("tokens", inputs), ("logits", logits)];
    let named: Named = named.map(|(name, tensor)| (name.to_owned(), tensor)).into();
    Ok(candle_core::safetensors::save(&named, path)?)
}

/// Decodes token by token: what goes in is the prompt, and then whatever is likeliest.
fn decode(config: &Config, weights: &Weights) -> Result<(Vec<Vec<u32>>, Tensor), Failure> {
    let named = tensors(config, weights)?;
    let builder = VarBuilder::from_tensors(named, DType::F32, &Device::Cpu);
    let mut model = qwen3::ModelForCausalLM::new(&of_candle(config), builder)?;
    let (mut inputs, mut outputs) = (Vec::new(), Vec::<Tensor>::new());
    for step in 0..STEPS {
        let input = match outputs.last() {
            Some(logits) if step >= PROMPT => likeliest(logits)?,
            _ => prompt(config, step),
        };
        let tensor = Tensor::from_vec(input.clone(), (BATCH, 1), &Device::Cpu)?;
        let logits = model.forward(&tensor, step)?.squeeze(1)?;
        inputs.push(input);
        outputs.push(logits);
    }
    Ok((inputs, Tensor::stack(&outputs, 0)?))
}

fn likeliest(logits: &Tensor) -> Result<Vec<u32>, Failure> {
    Ok(logits.argmax(1)?.to_vec1()?)
}

/// The same tokens as the example's own prompt.
fn prompt(config: &Config, step: usize) -> Vec<u32> {
    (0..BATCH).map(|sequence| ((7 + 31 * step + 101 * sequence) % config.vocab_size) as u32).collect()
}

/// All weights, as bf16.
fn tensors(config: &Config, weights: &Weights) -> Result<Named, Failure> {
    let mut all = Named::new();
    let mut add = |part: Part, layer: usize| -> Result<(), Failure> {
        let values = weights.all(config, part, layer)?;
        let [rows, columns] = config.shape(part);
        let tensor = if part.is_norm() {
            Tensor::from_vec(values, columns, &Device::Cpu)?
        } else {
            Tensor::from_vec(values, (rows, columns), &Device::Cpu)?
        };
        all.insert(part.name(layer), tensor);
        Ok(())
    };
    for layer in 0..config.num_hidden_layers {
        Part::LAYER.into_iter().try_for_each(|part| add(part, layer))?;
    }
    add(Part::Embedding, 0)?;
    add(Part::FinalNorm, 0)?;
    if !config.tie_word_embeddings {
        add(Part::Head, 0)?;
    }
    Ok(all)
}

fn of_candle(config: &Config) -> qwen3::Config {
    qwen3::Config {
        vocab_size: config.vocab_size,
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        num_hidden_layers: config.num_hidden_layers,
        num_attention_heads: config.num_attention_heads,
        head_dim: config.head_dim,
        attention_bias: false,
        num_key_value_heads: config.num_key_value_heads,
        max_position_embeddings: STEPS,
        sliding_window: None,
        max_window_layers: config.num_hidden_layers,
        tie_word_embeddings: config.tie_word_embeddings,
        rope_theta: config.rope_theta,
        rms_norm_eps: config.rms_norm_eps,
        use_sliding_window: false,
        hidden_act: Activation::Silu,
    }
}
