//! The windows that a simulated chip has mapped: address ranges beside its arena.
//!
//! They begin at [`FIRST`] on every chip, so that chips which map the same windows in the same order
//! see them at equal addresses, and confusing two chips is caught as it is for allocations.

use std::collections::BTreeMap;
use std::fs::File;

use memmap2::{MmapOptions, MmapRaw};

use super::memory::AddressReuse;
use crate::window::{WINDOW_ALIGNMENT, Window, WindowProblem, WindowSide, window_stride};

/// Where the first window of every simulated chip begins, far behind any arena.
pub(super) const FIRST: u64 = 0x2000_0000_0000;

#[derive(Debug)]
struct Mapped {
    map: MmapRaw,
    side: WindowSide,
}

/// The mapped windows by address.
#[derive(Debug)]
pub(super) struct Windows {
    mapped: BTreeMap<u64, Mapped>,
    reuse: AddressReuse,
    /// No window began here or later yet.
    fresh: u64,
    home_bytes: u64,
    /// Windows that stay mapped although they were given back: the device refused.
    leaked: usize,
}

impl Windows {
    pub(super) fn new(reuse: AddressReuse) -> Self {
        Self {
            mapped: BTreeMap::new(),
            reuse,
            fresh: FIRST,
            home_bytes: 0,
            leaked: 0,
        }
    }

    /// Maps a window, its guard included; where it begins.
    pub(super) fn map(&mut self, window: &Window<'_>) -> Result<u64, WindowProblem> {
        let map = map(window)?;
        let stride = map.len() as u64;
        let base = self.find(stride).ok_or(WindowProblem::Size)?;
        self.fresh = self.fresh.max(base + stride);
        if window.side == WindowSide::Home {
            self.home_bytes += stride;
        }
        let side = window.side;
        self.mapped.insert(base, Mapped { map, side });
        Ok(base)
    }

    /// Unmaps the window that begins at `base`; false if none does.
    pub(super) fn unmap(&mut self, base: u64) -> bool {
        let Some(gone) = self.mapped.remove(&base) else {
            return false;
        };
        if gone.side == WindowSide::Home {
            self.home_bytes -= gone.map.len() as u64;
        }
        true
    }

    /// Whether a window begins here.
    pub(super) fn begins(&self, base: u64) -> bool {
        self.mapped.contains_key(&base)
    }

    /// The host memory behind an address inside a mapped window or its guard.
    pub(super) fn host_pointer(&self, address: u64) -> *mut u8 {
        let (base, mapped) = self
            .mapped
            .range(..=address)
            .next_back()
            .expect("the address was found in a live window");
        mapped
            .map
            .as_mut_ptr()
            .wrapping_add((address - base) as usize)
    }

    /// Bytes of this chip's own memory that lie in windows.
    pub(super) fn home_bytes(&self) -> u64 {
        self.home_bytes
    }

    /// Windows that are mapped, and are not given back.
    pub(super) fn len(&self) -> usize {
        self.mapped.len() - self.leaked
    }

    /// A window stays mapped for ever, and is nobody's.
    pub(super) fn leak(&mut self) {
        self.leaked += 1;
    }

    /// A free range: the first one, or one that no window has had.
    fn find(&self, stride: u64) -> Option<u64> {
        let mut start = FIRST;
        if self.reuse == AddressReuse::Late {
            start = self.fresh;
        } else {
            for (&base, mapped) in &self.mapped {
                if base - start >= stride {
                    break;
                }
                start = base + mapped.map.len() as u64;
            }
        }
        start.checked_add(stride).map(|_| start)
    }
}

fn map(window: &Window<'_>) -> Result<MmapRaw, WindowProblem> {
    let stride = window_stride(window.bytes).filter(|_| window.bytes > 0);
    let stride = stride.ok_or(WindowProblem::Size)?;
    let wanted = window
        .offset
        .checked_add(stride)
        .ok_or(WindowProblem::Size)?;
    if !window.offset.is_multiple_of(WINDOW_ALIGNMENT) {
        return Err(WindowProblem::Unaligned {
            offset: window.offset,
        });
    }
    let owned = window.memory.try_clone_to_owned();
    let file = File::from(owned.map_err(WindowProblem::Host)?);
    let found = file.metadata().map_err(WindowProblem::Host)?.len();
    if found < wanted {
        return Err(WindowProblem::Short { wanted, found });
    }
    let len = usize::try_from(stride).map_err(|_| WindowProblem::Size)?;
    let mut options = MmapOptions::new();
    options.offset(window.offset).len(len);
    options.map_raw(&file).map_err(WindowProblem::Host)
}

#[cfg(test)]
mod tests;
