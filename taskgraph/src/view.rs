//! Views as sets of bytes, and whether two of them meet.
//!
//! A [`View`] is a run of bytes repeated along up to five strides:
//!
//! ```text
//! { lo + i0*s0 + i1*s1 + … + r  |  0 <= ik < nk,  0 <= r < run }
//! ```
//!
//! It is kept in a canonical form: strides descend, dimensions of length one are gone, neighbouring
//! dimensions that continue each other are one. A contiguous tensor is a single run; a transposed one
//! is the same set as the original. Packed elements whose strides are no whole bytes cannot be written
//! that way: such a view knows only its bounds. It meets whatever they meet, and covers nothing.
//!
//! **Intersection.** Views A and B share a byte exactly when the difference `B.lo - A.lo` can be
//! written as `Σ ck*Sk + e`, where the `S` are the strides of both (`ck` runs over `0..n` for a
//! stride of A, over `-(n-1)..=0` for one of B, over both ranges added when they share the stride)
//! and `e` lies between `-(B.run-1)` and `A.run-1`. With the strides descending this is a search
//! with one or two candidates per stride for views of one layout: exact, and constant time. Where
//! strides do not nest the number of candidates explodes; after [`STEPS_MAX`] of them the answer is
//! "they may meet", which costs an edge and never a value.

/// Candidates that one intersection looks at before it gives up and assumes an overlap.
pub const STEPS_MAX: u32 = 64;

const DIMS_MAX: usize = 5;

/// One stride of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Dim {
    /// Distance of neighbours in bytes.
    stride: u64,
    /// How many there are, at least 2.
    count: u64,
}

/// A set of bytes of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// In this order: what a run of bytes needs stands in front, in one cache line with the buffer of an access.
#[repr(C)]
pub struct View {
    lo: u64,
    hi: u64,
    run: u64,
    n_dims: u32,
    /// Whether only the bounds are known: bytes in between may not be part of it.
    is_bounding: bool,
    dims: [Dim; DIMS_MAX],
}

impl View {
    /// The bytes from `lo` to `hi`.
    pub(crate) fn dense(lo: u64, hi: u64) -> View {
        let dims = [Dim::default(); DIMS_MAX];
        View {
            lo,
            hi,
            run: hi - lo,
            n_dims: 0,
            is_bounding: false,
            dims,
        }
    }

    /// The bytes of a tensor: `bits` per element, strides in elements, everything checked before.
    pub(crate) fn of(byte_offset: u64, shape: &[u64], strides: &[u64], bits: u64) -> View {
        if shape.contains(&0) {
            return View::dense(byte_offset, byte_offset);
        }
        let mut view = View::dense(byte_offset, byte_offset);
        for (&count, &stride) in shape.iter().zip(strides) {
            if count > 1 {
                view.insert(Dim {
                    stride: stride * bits,
                    count,
                });
            }
        }
        view.run = bits;
        view.fuse();
        view.bits_to_bytes()
    }

    /// First byte.
    pub fn lo(&self) -> u64 {
        self.lo
    }

    /// One past the last byte.
    pub fn hi(&self) -> u64 {
        self.hi
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.lo == self.hi
    }

    /// Whether every byte between the first and the last is part of the view.
    pub fn is_dense(&self) -> bool {
        self.n_dims == 0 && !self.is_bounding
    }

    /// How many bytes it has; `None` when that is not plain to see.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let (mut bytes, mut extent) = (self.run, self.run);
        for dim in self.dims().iter().rev() {
            if dim.stride < extent {
                return None;
            }
            bytes *= dim.count;
            extent += dim.stride * (dim.count - 1);
        }
        (!self.is_bounding).then_some(bytes)
    }

    /// The distance at which the innermost run repeats, which cuts the buffer into rows.
    pub(crate) fn period(&self) -> Option<u32> {
        u32::try_from(self.dims().last()?.stride).ok()
    }

    /// How wide the view is in a buffer cut into rows of `period` bytes, from its first byte on.
    pub(crate) fn width(&self, period: u64) -> u64 {
        match self
            .dims()
            .iter()
            .all(|dim| dim.stride.is_multiple_of(period))
        {
            true => self.run,
            false => self.hi - self.lo,
        }
    }

    /// Whether the views share a byte: exact within [`STEPS_MAX`] candidates, else `true`.
    pub fn overlaps(&self, other: &View) -> bool {
        if self.hi <= other.lo || other.hi <= self.lo || self.is_empty() || other.is_empty() {
            return false;
        }
        (self.is_dense() && other.is_dense()) || Difference::of(self, other).is_reachable()
    }

    /// Whether every byte of `other` is one of `self`; `false` when that is not plain to see.
    pub fn covers(&self, other: &View) -> bool {
        if other.is_empty() {
            return true;
        }
        if other.lo < self.lo || other.hi > self.hi || self.is_bounding {
            return false;
        }
        self.is_dense() || self.covers_on_one_lattice(other)
    }

    /// Whether both are the same bytes when one is moved, as far as that is known.
    pub(crate) fn is_same_set_moved(&self, other: &View) -> bool {
        self.is_moved(other) && !self.is_bounding
    }

    /// Whether one is the other, moved.
    pub(crate) fn is_moved(&self, other: &View) -> bool {
        let length = |view: &View| view.hi - view.lo;
        length(self) == length(other)
            && (self.run, self.n_dims, self.is_bounding)
                == (other.run, other.n_dims, other.is_bounding)
            && self.dims() == other.dims()
    }

    /// The same view with another first byte.
    pub(crate) fn moved_to(&self, lo: u64) -> View {
        View {
            lo,
            hi: lo + (self.hi - self.lo),
            ..*self
        }
    }

    /// Containment per dimension: every stride of the other is a multiple of one of ours, or stays inside
    /// of a run.
    fn covers_on_one_lattice(&self, other: &View) -> bool {
        if other.is_bounding {
            return false;
        }
        // Greedy, the largest stride first: one way to write the distance, and enough of a proof.
        let (mut rest, mut theirs) = (other.lo - self.lo, other.dims());
        for mine in self.dims() {
            let mut last = rest / mine.stride;
            rest %= mine.stride;
            while let Some((dim, smaller)) = theirs.split_first()
                && dim.stride.is_multiple_of(mine.stride)
            {
                last += (dim.count - 1) * (dim.stride / mine.stride);
                theirs = smaller;
            }
            if last >= mine.count {
                return false;
            }
        }
        let within = theirs.iter().map(|dim| (dim.count - 1) * dim.stride);
        rest + within.sum::<u64>() + other.run <= self.run
    }

    fn dims(&self) -> &[Dim] {
        &self.dims[..self.n_dims as usize]
    }

    /// Adds a stride, keeping them descending.
    fn insert(&mut self, dim: Dim) {
        let mut at = self.n_dims as usize;
        while at > 0 && self.dims[at - 1].stride < dim.stride {
            self.dims[at] = self.dims[at - 1];
            at -= 1;
        }
        self.dims[at] = dim;
        self.n_dims += 1;
    }

    /// Merges what continues each other: the run with the smallest stride, then neighbours.
    fn fuse(&mut self) {
        let (old, n_old) = (self.dims, self.n_dims as usize);
        let mut n_kept = 0;
        let mut kept = [Dim::default(); DIMS_MAX];
        for dim in old[..n_old].iter().rev() {
            match n_kept {
                0 if dim.stride == self.run => self.run *= dim.count,
                0 => (kept[0], n_kept) = (*dim, 1),
                n if dim.stride == kept[n - 1].stride * kept[n - 1].count => {
                    kept[n - 1].count *= dim.count;
                }
                n => (kept[n], n_kept) = (*dim, n + 1),
            }
        }
        kept[..n_kept].reverse();
        (self.dims, self.n_dims) = (kept, n_kept as u32);
    }

    /// From bits to bytes. A stride that is no whole number of bytes leaves the bounding range.
    fn bits_to_bytes(mut self) -> View {
        let last: u64 = self
            .dims()
            .iter()
            .map(|dim| dim.stride * (dim.count - 1))
            .sum();
        self.hi = self.lo + (last + self.run).div_ceil(8);
        if self.dims().iter().any(|dim| dim.stride % 8 != 0) {
            return View {
                is_bounding: true,
                ..View::dense(self.lo, self.hi)
            };
        }
        self.run = self.run.div_ceil(8);
        for dim in &mut self.dims[..self.n_dims as usize] {
            dim.stride /= 8;
        }
        self
    }
}

/// One stride of the difference of two views, with the multiples of it that occur.
#[derive(Clone, Copy, Default)]
struct Span {
    stride: i64,
    min: i64,
    max: i64,
}

/// The set of all differences of a byte of one view and a byte of another, less `B.lo - A.lo`.
struct Difference {
    spans: [Span; 2 * DIMS_MAX],
    n_spans: usize,
    /// Smallest and largest sum that the spans from this one on reach, the runs included.
    low: [i64; 2 * DIMS_MAX + 1],
    high: [i64; 2 * DIMS_MAX + 1],
    target: i64,
    steps: u32,
}

impl Difference {
    fn of(a: &View, b: &View) -> Difference {
        let mut all = Difference {
            spans: [Span::default(); 2 * DIMS_MAX],
            n_spans: 0,
            low: [0; 2 * DIMS_MAX + 1],
            high: [0; 2 * DIMS_MAX + 1],
            target: b.lo as i64 - a.lo as i64,
            steps: 0,
        };
        all.merge(a.dims(), b.dims());
        let n = all.n_spans;
        (all.low[n], all.high[n]) = (1 - b.run as i64, a.run as i64 - 1);
        for k in (0..n).rev() {
            let span = all.spans[k];
            all.low[k] = all.low[k + 1] + span.min * span.stride;
            all.high[k] = all.high[k + 1] + span.max * span.stride;
        }
        all
    }

    /// Both lists of strides descend; so does the merged one, equal strides becoming one span.
    fn merge(&mut self, mut a: &[Dim], mut b: &[Dim]) {
        while !a.is_empty() || !b.is_empty() {
            let stride = a
                .first()
                .map_or(0, |d| d.stride)
                .max(b.first().map_or(0, |d| d.stride));
            let mut span = Span {
                stride: stride as i64,
                min: 0,
                max: 0,
            };
            while let Some((dim, rest)) = a.split_first().filter(|(dim, _)| dim.stride == stride) {
                (span.max, a) = (span.max + dim.count as i64 - 1, rest);
            }
            while let Some((dim, rest)) = b.split_first().filter(|(dim, _)| dim.stride == stride) {
                (span.min, b) = (span.min - dim.count as i64 + 1, rest);
            }
            self.spans[self.n_spans] = span;
            self.n_spans += 1;
        }
    }

    fn is_reachable(&mut self) -> bool {
        self.search(0, self.target)
    }

    /// Whether the spans from `k` on reach `rest`.
    fn search(&mut self, k: usize, rest: i64) -> bool {
        if k == self.n_spans {
            return self.low[k] <= rest && rest <= self.high[k];
        }
        let span = self.spans[k];
        // Multiples that leave a rest which the later spans can reach.
        let first = div_ceil(rest - self.high[k + 1], span.stride).max(span.min);
        let last = (rest - self.low[k + 1])
            .div_euclid(span.stride)
            .min(span.max);
        if k + 1 == self.n_spans {
            return first <= last;
        }
        for multiple in first..=last {
            self.steps += 1;
            if self.steps > STEPS_MAX || self.search(k + 1, rest - multiple * span.stride) {
                return true;
            }
        }
        false
    }
}

/// Quotient rounded up; `divisor` is positive.
fn div_ceil(value: i64, divisor: i64) -> i64 {
    -(-value).div_euclid(divisor)
}

#[cfg(test)]
mod tests;
