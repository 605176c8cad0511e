//! The workspace around the current directory, as cargo describes it.

use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, MetadataCommand, Package, Target, TargetKind};

use crate::{error::Error, stamp};

/// The workspace: its root, its members, their targets.
#[derive(Debug)]
pub(crate) struct Workspace {
    metadata: Metadata,
}

impl Workspace {
    /// The workspace around the current directory, if this binary is made for it.
    pub(crate) fn current() -> Result<Self, Error> {
        let workspace = Self::load(&MetadataCommand::new())?;
        workspace.refuse_other_sources()?;
        Ok(workspace)
    }

    fn load(command: &MetadataCommand) -> Result<Self, Error> {
        Ok(Self {
            metadata: command.clone().no_deps().exec()?,
        })
    }

    /// See [`stamp`]. A workspace without a crate `xtask` (a test fixture) has nothing to compare.
    fn refuse_other_sources(&self) -> Result<(), Error> {
        let package = self.root().join("xtask");
        if !package.join("src/stamp.rs").exists() {
            return Ok(());
        }
        let found = stamp::of_sources(&package).map_err(Error::file("read", &package))?;
        let built = env!("XTASK_STAMP");
        if found == built {
            return Ok(());
        }
        Err(Error::OtherSources {
            built,
            found,
            package,
        })
    }

    /// The directory of the root manifest.
    pub(crate) fn root(&self) -> &Path {
        self.metadata.workspace_root.as_std_path()
    }

    /// Where cargo puts what it builds.
    pub(crate) fn target_dir(&self) -> &Path {
        self.metadata.target_directory.as_std_path()
    }

    /// The members, in the order of the root manifest's reading.
    pub(crate) fn members(&self) -> Vec<&Package> {
        self.metadata.workspace_packages()
    }

    /// The names of all members.
    pub(crate) fn names(&self) -> Vec<String> {
        self.members()
            .iter()
            .map(|package| package.name.to_string())
            .collect()
    }

    /// The member called `name`.
    pub(crate) fn member(&self, name: &str) -> Result<&Package, Error> {
        self.members()
            .into_iter()
            .find(|package| package.name == name)
            .ok_or_else(|| Error::NoMatch {
                kind: "crate",
                wanted: name.to_owned(),
                known: self.names(),
            })
    }

    /// All members when `wanted` is empty, else exactly those named.
    pub(crate) fn select(&self, wanted: &[String]) -> Result<Vec<&Package>, Error> {
        if wanted.is_empty() {
            return Ok(self.members());
        }
        wanted.iter().map(|name| self.member(name)).collect()
    }
}

/// The directory of a package's manifest.
pub(crate) fn dir_of(package: &Package) -> PathBuf {
    package
        .manifest_path
        .parent()
        .map(|dir| dir.as_std_path().to_owned())
        .unwrap_or_default()
}

/// The target of `package` with this name and kind.
pub(crate) fn target<'a>(
    package: &'a Package,
    kind: &TargetKind,
    name: &str,
) -> Option<&'a Target> {
    package
        .targets
        .iter()
        .find(|target| target.name == name && target.kind.contains(kind))
}

#[cfg(test)]
impl crate::fixture::Fixture {
    /// The workspace as cargo describes it now.
    pub(crate) fn workspace(&self) -> Workspace {
        let manifest = self.path().join("Cargo.toml");
        Workspace::load(MetadataCommand::new().manifest_path(manifest))
            .expect("cargo can read the fixture")
    }
}
