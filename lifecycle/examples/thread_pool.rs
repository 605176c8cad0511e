//! A thread pool that starts whole or not at all, and closes without losing a job: no process in sight.
//!
//! Shown: `start` and `commit` around the spawning, a lease per submitted job that ends when the job has run,
//! a close that is too impatient, names what it waits for, and is driven on.
#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{
    io,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use lifecycle::{
    CloseError, Journal, Lifecycle, Operation, OwnedLease, Refused, Start, StartError, Step,
};

/// What a job holds while it is queued and while it runs.
static JOB: Operation = Operation::new("job");

/// An `io::Error` cannot be cloned for everybody who asks; behind an `Arc` it can.
type Cause = Arc<io::Error>;

type Job = Box<dyn FnOnce() + Send>;

/// A job with the lease that admitted it.
type Admitted = (OwnedLease<Cause>, Job);

struct Pool {
    lifecycle: Arc<Lifecycle<Cause>>,
    journal: Journal<Cause>,
    queue: Mutex<Option<mpsc::Sender<Admitted>>>,
}

impl Pool {
    /// Starts `threads` workers, all or none.
    fn start(threads: usize) -> Result<Arc<Self>, StartError<Cause>> {
        let (send, receive) = mpsc::channel();
        let pool = Arc::new(Self {
            lifecycle: Arc::default(),
            journal: Journal::new(),
            queue: Mutex::new(Some(send)),
        });
        let epoch = match pool.lifecycle.start(None) {
            Start::Won(epoch) => epoch,
            Start::Done(outcome) => return outcome.map(|()| Arc::clone(&pool)),
        };
        let receive = Arc::new(Mutex::new(receive));
        for index in 0..threads {
            if let Err(cause) = pool.add_worker(index, &receive) {
                pool.hang_up();
                // What was started is stopped again; what could not be stays journalled.
                let _left = epoch.roll_back(&pool.journal, None);
                return Err(epoch.fail(Arc::new(cause)));
            }
        }
        epoch.commit()?;
        Ok(pool)
    }

    fn add_worker(
        &self,
        index: usize,
        jobs: &Arc<Mutex<mpsc::Receiver<Admitted>>>,
    ) -> io::Result<()> {
        let name = format!("worker {index}");
        let jobs = Arc::clone(jobs);
        let worker = thread::Builder::new()
            .name(name.clone())
            .spawn(move || work(&jobs))?;
        let mut worker = Some(worker);
        self.journal.push(Step::new(name, move |_deadline| {
            let joined = worker.take().map_or(Ok(()), thread::JoinHandle::join);
            joined.map_err(|_| Arc::new(io::Error::other("the worker has panicked")))
        }));
        Ok(())
    }

    /// Queues a job, unless the pool is not ready or no more.
    fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Refused> {
        let lease = self.lifecycle.lease_owned(&JOB)?;
        let queue = self.queue.lock().expect("no panic under this lock");
        let queue = queue
            .as_ref()
            .expect("the queue stays while a lease is alive");
        queue
            .send((lease, Box::new(job)))
            .expect("the workers stay while a lease is alive");
        Ok(())
    }

    /// Refuses new jobs, waits for the queued ones until `budget` is used up, joins the workers.
    fn close(&self, budget: Duration) -> Result<(), CloseError<Cause>> {
        let deadline = Some(Instant::now() + budget);
        match self.lifecycle.claim()? {
            lifecycle::Claim::Done => Ok(()),
            lifecycle::Claim::Join(joined) => joined.wait(deadline),
            lifecycle::Claim::Drive(attempt) => {
                let drained = attempt.drain(deadline)?;
                self.hang_up();
                drained.tear_down(&self.journal, deadline)
            }
        }
    }

    /// Lets the workers find the end of the queue.
    fn hang_up(&self) {
        drop(self.queue.lock().expect("no panic under this lock").take());
    }
}

/// Runs jobs until the queue ends.
fn work(jobs: &Mutex<mpsc::Receiver<Admitted>>) {
    loop {
        let next = jobs.lock().expect("no panic under this lock").recv();
        let Ok((lease, job)) = next else { return };
        // A job that closes its own pool is refused instead of waiting for itself.
        let _inside = lease.enter();
        job();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::start(2)?;
    let (sum, results) = mpsc::channel();
    for n in 1..=10 {
        let sum = sum.clone();
        pool.submit(move || sum.send(n * n).expect("main listens"))?;
    }
    let squares: u32 = results.iter().take(10).sum();
    println!("ten jobs on two workers: {squares}");

    let inner = Arc::clone(&pool);
    let (told, tell) = mpsc::channel();
    pool.submit(move || {
        told.send(inner.close(Duration::ZERO).map_err(|e| e.to_string()))
            .expect("main listens");
    })?;
    println!("a job closes its pool: {:?}", tell.recv()?);

    let (open, shut) = mpsc::channel::<()>();
    pool.submit(move || {
        shut.recv().expect_err("opened by dropping the key");
    })?;
    println!(
        "close, too impatient: {}",
        pool.close(Duration::ZERO).unwrap_err()
    );
    println!("submit after that: {}", pool.submit(|| {}).unwrap_err());
    drop(open);
    pool.close(Duration::from_secs(10))?;
    println!(
        "the pool is {}; left: {:?}",
        pool.lifecycle.state(),
        pool.journal.left()
    );
    Ok(())
}
