//! Paths of a kernel's sources and include directories, resolved when the kernel is compiled.

use std::path::{Path, PathBuf};

use crate::compile::error::CompileError;

/// Variables by name: those given, then the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(pub(crate) Vec<(String, PathBuf)>);

impl Variables {
    fn value(&self, name: &str) -> Option<PathBuf> {
        let given = self
            .0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone());
        given.or_else(|| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        })
    }

    /// Replaces `$NAME` and `${NAME}` wherever they stand in the path.
    pub(crate) fn resolve(&self, kernel: &str, path: &str) -> Result<PathBuf, CompileError> {
        let mut resolved = String::new();
        let mut rest = path;
        while let Some(at) = rest.find('$') {
            resolved.push_str(&rest[..at]);
            let (name, after) = variable(&rest[at + 1..]);
            let value = self.value(name).ok_or_else(|| CompileError::Variable {
                kernel: kernel.to_owned(),
                path: path.to_owned(),
                variable: name.to_owned(),
            })?;
            resolved.push_str(&value.to_string_lossy());
            rest = after;
        }
        resolved.push_str(rest);
        Ok(PathBuf::from(resolved))
    }
}

/// The name at the start of what follows a dollar sign, and the rest.
fn variable(text: &str) -> (&str, &str) {
    if let Some(braced) = text.strip_prefix('{')
        && let Some(end) = braced.find('}')
    {
        return (&braced[..end], &braced[end + 1..]);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len()))
}

/// The source files, all of which exist.
pub(crate) fn sources(
    kernel: &str,
    sources: &[&str],
    variables: &Variables,
) -> Result<Vec<PathBuf>, CompileError> {
    let resolve = |source: &&str| {
        let path = variables.resolve(kernel, source)?;
        if path.is_file() {
            return Ok(path);
        }
        Err(CompileError::NoSource {
            kernel: kernel.to_owned(),
            path,
        })
    };
    sources.iter().map(resolve).collect()
}

/// The include directories: of each group those that exist, which is at least one.
pub(crate) fn include_dirs(
    kernel: &str,
    groups: &[&[&str]],
    variables: &Variables,
) -> Result<Vec<PathBuf>, CompileError> {
    let mut dirs = Vec::new();
    for group in groups {
        let resolved = group.iter().map(|path| variables.resolve(kernel, path));
        let alternatives = resolved.collect::<Result<Vec<PathBuf>, _>>()?;
        let before = dirs.len();
        dirs.extend(alternatives.iter().filter(|dir| dir.is_dir()).cloned());
        if dirs.len() == before {
            return Err(CompileError::NoDirectory {
                kernel: kernel.to_owned(),
                alternatives,
            });
        }
    }
    Ok(dirs)
}

/// The first of `dirs` that has an executable file of this name.
pub(crate) fn find_program(name: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
    dirs.iter()
        .map(|dir| dir.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let executable =
        |meta: std::fs::Metadata| meta.is_file() && meta.permissions().mode() & 0o111 != 0;
    std::fs::metadata(path).is_ok_and(executable)
}

#[cfg(test)]
mod tests;
