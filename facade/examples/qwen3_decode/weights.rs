//! Where weights come from: a seed, or safetensors files.

use std::ops::Range;
use std::path::Path;

use half::bf16;

use super::config::{Config, Part};
use super::safetensors::Files;

/// The weights of a model, given out a few rows at a time: nobody has to hold all of them.
#[derive(Debug)]
pub(crate) enum Weights {
    /// Made from a seed, the same on every machine.
    Seeded(u64),
    /// Read from files.
    Files(Files),
}

impl Weights {
    /// Opens a safetensors file, or a folder with one or several of them.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        Files::open(path).map(Self::Files)
    }

    /// Some rows of one weight, row-major.
    pub(crate) fn rows(
        &self,
        config: &Config,
        part: Part,
        layer: usize,
        rows: Range<usize>,
    ) -> Result<Vec<bf16>, String> {
        let shape @ [_, columns] = config.shape(part);
        match self {
            Self::Seeded(seed) => {
                let stream = Stream::of(*seed, &part.name(layer), part, columns);
                Ok(stream.take(rows.start * columns..rows.end * columns))
            }
            Self::Files(files) => {
                let tied = part == Part::Head && config.tie_word_embeddings;
                let part = if tied { Part::Embedding } else { part };
                files.rows(&part.name(layer), shape, rows)
            }
        }
    }

    /// All rows of one weight.
    pub(crate) fn all(
        &self,
        config: &Config,
        part: Part,
        layer: usize,
    ) -> Result<Vec<bf16>, String> {
        self.rows(config, part, layer, 0..config.shape(part)[0])
    }
}

/// `0..n` in pieces of at most `len`.
pub(crate) fn pieces(n: usize, len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n)
        .step_by(len.max(1))
        .map(move |start| start..n.min(start + len.max(1)))
}

/// The elements of one seeded weight by their position.
struct Stream {
    key: u64,
    center: f32,
    spread: f32,
}

impl Stream {
    /// Linear layers keep the variance of what goes in, norms scale by about one, and what a layer adds is small beside
    /// what it adds to, as in trained models: else rounding grows from layer to layer.
    fn of(seed: u64, name: &str, part: Part, fan_in: usize) -> Self {
        let key = name
            .bytes()
            .fold(mixed(seed), |key, byte| mixed(key ^ u64::from(byte)));
        let (center, spread) = match part {
            Part::Embedding => (0.0, 1.0),
            _ if part.is_norm() => (1.0, 0.125),
            Part::O | Part::Down => (0.0, 0.25 * (3.0 / fan_in as f32).sqrt()),
            _ => (0.0, (3.0 / fan_in as f32).sqrt()),
        };
        Self {
            key,
            center,
            spread,
        }
    }

    fn take(&self, range: Range<usize>) -> Vec<bf16> {
        let mut values = Vec::with_capacity(range.len() + 3);
        // Four elements come out of one hash, so the first and the last hash may give some too many.
        for hash in range.start / 4..range.end.div_ceil(4) {
            let bits = mixed(self.key.wrapping_add(hash as u64));
            values.extend((0..4).map(|at| self.value((bits >> (16 * at)) as u16)));
        }
        values.drain(..range.start % 4);
        values.truncate(range.len());
        values
    }

    /// A uniform value around the centre.
    fn value(&self, bits: u16) -> bf16 {
        let unit = (f32::from(bits) + 0.5) / 32768.0 - 1.0;
        bf16::from_f32(self.center + self.spread * unit)
    }
}

/// The finalizer of SplitMix64 over a step of its sequence.
fn mixed(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
