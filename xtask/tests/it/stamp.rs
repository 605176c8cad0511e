//! A binary of other sources refuses to judge a tree.

use crate::{fixture::Fixture, support::xtask};

#[test]
fn a_binary_of_other_sources_is_refused_with_the_command_that_rebuilds_it() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    xtask(&fixture, &["tidy"]).exits_with(0);
    fixture.write("xtask/src/stamp.rs", "//! Another revision.\n");
    xtask(&fixture, &["tidy"])
        .exits_with(2)
        .says("was built from other xtask sources")
        .says("rebuild and run it with `cargo xtask ...`");
}
