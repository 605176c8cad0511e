//! Tests of the example's own reference and readers.

use super::compare::{Comparison, Tolerance};
use super::config::{Config, Part};
use super::golden::Golden;
use super::golden_folder;
use super::paging::Paging;
use super::reference::Reference;
use super::room;
use super::weights::Weights;

#[track_caller]
fn check(config: &Config, weights: &Weights, name: &str) {
    let path = golden_folder().join(name).with_extension("safetensors");
    let golden = Golden::read(&path, config.vocab_size).unwrap();
    let mut comparison =
        Comparison::new("logits of the reference", "candle in f32", Tolerance::F32);
    let mut references: Vec<_> = (0..golden.batch())
        .map(|_| Reference::new(config, weights))
        .collect();
    for (step, tokens) in golden.tokens.iter().enumerate() {
        let logits = golden.logits(step).unwrap().chunks_exact(config.vocab_size);
        for ((reference, token), logits) in references.iter_mut().zip(tokens).zip(logits) {
            let expected = reference.step(step, *token).unwrap();
            comparison.add(logits, expected.iter().copied(), || format!("step {step}"));
        }
    }
    comparison.outcome().unwrap();
}

#[test]
fn the_reference_agrees_with_candle_on_seeded_weights() {
    check(&Config::TINY, &Weights::Seeded(super::GOLDEN_SEED), "tiny");
}

#[test]
fn the_reference_agrees_with_candle_on_weights_from_files_with_a_tied_head() {
    let folder = golden_folder().join("micro");
    let config = Config::read(&folder.join("config.json")).unwrap();
    assert!(config.tie_word_embeddings);
    check(&config, &Weights::open(&folder).unwrap(), "micro");
}

#[test]
fn rows_of_a_seeded_weight_are_the_same_however_they_are_cut() {
    let (config, weights) = (&Config::TINY, Weights::Seeded(9));
    let all = weights.all(config, Part::KNorm, 3).unwrap();
    assert_eq!(all.len(), config.head_dim);
    let q = weights.all(config, Part::Q, 3).unwrap();
    let cut = weights.rows(config, Part::Q, 3, 5..7).unwrap();
    assert_eq!(cut, q[5 * config.hidden_size..7 * config.hidden_size]);
    assert_ne!(weights.all(config, Part::Q, 4).unwrap(), q);
}

#[test]
fn no_two_tokens_share_a_row_of_the_cache_and_page_0_is_free() {
    let paging = Paging::new(3, 4, 10);
    let mut slots: Vec<usize> = (0..3)
        .flat_map(|sequence| (0..10).map(move |at| (sequence, at)))
        .map(|(s, at)| paging.slot(s, at))
        .collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 30);
    assert!(
        slots
            .iter()
            .all(|slot| (4..paging.pages() * 4).contains(slot))
    );
}

#[test]
fn a_value_that_is_no_number_and_an_empty_comparison_are_no_agreement() {
    let mut comparison = Comparison::new("values", "others", Tolerance::BF16);
    assert!(
        comparison
            .outcome()
            .unwrap_err()
            .contains("there were none")
    );
    comparison.add(&[f32::NAN], [0.0], || "here".to_owned());
    assert!(
        comparison
            .outcome()
            .unwrap_err()
            .contains("element 0 of here: NaN")
    );
}

#[test]
fn a_damaged_file_and_a_wrong_shape_are_refused_with_the_tensor_s_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    for (bytes, problem) in [
        (&b"abc"[..], "shorter than a safetensors file can be"),
        (&[255; 16][..], "is no safetensors file"),
        (&b"\x08\0\0\0\0\0\0\0{\"a\": 1}"[..], "tensor `a`"),
        (&b"\x02\0\0\0\0\0\0\0xx"[..], "its header"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = Weights::open(&path).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    let wrong = Config {
        hidden_size: 16,
        ..Config::TINY
    };
    let micro = Weights::open(&golden_folder().join("micro")).unwrap();
    let error = micro.all(&wrong, Part::Q, 1).unwrap_err();
    assert!(
        error.contains("`model.layers.1.self_attn.q_proj.weight`"),
        "{error}"
    );
    assert!(
        error.contains("expected BF16 [64, 16], found BF16 [32, 32]"),
        "{error}"
    );
}

#[test]
fn more_or_fewer_values_than_expected_are_no_agreement() {
    for n_found in [1, 3] {
        let mut comparison = Comparison::new("values", "others", Tolerance::BF16);
        comparison.add(&[1.0, 1.0, 1.0][..n_found], [1.0, 1.0], || {
            "here".to_owned()
        });
        let refused = comparison.outcome().unwrap_err();
        let wanted = format!("here: {n_found} values, 2 expected");
        assert!(refused.contains(&wanted), "{refused}");
    }
}

#[test]
fn a_model_that_there_is_no_memory_for_is_refused_with_what_would_fit() {
    let refused =
        |available| room::fits("14b-shape", &Config::SHAPE_14B, 1 << 20, available).unwrap_err();
    let found = [refused(8 << 30), refused(1 << 30)];
    let wanted = [
        "decode with 14b-shape: 40 layers need 30.1 GB of memory, 8.6 GB are free; --layers 7 would fit",
        "decode with 14b-shape: 40 layers need 30.1 GB of memory, 1.1 GB are free; not even one would fit",
    ];
    assert_eq!(found, wanted);
    room::fits("14b-shape", &Config::SHAPE_14B, 1 << 20, 64 << 30).unwrap();
    let meminfo = "MemTotal:  24689744 kB\nMemAvailable:   12 kB\n";
    assert_eq!(room::of_machine(meminfo), Some(12 << 10));
    assert_eq!(room::of_machine("MemTotal: 1 kB"), None);
}
