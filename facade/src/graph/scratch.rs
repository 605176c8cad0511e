//! Intermediate memory of replays: one pool for all graphs of a worker, of bounded size.
//!
//! A replay takes a piece that nobody uses, or a new one while there is room; idle pieces are given up for that, those
//! first that were used the longest ago. Where neither can be had it shares a piece with a replay under way, which
//! orders it behind that one. A graph for which no piece is large enough, and none can be made, runs eagerly: its tasks
//! then take their memory from the ring, which waits for room.

use std::sync::Arc;

use crate::buffer::BufferCore;
use crate::error::BufferError;

/// Pieces that replays of one graph use at once. More replays than that are under way only one after the other.
const PIECES_MAX: usize = 4;

/// The memory of all replays.
#[derive(Debug)]
pub(super) struct Scratch {
    pieces: Vec<Piece>,
    bytes: u64,
    bytes_max: u64,
    /// Counts the replays.
    now: u64,
}

#[derive(Debug)]
struct Piece {
    core: Arc<BufferCore>,
    bytes: u64,
    /// The graph that used it last.
    graph: u64,
    /// When that was.
    used: u64,
}

impl Scratch {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            pieces: Vec::new(),
            bytes: 0,
            bytes_max,
            now: 0,
        }
    }

    /// The most bytes that all pieces may have.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes of all pieces.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A piece of at least so many bytes for a replay of `graph`; `None` where there is none, nor room for one.
    pub(super) fn piece(
        &mut self,
        graph: u64,
        bytes: u64,
        create: impl FnOnce() -> Result<Arc<BufferCore>, BufferError>,
    ) -> Result<Option<Arc<BufferCore>>, BufferError> {
        self.now += 1;
        if let Some(at) = self.smallest_idle(bytes) {
            return Ok(Some(self.used(at, graph)));
        }
        let n_own = self.pieces.iter().filter(|it| it.graph == graph).count();
        if n_own < PIECES_MAX && self.make_room(bytes) {
            let core = create()?;
            self.bytes += bytes;
            let used = self.now;
            self.pieces.push(Piece {
                core,
                bytes,
                graph,
                used,
            });
            return Ok(self.pieces.last().map(|it| Arc::clone(&it.core)));
        }
        let at = self.first_by(|it| (it.bytes >= bytes).then_some(it.used));
        Ok(at.map(|at| self.used(at, graph)))
    }

    fn smallest_idle(&self, bytes: u64) -> Option<usize> {
        self.first_by(|it| (it.bytes >= bytes && it.core.is_idle()).then_some(it.bytes))
    }

    /// Gives up idle pieces until so many bytes are free; none if that is in vain.
    fn make_room(&mut self, bytes: u64) -> bool {
        let idle = self.pieces.iter().filter(|it| it.core.is_idle());
        let busy = self.bytes - idle.map(|it| it.bytes).sum::<u64>();
        if busy.saturating_add(bytes) > self.bytes_max {
            return false;
        }
        while self.bytes + bytes > self.bytes_max {
            let oldest = self.first_by(|it| it.core.is_idle().then_some(it.used));
            let Some(at) = oldest else {
                // A replay of another thread has taken one meanwhile.
                return false;
            };
            self.bytes -= self.pieces.swap_remove(at).bytes;
        }
        true
    }

    fn first_by(&self, key: impl Fn(&Piece) -> Option<u64>) -> Option<usize> {
        let keys = self.pieces.iter().enumerate();
        let keys = keys.filter_map(|(at, it)| Some((key(it)?, at)));
        keys.min().map(|(_, at)| at)
    }

    fn used(&mut self, at: usize, graph: u64) -> Arc<BufferCore> {
        let piece = &mut self.pieces[at];
        (piece.graph, piece.used) = (graph, self.now);
        Arc::clone(&piece.core)
    }
}
