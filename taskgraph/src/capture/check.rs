//! The door by which bytes become a definition: everything is checked before anything is used.
//!
//! What passes is safe to use whatever wrote it: every number is in range, edges lead forward and are
//! the same from both ends, every argument lies inside what it is a part of wherever that is bound.
//! That the edges are those that inference would find is not checked; the hash finds accidents only.

use std::ops::Range;

use super::definition::Definition;
use super::hash;
use super::layout::{
    Allocation, Arg, BoundaryTensor, DATA, Geometry, HASH_WORD, HEADER_WORDS, HEAP_ALIGN, Header,
    ITEM_BYTES, MAGIC, Member, Node, Overlap, PredicateWord, READS_UNWRITTEN, SCHEMA, ScalarWord,
    Section, placement, source,
};
use super::record::turn_round;
use super::sources::{allows, covers};
use crate::args::{Scalar, Tag};
use crate::buffer::{BufferId, BufferKind};
use crate::dtype::DType;
use crate::schedule::WORKERS_MAX;
use crate::tensor::{BACKING_BYTES_MAX, Tensor};

/// Why bytes are no definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Too short, or not as long as it says.
    #[error("a definition of {wanted} bytes has {found}")]
    Length {
        /// Bytes that are there.
        found: u64,
        /// Bytes that there should be.
        wanted: u64,
    },
    /// It does not begin like one.
    #[error("the bytes are no definition of this kind of machine")]
    Magic,
    /// Another version wrote it.
    #[error(
        "the definition has layout {found}, this program reads layout {SCHEMA}; record it again"
    )]
    Schema {
        /// Its layout.
        found: u32,
    },
    /// The contents are not those that were written.
    #[error("the contents of the definition are damaged")]
    Hash,
    /// An item contradicts others, or has a value that nothing has.
    #[error("{what} {index} of the definition is not valid")]
    Item {
        /// What kind of item.
        what: &'static str,
        /// Its number.
        index: usize,
    },
}

/// The header, when the words are as many as it says and have its hash.
pub(super) fn header(words: &[u64]) -> Result<Header, DecodeError> {
    let found = words.len() as u64 * 8;
    let short = DecodeError::Length {
        found,
        wanted: HEADER_WORDS as u64 * 8,
    };
    let head = words.get(..HEADER_WORDS).ok_or(short)?;
    let header: Header = bytemuck::cast_slice(head)[0];
    if header.magic != MAGIC {
        return Err(DecodeError::Magic);
    }
    if header.schema != SCHEMA {
        return Err(DecodeError::Schema {
            found: header.schema,
        });
    }
    let sections = header.counts.iter().zip(ITEM_BYTES);
    // At most 17 sections of 2^32 items of 88 bytes: this does not wrap.
    let n_words = sections.fold(HEADER_WORDS as u64, |sum, (&count, bytes)| {
        sum + (u64::from(count) * bytes as u64).div_ceil(8)
    });
    if n_words != words.len() as u64 || n_words != header.n_words {
        let wanted = n_words * 8;
        return Err(DecodeError::Length { found, wanted });
    }
    let mut hashed = words.to_vec();
    hashed[HASH_WORD] = 0;
    if hash::of_words(&hashed) != header.content_hash {
        return Err(DecodeError::Hash);
    }
    let is_plain = header.unused == 0 && header.flags & !READS_UNWRITTEN == 0;
    item(
        is_plain && header.heap_bytes <= BACKING_BYTES_MAX,
        "header",
        0,
    )?;
    Ok(header)
}

/// Checks everything behind the header.
pub(super) fn contents(it: &Definition) -> Result<(), DecodeError> {
    let geometries: &[Geometry] = it.section(Section::Geometries);
    each(geometries, "geometry", |geometry| {
        tensor_at_zero(geometry).is_some()
    })?;
    check_boundary(it)?;
    check_allocations(it)?;
    check_nodes(it)?;
    check_edges(it)?;
    let scalars: &[ScalarWord] = it.section(Section::Scalars);
    each(scalars, "scalar", |scalar| is_scalar(it, scalar))?;
    let args: &[Arg] = it.section(Section::Args);
    each(args, "argument", |arg| is_arg(it, arg))?;
    let predicates: &[PredicateWord] = it.section(Section::Predicates);
    each(predicates, "predicate", |predicate| {
        let is_input = predicate.element.tag == Tag::Input.code() as u16;
        predicate.unused == 0 && is_input && is_arg(it, &predicate.element)
    })?;
    check_padding(it)
}

fn item(is_valid: bool, what: &'static str, index: usize) -> Result<(), DecodeError> {
    match is_valid {
        true => Ok(()),
        false => Err(DecodeError::Item { what, index }),
    }
}

fn each<T>(
    items: &[T],
    what: &'static str,
    is_valid: impl Fn(&T) -> bool,
) -> Result<(), DecodeError> {
    let first = items.iter().position(|item| !is_valid(item));
    first.map_or(Ok(()), |index| item(false, what, index))
}

/// A tensor of this geometry at the start of a backing that just holds it.
fn tensor_at_zero(geometry: &Geometry) -> Option<Tensor> {
    let rank = usize::from(geometry.rank);
    let behind = geometry
        .shape
        .get(rank..)?
        .iter()
        .chain(geometry.strides.get(rank..)?);
    if behind.copied().any(|word| word != 0) || geometry.unused != [0; 6] {
        return None;
    }
    let dtype = DType::from_code(geometry.dtype)?;
    let buffer = BufferId::new(0, 0, 0, BufferKind::Shared);
    let (shape, strides) = (geometry.shape(), geometry.strides());
    Tensor::strided(buffer, dtype, 0, shape, strides, BACKING_BYTES_MAX).ok()
}

fn check_boundary(it: &Definition) -> Result<(), DecodeError> {
    let n_geometries = it.section::<Geometry>(Section::Geometries).len();
    let tensors: &[BoundaryTensor] = it.section(Section::Tensors);
    each(tensors, "boundary tensor", |tensor| {
        let tag = Tag::from_code(tensor.tag);
        let kind = BufferKind::from_code(tensor.kind);
        let is_allowed = tag
            .zip(kind)
            .is_some_and(|(tag, kind)| !tag.writes() || kind.is_writable());
        is_allowed && (tensor.geometry as usize) < n_geometries
    })?;
    each(it.scalar_codes(), "boundary scalar", |&code| {
        Scalar::from_wire(code, 0).is_some()
    })?;
    let overlaps: &[Overlap] = it.overlaps();
    each(overlaps, "overlap", |overlap| {
        overlap.first < overlap.second && (overlap.second as usize) < tensors.len()
    })?;
    let unsorted = overlaps.windows(2).position(|pair| pair[0] >= pair[1]);
    unsorted.map_or(Ok(()), |index| item(false, "overlap", index))
}

fn check_allocations(it: &Definition) -> Result<(), DecodeError> {
    let mut free_from = 0;
    let all: &[Allocation] = it.section(Section::Allocations);
    for (index, place) in all.iter().enumerate() {
        let end = place.offset.checked_add(place.bytes);
        let fits = end.is_some_and(|end| end <= it.heap_bytes());
        let is_apart = place.offset >= free_from && place.offset.is_multiple_of(HEAP_ALIGN);
        item(fits && is_apart, "allocation", index)?;
        free_from = place.offset + place.bytes;
    }
    Ok(())
}

fn check_nodes(it: &Definition) -> Result<(), DecodeError> {
    let nodes: &[Node] = it.section(Section::Nodes);
    let members: &[Member] = it.section(Section::Members);
    let workers: &[u32] = it.section(Section::Workers);
    let n_digests = it.section::<[u8; 32]>(Section::Digests).len();
    let n_predicates = it.section::<PredicateWord>(Section::Predicates).len();
    item(nodes.len() < DATA as usize, "node", nodes.len())?;
    check_ends(
        nodes.iter().map(|node| node.members_end),
        members.len(),
        "node",
    )?;
    check_ends(
        nodes.iter().map(|node| node.workers_end),
        workers.len(),
        "node",
    )?;
    let n_args = it.section::<Arg>(Section::Args).len();
    let n_scalars = it.section::<ScalarWord>(Section::Scalars).len();
    check_ends(
        members.iter().map(|member| member.args_end),
        n_args,
        "member",
    )?;
    check_ends(
        members.iter().map(|member| member.scalars_end),
        n_scalars,
        "member",
    )?;
    let (mut start, mut first_member) = (0, 0);
    for (index, node) in nodes.iter().enumerate() {
        let named = &workers[start..node.workers_end as usize];
        start = node.workers_end as usize;
        let n_members = node.members_end - first_member;
        first_member = node.members_end;
        let is_known = n_digests == 0 || (node.callable as usize) < n_digests;
        let has_predicate = node.predicate as usize <= n_predicates;
        let is_placed = is_placement(node.placement, named, node.n_subs)
            && fits_members(node.placement, named, node.n_subs, n_members);
        item(
            is_known && has_predicate && is_placed && node.n_blocks > 0 && node.unused == 0,
            "node",
            index,
        )?;
    }
    Ok(())
}

/// Whether ends never go back, and the last is that of the whole section.
fn check_ends(
    ends: impl ExactSizeIterator<Item = u32>,
    n_items: usize,
    what: &'static str,
) -> Result<(), DecodeError> {
    let (mut last, n_ends) = (0, ends.len());
    for (index, end) in ends.enumerate() {
        item(end as usize >= last && end as usize <= n_items, what, index)?;
        last = end as usize;
    }
    item(last == n_items, what, n_ends)
}

/// Whether these are the workers of a placement.
pub(super) fn is_placement(code: u32, workers: &[u32], n_subs: u32) -> bool {
    let mut set = 0u128;
    let are_distinct = workers.iter().all(|&worker| {
        let bit = 1u128.checked_shl(worker).unwrap_or(0);
        let is_new = (worker as usize) < WORKERS_MAX && set & bit == 0;
        set |= bit;
        is_new
    });
    let is_count = match code {
        placement::ON => workers.len() == 1 && n_subs == 0,
        placement::ANY_OF | placement::GROUP => !workers.is_empty() && n_subs == 0,
        placement::SUB => workers.is_empty() && n_subs == 0,
        placement::SUB_GROUP => workers.is_empty() && n_subs > 0 && n_subs as usize <= WORKERS_MAX,
        _ => false,
    };
    are_distinct && is_count
}

/// Whether a placement has a worker for each of so many members, of which the last may stand for several.
pub(super) fn fits_members(code: u32, workers: &[u32], n_subs: u32, n_members: u32) -> bool {
    let n_workers = match code {
        placement::GROUP => workers.len() as u32,
        placement::SUB_GROUP => n_subs,
        _ => 1,
    };
    (1..=n_workers).contains(&n_members)
}

/// Edges lead forward, once for each pair, and are the same from both ends.
fn check_edges(it: &Definition) -> Result<(), DecodeError> {
    let n_nodes = it.n_nodes() as usize;
    let (offsets, fan_in): (&[u32], &[u32]) = (
        it.section(Section::FanInOffsets),
        it.section(Section::FanIn),
    );
    item(offsets.len() == n_nodes + 1 && offsets[0] == 0, "fan-in", 0)?;
    check_ends(offsets.iter().copied(), fan_in.len(), "fan-in")?;
    let mut last_seen = vec![0; n_nodes];
    for (to, pair) in offsets.windows(2).enumerate() {
        for edge in &fan_in[pair[0] as usize..pair[1] as usize] {
            let from = (edge & !DATA) as usize;
            item(from < to && last_seen[from] != to, "fan-in", to)?;
            last_seen[from] = to;
        }
    }
    let (out_offsets, out, roots) = turn_round(offsets, fan_in);
    item(
        it.section::<u32>(Section::FanOutOffsets) == out_offsets,
        "fan-out",
        0,
    )?;
    item(it.section::<u32>(Section::FanOut) == out, "fan-out", 0)?;
    item(it.roots() == roots, "root", 0)
}

fn is_scalar(it: &Definition, scalar: &ScalarWord) -> bool {
    match scalar.is_boundary {
        0 => Scalar::from_wire(scalar.code, scalar.bits).is_some(),
        1 => {
            let index = usize::try_from(scalar.bits).ok();
            index.and_then(|index| it.scalar_codes().get(index)) == Some(&scalar.code)
        }
        _ => false,
    }
}

/// Whether an argument lies inside what it is a part of, and does nothing to it that is not allowed.
fn is_arg(it: &Definition, arg: &Arg) -> bool {
    let geometries: &[Geometry] = it.section(Section::Geometries);
    let tag = Tag::from_code(u32::from(arg.tag));
    let geometry = geometries.get(arg.geometry as usize);
    let (Some(tag), Some(geometry), 0) = (tag, geometry, arg.unused) else {
        return false;
    };
    match arg.source {
        source::BOUNDARY | source::VIEW => is_boundary_arg(it, arg, geometry, tag),
        source::INTERNAL | source::OWN_OUTPUT => is_internal_arg(it, arg, geometry, tag),
        _ => false,
    }
}

fn is_boundary_arg(it: &Definition, arg: &Arg, geometry: &Geometry, tag: Tag) -> bool {
    let Some(outer) = it.boundary().nth(arg.index as usize) else {
        return false;
    };
    let outer_tag = Tag::from_code(outer.raw.tag);
    if !outer_tag.is_some_and(|outer| allows(outer, tag)) {
        return false;
    }
    if arg.source == source::BOUNDARY {
        return arg.offset == 0 && arg.geometry == outer.raw.geometry;
    }
    let inner = tensor_at(geometry, arg.offset);
    let (Some(outer), Some(inner)) = (tensor_at_zero(outer.geometry), inner) else {
        return false;
    };
    covers(&outer, &outer.view(), &inner, &inner.view())
}

fn is_internal_arg(it: &Definition, arg: &Arg, geometry: &Geometry, tag: Tag) -> bool {
    let Some(Range { start, end }) = it.allocation(arg.index) else {
        return false;
    };
    let is_whole = arg.source == source::INTERNAL || (arg.offset == 0 && tag == Tag::Output);
    let inner = tensor_at(geometry, arg.offset);
    is_whole && inner.is_some_and(|inner| inner.footprint().end <= end - start)
}

/// A tensor of this geometry at so many bytes.
fn tensor_at(geometry: &Geometry, offset: u64) -> Option<Tensor> {
    let buffer = BufferId::new(0, 0, 0, BufferKind::Shared);
    let (shape, strides) = (geometry.shape(), geometry.strides());
    Tensor::strided(
        buffer,
        geometry.dtype(),
        offset,
        shape,
        strides,
        BACKING_BYTES_MAX,
    )
    .ok()
}

/// Bytes between sections are zero, so that equal definitions have equal bytes.
fn check_padding(it: &Definition) -> Result<(), DecodeError> {
    let header: Header = bytemuck::cast_slice(&it.words()[..HEADER_WORDS])[0];
    let bytes: &[u8] = it.to_bytes();
    let mut end = HEADER_WORDS * 8;
    for (index, (&count, item_bytes)) in header.counts.iter().zip(ITEM_BYTES).enumerate() {
        let used = end + count as usize * item_bytes;
        end = used.next_multiple_of(8);
        item(
            bytes[used..end].iter().all(|&byte| byte == 0),
            "padding",
            index,
        )?;
    }
    Ok(())
}
