//! The decoders of this crate, for fuzz targets and for the tests that repeat what those found: compiled for them only.
//!
//! Each function takes any bytes and must not panic.

use crate::boot::Boot;
use crate::proc::ProcessInfo;

/// The record that a spawned child finds: what is taken is written again as a record that reads the same.
pub fn boot(bytes: &[u8]) {
    if let Some(boot) = Boot::decode(bytes) {
        assert_eq!(Boot::decode(&boot.encode()), Some(boot));
    }
}

/// The lines about a process, in which it chooses the name: its state, and with the feature `dump` its mappings.
pub fn lines(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = ProcessInfo::parse(&text);
    #[cfg(feature = "dump")]
    crate::dump::check_maps(&text);
}

/// The image of a program, whose stacks are to be read.
#[cfg(feature = "dump")]
pub fn image(bytes: &[u8]) {
    crate::dump::check_image(bytes);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn survives(name: &str, body: fn(&[u8])) {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions");
        let files = std::fs::read_dir(dir.join(name)).expect("inputs of this target");
        for file in files {
            body(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn inputs_of_the_fuzz_targets_are_survived() {
        survives("boot", super::boot);
        survives("lines", super::lines);
        #[cfg(feature = "dump")]
        survives("image", super::image);
    }

    #[cfg(feature = "dump")]
    #[test]
    fn an_image_with_any_head_is_survived() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let head = &program[..program.len().min(4096)];
        for at in 0..64.min(head.len()) {
            let mut changed = head.to_vec();
            changed[at] = 0xff;
            super::image(&changed);
        }
    }
}
