//! The inputs of the fuzz targets as ordinary tests, and random ones.

use std::path::Path;

use proptest::prelude::*;

type Body = fn(&[u8]);

const BODIES: [(&str, Body); 5] = [
    ("task", super::task),
    ("control", super::control),
    ("record", super::record),
    ("graph_key", super::graph_key),
    ("activity", super::activity),
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

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        BODIES.iter().for_each(|(_, body)| body(&bytes));
    }

    #[test]
    fn any_arguments_of_a_task_are_survived(
        counts in (0..3_u16, 0..3_u16),
        bytes in prop::collection::vec(any::<u8>(), 2 * 136 + 2 * 16),
    ) {
        let mut task = vec![7; 32];
        task.extend_from_slice(&counts.0.to_ne_bytes());
        task.extend_from_slice(&counts.1.to_ne_bytes());
        task.extend_from_slice(&[0; 4]);
        let length = usize::from(counts.0) * 136 + usize::from(counts.1) * 16;
        task.extend_from_slice(&bytes[..length]);
        super::task(&task);
    }
}
