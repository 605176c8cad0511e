//! Manifests that break the rules.

use super::{DEPENDENCY_REASON, DEPENDENCY_USED, LINTS_INHERITED, VERSION_IN_ROOT};
use crate::{fixture::Fixture, tidy::tests::check_finds};

#[test]
fn a_dependency_without_reason_is_found_with_its_line() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    fixture.append(
        "Cargo.toml",
        "lifecycle = { path = \"lifecycle\" }\nlibc = \"0.2\" # Constants.\n# Maps.\nmemmap2 = \"0.9\"\nnix = \"0.32\"\n",
    );
    check_finds(
        &DEPENDENCY_REASON,
        &fixture,
        &[("Cargo.toml", 13, "`nix` has no comment")],
    );
}

#[test]
fn a_version_in_a_member_is_found_in_every_form() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    fixture.append("Cargo.toml", "nix = \"0.32\"\n");
    fixture.append(
        "lifecycle/Cargo.toml",
        "[dependencies]\nlibc = \"0.2\"\nnix = { workspace = true }\n\n\
         [target.'cfg(loom)'.dependencies]\nloom = { version = \"0.7\" }\n\n\
         [dev-dependencies]\nlifecycle = { path = \".\" }\n\n\
         [dev-dependencies.rstest]\nversion = \"0.29\"\n",
    );
    let file = "lifecycle/Cargo.toml";
    check_finds(
        &VERSION_IN_ROOT,
        &fixture,
        &[
            (file, 10, "libc"),
            (file, 14, "loom"),
            (file, 20, "version = \"0.29\""),
        ],
    );
}

#[test]
fn a_member_without_the_lints_is_found() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    let manifest =
        "[package]\nname = \"lifecycle\"\nedition = \"2024\"\n\n[features]\nworkspace = []\n";
    fixture.write("lifecycle/Cargo.toml", manifest);
    check_finds(
        &LINTS_INHERITED,
        &fixture,
        &[("lifecycle/Cargo.toml", 1, "no `[lints]")],
    );
}

#[test]
fn a_dependency_that_no_member_uses_is_found_with_its_line() {
    let mut fixture = Fixture::new(&["lifecycle"]);
    fixture.append(
        "Cargo.toml",
        "libc = \"0.2\"\nnix = \"0.32\"\nloom = \"0.7\"\n",
    );
    fixture.append(
        "lifecycle/Cargo.toml",
        "[dev-dependencies]\nlibc.workspace = true\n\n\
         [target.'cfg(loom)'.dependencies]\nloom.workspace = true\n",
    );
    check_finds(
        &DEPENDENCY_USED,
        &fixture,
        &[("Cargo.toml", 10, "no member uses `nix`")],
    );
}
