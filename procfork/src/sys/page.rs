//! One page per process, shared with the parent: is it alive, and what were its last words.
//!
//! ```text
//! byte 0    a robust mutex that the process's lasting thread owns while it lives: watched by its children
//! byte 64   another one: watched by its parent
//! byte 128  length of the last words
//! byte 192  the last words, UTF-8 as far as the writer can be trusted
//! ```
//!
//! There are two, because the kernel wakes one waiter of each. A child that is woken may be killed by the same death, by
//! its parent-death signal, before it could wake anybody else; the parent, which no signal tells, must not depend on it.
//!
//! The parent makes the page, so that the notice of a death and the message of a panic outlive
//! the process that they are about. What the other side wrote is a claim: lengths are clamped and
//! text is decoded with replacement.
#![expect(
    unsafe_code,
    reason = "views into shared memory; see the Safety section of `sys`"
)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use super::memory::SharedMapping;
use super::robust;
use crate::sync::{AtomicU8, AtomicU32, Ordering};

/// Bytes of a page, also of the memory file that holds one.
pub(crate) const PAGE_BYTES: usize = 4096;

const PARENTS_AT: usize = robust::MUTEX_BYTES;
const LENGTH_AT: usize = 2 * robust::MUTEX_BYTES;
const WORDS_AT: usize = 192;
const WORDS_MAX: usize = PAGE_BYTES - WORDS_AT;

/// See the module.
#[derive(Debug)]
pub(crate) struct LifePage(SharedMapping);

impl LifePage {
    /// A page that forked children inherit.
    pub(crate) fn anonymous() -> io::Result<Self> {
        SharedMapping::anonymous(PAGE_BYTES).map(Self)
    }

    /// The page at the head of a memory file of at least [`PAGE_BYTES`].
    pub(crate) fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        SharedMapping::of(fd, PAGE_BYTES).map(Self)
    }

    /// Where it is mapped in this process.
    pub(crate) fn address(&self) -> usize {
        self.0.start().addr().get()
    }

    /// Children forked from now on do not get this page.
    pub(crate) fn hide_from_children(&self) -> io::Result<()> {
        self.0.hide_from_children()
    }

    /// Marks the calling thread as the one whose end is the end of this process.
    ///
    /// # Errors
    ///
    /// `EBUSY` when the page has an owner already; `ENOTSUP` with an unknown C library.
    pub(crate) fn own(&'static self) -> io::Result<()> {
        if self.word().load(Ordering::Relaxed) != 0 {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        // SAFETY:
        // - the first MUTEX_BYTES of a page are for the mutex, page aligned, zeroed until owned,
        //   and only the process that the page is about owns it, once (checked above);
        // - the page is never unmapped: the borrow is 'static.
        unsafe { robust::lock_for_life(self.0.start()) }?;
        // SAFETY: as above, for the MUTEX_BYTES behind the first ones.
        unsafe { robust::lock_for_life(self.at(PARENTS_AT)) }
    }

    /// The word that the kernel marks when the owner dies, for the children of the owner.
    pub(crate) fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping is longer than MUTEX_BYTES and lives as long as the borrow.
        unsafe { robust::word(self.0.start()) }
    }

    /// The word that the kernel marks when the owner dies, for the parent of the owner.
    pub(crate) fn parents_word(&self) -> &AtomicU32 {
        // SAFETY: the mapping is longer than two mutexes and lives as long as the borrow.
        unsafe { robust::word(self.at(PARENTS_AT)) }
    }

    /// Replaces the last words; cut at the room of the page.
    pub(crate) fn write_words(&self, text: &str) {
        self.length().store(0, Ordering::Relaxed);
        let bytes = text.as_bytes().iter().take(WORDS_MAX);
        let mut written = 0;
        for (index, byte) in bytes.enumerate() {
            self.byte(index).store(*byte, Ordering::Relaxed);
            written = index + 1;
        }
        // Release: pairs with the Acquire in `words`, so that a reader of the length sees the text.
        self.length()
            .store(u32::try_from(written).unwrap_or(0), Ordering::Release);
    }

    /// The last words, if any were written.
    pub(crate) fn words(&self) -> Option<String> {
        // Acquire: pairs with the Release in `write_words`.
        let length = usize::try_from(self.length().load(Ordering::Acquire))
            .ok()?
            .min(WORDS_MAX);
        let bytes: Vec<u8> = (0..length)
            .map(|at| self.byte(at).load(Ordering::Relaxed))
            .collect();
        (length > 0).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn length(&self) -> &AtomicU32 {
        // SAFETY: LENGTH_AT is within the page and a multiple of 4; see `at`.
        unsafe { self.at(LENGTH_AT).cast::<AtomicU32>().as_ref() }
    }

    fn byte(&self, index: usize) -> &AtomicU8 {
        assert!(
            index < WORDS_MAX,
            "the caller clamps to the room of the page"
        );
        // SAFETY: within the page by the assertion; see `at`.
        unsafe { self.at(WORDS_AT + index).cast::<AtomicU8>().as_ref() }
    }

    /// A byte of the page, mapped for as long as `self` is borrowed.
    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < PAGE_BYTES, "offsets are constants or clamped");
        // SAFETY: within the mapping by the assertion.
        unsafe { self.0.start().add(offset) }
    }
}
