//! What a kernel sees while it runs on a core: its block, its tensors as typed slices, its scalars.
//!
//! # Safety
//!
//! The `unsafe` here makes slices of device memory. Three facts are checked or known before each one:
//! - *in bounds and alive*: the backend resolved the whole footprint of every argument inside one live allocation
//!   when the task was submitted, and frees nothing while a run executes;
//! - *typed and aligned*: the element type equals the tensor's, the first element's address is a multiple of its
//!   alignment, and every bit pattern is a valid value ([`Element`] is plain old data);
//! - *exclusive*: within this context every slice is recorded as a loan, and a loan that overlaps another one is
//!   refused unless both only read. Between contexts, the backend runs two tasks (or two blocks) at the same time
//!   only if neither writes what the other touches.
//!
//! Nothing else in the crate hands out references into device memory.

#![expect(
    unsafe_code,
    reason = "slices of device memory, see the Safety section"
)]

use std::cell::RefCell;
use std::ops::Range;

use smallvec::SmallVec;
use taskgraph::{Element, Scalar, Tag, Tensor};

use crate::args::ScalarValue;
use crate::error::KernelError;

/// One tensor argument of a core task, resolved to host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreTensor {
    /// Host address of the first byte of the footprint.
    pub(crate) start: *mut u8,
    /// The view; its footprint begins at `start`.
    pub(crate) view: Tensor,
    /// What the task does to it.
    pub(crate) tag: Tag,
}

// SAFETY: the pointer is only dereferenced through a `KernelContext`, whose rules (module doc) hold across threads.
unsafe impl Send for CoreTensor {}
// SAFETY: as for `Send`; a shared `CoreTensor` gives out nothing by itself.
unsafe impl Sync for CoreTensor {}

/// The arguments of one block of one core task.
///
/// Slices live as long as the run of the kernel, not as long as a borrow of the context, so inputs and outputs can be
/// held side by side. Each access is checked and costs a few nanoseconds: take slices once, outside of loops.
#[derive(Debug)]
pub struct KernelContext<'run> {
    tensors: &'run [CoreTensor],
    scalars: &'run [Scalar],
    block_idx: u32,
    n_blocks: u32,
    loans: RefCell<SmallVec<[Loan; 8]>>,
}

/// A byte range that a slice was made of.
#[derive(Clone, Copy, Debug)]
struct Loan {
    start: usize,
    end: usize,
    access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl<'run> KernelContext<'run> {
    /// A context over arguments whose footprints the caller resolved in live memory.
    pub(crate) fn new(
        tensors: &'run [CoreTensor],
        scalars: &'run [Scalar],
        block_idx: u32,
        n_blocks: u32,
    ) -> Self {
        Self {
            tensors,
            scalars,
            block_idx,
            n_blocks,
            loans: RefCell::default(),
        }
    }

    /// This block's number, from 0.
    #[must_use]
    pub fn block_index(&self) -> u32 {
        self.block_idx
    }

    /// How many blocks the task has.
    #[must_use]
    pub fn block_count(&self) -> u32 {
        self.n_blocks
    }

    /// This block's even share of `n` items; the shares of all blocks cover `0..n` once.
    #[must_use]
    pub fn block_range(&self, n: usize) -> Range<usize> {
        let (idx, blocks) = (self.block_idx as usize, self.n_blocks as usize);
        let (share, rest) = (n / blocks, n % blocks);
        let start = idx * share + idx.min(rest);
        start..start + share + usize::from(idx < rest)
    }

    /// The shape, strides and element type of a tensor argument.
    ///
    /// # Errors
    /// [`KernelError::NoArgument`].
    pub fn tensor(&self, idx: usize) -> Result<&'run Tensor, KernelError> {
        self.argument(idx).map(|argument| &argument.view)
    }

    /// All elements of a contiguous tensor, to read.
    ///
    /// # Errors
    /// [`KernelError::Argument`] if it is an `Output`, has another element type, is not contiguous, or overlaps what
    /// this block already holds for writing.
    pub fn input<T: Element>(&self, idx: usize) -> Result<&'run [T], KernelError> {
        let (argument, len) = self.contiguous::<T>(idx, Access::Read)?;
        self.lend::<T>(idx, argument.start, 0..len, Access::Read)?;
        // SAFETY: bounds, type, alignment and the loan were checked above; see the module's Safety section.
        Ok(unsafe { std::slice::from_raw_parts(argument.start.cast::<T>(), len) })
    }

    /// All elements of a contiguous tensor, to write (and to read, for what the task updates in place).
    ///
    /// # Errors
    /// [`KernelError::Argument`] if it is an `Input`, has another element type, is not contiguous, overlaps what this
    /// block already holds, or if the task has several blocks: use [`KernelContext::output_block`] then.
    pub fn output<T: Element>(&self, idx: usize) -> Result<&'run mut [T], KernelError> {
        if self.n_blocks > 1 {
            let problem = format!("{} blocks share it; use output_block", self.n_blocks);
            return Err(refuse::<T>(idx, problem));
        }
        self.output_block(idx)
    }

    /// This block's share of a contiguous tensor, to write: the elements [`KernelContext::block_range`] gives.
    ///
    /// # Errors
    /// Those of [`KernelContext::output`], except that several blocks are what it is for.
    pub fn output_block<T: Element>(&self, idx: usize) -> Result<&'run mut [T], KernelError> {
        let (argument, len) = self.contiguous::<T>(idx, Access::Write)?;
        let share = self.block_range(len);
        self.lend::<T>(idx, argument.start, share.clone(), Access::Write)?;
        // SAFETY: the share lies inside the `len` elements that the footprint has.
        let start = unsafe { argument.start.cast::<T>().add(share.start) };
        // SAFETY: bounds, type, alignment and the exclusive loan were checked above; the shares of two blocks are
        // disjoint; see the module's Safety section.
        Ok(unsafe { std::slice::from_raw_parts_mut(start, share.len()) })
    }

    /// A scalar argument.
    ///
    /// # Errors
    /// [`KernelError::NoArgument`], or [`KernelError::Scalar`] if it is of another type.
    pub fn scalar<T: ScalarValue>(&self, idx: usize) -> Result<T, KernelError> {
        let count = self.scalars.len();
        let missing = KernelError::NoArgument {
            kind: "scalar",
            idx,
            count,
        };
        let scalar = self.scalars.get(idx).ok_or(missing)?;
        let wrong = KernelError::Scalar {
            idx,
            wanted: T::NAME,
            found: *scalar,
        };
        T::from_scalar(*scalar).ok_or(wrong)
    }

    fn argument(&self, idx: usize) -> Result<&'run CoreTensor, KernelError> {
        let count = self.tensors.len();
        self.tensors.get(idx).ok_or(KernelError::NoArgument {
            kind: "tensor",
            idx,
            count,
        })
    }

    /// The argument and its number of elements, if it can be a slice of `T` for this access.
    fn contiguous<T: Element>(
        &self,
        idx: usize,
        access: Access,
    ) -> Result<(&'run CoreTensor, usize), KernelError> {
        let argument = self.argument(idx)?;
        let view = &argument.view;
        let problem = if view.dtype() != T::DTYPE {
            format!("its elements are {}", view.dtype())
        } else if !permits(argument.tag, access) {
            format!("the task declared it {:?}", argument.tag)
        } else if !view.is_contiguous() {
            format!(
                "it is not contiguous (shape {:?}, strides {:?})",
                view.shape(),
                view.strides()
            )
        } else if argument.start.addr() % align_of::<T>() != 0 {
            format!(
                "its first element is not aligned to {} bytes",
                align_of::<T>()
            )
        } else {
            return Ok((argument, view.num_elements() as usize));
        };
        Err(refuse::<T>(idx, problem))
    }

    /// Records a loan of `elements` of `T` from `start` on, or refuses it.
    fn lend<T>(
        &self,
        idx: usize,
        start: *mut u8,
        elements: Range<usize>,
        access: Access,
    ) -> Result<(), KernelError> {
        let at = |element: usize| start.addr() + element * size_of::<T>();
        let loan = Loan {
            start: at(elements.start),
            end: at(elements.end),
            access,
        };
        let mut loans = self.loans.borrow_mut();
        if loans.iter().any(|other| other.conflicts(&loan)) {
            let problem = "it overlaps memory that this kernel already holds".to_owned();
            return Err(refuse::<T>(idx, problem));
        }
        loans.push(loan);
        Ok(())
    }
}

impl Loan {
    fn conflicts(&self, other: &Loan) -> bool {
        let overlap = self.start < other.end && other.start < self.end;
        overlap && (self.access == Access::Write || other.access == Access::Write)
    }
}

fn permits(tag: Tag, access: Access) -> bool {
    match access {
        Access::Read => tag != Tag::Output,
        Access::Write => tag != Tag::Input,
    }
}

fn refuse<T>(idx: usize, problem: String) -> KernelError {
    KernelError::Argument {
        idx,
        wanted: std::any::type_name::<T>(),
        problem,
    }
}

#[cfg(test)]
mod tests;
