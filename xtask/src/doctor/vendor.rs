//! The vendor's toolkit: where it is, and what of it is there.

use std::{
    env,
    path::{Path, PathBuf},
};

/// What the absence of the toolkit costs.
pub(crate) const COST: &str = "platforms a2a3 and a5; the simulator needs nothing of it";

/// Where the toolkit's own setup script puts it, when no variable says otherwise.
const USUAL_HOME: &str = "/usr/local/Ascend/ascend-toolkit/latest";

/// The directory of the toolkit.
pub(crate) fn home() -> Result<PathBuf, String> {
    let usual = Path::new(USUAL_HOME);
    match env::var_os("ASCEND_HOME_PATH").map(PathBuf::from) {
        Some(home) if home.is_dir() => Ok(home),
        Some(home) => Err(format!(
            "it names {}, which is no directory",
            home.display()
        )),
        None if usual.is_dir() => Ok(usual.to_owned()),
        None => Err("not set".to_owned()),
    }
}

/// A library of the toolkit, as the loader would find it.
pub(crate) fn library(name: &str) -> Result<String, String> {
    let searched = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = env::split_paths(&searched).collect();
    dirs.extend(home().ok().map(|home| home.join("lib64")));
    find(name, &dirs).ok_or_else(|| "neither in LD_LIBRARY_PATH nor in the toolkit".to_owned())
}

/// The compiler for kernels.
pub(crate) fn compiler() -> Result<String, String> {
    let mut dirs: Vec<PathBuf> =
        env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let below = ["bin", "compiler/ccec_compiler/bin"];
    dirs.extend(
        home()
            .iter()
            .flat_map(|home| below.map(|dir| home.join(dir))),
    );
    find("ccec", &dirs).ok_or_else(|| "neither in PATH nor in the toolkit".to_owned())
}

/// The first file called `name` in `dirs`.
fn find(name: &str, dirs: &[PathBuf]) -> Option<String> {
    let mut files = dirs.iter().map(|dir| dir.join(name));
    files
        .find(|file| file.is_file())
        .map(|file| file.display().to_string())
}
