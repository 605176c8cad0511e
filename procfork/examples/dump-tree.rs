//! Shows where every thread of a process and of its descendants stands: `dump-tree PID`.
//!
//! xtask: skip (it wants the PID of a stuck process; the tests of `dump` make some)

use std::error::Error;
use std::io::{self, Write as _};

use procfork::Pid;
use procfork::dump::{Dumper, Limits};

fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args()
        .nth(1)
        .and_then(|arg| Pid::new(arg.parse().ok()?));
    let pid = pid.ok_or("usage: dump-tree PID")?;
    let mut out = io::stdout().lock();
    for process in Dumper::new(Limits::default()).tree(pid)? {
        writeln!(out, "{process}\n")?;
    }
    Ok(())
}
