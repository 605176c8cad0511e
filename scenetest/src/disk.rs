//! Every scene on disk is in the program: nothing is left out for lack of a line in a list.
//!
//! A scene program whose `main.rs` stands in a directory of its own is checked against that
//! directory and those below it: each `Scene::new(` in a file there must be the place of a scene that was given to
//! [`main`](crate::main). A directory below with a `main.rs` is another program. Where the sources are not there, on another machine, there is nothing to check.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::scene::Scene;

/// Where a scene program was written; made by [`main!`](crate::main!).
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    /// `CARGO_MANIFEST_DIR` of its crate.
    pub manifest_dir: &'static str,
    /// `file!()` of its `main`.
    pub main_file: &'static str,
}

/// A scene that is written and not in the list.
#[derive(Debug, thiserror::Error)]
#[error(
    "collect scenes: {place} makes a scene that the program does not have; add its function to scenetest::main!"
)]
pub(crate) struct NotListed {
    place: String,
}

/// Compares the directory with the scenes.
pub(crate) fn check(sources: Sources, scenes: &[Scene]) -> Result<(), NotListed> {
    let Some((root, dir)) = directory(sources) else {
        return Ok(());
    };
    let known: HashSet<(PathBuf, u32)> = scenes
        .iter()
        .map(|scene| (root.join(scene.place.file()), scene.place.line()))
        .collect();
    let mut files = files_below(&dir);
    files.sort();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let missing = lines(&text).find(|line| !known.contains(&(file.clone(), *line)));
        if let Some(line) = missing {
            let place = format!("{}:{line}", file.display());
            return Err(NotListed { place });
        }
    }
    Ok(())
}

/// The Rust files of a program. What cannot be read is not there: the compiler has said so. Links to directories are
/// not followed, so that none leads back.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let (mut files, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if !path.join("main.rs").exists() {
                    dirs.push(path);
                }
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// What paths of the compiler are relative to, and the directory of the program, if it has one of
/// its own.
fn directory(sources: Sources) -> Option<(PathBuf, PathBuf)> {
    let main = Path::new(sources.main_file);
    let of_its_own = main.file_name()? == "main.rs" && main.parent()?.file_name()? != "src";
    // Relative to the root of the workspace, which is above the crate or the crate itself.
    let root = Path::new(sources.manifest_dir)
        .ancestors()
        .find(|root| root.join(main).is_file())?;
    of_its_own.then(|| (root.to_owned(), root.join(main.parent().unwrap_or(main))))
}

/// Numbers of the lines that make a scene.
fn lines(text: &str) -> impl Iterator<Item = u32> {
    let makes = |line: &str| {
        let code = line.split("//").next().unwrap_or("");
        code.contains(concat!("Scene::", "new("))
    };
    (1..)
        .zip(text.lines())
        .filter(move |(_, line)| makes(line))
        .map(|(number, _)| number)
}

#[cfg(test)]
mod tests;
