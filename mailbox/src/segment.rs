//! Segments: nameless shared memory that leaves nothing behind and cannot change its size.
//!
//! A segment is a memfd. It has no name in any file system, so whatever is killed, the kernel frees it
//! with its last descriptor and mapping. It is sealed against growing and shrinking, so a mapping that
//! was checked once stays valid: no peer can truncate it under a reader. Its pages are reserved when it
//! is created (or later, range by range, for a sparse one), so that a full machine is an error there
//! and never a SIGBUS in the middle of a copy.
//!
//! # Safety
//!
//! Memory of a segment may be written by another process at any time. This module hands out no
//! reference to plain memory: copies go through volatile accesses, and [`Segment::as_ptr`] gives a raw
//! pointer whose user takes on the duty. Every offset is checked against the length that was verified
//! when the segment was mapped, and the mapping lives as long as the value.
#![expect(
    unsafe_code,
    reason = "copies in and out of memory that another process may write"
)]

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memmap2::{MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::kept::Kept;
use nix::sys::resource::{Resource, getrlimit};

/// A piece of shared memory, mapped into this process.
///
/// Dropping it unmaps it here and closes this descriptor; the memory lives until the last process has
/// done so. Cheap accessors, no lock, `Send` and `Sync`: what concurrent writers mean to each other is
/// a protocol above (see [`crate::Mailbox`]).
#[derive(Debug)]
pub struct Segment {
    fd: Kept<OwnedFd>,
    map: Kept<MmapRaw>,
    access: Access,
}

/// What this process may do to a mapped segment. The mapping itself enforces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads only: a store through the raw pointer is a fault in this process.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// How a segment's memory is obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Which pages exist from the start.
    pub reserve: Reserve,
    /// Which size of pages to ask for.
    pub pages: Pages,
}

/// Which pages of a segment are reserved when it is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// Every page: no access can fail, unless somebody releases pages.
    #[default]
    All,
    /// The first so many bytes. The rest costs nothing until [`Segment::reserve`] is called for it,
    /// which must come before any access to it.
    First(usize),
}

/// Which size of pages a segment asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// The machine's ordinary pages.
    #[default]
    Ordinary,
    /// Huge pages where the machine offers them for shared memory; ordinary pages elsewhere. A hint:
    /// it never fails.
    HugeHint,
}

/// Why a segment could not be created, reserved, mapped or accessed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// A segment of no bytes, or of more than an address space holds.
    #[error("create segment `{name}` of {bytes} bytes: the size must be from 1 to {max}", max = isize::MAX)]
    Size {
        /// Name given for diagnostics.
        name: String,
        /// Size asked for, in bytes.
        bytes: usize,
    },
    /// A segment counts as a file, and this process may make none of that size; the kernel would end it with SIGXFSZ.
    #[error(
        "create segment `{name}` of {bytes} bytes: this process may make files of at most {limit} bytes (RLIMIT_FSIZE), and a segment counts as one"
    )]
    FileLimit {
        /// Name given for diagnostics.
        name: String,
        /// Size asked for, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The machine has not the memory. Nothing was reserved.
    #[error(
        "reserve {wanted} bytes of shared memory: the machine is out of memory (free some, or ask for less)"
    )]
    OutOfMemory {
        /// Bytes asked for.
        wanted: usize,
        /// What the kernel answered.
        #[source]
        source: std::io::Error,
    },
    /// A system call failed.
    #[error("{call} for a segment of {bytes} bytes")]
    Os {
        /// The call.
        call: &'static str,
        /// Size of the segment, in bytes.
        bytes: usize,
        /// What the kernel answered.
        #[source]
        source: std::io::Error,
    },
    /// A received descriptor is not a segment of the size that was announced, or nothing was announced.
    #[error(
        "map a received segment: announced {expected} bytes, the descriptor has {found} (they must be equal, and not 0)"
    )]
    WrongSize {
        /// Bytes announced.
        expected: usize,
        /// Bytes that the descriptor really has.
        found: u64,
    },
    /// A received descriptor could still be truncated by its other holders, so that mapping it would
    /// mean a SIGBUS at their pleasure. So can everything that is no memfd.
    #[error(
        "map a received segment: it is not sealed against changing its size (seals {seals:#x})"
    )]
    NotSealed {
        /// The seals that the descriptor has.
        seals: i32,
    },
    /// A range leaves the segment.
    #[error("access bytes {offset}..{offset}+{len} of a segment of {bytes} bytes")]
    OutOfBounds {
        /// First byte of the range.
        offset: usize,
        /// Length of the range.
        len: usize,
        /// Size of the segment.
        bytes: usize,
    },
    /// A received descriptor does not allow what it was to be mapped for.
    #[error(
        "map a received segment of {bytes} bytes for writing: its descriptor allows only reading (map it with `Segment::map_readonly`)"
    )]
    ReadOnlyFd {
        /// Size of the segment, in bytes.
        bytes: usize,
    },
    /// A store into a segment that is mapped read-only here.
    #[error("write to a segment that is mapped read-only in this process")]
    ReadOnly,
}

impl Segment {
    /// Creates a segment of `bytes` bytes, zeroed, with all of its pages reserved, and maps it.
    ///
    /// `name` is for diagnostics only (`/proc/PID/maps`); it names nothing and cannot collide.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Size`], [`SegmentError::FileLimit`], [`SegmentError::OutOfMemory`] when the machine cannot
    /// back it, or [`SegmentError::Os`].
    pub fn create(name: &str, bytes: usize) -> Result<Segment, SegmentError> {
        Segment::create_with(name, bytes, SegmentOptions::default())
    }

    /// Like [`Segment::create`], with a choice of what is reserved and of the page size.
    ///
    /// # Errors
    ///
    /// As [`Segment::create`].
    pub fn create_with(
        name: &str,
        bytes: usize,
        options: SegmentOptions,
    ) -> Result<Segment, SegmentError> {
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(SegmentError::Size {
                name: name.to_owned(),
                bytes,
            });
        }
        check_file_limit(name, bytes)?;
        let fd = File::from(new_memfd(name, bytes)?);
        fd.set_len(bytes as u64)
            .map_err(|source| refused("ftruncate", bytes, source))?;
        let first = match options.reserve {
            Reserve::All => bytes,
            Reserve::First(n) => n.min(bytes),
        };
        reserve_pages(fd.as_fd(), 0, first)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).map_err(|e| os("fcntl(F_ADD_SEALS)", bytes, e))?;
        let segment = Segment::map(fd.into(), bytes, Access::ReadWrite)?;
        segment.apply(options.pages);
        Ok(segment)
    }

    /// Maps a received descriptor for reading and writing, after checking that it is sealed and has
    /// exactly `expected_bytes`.
    ///
    /// Whether its pages are reserved is not checked here, and whoever may write can give them back
    /// ([`Segment::release`]): they read as zeros then, and the kernel finds others at the next access. Where the
    /// machine may be full and the sender is not trusted, call [`Segment::reserve`] before each access.
    ///
    /// # Errors
    ///
    /// [`SegmentError::WrongSize`], [`SegmentError::NotSealed`], [`SegmentError::ReadOnlyFd`],
    /// [`SegmentError::OutOfMemory`], or [`SegmentError::Os`].
    pub fn from_fd(fd: OwnedFd, expected_bytes: usize) -> Result<Segment, SegmentError> {
        check_received(&fd, expected_bytes)?;
        Segment::map(fd, expected_bytes, Access::ReadWrite)
    }

    /// Like [`Segment::from_fd`], mapped so that this process can only read.
    ///
    /// # Errors
    ///
    /// As [`Segment::from_fd`].
    pub fn map_readonly(fd: OwnedFd, expected_bytes: usize) -> Result<Segment, SegmentError> {
        check_received(&fd, expected_bytes)?;
        Segment::map(fd, expected_bytes, Access::ReadOnly)
    }

    /// A second descriptor of the same memory, for a process that may only read it: the kernel refuses
    /// a writable mapping of this one.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Os`], for example where `/proc` is not mounted.
    pub fn readonly_fd(&self) -> Result<OwnedFd, SegmentError> {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        nix::fcntl::open(
            path.as_str(),
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            nix::sys::stat::Mode::empty(),
        )
        .map_err(|e| os("open(/proc/self/fd)", self.len(), e))
    }

    /// A second descriptor of the same memory, with the rights of this one.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Os`] when the process has too many open.
    pub fn try_clone_fd(&self) -> Result<OwnedFd, SegmentError> {
        self.fd.try_clone().map_err(|source| SegmentError::Os {
            call: "dup",
            bytes: self.len(),
            source,
        })
    }

    /// Keeps this mapping out of the processes that this one forks from now on: they map it by descriptor, or not at
    /// all. Such a process may drop what it has inherited of this value, which does nothing there, and must not touch it otherwise.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Os`].
    pub fn keep_from_forks(&self) -> Result<(), SegmentError> {
        let advised = self.map.advise(memmap2::Advice::DontFork);
        self.fd.keep();
        self.map.keep();
        advised.map_err(|source| SegmentError::Os {
            call: "madvise(MADV_DONTFORK)",
            bytes: self.len(),
            source,
        })
    }

    /// Takes [`Segment::keep_from_forks`] back: processes forked from now on inherit the mapping, and may use what they have
    /// inherited of this value where they were left the descriptor.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Os`].
    pub fn share_with_forks(&self) -> Result<(), SegmentError> {
        let advised = self.map.advise(memmap2::Advice::DoFork);
        self.fd.share();
        self.map.share();
        advised.map_err(|source| SegmentError::Os {
            call: "madvise(MADV_DOFORK)",
            bytes: self.len(),
            source,
        })
    }

    /// Reserves the pages of a range, so that accesses to it cannot fail afterwards.
    ///
    /// Reserving a range again costs one system call and changes nothing.
    ///
    /// # Errors
    ///
    /// [`SegmentError::OutOfMemory`], [`SegmentError::OutOfBounds`], or [`SegmentError::Os`] where the descriptor
    /// does not allow writing.
    pub fn reserve(&self, offset: usize, len: usize) -> Result<(), SegmentError> {
        self.check(offset, len)?;
        reserve_pages(self.fd.as_fd(), offset, len)
    }

    /// Returns the pages of a range to the machine: it reads as zeros, in every process, and must be reserved
    /// again before the next access. Pages that lie in it only in part are zeroed in that part and stay.
    ///
    /// # Errors
    ///
    /// [`SegmentError::OutOfBounds`] or [`SegmentError::Os`].
    pub fn release(&self, offset: usize, len: usize) -> Result<(), SegmentError> {
        self.check(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(
            self.fd.as_fd(),
            flags,
            offset as libc::off_t,
            len as libc::off_t,
        )
        .map_err(|e| os("fallocate(PUNCH_HOLE)", self.len(), e))
    }

    /// Size in bytes, as verified when it was mapped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Never true: an empty segment cannot be created.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What this process may do to it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The first byte, for typed views above.
    ///
    /// The pointer is valid for [`Segment::len`] bytes as long as the segment lives, for stores only
    /// where [`Segment::access`] allows them. Other processes may write there: whoever makes a
    /// reference from it must know by protocol that nobody does so meanwhile.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Copies `out.len()` bytes from `offset` out of the segment.
    ///
    /// What a peer writes meanwhile may be seen in part; it is bytes either way.
    ///
    /// # Errors
    ///
    /// [`SegmentError::OutOfBounds`].
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        copy_out(self.at(offset, out.len())?, out);
        Ok(())
    }

    /// Copies `bytes` into the segment at `offset`.
    ///
    /// # Errors
    ///
    /// [`SegmentError::OutOfBounds`] or [`SegmentError::ReadOnly`]; nothing was written then.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        if self.access == Access::ReadOnly {
            return Err(SegmentError::ReadOnly);
        }
        copy_in(self.at(offset, bytes.len())?, bytes);
        Ok(())
    }

    /// A pointer to `offset`, after checking that `len` bytes follow it.
    pub(crate) fn at(&self, offset: usize, len: usize) -> Result<*mut u8, SegmentError> {
        self.check(offset, len)?;
        // SAFETY: `offset` is at most the length of the mapping, so the result stays in it or one past.
        Ok(unsafe { self.as_ptr().add(offset) })
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), SegmentError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(SegmentError::OutOfBounds {
                offset,
                len,
                bytes: self.len(),
            }),
        }
    }

    fn map(fd: OwnedFd, bytes: usize, access: Access) -> Result<Segment, SegmentError> {
        let mut options = MmapOptions::new();
        options.len(bytes);
        let map = match access {
            Access::ReadOnly => options.map_raw_read_only(&fd),
            Access::ReadWrite => options.map_raw(&fd),
        };
        let map = map.map_err(|source| match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) if access == Access::ReadWrite => {
                SegmentError::ReadOnlyFd { bytes }
            }
            _ => refused("mmap", bytes, source),
        })?;
        let (fd, map) = (Kept::shared(fd), Kept::shared(map));
        Ok(Segment { fd, map, access })
    }

    /// Huge pages are a hint: where the machine has none, the answer is ignored.
    fn apply(&self, pages: Pages) {
        if pages == Pages::HugeHint {
            let _ = self.map.advise(memmap2::Advice::HugePage);
        }
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Copies out of shared memory, eight bytes at a time where that is aligned. The caller has checked that
/// `out.len()` bytes at `from` are mapped.
fn copy_out(from: *const u8, out: &mut [u8]) {
    let (head, rest) = out.split_at_mut(from.align_offset(8).min(out.len()));
    let (words, tail) = rest.as_chunks_mut::<8>();
    let words_at = from.wrapping_add(head.len());
    let tail_at = words_at.wrapping_add(words.len() * 8);
    for (i, word) in words.iter_mut().enumerate() {
        // SAFETY: mapped as the caller has checked, aligned as counted; volatile, since a peer may write.
        *word = unsafe { words_at.cast::<u64>().wrapping_add(i).read_volatile() }.to_ne_bytes();
    }
    for (start, bytes) in [(from, head), (tail_at, tail)] {
        for (i, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: mapped as the caller has checked; volatile, since a peer may write.
            *byte = unsafe { start.wrapping_add(i).read_volatile() };
        }
    }
}

/// Copies into shared memory, eight bytes at a time where that is aligned. The caller has checked that
/// `bytes.len()` bytes at `to` are mapped for writing.
fn copy_in(to: *mut u8, bytes: &[u8]) {
    let (head, rest) = bytes.split_at(to.align_offset(8).min(bytes.len()));
    let (words, tail) = rest.as_chunks::<8>();
    let words_at = to.wrapping_add(head.len());
    let tail_at = words_at.wrapping_add(words.len() * 8);
    for (i, word) in words.iter().enumerate() {
        let place = words_at.cast::<u64>().wrapping_add(i);
        // SAFETY: mapped for writing as the caller has checked, aligned as counted; volatile, since a
        // peer may look.
        unsafe { place.write_volatile(u64::from_ne_bytes(*word)) };
    }
    for (start, bytes) in [(to, head), (tail_at, tail)] {
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: mapped for writing as the caller has checked; volatile, since a peer may look.
            unsafe { start.wrapping_add(i).write_volatile(*byte) };
        }
    }
}

/// A memfd that can be sealed and is closed on exec; never executable where the kernel can promise it.
fn new_memfd(name: &str, bytes: usize) -> Result<OwnedFd, SegmentError> {
    /// `MFD_NOEXEC_SEAL`, since Linux 6.3.
    const NOEXEC: MFdFlags = MFdFlags::from_bits_retain(0x8);
    let printable: String = name.chars().filter(|c| *c != '\0').take(200).collect();
    let c_name = CString::new(printable).unwrap_or_default();
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    memfd_create(c_name.as_c_str(), flags | NOEXEC)
        .or_else(|e| match e {
            Errno::EINVAL => memfd_create(c_name.as_c_str(), flags),
            other => Err(other),
        })
        .map_err(|e| os("memfd_create", bytes, e))
}

/// Refuses what would raise a signal that ends this process.
fn check_file_limit(name: &str, bytes: usize) -> Result<(), SegmentError> {
    let (limit, _) =
        getrlimit(Resource::RLIMIT_FSIZE).map_err(|e| os("getrlimit(RLIMIT_FSIZE)", bytes, e))?;
    match bytes as u64 > limit {
        false => Ok(()),
        true => Err(SegmentError::FileLimit {
            name: name.to_owned(),
            bytes,
            limit,
        }),
    }
}

/// `fallocate`, in steps that a signal may interrupt without losing what the earlier steps did.
fn reserve_pages(fd: BorrowedFd<'_>, offset: usize, len: usize) -> Result<(), SegmentError> {
    const STEP: usize = 16 << 20;
    crate::memory_left::refuse_hopeless(len)?;
    let mut done = 0;
    while done < len {
        let step = STEP.min(len - done);
        let (from, count) = ((offset + done) as libc::off_t, step as libc::off_t);
        match fallocate(fd, FallocateFlags::empty(), from, count) {
            Ok(()) => done += step,
            Err(Errno::EINTR) => {}
            Err(e) => return Err(refused("fallocate", len, e.into())),
        }
    }
    Ok(())
}

/// The size and the seals of a descriptor that came from somewhere else.
fn check_received(fd: &OwnedFd, expected: usize) -> Result<(), SegmentError> {
    let stat = nix::sys::stat::fstat(fd).map_err(|e| os("fstat", expected, e))?;
    let found = u64::try_from(stat.st_size).unwrap_or(0);
    if found != expected as u64 || expected == 0 {
        return Err(SegmentError::WrongSize { expected, found });
    }
    let seals = match fcntl(fd, FcntlArg::F_GET_SEALS) {
        // A file that can have no seals.
        Err(Errno::EINVAL) => 0,
        answer => answer.map_err(|e| os("fcntl(F_GET_SEALS)", expected, e))?,
    };
    let needed = (SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW).bits();
    if seals & needed != needed {
        return Err(SegmentError::NotSealed { seals });
    }
    Ok(())
}

fn os(call: &'static str, bytes: usize, errno: Errno) -> SegmentError {
    SegmentError::Os {
        call,
        bytes,
        source: errno.into(),
    }
}

/// Tells a machine without memory from every other refusal.
fn refused(call: &'static str, bytes: usize, source: std::io::Error) -> SegmentError {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::ENOMEM | libc::EFBIG) => SegmentError::OutOfMemory {
            wanted: bytes,
            source,
        },
        _ => SegmentError::Os {
            call,
            bytes,
            source,
        },
    }
}

/// The size of a received descriptor, in bytes.
pub(crate) fn size_of_fd(fd: &OwnedFd) -> Result<usize, SegmentError> {
    let stat = nix::sys::stat::fstat(fd).map_err(|e| os("fstat", 0, e))?;
    Ok(usize::try_from(stat.st_size).unwrap_or(0))
}
