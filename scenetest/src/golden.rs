//! Golden files: outputs that were found right once, kept in safetensors files.
//!
//! A missing file is a failure and never a first run: a run that makes its own expectation passes
//! whatever it computes. A file is rewritten only when that was asked for by name, with what changed
//! printed, as an outcome that is no pass; on a CI host it is refused before anything runs.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::compare::{CompareError, Tolerance, compare, unwritten};
use crate::safetensors::{self, Malformed};
use crate::tensor::{HostTensor, Tensors};

/// The variable that asks for rewriting every selected case with a golden file.
pub(crate) const UPDATE: &str = "SCENETEST_UPDATE_GOLDEN";

/// Which golden files are to be rewritten.
#[derive(Debug)]
pub(crate) struct Updates {
    /// Those of the cases and scenes that flags name. Each must be there.
    pub(crate) names: Vec<String>,
    /// All that the selection has, by the variable. There may be none: under a driver that runs each case in a
    /// process of its own, most have none.
    pub(crate) all: bool,
}

/// A golden file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GoldenError {
    #[error(
        "read the golden file {path}: it is not there; if the outputs are right, make it with --update-golden {case}", path = path.display()
    )]
    Missing { path: PathBuf, case: String },
    #[error("read the golden file {path}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("read the golden file {path}", path = path.display())]
    Malformed { path: PathBuf, source: Malformed },
    #[error("write the golden file {path}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "make a golden file of output `{name}` {shape:?}: {unwritten} of its {elements} elements were never written"
    )]
    Unwritten {
        name: String,
        shape: Vec<usize>,
        unwritten: usize,
        elements: usize,
    },
    #[error("{UPDATE}={value}: it is neither true (1, true) nor false (0, false, empty)")]
    Unclear { value: String },
    #[error(
        "rewrite golden files: refused on a CI host ({variable} is set): rewrite them where you can look at what changes"
    )]
    OnCi { variable: &'static str },
}

/// Where the golden file of a case is.
pub(crate) fn path(dir: &str, scene: &str, case: &str) -> PathBuf {
    Path::new(dir).join(format!("{scene}.{case}.safetensors"))
}

/// The tensors of a golden file.
pub(crate) fn read(path: &Path, case: &str) -> Result<Tensors, GoldenError> {
    let file = fs::read(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => GoldenError::Missing {
            path: path.to_owned(),
            case: case.to_owned(),
        },
        _ => GoldenError::Read {
            path: path.to_owned(),
            source,
        },
    })?;
    safetensors::decode(&file).map_err(|source| GoldenError::Malformed {
        path: path.to_owned(),
        source,
    })
}

/// A golden file that is to be rewritten, as the runner has it.
///
/// The process of the case writes the new content beside the file ([`stage`]), and the runner, which alone
/// knows how that process ended, gives it the file's name or removes it.
#[derive(Debug)]
pub(crate) struct Rewrite {
    path: PathBuf,
    staged: PathBuf,
}

impl Rewrite {
    pub(crate) fn of(path: PathBuf) -> Self {
        let mut staged = path.clone().into_os_string();
        // What two runners in one directory never share.
        let number = RandomState::new().hash_one(std::process::id());
        staged.push(format!(".{number:016x}"));
        let staged = staged.into();
        Self { path, staged }
    }

    /// Where the case puts the new content.
    pub(crate) fn staged(&self) -> &Path {
        &self.staged
    }

    /// Makes the new content that of the file: all of it or nothing, for whoever reads meanwhile.
    pub(crate) fn publish(&self) -> Result<(), GoldenError> {
        fs::rename(&self.staged, &self.path).map_err(|source| GoldenError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

impl Drop for Rewrite {
    fn drop(&mut self) {
        // Usually nobody wrote it, or it has the file's name.
        let _ = fs::remove_file(&self.staged);
    }
}

/// Refuses outputs that nobody wrote: where there is no reference they would be what is expected from then on.
pub(crate) fn refuse_unwritten(outputs: &Tensors) -> Result<(), GoldenError> {
    for (name, tensor) in outputs.iter() {
        let unwritten = unwritten(tensor);
        if unwritten > 0 {
            return Err(GoldenError::Unwritten {
                name: name.to_owned(),
                shape: tensor.shape().to_vec(),
                unwritten,
                elements: tensor.len(),
            });
        }
    }
    Ok(())
}

/// Writes what the file at `path` is to say; returns what will change, nothing if it says so already.
pub(crate) fn stage(
    path: &Path,
    staged: &Path,
    new: &Tensors,
) -> Result<Option<String>, GoldenError> {
    let bytes = safetensors::encode(new);
    let old = fs::read(path);
    if old.as_ref().is_ok_and(|old| *old == bytes) {
        return Ok(None);
    }
    // An old file that cannot be read is replaced like a missing one, and said to be so.
    let change = match old.map(|old| safetensors::decode(&old)) {
        Ok(Ok(old)) => changes(&old, new),
        Ok(Err(malformed)) => format!("the old file was unreadable: {malformed}\n{}", list(new)),
        Err(_) => format!("a new file\n{}", list(new)),
    };
    write(staged, &bytes).map_err(|source| GoldenError::Write {
        path: staged.to_owned(),
        source,
    })?;
    Ok(Some(format!("{}: {}", path.display(), change.trim_end())))
}

/// A new file, on the disk before it gets its name: a name without content would be a golden file that
/// nobody can read.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn list(tensors: &Tensors) -> String {
    tensors.iter().fold(String::new(), |mut text, (name, one)| {
        let _ = writeln!(text, "  + {}", described(name, one));
        text
    })
}

fn described(name: &str, tensor: &HostTensor) -> String {
    format!("`{name}` {:?} {:?}", tensor.dtype(), tensor.shape())
}

fn changes(old: &Tensors, new: &Tensors) -> String {
    let mut text = "what changed\n".to_owned();
    for (name, tensor) in old.iter().filter(|(name, _)| new.get(name).is_err()) {
        let _ = writeln!(text, "  - {}", described(name, tensor));
    }
    for (name, tensor) in new.iter() {
        let _ = match old.get(name) {
            Err(_) => writeln!(text, "  + {}", described(name, tensor)),
            Ok(before) if before == tensor => Ok(()),
            Ok(before) => writeln!(text, "  ~ {}", change(name, before, tensor)),
        };
    }
    text
}

/// What came out now, against what the file said.
fn change(name: &str, old: &HostTensor, new: &HostTensor) -> String {
    match compare(name, new, old, Tolerance::EXACT.nan_equals_nan()) {
        Ok(comparison) => comparison.to_string(),
        Err(CompareError::Shape { .. } | CompareError::DType { .. }) => format!(
            "{} becomes {:?} {:?}",
            described(name, old),
            new.dtype(),
            new.shape()
        ),
        Err(error) => error.to_string(),
    }
}

/// Whether the variable asks for rewriting. Only an explicit true value does.
pub(crate) fn asked_by_variable(value: Option<&str>) -> Result<bool, GoldenError> {
    match value {
        None | Some("" | "0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(value) => Err(GoldenError::Unclear {
            value: value.to_owned(),
        }),
    }
}

/// Refuses rewriting on a CI host.
pub(crate) fn refuse_on_ci(variable: impl Fn(&str) -> Option<String>) -> Result<(), GoldenError> {
    let set = |name: &&str| {
        variable(name).is_some_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
    };
    match ["CI", "GITHUB_ACTIONS"].into_iter().find(set) {
        Some(variable) => Err(GoldenError::OnCi { variable }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
