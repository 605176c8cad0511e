//! Embeds the stamp of xtask's own sources, so that a binary of other sources can refuse to run.

#[path = "src/stamp.rs"]
mod stamp;

use std::{env, path::PathBuf};

fn main() -> std::io::Result<()> {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed=src");
    println!(
        "cargo::rustc-env=XTASK_STAMP={}",
        stamp::of_sources(&package)?
    );
    Ok(())
}
