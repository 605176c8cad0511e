//! Damaged definitions: whatever the bytes, decoding refuses them or what it yields is safe to use.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::layout::HASH_WORD;
use super::*;
use crate::*;

fn tensor(id: u64, shape: &[u64]) -> Tensor {
    let buffer = BufferId::new(1, id, 0, BufferKind::Shared);
    Tensor::contiguous(buffer, DType::F32, shape, 4096).unwrap()
}

fn boundary() -> TaskArgs {
    let (x, mut args) = (tensor(1, &[4, 4]), TaskArgs::new());
    args.tensor(x, Tag::Input).unwrap();
    args.tensor(x.slice(0, 1..3).unwrap(), Tag::InOut).unwrap();
    args.tensor(tensor(2, &[8]), Tag::InOut).unwrap();
    args.scalar(1u32).scalar(2.0f64);
    args
}

/// A definition with something in every section.
fn sample() -> Definition {
    let boundary = boundary();
    let mut recorder = Recorder::new(NonZeroU32::MIN, &boundary, &[0, 1, 2]).unwrap();
    let memory = recorder.alloc(DType::F32, &[4, 4]).unwrap();
    let (mut a, mut b) = (TaskArgs::new(), TaskArgs::new());
    a.tensor(boundary.tensors()[0].tensor, Tag::Input).unwrap();
    a.tensor(memory, Tag::Output).unwrap();
    a.scalar(recorder.scalar(0).unwrap()).scalar(5i64);
    b.tensor(memory.slice(1, 1..3).unwrap(), Tag::Input)
        .unwrap();
    b.tensor(
        boundary.tensors()[2].tensor.slice(0, 2..4).unwrap(),
        Tag::InOut,
    )
    .unwrap();
    let callable = recorder.callable(&[7; 32]);
    let workers = [WorkerId(0), WorkerId(1)];
    let element = boundary.tensors()[2].tensor.slice(0, 0..1).unwrap();
    let members = [&a];
    let first = NodeSpec::new(callable, Placement::AnyOf(&workers), &members);
    recorder
        .submit(&NodeSpec {
            predicate: Some((&element, 1)),
            ..first
        })
        .unwrap();
    recorder
        .submit(&NodeSpec::new(callable, Placement::On(workers[1]), &[&b]))
        .unwrap();
    recorder
        .submit(&NodeSpec::new(callable, Placement::SubGroup(2), &[&b]))
        .unwrap();
    let members = [&TaskArgs::new(), &TaskArgs::new()];
    recorder
        .submit(&NodeSpec::new(
            callable,
            Placement::Group(&workers),
            &members,
        ))
        .unwrap();
    recorder.finish().unwrap()
}

/// Looks at everything there is, as whoever replays it would.
fn use_whole(definition: Definition) {
    let boundary = boundary();
    let size = definition.heap_bytes().clamp(1, 1 << 20);
    let heap = BufferId::new(9, 9, 0, BufferKind::Shared);
    let heap = Tensor::contiguous(heap, DType::U8, &[size], size).unwrap();
    let definition = Arc::new(definition);
    let is_fit = definition.bind(&boundary, &[0, 1, 2]).is_ok();
    let bindings = Bindings {
        boundary: &boundary,
        heap: Some(heap),
    };
    for node in definition.nodes() {
        assert!(node.n_members() > 0 && node.n_blocks() > 0);
        let _ = (
            node.callable(),
            node.n_blocks(),
            node.placement(),
            definition.digest(node.callable()),
        );
        for (earlier, _) in node.fan_in() {
            assert!(earlier < node.number());
        }
        assert!(
            node.fan_out()
                .all(|(later, _)| later > node.number() && later < definition.n_nodes())
        );
        let mut args: Vec<_> = (0..node.n_members())
            .flat_map(|member| node.args(member))
            .collect();
        args.extend(node.predicate().map(|predicate| predicate.element));
        for arg in args {
            let found = definition.tensor(&arg, &bindings);
            let is_boundary = matches!(
                arg.source,
                ArgSource::Boundary { .. } | ArgSource::View { .. }
            );
            assert!(
                found.is_ok() || !is_fit || !is_boundary,
                "{arg:?}: {found:?}"
            );
        }
        for scalar in (0..node.n_members()).flat_map(|member| node.scalars(member)) {
            let _ = definition.scalar(scalar, &bindings);
        }
    }
}

/// With the hash that fits the contents.
fn forge(mut bytes: Vec<u8>) -> Vec<u8> {
    let place = HASH_WORD * 8..HASH_WORD * 8 + 8;
    bytes[place.clone()].fill(0);
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect();
    bytes[place].copy_from_slice(&hash::of_words(&words).to_ne_bytes());
    bytes
}

#[test]
fn a_definition_with_any_word_zeroed_is_refused_or_safe_to_use() {
    let bytes = sample().to_bytes().to_vec();
    for at in (0..bytes.len()).step_by(4) {
        let mut changed = bytes.clone();
        changed[at..at + 4].fill(0);
        if let Ok(read) = Definition::decode(&forge(changed)) {
            use_whole(read);
        }
    }
}

#[test]
fn what_is_written_is_read_again() {
    let sample = sample();
    let again = Definition::decode(sample.to_bytes()).unwrap();
    assert_eq!(again, sample);
    assert_eq!(again.content_hash(), sample.content_hash());
    use_whole(again);
}

#[test]
fn every_changed_byte_is_found() {
    let good = sample().to_bytes().to_vec();
    for at in 0..good.len() {
        for bit in [0, 3, 7] {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            assert!(
                Definition::decode(&bytes).is_err(),
                "bit {bit} of byte {at}"
            );
        }
    }
}

#[test]
fn every_cut_is_found() {
    let good = sample().to_bytes().to_vec();
    for end in 0..good.len() {
        assert!(Definition::decode(&good[..end]).is_err(), "{end} bytes");
    }
    let longer = [&good[..], &[0; 8]].concat();
    assert!(matches!(
        Definition::decode(&longer),
        Err(DecodeError::Length { .. })
    ));
}

#[test]
fn a_forged_definition_is_refused_or_safe_to_use() {
    let good = sample().to_bytes().to_vec();
    let mut n_refused = 0;
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0xff, good[at] ^ 1, good[at].wrapping_add(1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            match Definition::decode(&forge(bytes)) {
                Ok(definition) => use_whole(definition),
                Err(_) => n_refused += 1,
            }
        }
    }
    assert!(
        n_refused > good.len(),
        "hardly anything was refused: {n_refused} of {}",
        good.len()
    );
}

proptest::proptest! {
    #[test]
    fn random_changes_are_refused_or_safe_to_use(
        changes in proptest::collection::vec((0usize..4096, proptest::num::u8::ANY), 1..6),
    ) {
        let mut bytes = sample().to_bytes().to_vec();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if let Ok(definition) = Definition::decode(&forge(bytes)) {
            use_whole(definition);
        }
    }

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
        proptest::prop_assert!(Definition::decode(&bytes).is_err());
    }
}

#[test]
fn a_definition_of_another_layout_says_so() {
    let mut bytes = sample().to_bytes().to_vec();
    bytes[32] = 9;
    let refused = Definition::decode(&forge(bytes)).unwrap_err();
    assert_eq!(refused, DecodeError::Schema { found: 9 });
}
