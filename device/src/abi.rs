//! The block of memory that a compiled kernel is given, as `include/device_kernel.h` describes it
//! to C.
//!
//! ```text
//!   TaskHeader | TensorRecord x n_tensors | u64 x n_scalars
//! ```
//!
//! It holds no pointer into itself, so it can be copied to a chip as it is; what a core of the simulator calls to wait
//! for others stands in the header, and is 0 on a chip. Sizes and offsets are
//! asserted here and, from the other side, by a kernel in the tests.

use bytemuck::{Pod, Zeroable};
use taskgraph::{RANK_MAX, Scalar, Tensor};

use crate::kernel::Lane;

/// Version of the layout and of the calling convention; rises with each change of the header.
pub(crate) const KERNEL_ABI: u32 = 2;

/// `device_task` in C.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct TaskHeader {
    abi: u32,
    n_tensors: u32,
    n_scalars: u32,
    n_blocks: u32,
    block: u32,
    lane: u32,
    /// On a chip 0, as is the next one.
    sync: u64,
    seat: u64,
}

/// `device_tensor` in C.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct TensorRecord {
    data: u64,
    shape: [u64; RANK_MAX],
    strides: [u64; RANK_MAX],
    rank: u32,
    dtype: u32,
}

const HEADER_WORDS: usize = size_of::<TaskHeader>() / size_of::<u64>();
const BLOCK_OFFSET: usize = std::mem::offset_of!(TaskHeader, block);

const _: () = {
    assert!(RANK_MAX == 5);
    assert!(size_of::<TaskHeader>() == 40 && BLOCK_OFFSET == 16);
    assert!(size_of::<TensorRecord>() == 96);
    assert!(std::mem::offset_of!(TensorRecord, shape) == 8);
    assert!(std::mem::offset_of!(TensorRecord, strides) == 48);
    assert!(std::mem::offset_of!(TensorRecord, rank) == 88);
    assert!(std::mem::offset_of!(TensorRecord, dtype) == 92);
};

/// A task's arguments in the layout for C; aligned to 8 bytes.
#[derive(Debug, Default)]
pub(crate) struct TaskBlock {
    words: Vec<u64>,
}

impl TaskBlock {
    /// Writes the arguments anew: tensors as the address of their first element and their view.
    pub(crate) fn fill(
        &mut self,
        tensors: impl ExactSizeIterator<Item = (u64, Tensor)>,
        scalars: &[Scalar],
        n_blocks: u32,
    ) {
        let header = TaskHeader {
            abi: KERNEL_ABI,
            n_tensors: tensors.len() as u32,
            n_scalars: scalars.len() as u32,
            n_blocks,
            block: 0,
            lane: 0,
            sync: 0,
            seat: 0,
        };
        self.words.clear();
        self.words
            .extend_from_slice(bytemuck::cast_slice(&[header]));
        for (data, view) in tensors {
            self.words
                .extend_from_slice(bytemuck::cast_slice(&[record(data, &view)]));
        }
        self.words
            .extend(scalars.iter().map(|scalar| scalar.bits()));
    }

    /// Sets which block is executed next, and by which core of it.
    pub(crate) fn set_place(&mut self, block: u32, lane: Lane) {
        let header: &mut [TaskHeader] = bytemuck::cast_slice_mut(&mut self.words[..HEADER_WORDS]);
        header[0].block = block;
        header[0].lane = lane as u32;
    }

    /// Sets what a core calls, and with what, to wait for the others of its block.
    pub(crate) fn set_sync(&mut self, sync: u64, seat: u64) {
        let header: &mut [TaskHeader] = bytemuck::cast_slice_mut(&mut self.words[..HEADER_WORDS]);
        (header[0].sync, header[0].seat) = (sync, seat);
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }
}

fn record(data: u64, view: &Tensor) -> TensorRecord {
    let mut record = TensorRecord {
        data,
        dtype: u32::from(view.dtype().code()),
        ..Zeroable::zeroed()
    };
    let rank = view.rank();
    record.rank = rank as u32;
    record.shape[..rank].copy_from_slice(view.shape());
    record.strides[..rank].copy_from_slice(view.strides());
    record
}
