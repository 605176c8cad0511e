//! What candle's Qwen3 said to the same weights: files that `tools/qwen3-golden` writes.

use std::path::Path;

use super::safetensors::Files;

/// The steps of a golden file.
#[derive(Debug)]
pub(crate) struct Golden {
    /// What goes in, step by step, one token per sequence.
    pub(crate) tokens: Vec<Vec<i32>>,
    /// What comes out with `f32` arithmetic, step by step, one row per sequence.
    logits: Vec<f32>,
}

impl Golden {
    /// Reads a file for a model with so many tokens.
    pub(crate) fn read(path: &Path, vocab: usize) -> Result<Self, String> {
        let files = Files::open(path)?;
        let (tokens, shape) = files.i32s("tokens")?;
        let [steps, batch] = shape[..] else {
            return Err(format!(
                "use {}: its tokens have shape {shape:?}",
                path.display()
            ));
        };
        let shape = [steps, batch, vocab];
        Ok(Self {
            tokens: tokens
                .chunks_exact(batch.max(1))
                .map(<[i32]>::to_vec)
                .collect(),
            logits: files.f32s("logits", &shape)?,
        })
    }

    /// Sequences that were decoded together.
    pub(crate) fn batch(&self) -> usize {
        self.tokens.first().map_or(0, Vec::len)
    }

    /// The logits of all sequences after a step; none after the last one.
    pub(crate) fn logits(&self, step: usize) -> Option<&[f32]> {
        let len = self.logits.len() / self.tokens.len().max(1);
        self.logits.get(step * len..(step + 1) * len)
    }
}
