//! The shape of a Qwen3 decoder, and the sizes that the example knows by name.

use std::path::Path;

use serde::Deserialize;

/// The shape of a decoder. The field names are those of the `config.json` that models are published with.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Config {
    /// Length of a token's hidden state.
    pub(crate) hidden_size: usize,
    /// Length inside the MLP.
    pub(crate) intermediate_size: usize,
    /// Decoder layers.
    pub(crate) num_hidden_layers: usize,
    /// Query heads.
    pub(crate) num_attention_heads: usize,
    /// Key and value heads; each serves an equal group of query heads.
    pub(crate) num_key_value_heads: usize,
    /// Length of a head.
    pub(crate) head_dim: usize,
    /// Tokens that have an embedding and a logit.
    pub(crate) vocab_size: usize,
    /// Base of the rotary frequencies.
    pub(crate) rope_theta: f64,
    /// What is added to the mean square before its root.
    pub(crate) rms_norm_eps: f64,
    /// Whether the output head is the embedding table.
    #[serde(default)]
    pub(crate) tie_word_embeddings: bool,
}

impl Config {
    /// Forty layers of a few thousand parameters: every path of the model, in a second.
    pub(crate) const TINY: Config = Config {
        hidden_size: 32,
        intermediate_size: 96,
        num_hidden_layers: 40,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 16,
        vocab_size: 128,
        rope_theta: 1e6,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: false,
    };

    /// The dimensions of Qwen3-14B.
    pub(crate) const SHAPE_14B: Config = Config {
        hidden_size: 5120,
        intermediate_size: 17408,
        num_hidden_layers: 40,
        num_attention_heads: 40,
        num_key_value_heads: 8,
        head_dim: 128,
        vocab_size: 151_936,
        rope_theta: 1e6,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: false,
    };

    /// Reads the `config.json` of a model.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text =
            std::fs::read(path).map_err(|error| format!("read {}: {error}", path.display()))?;
        let config: Self = serde_json::from_slice(&text)
            .map_err(|error| format!("parse {}: {error}", path.display()))?;
        match config.fault() {
            Some(fault) => Err(format!("use {}: {fault}", path.display())),
            None => Ok(config),
        }
    }

    /// What makes the shape impossible, if anything.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let sizes = [
            self.hidden_size,
            self.intermediate_size,
            self.num_hidden_layers,
            self.num_attention_heads,
            self.num_key_value_heads,
            self.head_dim,
            self.vocab_size,
        ];
        if sizes.contains(&0) {
            Some("a size is zero")
        } else if !self
            .num_attention_heads
            .is_multiple_of(self.num_key_value_heads)
        {
            Some("num_attention_heads is no multiple of num_key_value_heads")
        } else if !self.head_dim.is_multiple_of(2) {
            Some("head_dim is odd, and rotation needs pairs")
        } else {
            None
        }
    }

    /// Length of all query heads of a token.
    pub(crate) const fn q_len(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Length of all key heads of a token, and of all value heads.
    pub(crate) const fn kv_len(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// Query heads that share a key and value head.
    pub(crate) const fn group(&self) -> usize {
        self.num_attention_heads / self.num_key_value_heads
    }

    /// Bytes of all weights in bf16.
    pub(crate) fn weight_bytes(&self) -> u64 {
        let layers = Part::LAYER
            .iter()
            .map(|part| self.num_hidden_layers * self.elements(*part));
        let rest = [Part::Embedding, Part::FinalNorm, Part::Head]
            .iter()
            .map(|part| self.elements(*part));
        2 * layers.chain(rest).sum::<usize>() as u64
    }

    /// Rows and columns of a weight; a vector is one row.
    pub(crate) const fn shape(&self, part: Part) -> [usize; 2] {
        let hidden = self.hidden_size;
        match part {
            Part::Embedding | Part::Head => [self.vocab_size, hidden],
            Part::InputNorm | Part::PostNorm | Part::FinalNorm => [1, hidden],
            Part::Q => [self.q_len(), hidden],
            Part::K | Part::V => [self.kv_len(), hidden],
            Part::QNorm | Part::KNorm => [1, self.head_dim],
            Part::O => [hidden, self.q_len()],
            Part::Gate | Part::Up => [self.intermediate_size, hidden],
            Part::Down => [hidden, self.intermediate_size],
        }
    }

    /// Elements of a weight.
    pub(crate) const fn elements(&self, part: Part) -> usize {
        let [rows, columns] = self.shape(part);
        rows * columns
    }
}

/// A kind of weight; those of [`Part::LAYER`] exist once per layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Embedding,
    InputNorm,
    Q,
    K,
    V,
    QNorm,
    KNorm,
    O,
    PostNorm,
    Gate,
    Up,
    Down,
    FinalNorm,
    Head,
}

impl Part {
    /// The weights of one layer, in the order in which a layer task names them.
    pub(crate) const LAYER: [Part; 11] = [
        Part::InputNorm,
        Part::Q,
        Part::K,
        Part::V,
        Part::QNorm,
        Part::KNorm,
        Part::O,
        Part::PostNorm,
        Part::Gate,
        Part::Up,
        Part::Down,
    ];

    /// The name that the weight has in published models.
    pub(crate) fn name(self, layer: usize) -> String {
        let of_layer = |name: &str| format!("model.layers.{layer}.{name}.weight");
        match self {
            Part::Embedding => "model.embed_tokens.weight".to_owned(),
            Part::FinalNorm => "model.norm.weight".to_owned(),
            Part::Head => "lm_head.weight".to_owned(),
            Part::InputNorm => of_layer("input_layernorm"),
            Part::Q => of_layer("self_attn.q_proj"),
            Part::K => of_layer("self_attn.k_proj"),
            Part::V => of_layer("self_attn.v_proj"),
            Part::QNorm => of_layer("self_attn.q_norm"),
            Part::KNorm => of_layer("self_attn.k_norm"),
            Part::O => of_layer("self_attn.o_proj"),
            Part::PostNorm => of_layer("post_attention_layernorm"),
            Part::Gate => of_layer("mlp.gate_proj"),
            Part::Up => of_layer("mlp.up_proj"),
            Part::Down => of_layer("mlp.down_proj"),
        }
    }

    /// Whether it scales a norm, so that its elements lie around one.
    pub(crate) const fn is_norm(self) -> bool {
        matches!(
            self,
            Part::InputNorm | Part::QNorm | Part::KNorm | Part::PostNorm | Part::FinalNorm
        )
    }
}
