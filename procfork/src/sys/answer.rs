//! The handler by which a process lets its own stacks be read.
//!
//! # Safety
//!
//! The handler runs in a signal, between any two instructions of any thread. It touches only the
//! answer area (mapped for ever, accessed through atomics), its own stack, and these system calls:
//! `gettid`, `pwrite`, `open`, `read`, `close`, `futex`; all are async-signal-safe. It keeps `errno`.
#![expect(unsafe_code, reason = "a signal handler; see the Safety section")]

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use super::checked;
use super::futex;
use super::memory::SharedMapping;
use super::process::this_tid;
use super::ptrace::Registers;
use crate::pid::Pid;
use crate::signal::Signal;
use crate::sync::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The head of the area, shared by the asking and the answering process.
///
/// ```text
/// byte 0        this header
/// byte 4096     the memory map, as text
/// byte 135168   the stack, from the stack pointer upwards
/// ```
#[repr(C)]
#[derive(Debug)]
struct Header {
    state: AtomicU32,
    /// The thread that is asked.
    tid: AtomicU32,
    pc: AtomicU64,
    sp: AtomicU64,
    fp: AtomicU64,
    lr: AtomicU64,
    maps_bytes: AtomicU64,
    stack_bytes: AtomicU64,
}

const HEADER_BYTES: u64 = 4096;
const MAPS_BYTES: u64 = 128 << 10;
const STACK_BYTES: u64 = 256 << 10;
const MAPS_AT: u64 = HEADER_BYTES;
const STACK_AT: u64 = HEADER_BYTES + MAPS_BYTES;
/// The size of the memory file.
pub(crate) const AREA_BYTES: usize = (STACK_AT + STACK_BYTES) as usize;
const _: () = assert!(size_of::<Header>() <= HEADER_BYTES as usize);

/// Nobody waits for an answer.
const IDLE: u32 = 0;
/// The thread in `tid` is asked.
const ASKED: u32 = 1;
/// It is writing.
const WRITING: u32 = 2;
/// It has written.
const ANSWERED: u32 = 3;

/// The area, mapped.
#[derive(Debug)]
pub(crate) struct Area(SharedMapping);

/// What a thread wrote.
pub(crate) struct Answer {
    pub(crate) registers: Registers,
    pub(crate) maps: (u64, usize),
    pub(crate) stack: (u64, usize),
}

impl Area {
    /// Of a memory file of [`AREA_BYTES`].
    pub(crate) fn of(fd: std::os::fd::BorrowedFd<'_>) -> io::Result<Self> {
        SharedMapping::of(fd, HEADER_BYTES as usize).map(Self)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page aligned, longer than a header, zeroed at first, and lives as
        // long as the borrow; all fields are atomics.
        unsafe { self.0.start().cast::<Header>().as_ref() }
    }

    /// Puts a question. Any answer to an earlier one is void.
    pub(crate) fn ask(&self, tid: Pid) {
        let header = self.header();
        header
            .tid
            .store(tid.raw().cast_unsigned(), Ordering::Relaxed);
        // Release: pairs with the Acquire of the handler, which reads the tid after it.
        header.state.store(ASKED, Ordering::Release);
    }

    /// The word to sleep on and its value, unless there is an answer.
    pub(crate) fn pending(&self) -> Option<(&AtomicU32, u32)> {
        let word = &self.header().state;
        // Acquire: pairs with the Release that ends the handler.
        let state = word.load(Ordering::Acquire);
        (state != ANSWERED).then_some((word, state))
    }

    /// Whether a thread is in the middle of its answer; for ever, if it was killed or stopped in it.
    pub(crate) fn is_writing(&self) -> bool {
        self.header().state.load(Ordering::Relaxed) == WRITING
    }

    /// Withdraws the question: a late handler finds nothing to do. False if it is writing just now.
    pub(crate) fn withdraw(&self) -> bool {
        let state = &self.header().state;
        // Relaxed: nothing was written that would be read.
        let was = state.compare_exchange(ASKED, IDLE, Ordering::Relaxed, Ordering::Relaxed);
        was != Err(WRITING)
    }

    /// What was written, with lengths clamped to their room: the other side is not trusted.
    pub(crate) fn answer(&self) -> Answer {
        let header = self.header();
        let get = |field: &AtomicU64| field.load(Ordering::Relaxed);
        let len = |field: &AtomicU64, room: u64| get(field).min(room) as usize;
        Answer {
            registers: Registers {
                pc: get(&header.pc),
                sp: get(&header.sp),
                fp: get(&header.fp),
                lr: get(&header.lr),
            },
            maps: (MAPS_AT, len(&header.maps_bytes, MAPS_BYTES)),
            stack: (STACK_AT, len(&header.stack_bytes, STACK_BYTES)),
        }
    }
}

static HEADER: AtomicPtr<Header> = AtomicPtr::new(std::ptr::null_mut());
static FILE: AtomicI32 = AtomicI32::new(-1);

/// Installs the handler in this process, for ever. The area stays mapped and the file open.
pub(crate) fn listen(signal: Signal, area: &'static Area, file: RawFd) -> io::Result<()> {
    HEADER.store(
        std::ptr::from_ref(area.header()).cast_mut(),
        Ordering::Release,
    );
    FILE.store(file, Ordering::Release);
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    let function: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = handler;
    action.sa_sigaction = function as libc::sighandler_t;
    // Restart: a system call that is interrupted goes on. Own stack: an overflow can be read.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler does only what the Safety section of this module lists.
    checked(unsafe { libc::sigaction(signal.number(), &raw const action, std::ptr::null_mut()) })
        .map(drop)
}

/// `tgkill()`: signals one thread of a process. Of the one that is meant only while the number of the process is held, as
/// that of an own child is until it is reaped.
pub(crate) fn signal_thread(pid: Pid, tid: Pid, signal: Signal) -> io::Result<()> {
    // SAFETY: plain numbers.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid.raw(), tid.raw(), signal.number()) };
    checked(sent).map(drop)
}

extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the address of this thread's errno, valid while the thread lives.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { errno.read() };
    if let Some(header) = NonNull::new(HEADER.load(Ordering::Acquire)) {
        // SAFETY: stored by `listen`, from an area that is mapped for ever.
        let header = unsafe { header.as_ref() };
        // SAFETY: the kernel passes a ucontext to a handler with SA_SIGINFO.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        answer(header, registers_of(context));
    }
    // SAFETY: as above.
    unsafe { errno.write(kept) };
}

/// Only the thread that was asked answers, and only while the question stands.
fn answer(header: &Header, registers: Registers) {
    let own = this_tid().raw().cast_unsigned();
    // Acquire: pairs with the Release of `ask`. Relaxed on failure: nothing is read then.
    let mine = header.tid.load(Ordering::Relaxed) == own
        && header
            .state
            .compare_exchange(ASKED, WRITING, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
    if !mine {
        return;
    }
    let file = FILE.load(Ordering::Acquire);
    header.pc.store(registers.pc, Ordering::Relaxed);
    header.sp.store(registers.sp, Ordering::Relaxed);
    header.fp.store(registers.fp, Ordering::Relaxed);
    header.lr.store(registers.lr, Ordering::Relaxed);
    header.maps_bytes.store(write_maps(file), Ordering::Relaxed);
    header
        .stack_bytes
        .store(write_stack(file, registers.sp), Ordering::Relaxed);
    // Release: pairs with the Acquire of `pending`.
    header.state.store(ANSWERED, Ordering::Release);
    futex::wake_all(&header.state);
}

const PIECE: u64 = 4096;

/// The stack, page by page, until its end: the kernel refuses to read what is not mapped, instead
/// of a fault.
fn write_stack(file: RawFd, start: u64) -> u64 {
    let mut written = 0;
    while written < STACK_BYTES {
        let at = start + written;
        let piece = (PIECE - at % PIECE).min(STACK_BYTES - written);
        let (from, to) = (at as usize, (STACK_AT + written) as libc::off_t);
        let from = std::ptr::with_exposed_provenance::<c_void>(from);
        // SAFETY: the kernel checks the address range and copies what is readable.
        let count = unsafe { libc::pwrite(file, from, piece as usize, to) };
        let Ok(count @ 1..) = u64::try_from(count) else {
            break;
        };
        written += count;
    }
    written
}

fn write_maps(file: RawFd) -> u64 {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a path that ends with a zero byte.
    let maps = unsafe { libc::open(c"/proc/self/maps".as_ptr(), flags) };
    if maps < 0 {
        return 0;
    }
    let mut written = 0;
    let mut buffer = [0_u8; PIECE as usize];
    while written < MAPS_BYTES {
        let room = buffer.len().min((MAPS_BYTES - written) as usize);
        // SAFETY: the buffer is valid for writes of its length.
        let count = unsafe { libc::read(maps, buffer.as_mut_ptr().cast(), room) };
        let Ok(count @ 1..) = usize::try_from(count) else {
            break;
        };
        let to = (MAPS_AT + written) as libc::off_t;
        // SAFETY: `count` bytes of the buffer were just read.
        let count = unsafe { libc::pwrite(file, buffer.as_ptr().cast(), count, to) };
        let Ok(count @ 1..) = u64::try_from(count) else {
            break;
        };
        written += count;
    }
    // SAFETY: opened above, used by nobody else.
    unsafe { libc::close(maps) };
    written
}

#[cfg(target_arch = "x86_64")]
pub(super) fn registers_of(context: &libc::ucontext_t) -> Registers {
    let get = |register: i32| context.uc_mcontext.gregs[register as usize].cast_unsigned();
    Registers {
        pc: get(libc::REG_RIP),
        sp: get(libc::REG_RSP),
        fp: get(libc::REG_RBP),
        lr: 0,
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) fn registers_of(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        pc: machine.pc,
        sp: machine.sp,
        fp: machine.regs[29],
        lr: machine.regs[30],
    }
}
