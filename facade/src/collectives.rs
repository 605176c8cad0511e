//! Collectives: what the members of a domain do together, as tasks on their chips.
//!
//! A collective submits tasks and returns; the graph orders them by what they read and write, against each other and
//! against everything else that names the buffers. Each task moves data between the windows of a [`Domain`]; no byte
//! passes through the host. With *n* ranks of *b* bytes:
//!
//! | collective | tasks | each rank reads and writes |
//! | --- | --- | --- |
//! | all-reduce, [`AllReduce::Ring`] | 2 n (n - 1) | about 3 b + 2 b, whatever n |
//! | all-reduce, [`AllReduce::OneShot`] | n | n b + b |
//! | reduce-scatter, all-gather, all-to-all | n | the bytes of its result, n times as many for a reduction |
//! | broadcast | n - 1 | b |
//!
//! Every rank gets the same bits: a sum is computed once, or in the same order everywhere. Sums of floating-point numbers
//! depend on the algorithm in their last bits, since the orders of their terms differ.
//!
//! The kernels are Rust functions, which simulated chips execute.

use std::sync::Arc;

use taskgraph::Tensor;

use crate::args::args;
use crate::callable::ChipHandle;
use crate::device_memory::DeviceBuffer;
use crate::domain::{Domain, Symmetric};
use crate::element::Element;
use crate::error::{DomainError, Error};
use crate::orchestrator::{Orchestrator, on};
use crate::worker::Worker;

mod kernels;

use self::kernels::{BARRIER, COPY, FOLD};

/// How the elements of several ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reduce {
    /// Their sum; integers wrap around, half-precision numbers are rounded after each addition.
    Sum,
    /// The smallest. Of a number and a NaN, the number.
    Min,
    /// The largest. Of a number and a NaN, the number.
    Max,
}

/// How an all-reduce goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllReduce {
    /// Pieces go around the ring of ranks, twice: the least traffic, the most steps. For large buffers.
    Ring,
    /// Each rank reads the buffers of all: one step. For small buffers.
    OneShot,
}

/// The collectives of a worker, registered with its chips. Cheap to clone.
///
/// ```no_run
/// # use facade::{AllReduce, Error, Reduce, Worker, named};
/// # fn main() -> Result<(), Error> {
/// let node = Worker::node().chips(4).build()?;
/// let collectives = node.register_collectives()?; // before `init`
/// node.init()?;
/// node.run(|orch| {
///     let domain = orch.allocate_domain("sum", &[0, 1, 2, 3], 1 << 20, &[named::<f32>("x", 1000)])?;
///     let x = domain.buffer::<f32>("x")?;
///     for rank in 0..4 {
///         orch.copy_to(x[rank], &[rank as f32; 1000])?;
///     }
///     collectives.all_reduce(orch, &x, &x, Reduce::Sum, AllReduce::Ring) // every rank has 6.0 afterwards
/// })?;
/// # node.close()
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Collectives {
    copy: ChipHandle,
    fold: ChipHandle,
    barrier: ChipHandle,
}

impl Worker {
    /// Registers the kernels of the collectives, once.
    ///
    /// # Errors
    ///
    /// As [`Worker::register_chip`].
    pub fn register_collectives(&self) -> Result<Collectives, Error> {
        Ok(Collectives {
            copy: self.register_chip(&COPY)?,
            fold: self.register_chip(&FOLD)?,
            barrier: self.register_chip(&BARRIER)?,
        })
    }
}

impl Orchestrator<'_> {
    /// The collectives that were registered with the root of this tree, for orchestrations that captured nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Callable`] when they were not.
    pub fn collectives(&self) -> Result<Collectives, Error> {
        Ok(Collectives {
            copy: self.chip(COPY.name)?,
            fold: self.chip(FOLD.name)?,
            barrier: self.chip(BARRIER.name)?,
        })
    }
}

/// All of them: nothing is submitted when the buffers do not fit ([`DomainError::Collective`]). When a task is refused
/// half-way (a member died), the run has the tasks that were submitted before.
impl Collectives {
    /// `to` of every rank becomes the reduction of `from` of all ranks, element by element. With [`AllReduce::Ring`] the
    /// two may be the same buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Domain`] unless both are in one domain, of one length, and apart; [`Error::Submit`].
    pub fn all_reduce<T: Element>(
        &self,
        orch: &mut Orchestrator<'_>,
        from: &Symmetric<T>,
        to: &Symmetric<T>,
        reduce: Reduce,
        how: AllReduce,
    ) -> Result<(), Error> {
        let check = Check::new("all-reduce", from, to)?;
        check.lengths(from.len(), to.len(), 1)?;
        let in_place = from[0].tensor() == to[0].tensor();
        if how == AllReduce::OneShot || !in_place {
            check.apart(from, to)?;
        }
        match how {
            AllReduce::Ring => self.ring(orch, from, to, reduce, in_place),
            AllReduce::OneShot => (0..from.ranks()).try_for_each(|rank| {
                let parts: Vec<_> = from.iter().collect();
                self.fold(orch, from.domain(), rank, to[rank], &parts, reduce)
            }),
        }
    }

    /// Each rank adds its piece to the sum that comes from the rank before it, n - 1 times; then the finished pieces go
    /// round, n - 1 times. In step `s` rank `r` works on piece `r - 1 - s`, and then on piece `r - s`, modulo n.
    fn ring<T: Element>(
        &self,
        orch: &mut Orchestrator<'_>,
        from: &Symmetric<T>,
        to: &Symmetric<T>,
        reduce: Reduce,
        in_place: bool,
    ) -> Result<(), Error> {
        let (n, domain) = (from.ranks(), from.domain());
        if n == 1 {
            return if in_place {
                Ok(())
            } else {
                self.copy_one(orch, domain, 0, from[0], to[0])
            };
        }
        for step in 0..n - 1 {
            for rank in 0..n {
                let before = (rank + n - 1) % n;
                let piece = share((rank + 2 * n - 1 - step) % n, n, from.len());
                let sent = if step == 0 { from[before] } else { to[before] };
                let parts = [sent.slice(piece.clone())?, from[rank].slice(piece.clone())?];
                self.fold(orch, domain, rank, to[rank].slice(piece)?, &parts, reduce)?;
            }
        }
        for step in 0..n - 1 {
            for rank in 0..n {
                let before = (rank + n - 1) % n;
                let piece = share((rank + n - step) % n, n, from.len());
                let (part, target) = (to[before].slice(piece.clone())?, to[rank].slice(piece)?);
                self.copy_one(orch, domain, rank, part, target)?;
            }
        }
        Ok(())
    }

    /// `to` of rank `r` becomes piece `r` of the reduction of `from` of all ranks: `from` has as many pieces as there are
    /// ranks, each as long as `to`.
    ///
    /// # Errors
    ///
    /// [`Error::Domain`] unless both are in one domain, fit, and are apart; [`Error::Submit`].
    pub fn reduce_scatter<T: Element>(
        &self,
        orch: &mut Orchestrator<'_>,
        from: &Symmetric<T>,
        to: &Symmetric<T>,
        reduce: Reduce,
    ) -> Result<(), Error> {
        let check = Check::new("reduce-scatter", from, to)?;
        check.lengths(to.len(), from.len(), from.ranks())?;
        check.apart(from, to)?;
        let len = to.len();
        (0..from.ranks()).try_for_each(|rank| {
            let pieces = from.iter().map(|of| of.slice(rank * len..(rank + 1) * len));
            let pieces = pieces.collect::<Result<Vec<_>, Error>>()?;
            self.fold(orch, from.domain(), rank, to[rank], &pieces, reduce)
        })
    }

    /// `to` of every rank becomes `from` of all ranks, one after the other.
    ///
    /// # Errors
    ///
    /// [`Error::Domain`] unless both are in one domain, `to` is as long as all `from` together, and they are apart;
    /// [`Error::Submit`].
    pub fn all_gather<T: Element>(
        &self,
        orch: &mut Orchestrator<'_>,
        from: &Symmetric<T>,
        to: &Symmetric<T>,
    ) -> Result<(), Error> {
        let check = Check::new("all-gather", from, to)?;
        check.lengths(from.len(), to.len(), from.ranks())?;
        check.apart(from, to)?;
        self.exchange(orch, to, from.len(), |sender, _| Ok(from[sender]))
    }

    /// Piece `s` of `to` of rank `r` becomes piece `r` of `from` of rank `s`: both have as many pieces as there are ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Domain`] unless both are in one domain, of one length that the ranks divide, and apart; [`Error::Submit`].
    pub fn all_to_all<T: Element>(
        &self,
        orch: &mut Orchestrator<'_>,
        from: &Symmetric<T>,
        to: &Symmetric<T>,
    ) -> Result<(), Error> {
        let check = Check::new("all-to-all", from, to)?;
        check.lengths(from.len(), to.len(), 1)?;
        let piece = from.len() / from.ranks();
        check.lengths(piece, from.len(), from.ranks())?;
        check.apart(from, to)?;
        self.exchange(orch, to, piece, |sender, receiver| {
            from[sender].slice(receiver * piece..(receiver + 1) * piece)
        })
    }

    /// `x` of every rank becomes `x` of the rank `root`.
    ///
    /// # Errors
    ///
    /// [`Error::Domain`] when there is no such rank; [`Error::Submit`].
    pub fn broadcast<T: Element>(
        &self,
        orch: &mut Orchestrator<'_>,
        x: &Symmetric<T>,
        root: usize,
    ) -> Result<(), Error> {
        let check = Check::new("broadcast", x, x)?;
        if root >= x.ranks() {
            return Err(check.refuse(format!("there is no rank {root}, they count from 0")));
        }
        (0..x.ranks())
            .filter(|&rank| rank != root)
            .try_for_each(|rank| self.copy_one(orch, x.domain(), rank, x[root], x[rank]))
    }

    /// What was submitted before and names a window of the domain ends before what is submitted later and does, on every
    /// member, whatever they touch; except where they name it as [`NoDep`](taskgraph::Tag::NoDep),
    /// of which the graph knows nothing. The graph orders what conflicts without it.
    ///
    /// # Errors
    ///
    /// [`Error::Domain`] when the domain was released; [`Error::Submit`].
    pub fn barrier(&self, orch: &mut Orchestrator<'_>, domain: &Domain) -> Result<(), Error> {
        let windows = domain.window()?;
        let members = windows.iter().map(|window| {
            let worker = window.owner();
            (args().inout(&window), on(worker))
        });
        orch.submit_next_level_group(&self.barrier, members.collect())
            .map(drop)
    }

    /// Each receiver copies a piece of each sender, in one task of as many core tasks.
    fn exchange<T: Element>(
        &self,
        orch: &mut Orchestrator<'_>,
        to: &Symmetric<T>,
        piece: usize,
        sent: impl Fn(usize, usize) -> Result<DeviceBuffer<T>, Error>,
    ) -> Result<(), Error> {
        if piece == 0 {
            return Ok(());
        }
        for receiver in 0..to.ranks() {
            let mut list = args();
            for sender in 0..to.ranks() {
                let target = to[receiver].slice(sender * piece..(sender + 1) * piece)?;
                list = list.input(&sent(sender, receiver)?).output(&target);
            }
            orch.submit_next_level(&self.copy, list, on(to[receiver].owner()))?;
        }
        Ok(())
    }

    fn copy_one<T: Element>(
        &self,
        orch: &mut Orchestrator<'_>,
        domain: &Domain,
        rank: usize,
        from: DeviceBuffer<T>,
        to: DeviceBuffer<T>,
    ) -> Result<(), Error> {
        if to.is_empty() {
            return Ok(());
        }
        let list = args().input(&from).output(&to);
        let worker = domain.worker(rank).unwrap_or(u32::MAX);
        orch.submit_next_level(&self.copy, list, on(worker))
            .map(drop)
    }

    /// `to` becomes the reduction of `parts`, on the chip of `rank`. It may be one of them.
    fn fold<T: Element>(
        &self,
        orch: &mut Orchestrator<'_>,
        domain: &Domain,
        rank: usize,
        to: DeviceBuffer<T>,
        parts: &[DeviceBuffer<T>],
        reduce: Reduce,
    ) -> Result<(), Error> {
        if to.is_empty() {
            return Ok(());
        }
        let others = parts.iter().filter(|part| part.tensor() != to.tensor());
        let in_place = parts.iter().any(|part| part.tensor() == to.tensor());
        let list = if in_place {
            args().inout(&to)
        } else {
            args().output(&to)
        };
        let list = others.fold(list, |list, part| list.input(part));
        let list = list.scalar(reduce as u32).scalar(in_place);
        let worker = domain.worker(rank).unwrap_or(u32::MAX);
        orch.submit_next_level(&self.fold, list, on(worker))
            .map(drop)
    }
}

/// What the buffers of a collective must be.
struct Check {
    collective: &'static str,
    ranks: usize,
}

impl Check {
    fn new<T: Element>(
        collective: &'static str,
        from: &Symmetric<T>,
        to: &Symmetric<T>,
    ) -> Result<Self, Error> {
        let ranks = from.ranks();
        let check = Self { collective, ranks };
        if !from.domain().is(to.domain()) {
            let problem = "its buffers are in different domains; take both from one";
            return Err(check.refuse(problem.to_owned()));
        }
        if from.domain().is_released() {
            let domain = Arc::from(from.domain().name());
            return Err(DomainError::Released { domain }.into());
        }
        Ok(check)
    }

    /// `long` must be `times` as long as `short`.
    fn lengths(&self, short: usize, long: usize, times: usize) -> Result<(), Error> {
        if short.checked_mul(times) == Some(long) {
            return Ok(());
        }
        let problem = match times {
            1 => format!(
                "its buffers have {short} and {long} elements in each rank; make them equal"
            ),
            _ => format!("{long} elements are not {times} pieces of {short}; make them that"),
        };
        Err(self.refuse(problem))
    }

    /// The two must not have a byte in common, since one is read while the other is written.
    fn apart<T: Element>(&self, from: &Symmetric<T>, to: &Symmetric<T>) -> Result<(), Error> {
        let overlaps = |a: &Tensor, b: &Tensor| a.view().overlaps(&b.view());
        if from.is_empty() || !overlaps(from[0].tensor(), to[0].tensor()) {
            return Ok(());
        }
        let problem = "its buffers overlap, and one is read while the other is written; use two";
        Err(self.refuse(problem.to_owned()))
    }

    fn refuse(&self, problem: String) -> Error {
        let (collective, ranks) = (self.collective, self.ranks);
        DomainError::Collective {
            collective,
            ranks,
            problem,
        }
        .into()
    }
}

/// The even share of the `idx`-th of `count` in `n` items.
fn share(idx: usize, count: usize, n: usize) -> std::ops::Range<usize> {
    let (share, rest) = (n / count, n % count);
    let start = idx * share + idx.min(rest);
    start..start + share + usize::from(idx < rest)
}
