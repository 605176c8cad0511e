//! What a kernel sees while it runs on a core: its block, its tensors as typed slices, its scalars.
//!
//! # Safety
//!
//! The `unsafe` here makes slices of device memory, and copies to and from it. These facts are
//! checked or known before each one:
//!
//! - *in bounds and alive*: the backend found the whole footprint of every argument inside one live
//!   allocation when the task was submitted, and frees nothing while a run executes;
//! - *typed and aligned*: the element type equals the tensor's, the first element's address is a
//!   multiple of its alignment, and every bit pattern is a valid value ([`Element`] is plain old
//!   data);
//! - *exclusive among the lanes of a block*: every slice is recorded as a loan until the next
//!   [`KernelContext::sync`], and a loan that overlaps another is refused unless both only read. A
//!   slice borrows the context, and `sync` needs the context whole, so no slice survives its loan;
//! - *exclusive among the blocks of a task*: with several blocks, what the task writes can be
//!   borrowed inside this block's share only, and the shares are disjoint. Tasks whose arguments
//!   overlap each other have their blocks executed one after the other;
//! - *exclusive among tasks*: tasks that run at the same time touch nothing in common that one of
//!   them writes, by the edges of the graph. A task with a `NoDep` argument runs alone.
//! - *exclusive among chips*: a window is mapped by other chips too, in other processes. Whoever maps
//!   it there keeps runs apart that conflict ([`crate::Window`]); this crate cannot check it.
//!
//! Nothing else in the crate hands out references into device memory.

#![expect(
    unsafe_code,
    reason = "slices of device memory, see the Safety section"
)]

use std::cell::RefCell;
use std::ops::Range;

use taskgraph::{Element, Scalar, Tag, Tensor};

use crate::args::ScalarValue;
use crate::error::KernelError;
use crate::gang::{Gang, Loan, Loans};
use crate::kernel::Lane;
use crate::strided::Runs;

/// One tensor argument of a core task, found in host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreTensor {
    /// Host address of its first element.
    pub(crate) start: *mut u8,
    /// Its shape, strides and element type.
    pub(crate) view: Tensor,
    /// What the task does to it.
    pub(crate) tag: Tag,
}

// SAFETY: the pointer is only dereferenced through a `KernelContext`, whose rules (module doc) hold
// across threads.
unsafe impl Send for CoreTensor {}
// SAFETY: as for `Send`; a shared `CoreTensor` gives out nothing by itself.
unsafe impl Sync for CoreTensor {}

/// Where a context stands: the arguments of its task, its block, its lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'run> {
    pub(crate) tensors: &'run [CoreTensor],
    pub(crate) scalars: &'run [Scalar],
    pub(crate) block: u32,
    pub(crate) n_blocks: u32,
}

/// The arguments of one block of one core task, for one core.
///
/// Slices borrow the context, so inputs and outputs can be held side by side. Each access is
/// checked and costs a few nanoseconds: take slices once, outside of loops.
#[derive(Debug)]
pub struct KernelContext<'run> {
    place: Place<'run>,
    lane: Lane,
    loans: Held<'run>,
}

/// Who keeps the loans of this context.
#[derive(Debug)]
enum Held<'run> {
    Own(RefCell<Loans>),
    Gang(&'run Gang),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl<'run> KernelContext<'run> {
    /// A context of a core that runs a block by itself.
    pub(crate) fn alone(place: Place<'run>, lane: Lane) -> Self {
        Self {
            place,
            lane,
            loans: Held::Own(RefCell::default()),
        }
    }

    /// A context of a core that runs a block together with others.
    pub(crate) fn of_gang(place: Place<'run>, lane: Lane, gang: &'run Gang) -> Self {
        Self {
            place,
            lane,
            loans: Held::Gang(gang),
        }
    }

    /// This block's number, from 0.
    #[must_use]
    pub fn block_index(&self) -> u32 {
        self.place.block
    }

    /// How many blocks the task has.
    #[must_use]
    pub fn block_count(&self) -> u32 {
        self.place.n_blocks
    }

    /// Which core of the block this is: three run the body of a MIX kernel at once.
    #[must_use]
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// This block's even share of `n` items; the shares of all blocks cover `0..n` once.
    #[must_use]
    pub fn block_range(&self, n: usize) -> Range<usize> {
        share(self.place.block as usize, self.place.n_blocks as usize, n)
    }

    /// Waits until every core of this block is here; what they wrote before is seen after it.
    /// Slices that were taken before cannot be used after it. Does nothing else for a kernel of one
    /// core.
    ///
    /// # Errors
    /// [`KernelError::Gang`] if another core of the block has ended, so that it will never come.
    pub fn sync(&mut self) -> Result<(), KernelError> {
        match &self.loans {
            Held::Own(loans) => {
                loans.borrow_mut().clear();
                Ok(())
            }
            Held::Gang(gang) => gang.sync(self.lane),
        }
    }

    /// The shape, strides and element type of a tensor argument.
    ///
    /// # Errors
    /// [`KernelError::NoArgument`].
    pub fn tensor(&self, idx: usize) -> Result<&Tensor, KernelError> {
        self.argument(idx).map(|argument| &argument.view)
    }

    /// All elements of a contiguous tensor, to read.
    ///
    /// # Errors
    /// [`KernelError::Argument`] if it is an `Output`, has another element type, is not contiguous,
    /// overlaps what the block already holds for writing, or is updated by several blocks: use
    /// [`KernelContext::input_range`] then.
    pub fn input<T: Element>(&self, idx: usize) -> Result<&[T], KernelError> {
        let len = self.argument(idx)?.view.num_elements();
        self.input_range(idx, 0..len as usize)
    }

    /// Some elements of a contiguous tensor, to read.
    ///
    /// # Errors
    /// Those of [`KernelContext::input`]. What several blocks update can be read in this block's
    /// share ([`KernelContext::block_range`]) only.
    pub fn input_range<T: Element>(
        &self,
        idx: usize,
        range: Range<usize>,
    ) -> Result<&[T], KernelError> {
        let start = self.borrow::<T>(idx, range.clone(), Access::Read)?;
        // SAFETY: bounds, type, alignment and the loan were checked; see the module's Safety
        // section.
        Ok(unsafe { std::slice::from_raw_parts(start, range.len()) })
    }

    /// All elements of a contiguous tensor, to write (and to read, for what the task updates in
    /// place).
    ///
    /// # Errors
    /// [`KernelError::Argument`] if it is an `Input`, has another element type, is not contiguous,
    /// overlaps what the block already holds, or if the task has several blocks: use
    /// [`KernelContext::output_block`] then.
    pub fn output<T: Element>(&self, idx: usize) -> Result<&mut [T], KernelError> {
        let len = self.argument(idx)?.view.num_elements();
        self.output_range(idx, 0..len as usize)
    }

    /// This block's share of a contiguous tensor, to write: the elements that
    /// [`KernelContext::block_range`] gives.
    ///
    /// # Errors
    /// Those of [`KernelContext::output`], except that several blocks are what it is for.
    pub fn output_block<T: Element>(&self, idx: usize) -> Result<&mut [T], KernelError> {
        let len = self.argument(idx)?.view.num_elements();
        self.output_range(idx, self.block_range(len as usize))
    }

    /// Some elements of a contiguous tensor, to write; of a task with several blocks, only inside
    /// this block's share.
    ///
    /// # Errors
    /// Those of [`KernelContext::output`].
    #[expect(
        clippy::mut_from_ref,
        reason = "loans make the slices exclusive, see the module doc"
    )]
    pub fn output_range<T: Element>(
        &self,
        idx: usize,
        range: Range<usize>,
    ) -> Result<&mut [T], KernelError> {
        let start = self.borrow::<T>(idx, range.clone(), Access::Write)?;
        // SAFETY: bounds, type, alignment and the exclusive loan were checked; see the module's
        // Safety section.
        Ok(unsafe { std::slice::from_raw_parts_mut(start, range.len()) })
    }

    /// Copies a tensor of any layout into `to`, row-major.
    ///
    /// # Errors
    /// Those of [`KernelContext::input`], except that it need not be contiguous; and if `to` has
    /// another number of elements.
    pub fn load<T: Element>(&self, idx: usize, to: &mut [T]) -> Result<(), KernelError> {
        let argument = self.strided::<T>(idx, to.len(), Access::Read)?;
        let runs = Runs::of(&argument.view);
        for (offset, part) in runs.offsets().zip(to.chunks_exact_mut(runs.len())) {
            let start = argument
                .start
                .wrapping_add(offset * size_of::<T>())
                .cast::<T>();
            // SAFETY: the run lies inside the footprint, which nobody may write while the check
            // above holds; `part` is a host slice as long as the run.
            unsafe { std::ptr::copy_nonoverlapping(start, part.as_mut_ptr(), part.len()) };
        }
        Ok(())
    }

    /// Copies `from`, row-major, into a tensor of any layout.
    ///
    /// # Errors
    /// Those of [`KernelContext::output`], except that it need not be contiguous; and if `from` has
    /// another number of elements.
    pub fn store<T: Element>(&self, idx: usize, from: &[T]) -> Result<(), KernelError> {
        let argument = self.strided::<T>(idx, from.len(), Access::Write)?;
        let runs = Runs::of(&argument.view);
        for (offset, part) in runs.offsets().zip(from.chunks_exact(runs.len())) {
            let start = argument
                .start
                .wrapping_add(offset * size_of::<T>())
                .cast::<T>();
            // SAFETY: the run lies inside the footprint, which nobody else may touch while the
            // check above holds; `part` is a host slice as long as the run.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), start, part.len()) };
        }
        Ok(())
    }

    /// A scalar argument.
    ///
    /// # Errors
    /// [`KernelError::NoArgument`], or [`KernelError::Scalar`] if it is of another type.
    pub fn scalar<T: ScalarValue>(&self, idx: usize) -> Result<T, KernelError> {
        let count = self.place.scalars.len();
        let missing = KernelError::NoArgument {
            kind: "scalar",
            idx,
            count,
        };
        let scalar = self.place.scalars.get(idx).ok_or(missing)?;
        let wrong = KernelError::Scalar {
            idx,
            wanted: T::NAME,
            found: *scalar,
        };
        T::from_scalar(*scalar).ok_or(wrong)
    }

    fn argument(&self, idx: usize) -> Result<&'run CoreTensor, KernelError> {
        let count = self.place.tensors.len();
        let missing = KernelError::NoArgument {
            kind: "tensor",
            idx,
            count,
        };
        self.place.tensors.get(idx).ok_or(missing)
    }

    /// Checks everything that a slice of `range` needs, and records the loan.
    fn borrow<T: Element>(
        &self,
        idx: usize,
        range: Range<usize>,
        access: Access,
    ) -> Result<*mut T, KernelError> {
        let argument = self.argument(idx)?;
        let len = argument.view.num_elements() as usize;
        if let Some(problem) = self.problem::<T>(argument, access) {
            return Err(refuse::<T>(idx, problem));
        }
        if !argument.view.is_contiguous() {
            let (shape, strides) = (argument.view.shape(), argument.view.strides());
            let problem = format!("it is not contiguous (shape {shape:?}, strides {strides:?})");
            return Err(refuse::<T>(idx, problem));
        }
        if range.start > range.end || range.end > len {
            return Err(refuse::<T>(
                idx,
                format!("{range:?} is not inside its {len} elements"),
            ));
        }
        let share = self.block_range(len);
        let shared = self.place.n_blocks > 1 && (argument.tag.writes() || access == Access::Write);
        if shared && (range.start < share.start || range.end > share.end) {
            let n = self.place.n_blocks;
            let problem =
                format!("{n} blocks share it, and {share:?} is this one's; use output_block");
            return Err(refuse::<T>(idx, problem));
        }
        self.lend::<T>(idx, argument.start, &range, access)?;
        Ok(argument.start.cast::<T>().wrapping_add(range.start))
    }

    /// Checks everything that copying a whole tensor of `len` elements needs.
    fn strided<T: Element>(
        &self,
        idx: usize,
        len: usize,
        access: Access,
    ) -> Result<&'run CoreTensor, KernelError> {
        let argument = self.argument(idx)?;
        if let Some(problem) = self.problem::<T>(argument, access) {
            return Err(refuse::<T>(idx, problem));
        }
        let elements = argument.view.num_elements();
        if elements != len as u64 {
            let problem = format!("it has {elements} elements, the other side {len}");
            return Err(refuse::<T>(idx, problem));
        }
        if self.place.n_blocks > 1 && (argument.tag.writes() || access == Access::Write) {
            let problem = format!("{} blocks share it", self.place.n_blocks);
            return Err(refuse::<T>(idx, problem));
        }
        // The copy ends before the next loan of this lane, so nothing is recorded for itself; lanes
        // beside it must stay off until the next sync, so there it is.
        let bytes = argument.view.footprint();
        let range = 0..((bytes.end - bytes.start) as usize / size_of::<T>());
        self.lend_copy::<T>(idx, argument.start, &range, access)?;
        Ok(argument)
    }

    /// What stands in the way of using an argument as elements of `T`, its layout apart.
    fn problem<T: Element>(&self, argument: &CoreTensor, access: Access) -> Option<String> {
        let permitted = match access {
            Access::Read => argument.tag != Tag::Output,
            Access::Write => argument.tag != Tag::Input,
        };
        if argument.view.dtype() != T::DTYPE {
            Some(format!("its elements are {}", argument.view.dtype()))
        } else if !permitted {
            Some(format!("the task declared it {:?}", argument.tag))
        } else if !argument.start.addr().is_multiple_of(align_of::<T>()) {
            Some(format!(
                "its first element is not aligned to {} bytes",
                align_of::<T>()
            ))
        } else {
            None
        }
    }

    /// Records a loan of `elements` of `T` from `start` on, or refuses it.
    fn lend<T>(
        &self,
        idx: usize,
        start: *mut u8,
        elements: &Range<usize>,
        access: Access,
    ) -> Result<(), KernelError> {
        let loan = loan::<T>(start, elements, access);
        let lent = match &self.loans {
            Held::Own(loans) => loans.borrow_mut().lend(self.lane, loan),
            Held::Gang(gang) => gang.lend(self.lane, loan),
        };
        if lent {
            Ok(())
        } else {
            Err(held(idx, std::any::type_name::<T>()))
        }
    }

    /// As [`Self::lend`] for a copy: it is over at once, as far as this lane is concerned.
    fn lend_copy<T>(
        &self,
        idx: usize,
        start: *mut u8,
        elements: &Range<usize>,
        access: Access,
    ) -> Result<(), KernelError> {
        let loan = loan::<T>(start, elements, access);
        let lent = match &self.loans {
            Held::Own(loans) => loans.borrow().permits(self.lane, loan),
            Held::Gang(gang) => gang.lend_copy(self.lane, loan),
        };
        if lent {
            Ok(())
        } else {
            Err(held(idx, std::any::type_name::<T>()))
        }
    }
}

fn loan<T>(start: *mut u8, elements: &Range<usize>, access: Access) -> Loan {
    let at = |element: usize| start.addr() + element * size_of::<T>();
    Loan {
        start: at(elements.start),
        end: at(elements.end),
        exclusive: access == Access::Write,
    }
}

/// The even share of the `idx`-th of `count` in `n` items.
pub(crate) fn share(idx: usize, count: usize, n: usize) -> Range<usize> {
    let (share, rest) = (n / count, n % count);
    let start = idx * share + idx.min(rest);
    start..start + share + usize::from(idx < rest)
}

fn refuse<T>(idx: usize, problem: String) -> KernelError {
    KernelError::Argument {
        idx,
        wanted: std::any::type_name::<T>(),
        problem,
    }
}

fn held(idx: usize, wanted: &'static str) -> KernelError {
    let problem = "it overlaps memory that this kernel already holds".to_owned();
    KernelError::Argument {
        idx,
        wanted,
        problem,
    }
}

#[cfg(test)]
mod tests;
