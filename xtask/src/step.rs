//! One step: a command with a name, a time limit and captured output.
//!
//! A step runs in a process group of its own. When its limit is over, what it was doing is written
//! down and the whole group is ended, so that one hung check costs its own limit and not the job.

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{interrupt, processes};

/// A command to run, and how long it may take.
#[derive(Debug)]
pub(crate) struct Step {
    /// What the table calls it.
    pub(crate) name: String,
    /// When it counts as hung.
    pub(crate) limit: Duration,
    /// What it runs. Its output is captured.
    pub(crate) command: Command,
}

/// What became of a step's command.
#[derive(Debug)]
pub(crate) struct Ran {
    /// How it ended.
    pub(crate) end: End,
    /// How long it took.
    pub(crate) elapsed: Duration,
    /// What it wrote to its standard output.
    pub(crate) stdout: String,
    /// What it wrote to its standard error.
    pub(crate) stderr: String,
}

/// How a step's command ended.
#[derive(Debug)]
pub(crate) enum End {
    /// By itself.
    Exited(ExitStatus),
    /// It was ended at its limit, while these processes (a line each) were running.
    Hung {
        /// What the limit was.
        limit: Duration,
        /// The step's processes at that time.
        running: Vec<String>,
    },
    /// It was ended because this signal asked xtask to end.
    Interrupted(i32),
    /// It never began.
    NotStarted(io::Error),
}

impl Step {
    /// A step that runs `command`, and counts as hung after `limit_s` seconds.
    pub(crate) fn of(name: impl Into<String>, limit_s: u64, command: Command) -> Self {
        Self {
            name: name.into(),
            limit: Duration::from_secs(limit_s),
            command,
        }
    }

    /// Runs it to its end or its limit; `tick` is called with the elapsed time now and then.
    pub(crate) fn run(mut self, tick: impl FnMut(Duration)) -> Ran {
        let began = Instant::now();
        let (end, stdout, stderr) = match self.capture(began, tick) {
            Ok(parts) => parts,
            Err(error) => (End::NotStarted(error), String::new(), String::new()),
        };
        Ran {
            end,
            elapsed: began.elapsed(),
            stdout,
            stderr,
        }
    }

    fn capture(
        &mut self,
        began: Instant,
        tick: impl FnMut(Duration),
    ) -> io::Result<(End, String, String)> {
        interrupt::notice();
        // Files, not pipes: a process that a step leaves behind cannot keep the reader waiting.
        let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut child = self
            .command
            .stdin(Stdio::null())
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .process_group(0)
            .spawn()?;
        let end = self.wait(&mut child, began, tick)?;
        Ok((end, text_of(stdout)?, text_of(stderr)?))
    }

    fn wait(
        &self,
        child: &mut Child,
        began: Instant,
        mut tick: impl FnMut(Duration),
    ) -> io::Result<End> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(End::Exited(status));
            }
            if began.elapsed() >= self.limit {
                let running = processes::describe_tree(child.id());
                end_group(child)?;
                return Ok(End::Hung {
                    limit: self.limit,
                    running,
                });
            }
            if let Some(signal) = interrupt::came() {
                end_group(child)?;
                return Ok(End::Interrupted(signal));
            }
            tick(began.elapsed());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Ends `child`, the leader of its process group, and the whole group with it.
fn end_group(child: &mut Child) -> io::Result<()> {
    // Not reaped yet, so the number still means this group.
    killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL)?;
    child.wait()?;
    Ok(())
}

/// All that was written to `file`.
fn text_of(mut file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
