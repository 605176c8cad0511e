//! The command line of a scene program: its own flags, and those that `cargo test` and cargo-nextest
//! give to any test program.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use facade::{Level, Platform};

/// Run scenes: end-to-end tests of kernels and graphs, each case in a process of its own.
///
/// With `compile` as the first word: compile the kernels of the selected scenes for --platform into
/// the kernel cache, --max-parallel at a time, and run nothing. Touches no device.
///
/// Exit codes: 0 all passed or were skipped, 1 failed or crashed, 2 wrong usage, 3 nothing matched,
/// 4 timed out, 5 not run, 6 the runner failed, 7 golden files were rewritten, 130 interrupted.
#[derive(Clone, Debug, Parser)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Run the cases whose name contains one of these (`scene::case`; whole with --exact).
    #[arg(value_name = "FILTER")]
    pub(crate) filters: Vec<String>,
    /// Filters are whole names; a case that is named so is run, manual or not.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Leave out the cases whose name contains this. Repeatable.
    #[arg(long, value_name = "FILTER")]
    pub(crate) skip: Vec<String>,
    /// Run this case, or all cases of this scene; the manual ones too. Repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) case: Vec<String>,
    /// Run the cases that a file names, one a line; `#` begins a comment.
    #[arg(long, value_name = "FILE")]
    pub(crate) cases_from: Option<PathBuf>,
    /// Run only scenes of this level: chip, node, network1, network2, network3, or L2 to L6.
    #[arg(long, value_parser = level)]
    pub(crate) level: Option<Level>,
    /// Run the cases of this step, and only them; without it they are skipped.
    #[arg(long, value_name = "NAME")]
    pub(crate) step: Option<String>,
    /// Run the manual cases too, and those in steps.
    #[arg(long, visible_alias = "include-ignored")]
    pub(crate) manual: bool,
    /// Run only what is skipped otherwise: manual cases, those in steps, those for other platforms (which are
    /// skipped all the same).
    #[arg(long)]
    pub(crate) ignored: bool,

    /// Where to run: sim (a2a3sim), a5sim, a2a3, a5.
    #[arg(long, default_value = "sim")]
    pub(crate) platform: Platform,
    /// The pool of devices: `0-7`, `0,2,5`.
    #[arg(long, value_name = "LIST", default_value = "0-7")]
    pub(crate) device: DeviceList,
    /// How many cases run at a time, if the devices allow it. Default: the processors.
    #[arg(long, visible_alias = "test-threads", value_name = "N")]
    pub(crate) max_parallel: Option<std::num::NonZeroUsize>,
    /// Run the rounds of each case so often and show their times.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) rounds: std::num::NonZeroU32,
    /// Scenes with golden files are skipped.
    #[arg(long)]
    pub(crate) skip_golden: bool,
    /// Rewrite the golden files of this case, this scene, or `all` selected ones, and print what
    /// changed. Repeatable. Refused on a CI host. `SCENETEST_UPDATE_GOLDEN=1` rewrites those
    /// of all selected cases that have one.
    #[arg(long, value_name = "NAME")]
    pub(crate) update_golden: Vec<String>,
    /// Write a picture of where it is off for each two-dimensional output that is wrong.
    #[arg(long, value_name = "DIR")]
    pub(crate) heat_map: Option<PathBuf>,
    /// Seconds that the whole session may take.
    #[arg(long, value_name = "SECONDS", default_value = "1800", value_parser = seconds)]
    pub(crate) session_timeout: Duration,
    /// Start no further case after one that did not pass.
    #[arg(long)]
    pub(crate) exitfirst: bool,

    /// List the cases instead of running them.
    #[arg(long)]
    pub(crate) list: bool,
    /// How to list: `terse` is what cargo-nextest reads.
    #[arg(long, value_enum, default_value = "pretty")]
    pub(crate) format: Format,
    /// Print the report, or the list, as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a JUnit report.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write a trace that Perfetto shows: which case ran when and where, its rounds, and the tasks of its
    /// workers.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Show the output of every case, not only of those that did not pass.
    #[arg(long, visible_alias = "show-output")]
    pub(crate) nocapture: bool,

    /// Accepted from test drivers, without a meaning here.
    #[arg(short, long, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    color: Option<String>,
    #[arg(long, hide = true)]
    test: bool,
    #[arg(long, hide = true)]
    bench: bool,
}

/// How a list looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Pretty,
    Terse,
}

/// A list of device numbers, without doubles, in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceList(pub(crate) Vec<u32>);

impl FromStr for DeviceList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut devices: Vec<u32> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                text.trim().parse::<u32>().map_err(|_| {
                    format!("`{part}` is neither a device number nor a range such as 0-7")
                })
            };
            let (first, last) = (number(first)?, number(last)?);
            if last < first || last - first >= 1024 {
                return Err(format!(
                    "the range `{part}` is empty or has more than 1024 devices"
                ));
            }
            devices.extend(first..=last);
        }
        let mut sorted = devices.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("device {} is named twice", pair[0])),
            None => Ok(Self(devices)),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("`{text}` is no number of seconds"))?;
    let valid = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero() && Instant::now().checked_add(*limit).is_some());
    valid.ok_or_else(|| format!("a limit of {text} seconds is not positive and finite"))
}

fn level(text: &str) -> Result<Level, String> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "chip" | "l2" => Level::Chip,
        "node" | "l3" => Level::Node,
        "network1" | "l4" => Level::Network1,
        "network2" | "l5" => Level::Network2,
        "network3" | "l6" => Level::Network3,
        _ => {
            return Err(
                "no such level: chip, node, network1, network2, network3 (L2 to L6)".into(),
            );
        }
    })
}

#[cfg(test)]
mod tests;
