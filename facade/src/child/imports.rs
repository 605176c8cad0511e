//! Buffers of workers above, mapped here when the first task or request names them: once for reading, where the mapping
//! itself refuses a store, and once for writing, where a task may write.
//!
//! A mapped buffer keeps its descriptor, which a worker hands on to those below. Where there is none left the kernel loses
//! what was sent: the task fails with [`FaultKind::Mapping`](crate::FaultKind::Mapping), and the parent announces the
//! buffers of that task again with the next one that names them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use mailbox::{FdChannel, FdMessage, Segment};
use taskgraph::{BufferId, BufferKind};

use crate::args::Args;
use crate::buffer::{BufferCore, Use};
use crate::control;
use crate::view::Grant;
use crate::wire::{ClaimedTask, WireBuffer};

/// The descriptor of a named buffer was sent before the frame that names it, so it is there or never comes.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a task does not get its arguments.
pub(super) enum ImportError {
    /// A tensor that is none, or that leaves its backing.
    Invalid(String),
    /// A buffer that could not be mapped.
    Unmapped(String),
}

/// What to do about it.
const ROOM: &str = "a worker keeps a descriptor of each buffer that it has mapped: drop buffers, or raise its limit of open files";

/// Makes a mapped segment into a buffer of this process.
pub(super) type Adopt<'a> = dyn Fn(BufferId, Segment) -> Arc<BufferCore> + 'a;

/// The mapped buffers, and the channel on which more of them come.
pub(super) struct Imports {
    channel: FdChannel,
    mapped: HashMap<(BufferId, Use), Arc<BufferCore>>,
}

impl Imports {
    pub(super) fn new(channel: FdChannel) -> Self {
        Self {
            channel,
            mapped: HashMap::new(),
        }
    }

    /// The arguments of a claimed task: every tensor validated against the real size of its backing.
    ///
    /// Device tensors are not mapped; the chip worker resolves them by its own table.
    pub(super) fn args(
        &mut self,
        task: ClaimedTask,
        adopt: &Adopt<'_>,
    ) -> Result<Args, ImportError> {
        let mut grants = Vec::with_capacity(task.tensors.len());
        for (index, (raw, tag)) in task.tensors.iter().enumerate() {
            let at = |error: String| format!("tensor {index}: {error}");
            let refused = |error: String| ImportError::Invalid(at(error));
            let id = raw.buffer().map_err(|error| refused(error.to_string()))?;
            if id.kind == BufferKind::Device {
                let tensor = raw
                    .validate(raw.backing_bytes)
                    .map_err(|e| refused(e.to_string()))?;
                grants.push(Grant::on_device(tensor, *tag));
                continue;
            }
            let core = self.find(id, Use::of(*tag), adopt);
            let core = core.map_err(|error| ImportError::Unmapped(at(error)))?;
            let tensor = raw
                .validate(core.bytes())
                .map_err(|e| refused(e.to_string()))?;
            grants.push(Grant::new(core, tensor, *tag));
        }
        Ok(Args::new(grants, task.scalars))
    }

    /// The buffer of this identity, mapped for this use, now if it was announced.
    pub(super) fn find(
        &mut self,
        id: BufferId,
        how: Use,
        adopt: &Adopt<'_>,
    ) -> Result<Arc<BufferCore>, String> {
        if let Some(mapped) = self.mapped.get(&(id, how)) {
            return Ok(Arc::clone(mapped));
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.mapped.contains_key(&(id, how)) {
            self.receive(deadline, adopt)
                .map_err(|error| format!("{id} cannot be mapped: {error}; {ROOM}"))?;
        }
        Ok(Arc::clone(&self.mapped[&(id, how)]))
    }

    /// Unmaps a buffer as soon as nothing here uses it any more; also one that was announced and that no task has named.
    pub(super) fn forget(&mut self, id: BufferId, adopt: &Adopt<'_>) {
        // Everything that was announced before, for either use. What cannot be mapped need not be unmapped.
        while let Ok(Some(message)) = self.channel.try_recv() {
            let _ = self.take(message, adopt);
        }
        for how in [Use::Read, Use::Write] {
            if let Some(core) = self.mapped.remove(&(id, how)) {
                core.abandon();
            }
        }
    }

    fn receive(&mut self, deadline: Instant, adopt: &Adopt<'_>) -> Result<(), String> {
        let message = self.channel.recv(Some(deadline));
        self.take(message.map_err(|error| control::chain(&error))?, adopt)
    }

    /// Maps what an announcement names.
    fn take(&mut self, message: FdMessage, adopt: &Adopt<'_>) -> Result<(), String> {
        let buffer = WireBuffer::from_header(message.header);
        let (buffer, how) = buffer.ok_or("the announcement is malformed")?;
        let fd = message
            .fds
            .into_iter()
            .next()
            .ok_or("the announcement has no descriptor")?;
        if self.mapped.contains_key(&(buffer.id(), how)) {
            // Announced again, after a task that could not map another one.
            return Ok(());
        }
        let bytes = usize::try_from(buffer.bytes).map_err(|_| "its size fits no address space")?;
        let map = match how {
            Use::Read => Segment::map_readonly,
            Use::Write => Segment::from_fd,
        };
        let segment = map(fd, bytes).map_err(|error| control::chain(&error))?;
        // A child that is forked later is told of what it needs.
        segment
            .keep_from_forks()
            .map_err(|error| control::chain(&error))?;
        let core = adopt(buffer.id(), segment);
        self.mapped.insert((buffer.id(), how), core);
        Ok(())
    }
}
