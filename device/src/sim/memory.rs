//! The memory of one simulated chip: an address space of its own, an allocator, and checked access.
//!
//! # Addresses
//!
//! A device address is not a host pointer. Each chip reserves one range of host memory (the
//! *arena*, which costs nothing until touched) and shows it to programs at [`BASE`], the same on
//! every chip. So two chips hand out equal addresses, as real ones do, and a program that confuses
//! them is caught here instead of on hardware. Turning an address into memory is one subtraction,
//! but only behind a look-up that proves that the whole range lies inside one live allocation
//! ([`Allocations::resolve`]). Windows (module `windows`) are address ranges behind the arena, with
//! mappings of their own; they are in the same list of live ranges.
//!
//! # Safety
//!
//! The `unsafe` here is copies to and from the arena, guards behind allocations, and giving pages
//! back. Every range comes from [`Allocations::resolve`], which keeps it inside the arena or
//! inside one mapped window; a mapping lives as long as its ranges are in that list. Bytes of the arena are always initialised (the kernel hands out
//! zeroed pages), and no reference into the arena outlives a call of this file: whoever needs a
//! slice makes it from [`DeviceMemory::host_pointer`] under its own proof.

#![expect(
    unsafe_code,
    reason = "raw pointers into the arena, see the Safety section"
)]

use std::collections::BTreeMap;

use memmap2::{MmapOptions, MmapRaw};

use crate::allocations::Allocations;
use crate::chip::{DeviceAddress, MemoryReport};
use crate::context::CoreTensor;
use crate::error::{AddressProblem, DeviceError};
use crate::window::{Window, WindowSide, window_stride};

use super::windows::{self, Windows};

/// Where every simulated chip's memory begins, as seen by programs.
pub(crate) const BASE: u64 = 0x1240_0000_0000;

/// Every allocation starts at a multiple of this many bytes and occupies a multiple of it.
pub(crate) const ALIGNMENT: u64 = 512;

/// Every allocation is followed by at least so many bytes that nobody may write.
pub(crate) const GUARD_BYTES: u64 = 64;

/// What they hold.
const GUARD_PATTERN: u8 = 0xFD;

/// Freed allocations of at least this size give their pages back to the host.
const RETURN_BYTES_MIN: u64 = 32 << 20;

/// What the allocator does with an address that was just freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressReuse {
    /// Moves on and comes back to a freed address only after the rest of the memory.
    #[default]
    Late,
    /// Hands the lowest fitting address out again at once: the hardest case for stale pointers.
    AtOnce,
}

/// The address space and allocator of one chip.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    chip: u32,
    arena: MmapRaw,
    reuse: AddressReuse,
    /// Free blocks, base to length; neighbours are always merged.
    free: BTreeMap<u64, u64>,
    live: Allocations,
    windows: Windows,
    used_bytes: u64,
    /// Where a late-reusing search starts.
    cursor: u64,
    /// Addresses that the next allocations must get, last first.
    placed: Vec<u64>,
}

impl DeviceMemory {
    /// Reserves an address space of `budget_bytes` (rounded up to the alignment) for chip number
    /// `chip`.
    pub(crate) fn reserve(
        chip: u32,
        budget_bytes: u64,
        reuse: AddressReuse,
        mut placed: Vec<u64>,
    ) -> Result<Self, DeviceError> {
        let bytes = budget_bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let reserved = usize::try_from(bytes)
            .map_err(std::io::Error::other)
            .and_then(|len| {
                MmapOptions::new()
                    .len(len)
                    .no_reserve_swap()
                    .map_anon()
                    .map(MmapRaw::from)
            });
        let arena = reserved.map_err(|source| DeviceError::Reserve {
            chip,
            bytes,
            source,
        })?;
        placed.reverse();
        let free = BTreeMap::from([(BASE, bytes)]);
        let live = Allocations::new(chip);
        Ok(Self {
            chip,
            arena,
            reuse,
            free,
            live,
            windows: Windows::new(reuse),
            used_bytes: 0,
            cursor: BASE,
            placed,
        })
    }

    /// Allocates `bytes` (zero counts as one). The contents are not specified.
    pub(crate) fn malloc(&mut self, bytes: u64) -> Result<DeviceAddress, DeviceError> {
        let wanted = bytes.max(1);
        let rounded = block_length(wanted);
        let affordable = rounded.filter(|&length| length <= self.free_bytes());
        let block = affordable.and_then(|length| Some((self.find(length)?, length)));
        let Some((base, length)) = block else {
            return Err(self.out_of_memory(bytes));
        };
        self.take(base, length);
        self.live.record(base, wanted);
        self.guard(DeviceAddress(base + wanted)).restore();
        self.used_bytes += length;
        self.cursor = base + length;
        Ok(DeviceAddress(base))
    }

    /// Frees the allocation that starts at `address`.
    pub(crate) fn free(&mut self, address: DeviceAddress) -> Result<(), DeviceError> {
        self.refuse_window(address)?;
        let bytes = self.live.revoke(address)?;
        let length = block_length(bytes).expect("it was allocated with this length");
        self.used_bytes -= length;
        self.release(address.0, length);
        if length >= RETURN_BYTES_MIN {
            self.return_pages(address.0, length);
        }
        Ok(())
    }

    /// Forgets an allocation or a window whose memory the device does not give back: a leak, and no live pointer.
    pub(crate) fn leak(&mut self, address: DeviceAddress) -> Result<(), DeviceError> {
        self.live.revoke(address)?;
        if self.windows.begins(address.0) {
            self.windows.leak();
        }
        Ok(())
    }

    /// Maps a window; where it begins. Its guard is written once by each side that maps it.
    pub(crate) fn map_window(&mut self, window: &Window<'_>) -> Result<DeviceAddress, DeviceError> {
        let chip = self.chip;
        let bytes = window.bytes;
        // As much as the window takes then, which is whole pages. What has no such length is refused below.
        let taken = window_stride(bytes).unwrap_or(0);
        if window.side == WindowSide::Home && taken > self.free_bytes() {
            return Err(self.out_of_memory(bytes));
        }
        let refused = |source| DeviceError::Window {
            chip,
            bytes,
            source,
        };
        let base = self.windows.map(window).map_err(refused)?;
        self.live.record(base, bytes);
        self.guard(DeviceAddress(base + bytes)).restore();
        Ok(DeviceAddress(base))
    }

    /// Unmaps the window that begins at `address`.
    pub(crate) fn unmap_window(&mut self, address: DeviceAddress) -> Result<(), DeviceError> {
        if !self.windows.begins(address.0) {
            let problem = AddressProblem::NotWindow;
            return Err(self.live.refuse("unmap", address, 0, problem));
        }
        self.live.revoke(address)?;
        self.windows.unmap(address.0);
        Ok(())
    }

    fn refuse_window(&self, address: DeviceAddress) -> Result<(), DeviceError> {
        if !self.windows.begins(address.0) {
            return Ok(());
        }
        Err(self.live.refuse("free", address, 0, AddressProblem::Window))
    }

    /// What is neither allocated nor in a window of this chip's own.
    fn free_bytes(&self) -> u64 {
        let taken = self.used_bytes + self.windows.home_bytes();
        (self.arena.len() as u64).saturating_sub(taken)
    }

    /// Frees everything, unmaps every window, and gives all pages back.
    pub(crate) fn clear(&mut self) {
        let bytes = self.arena.len() as u64;
        self.live.clear();
        self.windows = Windows::new(self.reuse);
        self.free = BTreeMap::from([(BASE, bytes)]);
        self.used_bytes = 0;
        self.return_pages(BASE, bytes);
    }

    /// The bytes behind the allocation that ends at `end`.
    pub(crate) fn guard(&self, end: DeviceAddress) -> Guard {
        Guard {
            start: self.host_pointer(end),
        }
    }

    /// The live allocations, to ask whether something lies inside one.
    pub(crate) fn allocations(&self) -> &Allocations {
        &self.live
    }

    /// The host memory behind an address that was found in a live allocation.
    pub(crate) fn host_pointer(&self, address: DeviceAddress) -> *mut u8 {
        if address.0 >= windows::FIRST {
            return self.windows.host_pointer(address.0);
        }
        let offset = (address.0 - BASE) as usize;
        debug_assert!(offset <= self.arena.len(), "{address} was resolved");
        self.arena.as_mut_ptr().wrapping_add(offset)
    }

    /// Copies host bytes to `to`.
    pub(crate) fn write(&mut self, to: DeviceAddress, from: &[u8]) -> Result<(), DeviceError> {
        self.live.resolve("copy_to", to, from.len() as u64)?;
        let start = self.host_pointer(to);
        // SAFETY: `resolve` proved that `from.len()` bytes from `start` on belong to a live
        // allocation; `from` is a host slice and cannot overlap the arena, to which no reference
        // exists while `self` is borrowed.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), start, from.len()) };
        Ok(())
    }

    /// Copies device bytes at `from` into a host slice.
    pub(crate) fn read(&self, to: &mut [u8], from: DeviceAddress) -> Result<(), DeviceError> {
        self.live.resolve("copy_from", from, to.len() as u64)?;
        let start = self.host_pointer(from);
        // SAFETY: as in `write`, with the direction reversed; the arena's bytes are always
        // initialised.
        unsafe { std::ptr::copy_nonoverlapping(start, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// What is used, what is free, and the largest piece that could be allocated.
    pub(crate) fn report(&self) -> MemoryReport {
        let total_bytes = self.arena.len() as u64;
        let largest = self.free.values().copied().max().unwrap_or(0);
        MemoryReport {
            total_bytes,
            used_bytes: total_bytes - self.free_bytes(),
            free_bytes: self.free_bytes(),
            largest_block_bytes: largest.min(self.free_bytes()).saturating_sub(GUARD_BYTES),
            allocations: self.live.len() - self.windows.len(),
        }
    }

    /// The next address chosen from outside, or the first free block that fits under the reuse
    /// policy.
    fn find(&mut self, length: u64) -> Option<u64> {
        if let Some(chosen) = self.placed.pop() {
            return self.holds_free(chosen, length).then_some(chosen);
        }
        let fits = |&(_, &block): &(&u64, &u64)| block >= length;
        let lowest = || self.free.iter().find(fits).map(|(&base, _)| base);
        match self.reuse {
            AddressReuse::AtOnce => lowest(),
            AddressReuse::Late if self.holds_free(self.cursor, length) => Some(self.cursor),
            AddressReuse::Late => {
                let later = self
                    .free
                    .range(self.cursor..)
                    .find(fits)
                    .map(|(&base, _)| base);
                later.or_else(lowest)
            }
        }
    }

    /// Whether one free block covers `length` bytes from `base` on.
    fn holds_free(&self, base: u64, length: u64) -> bool {
        let block = self.free.range(..=base).next_back();
        block.is_some_and(|(&start, &block)| {
            base - start <= block && block - (base - start) >= length
        })
    }

    /// Cuts `length` bytes from `base` on out of the free block that holds them.
    fn take(&mut self, base: u64, length: u64) {
        let (&start, &block) = self
            .free
            .range(..=base)
            .next_back()
            .expect("find() chose a free block");
        self.free.remove(&start);
        if base > start {
            self.free.insert(start, base - start);
        }
        let (end, block_end) = (base + length, start + block);
        if block_end > end {
            self.free.insert(end, block_end - end);
        }
    }

    /// Puts a block back and merges it with its free neighbours.
    fn release(&mut self, base: u64, length: u64) {
        let (mut start, mut end) = (base, base + length);
        if let Some((&before, &before_length)) = self.free.range(..base).next_back()
            && before + before_length == base
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(after_length) = self.free.remove(&end) {
            end += after_length;
        }
        self.free.insert(start, end - start);
    }

    /// Gives the pages of a free block back to the host; the next owner finds zeroes.
    fn return_pages(&self, base: u64, length: u64) {
        // The largest page of any machine that this runs on, so that a multiple of it is one of every page.
        let page = 64 << 10;
        let start = (base - BASE).next_multiple_of(page);
        let end = (base - BASE + length) / page * page;
        let advice = memmap2::UncheckedAdvice::DontNeed;
        // SAFETY: the range lies inside a free block, so nobody relies on its
        // contents; it begins and ends on whole pages, so that the call is about no
        // other byte.
        let advised = unsafe {
            self.arena
                .unchecked_advise_range(advice, start as usize, (end - start) as usize)
        };
        if let Err(error) = advised {
            tracing::debug!(%error, "pages of a freed allocation stay resident");
        }
    }

    fn out_of_memory(&self, wanted_bytes: u64) -> DeviceError {
        DeviceError::OutOfMemory {
            chip: self.chip,
            wanted_bytes,
            report: self.report(),
        }
    }
}

/// How many bytes an allocation of `bytes` takes, its guard included; `None` if that overflows.
fn block_length(bytes: u64) -> Option<u64> {
    bytes
        .checked_add(GUARD_BYTES)?
        .checked_next_multiple_of(ALIGNMENT)
}

/// The first bytes behind an allocation: a write past its end is seen there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    start: *mut u8,
}

// SAFETY: guards are written while no task runs, and by code that breaks its promises; the bytes
// are plain, and whoever reads them wants to know just that.
unsafe impl Send for Guard {}
// SAFETY: as for `Send`.
unsafe impl Sync for Guard {}

impl Guard {
    /// Whether nobody wrote there.
    pub(crate) fn is_intact(self) -> bool {
        let mut found = [0; GUARD_BYTES as usize];
        // SAFETY: every allocation is followed by that many bytes of its block.
        unsafe { std::ptr::copy_nonoverlapping(self.start, found.as_mut_ptr(), found.len()) };
        found == [GUARD_PATTERN; GUARD_BYTES as usize]
    }

    pub(crate) fn restore(self) {
        // SAFETY: as in `is_intact`.
        unsafe { std::ptr::write_bytes(self.start, GUARD_PATTERN, GUARD_BYTES as usize) };
    }

    /// Does what a stray write does.
    pub(crate) fn damage(self) {
        // SAFETY: as in `is_intact`.
        unsafe { std::ptr::write_bytes(self.start, !GUARD_PATTERN, 1) };
    }
}

/// The first element of a tensor that has one, as it lies in memory; what is behind it is zero.
pub(crate) fn first_bytes(tensor: &CoreTensor) -> [u8; 8] {
    let mut bytes = [0; 8];
    let len = (tensor.view.dtype().bits() / 8) as usize;
    // SAFETY: the tensor's footprint was found in a live allocation and has an element; no task
    // that writes it runs, because this is asked when the inputs of a task are ready.
    unsafe { std::ptr::copy_nonoverlapping(tensor.start, bytes.as_mut_ptr(), len) };
    bytes
}

#[cfg(test)]
mod tests;
