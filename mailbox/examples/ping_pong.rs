//! Two processes, one mailbox, no other crate of the workspace: the parent asks, the child answers.
//!
//! `cargo run -p mailbox --example ping_pong` forks; the child inherits the mapping and serves until it is
//! told that nothing more will come.
#![expect(unsafe_code, reason = "fork")]
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use mailbox::{Doorbell, Event, Identity, Immortal, Layout, Mailbox, Outcome, Request, Waiter};

fn main() -> Result<(), Box<dyn Error>> {
    let doorbell = Doorbell::create()?;
    let mailbox = Mailbox::create(Layout::default(), &doorbell)?;
    // SAFETY: this program has one thread, and the child only serves and exits.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => std::process::exit(if serve(mailbox).is_ok() { 0 } else { 1 }),
        child => {
            ask(mailbox)?;
            let mut status = 0;
            // SAFETY: the child is ours, and `status` is a valid place.
            unsafe { libc::waitpid(child, &mut status, 0) };
            println!("the child ended with status {status}");
            Ok(())
        }
    }
}

/// The child: answers every task with its text in capitals.
fn serve(mailbox: Mailbox) -> Result<(), Box<dyn Error>> {
    let mut child = mailbox.into_child()?;
    loop {
        match child.next(&Immortal, None)? {
            Request::Task(task) => {
                let answer = task.payload().to_ascii_uppercase();
                child.complete(task, Ok(&answer))?;
            }
            Request::Control(control) => child.reply(control, Ok(&[]))?,
            Request::Shutdown => return Ok(()),
        }
    }
}

/// The parent: sends three tasks, waits for each, then shuts down.
fn ask(mailbox: Mailbox) -> Result<(), Box<dyn Error>> {
    let mut parent = mailbox.into_parent()?;
    let mut waiter = Waiter::new();
    for (dispatch, text) in ["ping", "pong", "done"].into_iter().enumerate() {
        let identity = Identity {
            dispatch: dispatch as u64,
            ..Identity::default()
        };
        parent.submit(identity, 0, text.as_bytes())?;
        parent.wait(&mut waiter, &Immortal, None)?;
        if let Some(Event::Done {
            outcome: Outcome::Ok(bytes),
            ..
        }) = parent.poll()?
        {
            println!("{text} -> {}", String::from_utf8_lossy(bytes));
        }
    }
    parent.shutdown();
    Ok(())
}
