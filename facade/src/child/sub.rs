//! The sub worker: runs host functions over mapped arguments.

use std::sync::{Arc, Weak};
use std::time::Instant;

use device::Digest;
use mailbox::Segment;
use taskgraph::BufferId;

use crate::args::Args;
use crate::buffer::BufferCore;
use crate::callable::{Body, Entry};
use crate::config::Level;
use crate::control::{ControlReply, ControlRequest, FaultKind, RemoteError, chain};
use crate::engine::Engine;
use crate::progress::Board;
use crate::tree::{Role, TreeNode};

use super::{Executor, Seat, no_device, operation, panics, wrong_kind};

pub(super) struct SubWorker {
    path: String,
}

impl SubWorker {
    pub(super) fn new(seat: &Seat) -> Self {
        Self {
            path: seat.path.clone(),
        }
    }
}

impl Executor for SubWorker {
    fn init(&mut self, _until: Instant, _board: &Board) -> Result<TreeNode, RemoteError> {
        Ok(TreeNode::here(&self.path, Level::Chip, Role::Sub))
    }

    fn run(
        &mut self,
        _digest: &Digest,
        entry: &Entry,
        args: &Args,
        _accept: &mut dyn FnMut(),
    ) -> Result<(), RemoteError> {
        let Body::Function(function) = &entry.body else {
            return Err(wrong_kind(&self.path, entry, "functions"));
        };
        panics::caught(&self.path, || operation(entry), || function(args))?.map_err(|error| {
            let (operation, reason) = (operation(entry), chain(&*error));
            RemoteError::new(FaultKind::Returned, &self.path, operation, reason)
        })
    }

    fn memory(
        &mut self,
        _request: &ControlRequest,
        _buffer: Option<&BufferCore>,
    ) -> Result<ControlReply, RemoteError> {
        Err(no_device(&self.path))
    }

    fn adopt(&self, id: BufferId, segment: Segment) -> Arc<BufferCore> {
        BufferCore::new(id, segment, Weak::<Engine>::new())
    }

    fn close(&mut self) {}
}
