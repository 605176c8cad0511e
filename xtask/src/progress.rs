//! What a person sees on standard error while something runs.
//!
//! On a terminal one line is redrawn every second. Elsewhere a line appears only for a step that
//! takes long, so that a log tells where the time goes without drowning in it.

use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use crate::step::{Ran, Step};

/// How often a step that is still running says so where no terminal redraws its line.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Writes to standard error, which a test captures.
pub(crate) fn say(text: &str) {
    eprint!("{text}");
}

/// Runs `step`, and says on standard error which step it is and for how long it has been running.
pub(crate) fn run(step: Step) -> Ran {
    let name = step.name.clone();
    let mut line = ProgressLine::new(&name);
    let ran = step.run(|elapsed| line.tick(elapsed));
    line.clear();
    ran
}

/// The line that says which step runs, and for how long.
struct ProgressLine<'a> {
    name: &'a str,
    redraws: bool,
    next: Instant,
}

impl<'a> ProgressLine<'a> {
    fn new(name: &'a str) -> Self {
        let redraws = stderr().is_terminal();
        let first = if redraws { Duration::ZERO } else { HEARTBEAT };
        Self {
            name,
            redraws,
            next: Instant::now() + first,
        }
    }

    fn tick(&mut self, elapsed: Duration) {
        if Instant::now() < self.next {
            return;
        }
        let (name, seconds) = (self.name, elapsed.as_secs());
        if self.redraws {
            self.next += Duration::from_secs(1);
            say(&format!("\r\x1b[K...     {seconds:6} s  {name}"));
        } else {
            self.next += HEARTBEAT;
            say(&format!("...     {seconds:6} s  {name}\n"));
        }
    }

    fn clear(&self) {
        if self.redraws {
            say("\r\x1b[K");
        }
    }
}
