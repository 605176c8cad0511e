//! Whatever handle a peer claims: nothing panics, and no address comes out that was not allocated.
//!
//! The same body as the fuzz target, with every input that once found a fault and with handles nearly right.

#[path = "../../fuzz/src/decoders.rs"]
#[expect(unreachable_pub, reason = "a library of its own in the fuzz workspace")]
mod bodies;

#[test]
fn inputs_of_the_fuzz_target_are_survived() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions/ptr");
    for file in std::fs::read_dir(dir).expect("inputs of this target") {
        bodies::ptr(&std::fs::read(file.unwrap().path()).unwrap());
    }
}

#[test]
fn handles_with_any_byte_changed_are_survived() {
    for at in 0..48 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut claim = [0; 48];
            claim[at] = value;
            bodies::ptr(&claim);
            claim.fill(0xff);
            claim[at] = value;
            bodies::ptr(&claim);
        }
    }
}
