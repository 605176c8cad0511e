//! The handler in which a crashing thread waits until somebody has read its stack.
//!
//! ```text
//!   thread that crashed                        reader
//!   ticket = tickets + 1
//!   write {pid, tid, signal, registers}  --->  reads the record, then the stacks from outside
//!   sleep on done[ticket]                <---  done[ticket] = ticket, wake
//!   default disposition, the signal again: it ends exactly as it would have
//! ```
//!
//! # Safety
//!
//! The handler runs in a signal, between any two instructions of any thread, possibly with a ruined
//! heap. It touches only the page (mapped for ever, accessed through atomics), its own stack (the
//! alternate one where there is one, so that an overflow can be told), and these system calls:
//! `gettid`, `getpid`, `write`, `futex`, `rt_sigaction`, `tgkill`; all are async-signal-safe.
#![expect(unsafe_code, reason = "a signal handler; see the Safety section")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, IntoRawFd as _, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use super::answer::{registers_of, signal_thread};
use super::checked;
use super::futex::{self, Expect};
use super::memory::{SharedMapping, memory_file};
use super::process::{this_pid, this_tid};
use super::ptrace::Registers;
use crate::signal::Signal;
use crate::sync::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

/// The signals that end a process through its own fault.
const FATAL: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// How long a crashed thread waits for its reader, which may be gone or busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many crashes can wait at once without one being let go for another.
const PLACES: usize = 64;

/// Words of a record: pid and tid, signal and ticket, address, pc, sp, fp, lr.
const WORDS: usize = 7;
/// Bytes of a record; a write of so few into a pipe is atomic.
pub(crate) const RECORD_BYTES: usize = WORDS * 8;

#[repr(C)]
#[derive(Debug)]
struct Page {
    tickets: AtomicU32,
    done: [AtomicU32; PLACES],
}

/// The address of a signal that somebody sent, or that is about no memory.
pub(crate) const NO_ADDRESS: u64 = u64::MAX;

const PAGE_BYTES: usize = 4096;
const _: () = assert!(size_of::<Page>() <= PAGE_BYTES);

/// The memory that crashing processes and their reader share.
#[derive(Debug)]
pub(crate) struct Desk(SharedMapping);

/// What a crashing thread told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) signal: i32,
    pub(crate) ticket: u32,
    /// Where memory was accessed in vain, or [`NO_ADDRESS`].
    pub(crate) address: u64,
    pub(crate) registers: Registers,
}

impl Desk {
    /// A memory file for [`Desk::of`].
    pub(crate) fn file() -> io::Result<OwnedFd> {
        memory_file(c"procfork-crash", PAGE_BYTES).map(OwnedFd::from)
    }

    /// The page in a memory file. A file that is too short is refused: the handler would fault in it.
    pub(crate) fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        let length = File::from(file.try_clone_to_owned()?).metadata()?.len();
        if length < PAGE_BYTES as u64 {
            let what = "this is not the page of a desk for crashes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        SharedMapping::of(file, PAGE_BYTES).map(Self)
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping is page aligned, longer than a page of ours, zeroed at first, and
        // lives as long as the borrow; all fields are atomics.
        unsafe { self.0.start().cast::<Page>().as_ref() }
    }

    /// Lets the thread with this ticket go on to its end.
    pub(crate) fn let_go(&self, ticket: u32) {
        let word = &self.page().done[ticket as usize % PLACES];
        // Release: pairs with the Acquire of the handler; the stacks were read before.
        word.store(ticket, Ordering::Release);
        futex::wake_all(word);
    }
}

impl Record {
    fn words(&self) -> [u64; WORDS] {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let Registers { pc, sp, fp, lr } = self.registers;
        let (pid, tid) = (self.pid.cast_unsigned(), self.tid.cast_unsigned());
        let signal = pair(self.signal.cast_unsigned(), self.ticket);
        [pair(pid, tid), signal, self.address, pc, sp, fp, lr]
    }

    /// Reads what came through the pipe.
    pub(crate) fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let word = |at: usize| {
            let bytes = bytes[at * 8..].first_chunk();
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        let high = |at: usize| ((word(at) >> 32) as u32).cast_signed();
        Self {
            pid: high(0),
            tid: (word(0) as u32).cast_signed(),
            signal: high(1),
            ticket: word(1) as u32,
            address: word(2),
            registers: Registers {
                pc: word(3),
                sp: word(4),
                fp: word(5),
                lr: word(6),
            },
        }
    }
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// The file behind the page, for programs that are started again.
static PAGE_FILE: AtomicI32 = AtomicI32::new(-1);
/// One crash of a process is told; what follows from it is not.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Tells of crashes of this process, and of all that it makes, for ever.
pub(crate) fn arm([pipe, file]: [OwnedFd; 2]) -> io::Result<()> {
    let desk: &'static Desk = Box::leak(Box::new(Desk::of(file.as_fd())?));
    // Release: pairs with the Acquire of the handler, which finds a page that is mapped.
    PAGE.store(
        std::ptr::from_ref(desk.page()).cast_mut(),
        Ordering::Release,
    );
    // Release: pairs with the Acquire of `carried`.
    PIPE.store(pipe.into_raw_fd(), Ordering::Release);
    PAGE_FILE.store(file.into_raw_fd(), Ordering::Release);
    install()
}

/// The descriptors that must stay open in children, if this process tells of crashes: pipe and page,
/// as [`arm`] takes them.
pub(crate) fn carried() -> Option<[RawFd; 2]> {
    // Acquire: pairs with the Release of `arm`.
    let both = [&PIPE, &PAGE_FILE].map(|fd| fd.load(Ordering::Acquire));
    Some(both).filter(|both| both.iter().all(|&fd| fd >= 0))
}

/// In a fresh child, whose dispositions are the default ones: as its parent did.
pub(crate) fn rearm() {
    if carried().is_some() {
        // It was accepted in the parent. Without it a crash is not told, and is still one.
        let _ = install();
    }
}

fn install() -> io::Result<()> {
    let mut action = zeroed();
    let function: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = handler;
    action.sa_sigaction = function as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the set is valid for writes. No other handler of this process runs meanwhile.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    for signal in FATAL {
        // SAFETY: the handler does only what the Safety section of this module lists.
        checked(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) })?;
    }
    Ok(())
}

fn zeroed() -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid sigaction: the default handler, no flags, no mask.
    unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() }
}

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a ucontext to a handler with SA_SIGINFO.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    // SAFETY: the kernel passes a siginfo to a handler with SA_SIGINFO.
    let address = address_of(signal, unsafe { &*info });
    if let Some(page) = NonNull::new(PAGE.load(Ordering::Acquire)) {
        // SAFETY: stored by `arm`, from a page that is mapped for ever.
        let page = unsafe { page.as_ref() };
        tell(page, signal, address, registers_of(context));
    }
    let action = zeroed();
    // SAFETY: the action names no function, only the default.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    // Blocked until the handler returns, and then it ends the process.
    if let Some(signal) = Signal::new(signal) {
        let _ = signal_thread(this_pid(), this_tid(), signal);
    }
}

/// The address that a fault is about. A signal that was sent has other things in its place.
fn address_of(signal: i32, info: &libc::siginfo_t) -> u64 {
    if !matches!(signal, libc::SIGSEGV | libc::SIGBUS) || info.si_code <= 0 {
        return NO_ADDRESS;
    }
    // SAFETY: the kernel fills in the address for these signals when it raises them itself.
    unsafe { info.si_addr() }.addr() as u64
}

/// Sends the record and waits; a second thread that crashes only waits.
fn tell(page: &Page, signal: i32, address: u64, registers: Registers) {
    // Relaxed: only uniqueness matters. Tickets begin with 1, so that a fresh place is no answer.
    let ticket = page.tickets.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    // Relaxed: decides who tells, nothing else.
    let first = !TOLD.swap(true, Ordering::Relaxed);
    let record = Record {
        pid: this_pid().raw(),
        tid: this_tid().raw(),
        signal,
        ticket,
        address,
        registers,
    };
    if first && !send(&record) {
        return;
    }
    let word = &page.done[ticket as usize % PLACES];
    let mut rest = PATIENCE;
    // Acquire: pairs with the Release of `let_go`.
    while !rest.is_zero() {
        let value = word.load(Ordering::Acquire);
        if value == ticket {
            return;
        }
        let slice = rest.min(Duration::from_millis(500));
        // Whatever it says, the word is looked at again.
        let _ = futex::wait_one(Expect { word, value }, Some(slice));
        rest -= slice;
    }
}

fn send(record: &Record) -> bool {
    let words = record.words();
    let pipe = PIPE.load(Ordering::Acquire);
    // SAFETY: the words are valid for reads of their size.
    let sent = unsafe { libc::write(pipe, words.as_ptr().cast(), RECORD_BYTES) };
    sent == RECORD_BYTES as isize
}
