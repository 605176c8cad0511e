//! What tidy looks at: every text file of the workspace, read once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cargo_metadata::Package;

use crate::{error::Error, workspace::Workspace};

/// The workspace and its text files.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    /// What cargo says of it.
    pub(crate) workspace: &'a Workspace,
    /// All text files, in the order of their paths.
    pub(crate) files: Vec<File>,
}

/// A text file.
#[derive(Debug)]
pub(crate) struct File {
    /// Its path relative to the root, with forward slashes.
    pub(crate) path: String,
    /// What stands in it.
    pub(crate) text: String,
}

/// Directories that hold nothing written by hand.
const SKIPPED_DIRS: [&str; 4] = [".git", "target", "corpus", "artifacts"];

/// Endings of the files that are written by hand. Snapshots are not: a tool writes them.
const TEXT_ENDINGS: [&str; 13] = [
    "rs", "md", "toml", "yml", "yaml", "sh", "c", "cc", "cpp", "h", "hpp", "py", "json",
];

/// Files without an ending that are written by hand.
const TEXT_NAMES: [&str; 3] = ["run", "LICENSE-MIT", "LICENSE-APACHE"];

impl<'a> Tree<'a> {
    /// Reads all text files below the root.
    pub(crate) fn read(workspace: &'a Workspace) -> Result<Self, Error> {
        let mut files = Vec::new();
        read_dir(workspace.root(), workspace.root(), &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { workspace, files })
    }

    /// The file at `path`, relative to the root.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The files whose name ends in `.ENDING`.
    pub(crate) fn ending(&self, ending: &str) -> impl Iterator<Item = &File> {
        let ending = format!(".{ending}");
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(&ending))
    }

    /// The path of a file in the directory of `member`, relative to the root.
    pub(crate) fn path_in(&self, member: &Package, file: &str) -> String {
        let manifest = member.manifest_path.as_std_path();
        let dir = manifest.parent().unwrap_or(manifest);
        relative(self.workspace.root(), &dir.join(file))
    }
}

fn read_dir(root: &Path, dir: &Path, files: &mut Vec<File>) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
        let entry = entry.map_err(Error::file("list", dir))?;
        let kind = entry
            .file_type()
            .map_err(Error::file("examine", entry.path()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && !is_skipped(&name) && !is_vendored(&entry.path()) {
            read_dir(root, &entry.path(), files)?;
        } else if kind.is_file() && is_text(&name) {
            files.extend(read_file(root, entry.path())?);
        }
    }
    Ok(())
}

pub(super) fn is_skipped(dir: &str) -> bool {
    SKIPPED_DIRS.contains(&dir) || dir.starts_with("target-")
}

/// Files of others keep their own form: a directory `vendor` that is no module of ours.
pub(super) fn is_vendored(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| name == "vendor") && !dir.with_extension("rs").is_file()
}

fn is_text(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    TEXT_NAMES.contains(&name) || ending.is_some_and(|ending| TEXT_ENDINGS.contains(&ending))
}

/// `None` when the file is not UTF-8, or has gone since the directory was listed.
fn read_file(root: &Path, path: PathBuf) -> Result<Option<File>, Error> {
    match fs::read(&path) {
        Ok(bytes) => {
            let path = relative(root, &path);
            Ok(String::from_utf8(bytes)
                .ok()
                .map(|text| File { path, text }))
        }
        Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path)(error)),
    }
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}
