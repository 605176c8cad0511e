//! Small workspaces on disk, for tests of functions and of the program alike.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A workspace in a temporary directory that keeps all rules; tests then break one.
#[derive(Debug)]
pub(crate) struct Fixture {
    dir: TempDir,
}

impl Fixture {
    /// A workspace with these crates, each an empty library.
    pub(crate) fn new(names: &[&str]) -> Self {
        let mut fixture = Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
        };
        let members = names
            .iter()
            .map(|name| format!("{name:?}"))
            .collect::<Vec<_>>()
            .join(", ");
        fixture.write(
            "Cargo.toml",
            &format!(
                "[workspace]\nresolver = \"3\"\nmembers = [{members}]\n\n\
                 [workspace.lints.rust]\nmissing_docs = \"warn\"\n\n[workspace.dependencies]\n"
            ),
        );
        let headings: Vec<_> = names.iter().map(|name| format!("### {name}\n")).collect();
        fixture.write("docs/ARCHITECTURE.md", &headings.concat());
        for name in names {
            fixture.add_crate(name);
        }
        fixture
    }

    fn add_crate(&mut self, name: &str) {
        let manifest = format!(
            "[package]\nname = {name:?}\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [lints]\nworkspace = true\n\n"
        );
        self.write(&format!("{name}/Cargo.toml"), &manifest);
        self.write(&format!("{name}/src/lib.rs"), "//! A crate.\n");
        self.write(
            &format!("{name}/README.md"),
            "It promises much and refuses little.\n",
        );
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file and the directories above it.
    pub(crate) fn write(&mut self, path: &str, text: &str) {
        let path = self.absolute(path);
        fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("create");
        fs::write(path, text).expect("write");
    }

    /// Appends to a file.
    pub(crate) fn append(&mut self, path: &str, text: &str) {
        let old = fs::read_to_string(self.absolute(path)).expect("read");
        self.write(path, &(old + text));
    }

    fn absolute(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Runs git in it.
    #[track_caller]
    pub(crate) fn git(&self, args: &[&str]) {
        let identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
        let run = Command::new("git")
            .args(identity)
            .args(args)
            .current_dir(self.path())
            .output();
        let output = run.expect("git can be started");
        assert!(output.status.success(), "{output:?}");
    }

    /// Commits everything.
    #[track_caller]
    pub(crate) fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--no-gpg-sign", "--message", message]);
    }
}
