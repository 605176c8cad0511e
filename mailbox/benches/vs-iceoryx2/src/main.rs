//! A 64-byte task there and back between two processes: mailbox beside iceoryx2's request and response, both awake.
//!
//! Short rounds of the two alternate, as in `benches/rtt`, each process on a core of its own. `--json` prints what
//! `cargo xtask bench mailbox_rtt_vs_iceoryx2` reads. Theirs is asked as their own benchmark asks it: one client, one
//! server, a copy of 64 bytes each way, and a loop that receives until something is there.
//!
//! What they name, files and shared memory, gets a name of this run and is removed at its end.

use std::path::PathBuf;
use std::time::Instant;

use iceoryx2::config::Config;
use iceoryx2::port::client::Client;
use iceoryx2::port::server::Server;
use iceoryx2::prelude::*;
use mailbox::{
    ChildEnd, Doorbell, Event, Identity, Immortal, Layout, Mailbox, ParentEnd, Request, Waiter,
};

/// Round trips in one round, and rounds of each kind.
const TRIPS: u32 = 400;
const ROUNDS: usize = 1001;
/// When the kernel ends a side whose peer is gone: both poll for ever.
const LIMIT_S: u32 = 240;

type Bytes = [u8; 64];
type Asks = Client<ipc::Service, Bytes, (), Bytes, ()>;
type Answers = Server<ipc::Service, Bytes, (), Bytes, ()>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let doorbell = Doorbell::create()?;
    let mailbox = Mailbox::create(Layout::default(), &doorbell)?;
    let names = Names::of_this_run();
    // SAFETY: this process has one thread, and the child only serves and exits.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            prepare(1);
            let served = serve(&names, mailbox.into_child()?);
            if let Err(error) = &served {
                eprintln!("error: {error}");
            }
            // SAFETY: ends the child without running what the parent has registered.
            unsafe { libc::_exit(i32::from(served.is_err())) }
        }
        child => {
            prepare(0);
            let driven = drive(&names, mailbox.into_parent()?);
            let reaped = reap(child);
            names.remove();
            let (ours, theirs) = driven?;
            reaped?;
            report(ours, theirs);
            Ok(())
        }
    }
}

/// What iceoryx2 calls its files and shared memory.
struct Names {
    prefix: String,
    root: PathBuf,
}

impl Names {
    fn of_this_run() -> Names {
        let prefix = format!("vs_iceoryx2_{}_", std::process::id());
        let root = std::env::temp_dir().join(&prefix);
        Names { prefix, root }
    }

    fn node(&self) -> Result<Node<ipc::Service>, Box<dyn std::error::Error>> {
        set_log_level(LogLevel::Error);
        let mut config = Config::default();
        config.global.prefix = FileName::new(self.prefix.as_bytes())?;
        config
            .global
            .set_root_path(&Path::new(self.root.as_os_str().as_encoded_bytes())?);
        Ok(NodeBuilder::new()
            .config(&config)
            .create::<ipc::Service>()?)
    }

    fn service(&self) -> Result<ServiceName, Box<dyn std::error::Error>> {
        Ok("round trip".try_into()?)
    }

    /// Removes what it leaves: its directory, and the shared memory by which its nodes find each other.
    fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.root);
        let shared = std::fs::read_dir("/dev/shm")
            .into_iter()
            .flatten()
            .flatten();
        for file in
            shared.filter(|file| file.file_name().to_string_lossy().starts_with(&self.prefix))
        {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// Keeps the calling process on one core, and ends it at the limit.
fn prepare(core: usize) {
    pin(core);
    // SAFETY: only asks for a signal, whose default ends this process.
    unsafe { libc::alarm(LIMIT_S) };
}

/// Keeps the calling process on one core.
fn pin(core: usize) {
    // SAFETY: all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the core's number is far below the size of the set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the set is valid; a refusal only costs accuracy.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
}

fn reap(child: libc::pid_t) -> Result<(), String> {
    let mut status = 0;
    // SAFETY: `child` is ours and not yet reaped; `status` is a valid place.
    let reaped = unsafe { libc::waitpid(child, &mut status, 0) };
    match reaped == child && status == 0 {
        true => Ok(()),
        false => Err(format!("the child ended with status {status:#x}")),
    }
}

fn serve(names: &Names, mut end: ChildEnd) -> Result<(), Box<dyn std::error::Error>> {
    let node = names.node()?;
    let service = node
        .service_builder(&names.service()?)
        .request_response::<Bytes, Bytes>()
        .open_or_create()?;
    let server: Answers = service.server_builder().create()?;
    // The parent's first task says that its client is there.
    serve_tasks(&mut end, 1)?;
    for _ in 0..ROUNDS {
        for _ in 0..TRIPS {
            let request = loop {
                if let Some(request) = server.receive()? {
                    break request;
                }
            };
            request.send_copy(*request.payload())?;
        }
        serve_tasks(&mut end, TRIPS)?;
    }
    Ok(())
}

fn serve_tasks(end: &mut ChildEnd, n_tasks: u32) -> Result<(), Box<dyn std::error::Error>> {
    for _ in 0..n_tasks {
        let Request::Task(task) = end.next(&Immortal, None)? else {
            return Err("expected a task".into());
        };
        let mut answer = [0; 64];
        answer.copy_from_slice(task.payload());
        end.complete(task, Ok(&answer))
            .map_err(|refused| refused.error)?;
    }
    Ok(())
}

/// Nanoseconds per round trip of each round: ours, theirs.
fn drive(
    names: &Names,
    mut end: ParentEnd,
) -> Result<(Vec<f64>, Vec<f64>), Box<dyn std::error::Error>> {
    let node = names.node()?;
    let service = node
        .service_builder(&names.service()?)
        .request_response::<Bytes, Bytes>()
        .open_or_create()?;
    let client: Asks = service.client_builder().create()?;
    let mut waiter = Waiter::new();
    submit_tasks(&mut end, &mut waiter, 1)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..TRIPS {
            let pending = client.send_copy([7; 64])?;
            while pending.receive()?.is_none() {}
        }
        theirs.push(per_trip(start));
        let start = Instant::now();
        submit_tasks(&mut end, &mut waiter, TRIPS)?;
        ours.push(per_trip(start));
    }
    Ok((ours, theirs))
}

fn submit_tasks(
    end: &mut ParentEnd,
    waiter: &mut Waiter,
    n_tasks: u32,
) -> Result<(), Box<dyn std::error::Error>> {
    for dispatch in 0..u64::from(n_tasks) {
        let identity = Identity {
            run: 1,
            slot: 2,
            generation: 3,
            dispatch,
        };
        end.submit(identity, 0, &[7; 64])?;
        end.wait(waiter, &Immortal, None)?;
        match end.poll()? {
            Some(Event::Done { identity: done, .. }) => assert_eq!(done, identity),
            other => panic!("expected an end, got {other:?}"),
        }
    }
    Ok(())
}

fn per_trip(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e9 / f64::from(TRIPS)
}

fn report(mut ours: Vec<f64>, mut theirs: Vec<f64>) {
    ours.sort_by(f64::total_cmp);
    theirs.sort_by(f64::total_cmp);
    let (value, reference) = (ours[ROUNDS / 2], theirs[ROUNDS / 2]);
    if std::env::args().any(|arg| arg == "--json") {
        println!(
            r#"[{{"name":"mailbox_rtt_vs_iceoryx2","value":{value:.1},"unit":"ns","min":{:.1},"runs":{ROUNDS},"reference":{{"name":"iceoryx2_request_response","value":{reference:.1}}}}}]"#,
            ours[0]
        );
    } else {
        println!(
            "mailbox {value:.0} ns (least {:.0}), iceoryx2 {reference:.0} ns (least {:.0}), ratio {:.2}",
            ours[0],
            theirs[0],
            value / reference
        );
    }
}
