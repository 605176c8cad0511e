//! Starting a program, and being started as one.
#![expect(unsafe_code, reason = "system calls; see the Safety section of `sys`")]

use std::ffi::{CStr, CString, OsString, c_char, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt as _;

use super::checked_number;
use super::signals::Mask;
use crate::pid::Pid;

/// A program to start. It gets an empty signal mask and default dispositions.
pub(crate) struct Program<'a> {
    pub(crate) path: &'a CStr,
    pub(crate) args: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) streams: &'a [Option<OwnedFd>; 3],
    /// Descriptors that it inherits under their numbers.
    pub(crate) inherit: &'a [RawFd],
    /// The group to enter; zero makes one that it leads.
    pub(crate) group: Option<i32>,
}

impl Program<'_> {
    /// `posix_spawn()`: starts it, without copying this process: the cost does not grow with its
    /// memory. A failure of any step, in the new process too, is reported here.
    pub(crate) fn start(&self) -> io::Result<Pid> {
        let (actions, attributes) = (self.actions()?, self.attributes()?);
        let (args, env) = (pointers(self.args), pointers(self.env));
        let mut pid = 0;
        // SAFETY: path, args and env are zero-terminated and live for the call; actions and
        // attributes are initialised.
        checked_number(unsafe {
            libc::posix_spawn(
                &raw mut pid,
                self.path.as_ptr(),
                actions.0.as_ptr(),
                attributes.0.as_ptr(),
                args.as_ptr(),
                env.as_ptr(),
            )
        })?;
        Pid::new(pid).ok_or_else(|| io::Error::other("posix_spawn returned no pid"))
    }

    fn actions(&self) -> io::Result<Actions> {
        let mut actions = Actions::new()?;
        for (target, fd) in (0..).zip(self.streams) {
            if let Some(fd) = fd {
                actions.duplicate(fd.as_raw_fd(), target)?;
            }
        }
        for &fd in self.inherit {
            // Onto itself: clears close-on-exec in the new process only.
            actions.duplicate(fd, fd)?;
        }
        Ok(actions)
    }

    fn attributes(&self) -> io::Result<Attributes> {
        let mut attributes = Attributes::new()?;
        let mut flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        attributes.signals()?;
        if let Some(group) = self.group {
            attributes.group(group)?;
            flags |= libc::POSIX_SPAWN_SETPGROUP;
        }
        attributes.flags(flags)?;
        Ok(attributes)
    }
}

struct Actions(Box<MaybeUninit<libc::posix_spawn_file_actions_t>>);

impl Actions {
    fn new() -> io::Result<Self> {
        let mut raw = Box::new(MaybeUninit::uninit());
        // SAFETY: valid for writes.
        checked_number(unsafe { libc::posix_spawn_file_actions_init(raw.as_mut_ptr()) })?;
        Ok(Self(raw))
    }

    fn duplicate(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        let raw = self.0.as_mut_ptr();
        // SAFETY: initialised in `new`; plain numbers.
        checked_number(unsafe { libc::posix_spawn_file_actions_adddup2(raw, from, to) })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(self.0.as_mut_ptr()) };
    }
}

struct Attributes(Box<MaybeUninit<libc::posix_spawnattr_t>>);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut raw = Box::new(MaybeUninit::uninit());
        // SAFETY: valid for writes.
        checked_number(unsafe { libc::posix_spawnattr_init(raw.as_mut_ptr()) })?;
        Ok(Self(raw))
    }

    fn signals(&mut self) -> io::Result<()> {
        let (raw, none, all) = (self.0.as_mut_ptr(), Mask::empty(), Mask::every());
        // SAFETY: initialised in `new`; the set is copied.
        checked_number(unsafe { libc::posix_spawnattr_setsigmask(raw, none.as_raw()) })?;
        // SAFETY: initialised in `new`; the set is copied.
        checked_number(unsafe { libc::posix_spawnattr_setsigdefault(raw, all.as_raw()) })
    }

    fn group(&mut self, group: i32) -> io::Result<()> {
        // SAFETY: initialised in `new`; a plain number.
        checked_number(unsafe { libc::posix_spawnattr_setpgroup(self.0.as_mut_ptr(), group) })
    }

    fn flags(&mut self, flags: i32) -> io::Result<()> {
        let flags = i16::try_from(flags).expect("the flags are small constants");
        // SAFETY: initialised in `new`; a plain number.
        checked_number(unsafe { libc::posix_spawnattr_setflags(self.0.as_mut_ptr(), flags) })
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once.
        unsafe { libc::posix_spawnattr_destroy(self.0.as_mut_ptr()) };
    }
}

fn pointers(strings: &[CString]) -> Vec<*mut c_char> {
    let all = strings.iter().map(|string| string.as_ptr().cast_mut());
    all.chain([std::ptr::null_mut()]).collect()
}

/// Takes over a descriptor that this process was started with under this number.
///
/// For the constructor only: no other code of the program has run that could own it.
pub(crate) fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: nothing in this process owns it yet: it was inherited over exec and its number is
    // known from the parent's record only.
    unsafe { super::fds::adopt(fd) }
}

/// Whether this code is part of the program itself, not of a shared library: only then does it run
/// when the program is started again.
pub(crate) fn is_in_program() -> bool {
    let own = module_of((is_in_program as fn() -> bool) as *const c_void);
    // A static program has no dynamic loader that knows modules: it is one module then.
    own == program_module()
}

/// Whether a function or a static at this address is part of the program itself, and not of a shared
/// library nor of the heap. Only such a one is found again, at the same distance from any other,
/// when the program is started again ([`spawn`](crate::spawn())).
///
/// Says no for everything in a static program, where nobody can tell.
pub fn lies_in_program(address: *const ()) -> bool {
    let module = module_of(address.cast());
    module.is_some() && module == program_module()
}

fn program_module() -> Option<usize> {
    // SAFETY: AT_PHDR is an address in the program itself, or 0 where the kernel gave none.
    let program = unsafe { libc::getauxval(libc::AT_PHDR) };
    module_of(std::ptr::with_exposed_provenance(program as usize))
}

/// Where the module that an address lies in begins.
fn module_of(address: *const c_void) -> Option<usize> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: info is valid for writes; the address is only looked up.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: zeroed memory is a valid Dl_info, of null pointers.
    let info = unsafe { info.assume_init() };
    (found != 0).then(|| info.dli_fbase.addr())
}

/// The value of an environment variable, without the locks of the standard library.
fn variable(name: &CStr) -> Option<OsString> {
    // SAFETY: the name ends with a zero byte; called where no other thread changes the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: getenv returned a string that ends with a zero byte; copied at once.
    let value = unsafe { CStr::from_ptr(value) };
    Some(OsString::from_vec(value.to_bytes().to_vec()))
}

/// Takes a variable out of the environment, so that programs run later do not see it.
///
/// For the constructor only: the process has one thread.
fn take_variable(name: &CStr) -> Option<OsString> {
    let value = variable(name)?;
    // SAFETY: the name ends with a zero byte; no other thread exists.
    unsafe { libc::unsetenv(name.as_ptr()) };
    Some(value)
}

/// `putenv()`: puts a variable, as `name=value`, into the environment, for programs run later.
///
/// For a fresh child only: the process has one thread.
pub(crate) fn put_variable(setting: CString) {
    // SAFETY: it ends with a zero byte and is never freed; no other thread exists.
    unsafe { libc::putenv(setting.into_raw()) };
}

/// Runs before `main` of every program that has this code in it: a look for one variable.
extern "C" fn constructor() {
    if let Some(value) = take_variable(crate::spawn::MARKER) {
        crate::spawn::begin(&value);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;
