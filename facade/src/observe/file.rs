//! The trace of one engine as a file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::sync::Arc;

use crate::config::TraceTo;
use crate::engine::Engine;
use crate::observe::Trace;

/// Writes what the tasks of `engine`, whose children are `workers`, have done since it was traced.
pub(crate) fn write(engine: &Arc<Engine>, workers: &[String], to: &TraceTo) {
    let path = to.dir.join(file_name(engine));
    if let Err(error) = try_write(engine, workers, to, &path) {
        tracing::error!(worker = %engine.path(), path = %path.display(), %error, "the trace is not written");
    }
}

/// Paths repeat when a program has several trees; engines do not.
fn file_name(engine: &Engine) -> String {
    let path = engine.path().replace('/', ".");
    format!("{path}.{:016x}.json", engine.incarnation)
}

fn try_write(
    engine: &Arc<Engine>,
    workers: &[String],
    to: &TraceTo,
    path: &std::path::Path,
) -> io::Result<()> {
    let (tasks, began) = {
        let mut core = engine.core();
        (core.observer.take_trace(), core.observer.began())
    };
    let trace = Trace {
        root: engine.path().to_string(),
        workers: workers.to_vec(),
        tasks,
    };
    fs::create_dir_all(&to.dir)?;
    let mut out = BufWriter::new(File::create(path)?);
    trace.write_from(&mut out, began.0)?;
    out.flush()
}
