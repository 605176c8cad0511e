//! The decoder once more, in `f64`, one token after the other, without pages, tiles or a graph: what the chip's results
//! are compared with where there is no golden file.

use half::bf16;

use super::config::{Config, Part};
use super::weights::{Weights, pieces};

/// Rows of a weight that are read at once.
const ROWS: usize = 1024;

/// A decoder with all keys and values of one sequence.
#[derive(Debug)]
pub(crate) struct Reference<'w> {
    config: &'w Config,
    weights: &'w Weights,
    /// By layer and position.
    keys: Vec<Vec<Vec<f64>>>,
    values: Vec<Vec<Vec<f64>>>,
    /// What went in and what came out, by position.
    steps: Vec<(i32, Vec<f64>)>,
}

impl<'w> Reference<'w> {
    pub(crate) fn new(config: &'w Config, weights: &'w Weights) -> Self {
        let none = vec![Vec::new(); config.num_hidden_layers];
        Self {
            config,
            weights,
            keys: none.clone(),
            values: none,
            steps: Vec::new(),
        }
    }

    /// The logits after the token at a position, which is the next one or one that was there before. They are computed
    /// once, whoever asks; another token than before makes the reference forget what followed.
    pub(crate) fn step(&mut self, position: usize, token: i32) -> Result<&[f64], String> {
        if self
            .steps
            .get(position)
            .is_none_or(|(known, _)| *known != token)
        {
            self.steps.truncate(position);
            for layer in self.keys.iter_mut().chain(&mut self.values) {
                layer.truncate(position);
            }
            let logits = self.next(token)?;
            self.steps.push((token, logits));
        }
        Ok(&self.steps[position].1)
    }

    fn next(&mut self, token: i32) -> Result<Vec<f64>, String> {
        let row = usize::try_from(token).map_err(|_| format!("token {token} is negative"))?;
        let mut x = wide(
            &self
                .weights
                .rows(self.config, Part::Embedding, 0, row..row + 1)?,
        );
        for layer in 0..self.config.num_hidden_layers {
            let context = self.attend(layer, &x)?;
            add(&mut x, &context);
            let inside = self.inside(layer, &x)?;
            add(&mut x, &inside);
        }
        let x = self.normalized(&x, Part::FinalNorm, 0)?;
        self.linear(&x, Part::Head, 0)
    }

    /// The key and the value that a layer keeps for the token at a position.
    pub(crate) fn kept(&self, layer: usize, position: usize) -> [&[f64]; 2] {
        [&self.keys[layer][position], &self.values[layer][position]]
    }

    fn attend(&mut self, layer: usize, x: &[f64]) -> Result<Vec<f64>, String> {
        let position = self.keys[layer].len();
        let x = self.normalized(x, Part::InputNorm, layer)?;
        let q = self.heads(&x, Part::Q, Part::QNorm, layer, position)?;
        let k = self.heads(&x, Part::K, Part::KNorm, layer, position)?;
        let v = self.linear(&x, Part::V, layer)?;
        self.keys[layer].push(k);
        self.values[layer].push(v);
        let d = self.config.head_dim;
        let context: Vec<f64> = q
            .chunks_exact(d)
            .enumerate()
            .flat_map(|(head, query)| {
                self.attend_head(layer, head / self.config.group() * d, query)
            })
            .collect();
        self.linear(&context, Part::O, layer)
    }

    /// One query over all positions; its keys and values begin at `at`.
    fn attend_head(&self, layer: usize, at: usize, query: &[f64]) -> Vec<f64> {
        let d = query.len();
        let score = |key: &Vec<f64>| dot(query, &key[at..at + d]) / (d as f64).sqrt();
        let scores: Vec<f64> = self.keys[layer].iter().map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut out = vec![0.0; d];
        for (weight, value) in weights.iter().zip(&self.values[layer]) {
            out.iter_mut()
                .zip(&value[at..at + d])
                .for_each(|(out, value)| *out += weight / sum * value);
        }
        out
    }

    fn inside(&self, layer: usize, x: &[f64]) -> Result<Vec<f64>, String> {
        let x = self.normalized(x, Part::PostNorm, layer)?;
        let (gate, up) = (
            self.linear(&x, Part::Gate, layer)?,
            self.linear(&x, Part::Up, layer)?,
        );
        let product: Vec<f64> = gate
            .iter()
            .zip(&up)
            .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
            .collect();
        self.linear(&product, Part::Down, layer)
    }

    /// Projects to heads, normalizes each, and turns it by its position.
    fn heads(
        &self,
        x: &[f64],
        part: Part,
        norm: Part,
        layer: usize,
        position: usize,
    ) -> Result<Vec<f64>, String> {
        let (d, mut heads) = (self.config.head_dim, self.linear(x, part, layer)?);
        for head in heads.chunks_exact_mut(d) {
            let normalized = self.normalized(head, norm, layer)?;
            for pair in 0..d / 2 {
                let angle =
                    position as f64 * self.config.rope_theta.powf(-2.0 * pair as f64 / d as f64);
                let (x, y) = (normalized[pair], normalized[pair + d / 2]);
                head[pair] = x * angle.cos() - y * angle.sin();
                head[pair + d / 2] = y * angle.cos() + x * angle.sin();
            }
        }
        Ok(heads)
    }

    fn normalized(&self, x: &[f64], part: Part, layer: usize) -> Result<Vec<f64>, String> {
        let weight = wide(&self.weights.all(self.config, part, layer)?);
        let scale = 1.0 / (dot(x, x) / x.len() as f64 + self.config.rms_norm_eps).sqrt();
        Ok(x.iter()
            .zip(weight)
            .map(|(x, weight)| x * scale * weight)
            .collect())
    }

    fn linear(&self, x: &[f64], part: Part, layer: usize) -> Result<Vec<f64>, String> {
        let [rows, columns] = self.config.shape(part);
        let mut out = Vec::with_capacity(rows);
        for rows in pieces(rows, ROWS) {
            let weight = self.weights.rows(self.config, part, layer, rows)?;
            out.extend(weight.chunks_exact(columns).map(|row| dot(x, &wide(row))));
        }
        Ok(out)
    }
}

fn wide(values: &[bf16]) -> Vec<f64> {
    values.iter().map(|value| value.to_f64()).collect()
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
