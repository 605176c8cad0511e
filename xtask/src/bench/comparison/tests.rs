//! Which comparisons there are.

use super::all;
use crate::fixture::Fixture;

const MANIFEST: &str = "[package]\nname = \"vs-other\"\n\n[package.metadata.bench]\nmeasures = [\"a_vs_b\", \"c_vs_d\"]\n";

#[test]
fn a_package_below_benches_is_a_comparison_and_nothing_else_there_is() {
    let mut fixture = Fixture::new(&["mailbox", "procfork"]);
    fixture.write("mailbox/benches/vs-other/Cargo.toml", MANIFEST);
    fixture.write("mailbox/benches/rtt/main.rs", "//! A bench.\n");
    fixture.write("procfork/benches/fork.rs", "//! A bench.\n");
    let found = all(&fixture.workspace()).expect("readable manifests");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, "mailbox/benches/vs-other");
    assert_eq!(found[0].measures, ["a_vs_b", "c_vs_d"]);
}
