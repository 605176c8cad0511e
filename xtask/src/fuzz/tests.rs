//! Which fuzz targets there are.

use super::targets;
use crate::fixture::Fixture;

#[test]
fn every_target_on_disk_is_found_whatever_crate_it_is_in() {
    let mut fixture = Fixture::new(&["mailbox", "procfork"]);
    for path in [
        "mailbox/fuzz/fuzz_targets/frame.rs",
        "procfork/fuzz/fuzz_targets/dump.rs",
    ] {
        fixture.write(path, "//! Feeds bytes.\n");
    }
    fixture.write("mailbox/fuzz/fuzz_targets/notes.md", "Notes.\n");
    let found = targets(&fixture.workspace());
    let names: Vec<_> = found.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(names, ["dump", "frame"]);
    assert_eq!(found[1].dir, fixture.path().join("mailbox/fuzz"));
}
