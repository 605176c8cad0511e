//! The command line of a test binary, as the standard harness has it.

use std::num::NonZero;

use super::Test;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Args {
    pub(super) list: bool,
    /// Tests that are marked ignored: this harness has none.
    pub(super) ignored_only: bool,
    pub(super) exact: bool,
    pub(super) nocapture: bool,
    pub(super) quiet: bool,
    pub(super) at_once: usize,
    pub(super) filters: Vec<String>,
    pub(super) skip: Vec<String>,
}

impl Args {
    /// Reads the arguments after the program's name; an unknown one is an error, with its text.
    pub(super) fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let asked = std::env::var("RUST_TEST_THREADS")
            .ok()
            .and_then(|text| text.parse().ok());
        let mut parsed = Self {
            list: false,
            ignored_only: false,
            exact: false,
            nocapture: false,
            quiet: false,
            at_once: asked.filter(|at_once| *at_once > 0).unwrap_or_else(cores),
            filters: Vec::new(),
            skip: Vec::new(),
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            parsed.take(&arg, &mut args)?;
        }
        Ok(parsed)
    }

    /// Whether a test is chosen.
    pub(super) fn wants(&self, test: &Test) -> bool {
        let hit = |pattern: &String| {
            if self.exact {
                test.name == pattern
            } else {
                test.name.contains(pattern.as_str())
            }
        };
        !self.ignored_only
            && (self.filters.is_empty() || self.filters.iter().any(hit))
            && !self.skip.iter().any(hit)
    }

    fn take(&mut self, arg: &str, rest: &mut dyn Iterator<Item = String>) -> Result<(), String> {
        let (flag, mut inline) = match arg.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (arg, None),
        };
        let mut value = || {
            inline
                .take()
                .or_else(|| rest.next())
                .ok_or_else(|| format!("{flag} needs a value"))
        };
        match flag {
            "--list" => self.list = true,
            "--exact" => self.exact = true,
            "--ignored" => self.ignored_only = true,
            "--nocapture" | "--no-capture" => self.nocapture = true,
            "-q" | "--quiet" => self.quiet = true,
            "--skip" => self.skip.push(value()?),
            "--test-threads" => self.at_once = at_once(&value()?)?,
            // Accepted and without effect, as other tools pass them.
            "--include-ignored" | "--show-output" | "--test" => {}
            "--format" | "--color" | "-Z" => drop(value()?),
            _ if flag.starts_with('-') => return Err(format!("unknown option {arg}")),
            _ => self.filters.push(arg.to_owned()),
        }
        Ok(())
    }
}

fn at_once(value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!(
            "--test-threads needs a number from 1, not {value:?}"
        )),
    }
}

#[cfg(test)]
mod tests;
