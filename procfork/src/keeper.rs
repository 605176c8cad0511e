//! A thread that lasts as long as the process, for work that the kernel ties to its thread.
//!
//! The kernel sends the parent-death signal when the *thread* that made a child ends, and marks a
//! death word when the thread that owns it ends. The main thread lasts until the process ends
//! anyway; any other may end earlier (a pool thread, a test of the standard harness), and the
//! children would be killed although their parent lives. Work from such threads runs on a
//! keeper: started when first needed, it never ends.
//!
//! What a new program inherits from the thread that starts it should be that of the caller, not of
//! whoever called first: a keeper takes over the CPUs of each caller, and serves callers of one nice
//! value only, since a thread may not lower its own again. There are as many keepers as nice values.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;

use crate::pid::Pid;
use crate::sync::{Mutex, lock};
use crate::sys::process::this_tid;
use crate::sys::settings;

type Job = Box<dyn FnOnce() + Send>;

struct Keeper {
    /// The process that it is a thread of: a forked copy has none.
    pid: Pid,
    /// The nice value that it has from the thread that started it.
    nice: Option<i32>,
    jobs: Sender<Job>,
}

static KEEPERS: Mutex<Vec<Keeper>> = Mutex::new(Vec::new());

/// Runs `work` on a thread that lasts as long as the process: the calling one if it is the main
/// thread, else a keeper with its CPUs and nice value. Returns its result.
///
/// # Errors
///
/// The keeper cannot be started: no thread left.
pub(crate) fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    if this_tid() == Pid::this() {
        return Ok(work());
    }
    let (answer, result) = mpsc::channel();
    // Unknown on a machine with more CPUs than a set of them has places for: then they stay.
    let cpus = settings::cpus().ok();
    let job = Box::new(move || {
        if let Some(cpus) = cpus {
            let _ = settings::set_cpus(&cpus);
        }
        drop(answer.send(work()));
    });
    let gone = || io::Error::other("the keeper thread has ended");
    jobs()?.send(job).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())
}

fn jobs() -> io::Result<Sender<Job>> {
    let mut keepers = lock(&KEEPERS);
    let (pid, nice) = (Pid::this(), settings::nice().ok());
    let known = keepers
        .iter()
        .find(|keeper| (keeper.pid, keeper.nice) == (pid, nice));
    if let Some(keeper) = known {
        return Ok(keeper.jobs.clone());
    }
    let jobs = start()?;
    keepers.push(Keeper {
        pid,
        nice,
        jobs: jobs.clone(),
    });
    Ok(jobs)
}

fn start() -> io::Result<Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    let work = move || queue.into_iter().for_each(|job| job());
    thread::Builder::new()
        .name("procfork-keeper".to_owned())
        .spawn(work)?;
    Ok(jobs)
}
