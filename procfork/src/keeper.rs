//! A thread that lasts as long as the process, for work that the kernel ties to its thread.
//!
//! The kernel sends the parent-death signal when the *thread* that made a child ends, and marks a
//! death word when the thread that owns it ends. The main thread lasts until the process ends
//! anyway; any other may end earlier (a pool thread, a test of the standard harness), and the
//! children would be killed although their parent lives. Work from such threads runs on the
//! keeper: started when first needed, it never ends.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;

use crate::pid::Pid;
use crate::sync::{Mutex, lock};
use crate::sys::process::this_tid;

type Job = Box<dyn FnOnce() + Send>;

struct Keeper {
    /// The process that it is a thread of: a forked copy has none.
    pid: Pid,
    jobs: Sender<Job>,
}

static KEEPER: Mutex<Option<Keeper>> = Mutex::new(None);

/// Runs `work` on a thread that lasts as long as the process: the calling one if it is the main
/// thread, else the keeper. Returns its result.
///
/// # Errors
///
/// The keeper cannot be started: no thread left.
pub(crate) fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    if this_tid() == Pid::this() {
        return Ok(work());
    }
    let (answer, result) = mpsc::channel();
    let job = Box::new(move || drop(answer.send(work())));
    let gone = || io::Error::other("the keeper thread has ended");
    jobs()?.send(job).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())
}

fn jobs() -> io::Result<Sender<Job>> {
    let mut keeper = lock(&KEEPER);
    let this = Pid::this();
    match keeper.as_ref() {
        Some(keeper) if keeper.pid == this => Ok(keeper.jobs.clone()),
        _ => {
            let jobs = start()?;
            *keeper = Some(Keeper {
                pid: this,
                jobs: jobs.clone(),
            });
            Ok(jobs)
        }
    }
}

fn start() -> io::Result<Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    let work = move || queue.into_iter().for_each(|job| job());
    thread::Builder::new()
        .name("procfork-keeper".to_owned())
        .spawn(work)?;
    Ok(jobs)
}
