//! What random tasks do to memory.

use std::collections::HashMap;

use taskgraph::*;

/// Owners from here on are those of intermediate memory, which is zero at first.
pub(super) const INTERMEDIATE: u64 = 100;

/// What is in every buffer.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct Memory(HashMap<BufferId, Vec<u8>>);

/// One task, or one member of a group.
#[derive(Debug)]
pub(super) struct Work {
    /// Tells it from all others.
    pub(super) number: u32,
    pub(super) tensors: Vec<(Tensor, Tag)>,
    pub(super) scalars: Vec<u64>,
    /// It runs only if this element is not zero.
    pub(super) only_if: Option<Tensor>,
}

impl Work {
    /// What a member of a task is given.
    pub(super) fn of(number: u32, args: &TaskArgs, only_if: Option<Tensor>) -> Work {
        let tensors = args.tensors().iter().map(|arg| (arg.tensor, arg.tag));
        let scalars = args.scalars().iter().map(|arg| arg.to_send().bits());
        Work {
            number,
            tensors: tensors.collect(),
            scalars: scalars.collect(),
            only_if,
        }
    }
}

impl Memory {
    fn bytes_of(tensor: &Tensor) -> Vec<usize> {
        let (shape, strides) = (tensor.shape(), tensor.strides());
        let rows = (0..shape[0]).flat_map(|row| (0..shape[1]).map(move |column| (row, column)));
        let offset = |(row, column)| tensor.byte_offset() + row * strides[0] + column * strides[1];
        rows.map(|place| offset(place) as usize).collect()
    }

    fn buffer(&mut self, tensor: &Tensor) -> &mut Vec<u8> {
        let (size, buffer) = (tensor.backing_bytes() as usize, tensor.buffer());
        let is_given = buffer.owner < INTERMEDIATE;
        let at_first = move |at: usize| u8::from(is_given) * ((at + 1) % 3) as u8;
        let fresh = || (0..size).map(at_first).collect();
        self.0.entry(buffer).or_insert_with(fresh)
    }

    /// Executes a task: what it writes follows from what it reads, its number and its scalars.
    pub(super) fn execute(&mut self, work: &Work) {
        if let Some(element) = &work.only_if
            && self.buffer(element)[element.byte_offset() as usize] == 0
        {
            return;
        }
        let mut value = u64::from(work.number) + 1;
        let mut mix = |word: u64| {
            value = (value ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            value ^= value >> 29;
        };
        work.scalars.iter().for_each(|&scalar| mix(scalar));
        for (tensor, _) in work.tensors.iter().filter(|(_, tag)| tag.reads()) {
            for (position, at) in (0..).zip(Memory::bytes_of(tensor)) {
                mix(u64::from(self.buffer(tensor)[at]) + position * 256);
            }
        }
        for (index, (tensor, tag)) in (0..).zip(&work.tensors) {
            if tag.writes() {
                for (position, at) in (0..).zip(Memory::bytes_of(tensor)) {
                    self.buffer(tensor)[at] = (value >> (index * 7)) as u8 ^ position;
                }
            }
        }
    }

    /// What is in the buffers of one owner.
    pub(super) fn of_owner(&self, owner: u64) -> HashMap<u64, Vec<u8>> {
        let own = self.0.iter().filter(|(buffer, _)| buffer.owner == owner);
        own.map(|(buffer, bytes)| (buffer.id, bytes.clone()))
            .collect()
    }
}
