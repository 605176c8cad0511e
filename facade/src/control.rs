//! Control messages between a worker and its child, and the form in which a failure crosses a process.
//!
//! Control is rare and small, so it is encoded with postcard: a decode of foreign bytes ends in a value or an error.
//! Tasks have a form of their own (module `wire`), since they are paid for once each.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::agreement::{Change, Conclusion};
use crate::buffer::Use;
use crate::clock::WireInstant;
use crate::memory_report::DeviceUsage;
use crate::tree::TreeNode;
use crate::wire::WireBuffer;

/// What a parent asks of a child beside its tasks. Each request gets exactly one [`ControlReply`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ControlRequest {
    /// Bring up everything below and around the child, within the start's deadline.
    Init {
        /// The deadline.
        until: WireInstant,
    },
    /// Allocate device memory, to be known under this name.
    Malloc { name: DeviceName, bytes: u64 },
    /// Free a device allocation.
    Free { name: DeviceName },
    /// Copy the first `bytes` of a shared buffer into device memory, from `offset` on.
    CopyTo {
        name: DeviceName,
        offset: u64,
        bytes: u64,
        buffer: WireBuffer,
    },
    /// Copy `bytes` of device memory, from `offset` on, to the start of a shared buffer.
    CopyFrom {
        name: DeviceName,
        offset: u64,
        bytes: u64,
        buffer: WireBuffer,
    },
    /// Check a change of the callables, load what it needs, and keep it aside.
    Prepare {
        /// What changes.
        change: Change,
        /// The deadline.
        until: WireInstant,
    },
    /// Use the change that was prepared, or forget it.
    Conclude(Conclusion),
    /// Say how the subtree fares.
    Look {
        /// When the answer is of no use any more.
        until: WireInstant,
    },
    /// Start a dead worker of the subtree again.
    Respawn {
        /// Which.
        path: String,
        /// The deadline.
        until: WireInstant,
    },
    /// Map the windows of a domain, which lie in a shared buffer.
    MapDomain {
        windows: Vec<WireWindow>,
        buffer: WireBuffer,
    },
    /// Unmap windows of a domain, last first.
    UnmapDomain { windows: Vec<WireWindow> },
    /// Tell how the device's memory is used.
    MemoryReport,
    /// Forget a shared buffer: unmap it, here and below.
    Unmap { buffers: Vec<WireBuffer> },
}

impl ControlRequest {
    /// What the child does to the buffer that the request names.
    pub(crate) fn use_of_buffer(&self) -> Use {
        match self {
            ControlRequest::CopyTo { .. } => Use::Read,
            _ => Use::Write,
        }
    }
}

/// A device allocation as parent and child name it: no address crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct DeviceName {
    /// The life of the chip worker that it belongs to.
    pub(crate) incarnation: u64,
    /// Entry of the parent's table.
    pub(crate) entry: u32,
    /// Generation of that entry.
    pub(crate) generation: u32,
}

impl DeviceName {
    /// The name of memory that is to come.
    pub(crate) fn of(ticket: &provenance::Ticket) -> Self {
        Self {
            incarnation: ticket.worker.incarnation,
            entry: ticket.entry,
            generation: ticket.generation,
        }
    }
}

/// A window of a domain as parent and child name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireWindow {
    /// The window on the worker that is asked.
    pub(crate) name: DeviceName,
    /// The memory that it shows, which tasks name.
    pub(crate) root: DeviceName,
    /// Where it begins in the shared buffer.
    pub(crate) offset: u64,
    /// Its length.
    pub(crate) bytes: u64,
    /// Whether it is the asked worker's own memory.
    pub(crate) is_home: bool,
}

impl ControlRequest {
    /// What is attempted, for messages.
    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Init { .. } => "start",
            Self::Malloc { .. } => "allocate device memory",
            Self::Free { .. } => "free device memory",
            Self::CopyTo { .. } => "copy to device memory",
            Self::CopyFrom { .. } => "copy from device memory",
            Self::MapDomain { .. } => "map the windows of a domain",
            Self::UnmapDomain { .. } => "unmap the windows of a domain",
            Self::MemoryReport => "report device memory",
            Self::Prepare { .. } => "prepare a change of the callables",
            Self::Conclude(_) => "conclude a change of the callables",
            Self::Look { .. } => "look how the subtree fares",
            Self::Respawn { .. } => "start a dead worker again",
            Self::Unmap { .. } => "unmap buffers",
        }
    }
}

/// The answer to a [`ControlRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ControlReply {
    /// The subtree is ready and looks like this.
    Ready(TreeNode),
    /// Device memory at this address.
    Address(u64),
    /// Windows at these addresses, in the order in which they were asked for.
    Addresses(Vec<u64>),
    /// How the device's memory is used.
    Memory(DeviceUsage),
    /// So much cannot be allocated; how the memory is used.
    OutOfMemory { wanted: u64, usage: DeviceUsage },
    /// Done, with nothing to tell.
    Done,
    /// Not done, for this reason.
    Failed(RemoteError),
}

/// What kind of fault a [`RemoteError`] tells of, for callers that branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FaultKind {
    /// User code (a host function, an orchestration, a kernel) panicked.
    Panicked,
    /// User code returned an error.
    Returned,
    /// The device or its driver refused or failed.
    Device,
    /// The device failed in a way that makes it unusable until it is probed: a hardware fault, or a
    /// task that did not end in time. Other devices are not affected.
    Unusable,
    /// Arguments did not fit: an unknown callable, a view outside its buffer, a wrong type.
    Arguments,
    /// A worker below died.
    WorkerDied,
    /// A time limit passed.
    Deadline,
    /// The runtime itself could not go on: memory, descriptors, a malformed message.
    Runtime,
    /// A shared buffer could not be mapped there, most likely for want of descriptors. The next task that names it tries
    /// again.
    Mapping,
}

/// A failure that happened in another process, with everything that its message needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RemoteError {
    /// What kind of fault it was.
    pub kind: FaultKind,
    /// Path of the worker where it happened first.
    pub path: String,
    /// What was attempted there, for example ``run function `check` ``.
    pub operation: String,
    /// The panic message, or the error and its sources joined by `: `.
    pub message: String,
}

impl RemoteError {
    pub(crate) fn new(
        kind: FaultKind,
        path: impl Into<String>,
        operation: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            path: path.into(),
            operation: operation.into(),
            message: message.into(),
        }
    }
}

/// Separates the parts of a failure that crosses a mailbox; no path or operation contains it.
const SEPARATOR: char = '\u{1f}';

impl FaultKind {
    const ALL: [FaultKind; 9] = [
        FaultKind::Panicked,
        FaultKind::Returned,
        FaultKind::Device,
        FaultKind::Unusable,
        FaultKind::Arguments,
        FaultKind::WorkerDied,
        FaultKind::Deadline,
        FaultKind::Runtime,
        FaultKind::Mapping,
    ];
}

impl RemoteError {
    /// The form in which a task's failure crosses a mailbox: a code and a text, which may be cut at its end.
    pub(crate) fn to_parts(&self) -> (u32, String) {
        let code = FaultKind::ALL.iter().position(|kind| *kind == self.kind);
        let text = format!(
            "{}{SEPARATOR}{}{SEPARATOR}{}",
            self.path, self.operation, self.message
        );
        (code.map_or(u32::MAX, |code| code as u32), text)
    }

    /// The failure that a child wrote. Whatever it wrote is a failure of some kind.
    pub(crate) fn from_failure(failure: &mailbox::Failure<'_>) -> Self {
        let kind = FaultKind::ALL
            .get(failure.code as usize)
            .copied()
            .unwrap_or(FaultKind::Runtime);
        let mut parts = failure.message.splitn(3, SEPARATOR);
        let mut next = || parts.next().unwrap_or_default().to_owned();
        Self {
            kind,
            path: next(),
            operation: next(),
            message: next(),
        }
    }
}

impl RemoteError {
    /// Which chip of its parent the worker is, in the order of their devices; `None` if it is no chip
    /// worker.
    #[must_use]
    pub fn chip_index(&self) -> Option<usize> {
        crate::tree_plan::chip_index(&self.path)
    }

    /// The message, with the word that it was a panic where it was one.
    pub(crate) fn told(&self) -> String {
        let verb = if self.kind == FaultKind::Panicked {
            "panicked: "
        } else {
            ""
        };
        format!("{verb}{}", self.message)
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on `{}`: {}", self.operation, self.path, self.told())
    }
}

impl std::error::Error for RemoteError {}

/// An error and its sources in one line; a source that its parent already printed is not repeated.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let part = source.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        next = source.source();
    }
    text
}

/// The message of a caught panic.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a text message".to_owned()
    }
}

/// Encodes a control message.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_allocvec(message).expect("the message types above have no fallible serializer")
}

/// Decodes a control message that a peer wrote.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, postcard::Error> {
    postcard::from_bytes(bytes)
}

#[cfg(test)]
mod tests;
