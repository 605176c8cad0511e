//! The decoders of this crate, for fuzz targets and for the tests that repeat what those found: compiled for them only.
//!
//! Each function takes any bytes and must not panic, and whatever a decoder takes must be safe to use.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::layout::HASH_WORD;
use super::*;
use crate::*;

/// A definition some bytes of which were changed, under a hash that fits: three bytes of input a change, two for its place
/// and one for its value. Then the input itself as a definition, which hardly ever gets past its hash.
pub fn definition(bytes: &[u8]) {
    let mut changed = sample().to_bytes().to_vec();
    for change in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % changed.len();
        changed[place] = change[2];
    }
    for bytes in [&forge(changed)[..], bytes] {
        if let Ok(definition) = Definition::decode(bytes) {
            use_whole(definition);
        }
    }
}

/// A file of definitions: its head is whole, what follows is any bytes under a hash that fits.
pub fn file(bytes: &[u8]) {
    let whole = encode_file(b"build", "", [(bytes.to_vec(), &sample())]);
    let read = decode_file(b"build", "", &whole).expect("what was written is read again");
    assert_eq!(read[0].0, bytes);
    let mut changed = whole;
    for change in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % changed.len();
        changed[place] = change[2];
    }
    for bytes in [&file::with_hash(changed)[..], bytes] {
        for (_, definition) in decode_file(b"build", "", bytes).unwrap_or_default() {
            use_whole(definition);
        }
    }
}

/// A tensor as a peer claims it, and the size of its backing: what is valid lies inside, and keeps doing so when it is cut.
pub fn raw_tensor(bytes: &[u8]) {
    let mut claim = [0; size_of::<RawTensor>() + 8];
    let n_bytes = bytes.len().min(claim.len());
    claim[..n_bytes].copy_from_slice(&bytes[..n_bytes]);
    let (raw, backing) = claim.split_at(size_of::<RawTensor>());
    let raw: RawTensor = bytemuck::pod_read_unaligned(raw);
    let backing: u64 = bytemuck::pod_read_unaligned(backing);
    let Ok(tensor) = raw.validate(backing) else {
        return;
    };
    assert!(tensor.footprint().end <= backing);
    assert_eq!(tensor.to_raw(), raw, "nothing is lost on the way");
    for dim in 0..tensor.rank() {
        let half = tensor.shape()[dim] / 2;
        if let Ok(part) = tensor.slice(dim, half..tensor.shape()[dim]) {
            assert!(part.footprint().end <= backing);
        }
        let turned = tensor.transpose(0, dim).expect("both dimensions exist");
        assert!(tensor.is_empty() || turned.view().overlaps(&tensor.view()));
    }
}

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
pub(super) fn sample() -> Definition {
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
pub(super) fn use_whole(definition: Definition) {
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
pub(super) fn forge(mut bytes: Vec<u8>) -> Vec<u8> {
    let place = HASH_WORD * 8..HASH_WORD * 8 + 8;
    bytes[place.clone()].fill(0);
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect();
    bytes[place].copy_from_slice(&hash::of_words(&words).to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    type Body = fn(&[u8]);

    const BODIES: [(&str, Body); 3] = [
        ("definition", super::definition),
        ("file", super::file),
        ("tensor", super::raw_tensor),
    ];

    #[test]
    fn inputs_of_the_fuzz_targets_are_survived() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions");
        for (name, body) in BODIES {
            let files = std::fs::read_dir(dir.join(name)).expect("inputs of this target");
            for file in files {
                body(&std::fs::read(file.unwrap().path()).unwrap());
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            super::definition(&bytes);
            super::file(&bytes);
            super::raw_tensor(&bytes);
        }
    }
}
