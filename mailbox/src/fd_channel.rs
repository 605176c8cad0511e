//! A channel for descriptors: a Unix socket that carries a small header and up to sixteen of them.
//!
//! Segments that are created after a child has started reach it this way. Each message is one packet, so
//! that a half-sent one cannot exist; descriptors arrive close-on-exec; what was received is closed again
//! unless the caller takes it.
//!
//! # Safety
//!
//! The kernel has just installed the received descriptors in this process, and nobody else knows their
//! numbers: taking ownership of each exactly once is sound.
#![expect(
    unsafe_code,
    reason = "takes ownership of descriptors that the kernel has installed"
)]

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};

/// One end of a channel for descriptors.
#[derive(Debug)]
pub struct FdChannel(OwnedFd);

/// What goes along with descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdHeader {
    /// The caller's own.
    pub kind: u32,
    /// The caller's own, for example the generation of a buffer.
    pub generation: u32,
    /// The caller's own, for example whose buffer it is.
    pub owner: u64,
    /// The caller's own, for example the identity of a buffer.
    pub id: u64,
    /// The caller's own, for example the size of a segment; the receiver checks it.
    pub value: u64,
}

/// A received message.
#[derive(Debug)]
pub struct FdMessage {
    /// Its header.
    pub header: FdHeader,
    /// Its descriptors, in the order in which they were sent.
    pub fds: Vec<OwnedFd>,
}

/// Why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FdChannelError {
    /// The other end is closed, and everything that it sent has been received.
    #[error("{call}: the other end of the descriptor channel is closed")]
    Closed {
        /// What was attempted.
        call: &'static str,
    },
    /// The deadline passed.
    #[error("{call}: the deadline passed")]
    Deadline {
        /// What was attempted.
        call: &'static str,
    },
    /// A message of another shape than this channel's.
    #[error(
        "receive descriptors: got {bytes} bytes of header (expected {expected}) or lost descriptors on the way; the process may have too many open"
    )]
    Malformed {
        /// Bytes received.
        bytes: usize,
        /// Bytes of a header.
        expected: usize,
    },
    /// More descriptors than one message carries.
    #[error("send {found} descriptors: one message carries {max}")]
    TooMany {
        /// Descriptors given.
        found: usize,
        /// The most.
        max: usize,
    },
    /// A system call failed.
    #[error("{call} on a descriptor channel")]
    Os {
        /// The call.
        call: &'static str,
        /// What the kernel answered.
        #[source]
        source: std::io::Error,
    },
}

/// The most descriptors in one message.
pub const FDS_MAX: usize = 16;

const HEADER_BYTES: usize = 32;

impl FdHeader {
    fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.owner.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> FdHeader {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        FdHeader {
            kind: word(0) as u32,
            generation: (word(0) >> 32) as u32,
            owner: word(8),
            id: word(16),
            value: word(24),
        }
    }
}

/// The descriptor itself, to be handed to a process that does not inherit it.
impl From<FdChannel> for OwnedFd {
    fn from(channel: FdChannel) -> OwnedFd {
        channel.0
    }
}

impl FdChannel {
    /// Two connected ends; both are close-on-exec.
    ///
    /// # Errors
    ///
    /// [`FdChannelError::Os`].
    pub fn pair() -> Result<(FdChannel, FdChannel), FdChannelError> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (a, b) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .map_err(|e| os("socketpair", e))?;
        Ok((FdChannel(a), FdChannel(b)))
    }

    /// An end that was handed over as a descriptor.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> FdChannel {
        FdChannel(fd)
    }

    /// Sends a header and its descriptors; blocks while the socket is full, until the deadline.
    ///
    /// # Errors
    ///
    /// [`FdChannelError`]; nothing was sent then.
    pub fn send(
        &self,
        header: FdHeader,
        fds: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<(), FdChannelError> {
        if fds.len() > FDS_MAX {
            return Err(FdChannelError::TooMany {
                found: fds.len(),
                max: FDS_MAX,
            });
        }
        let raw: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let rights = if raw.is_empty() { &[][..] } else { &rights[..] };
        let bytes = header.encode();
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        loop {
            match sendmsg::<()>(
                self.0.as_raw_fd(),
                &[IoSlice::new(&bytes)],
                rights,
                flags,
                None,
            ) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.until(PollFlags::POLLOUT, "send descriptors", deadline)?
                }
                Err(Errno::EPIPE | Errno::ECONNRESET) => {
                    return Err(FdChannelError::Closed {
                        call: "send descriptors",
                    });
                }
                Err(e) => return Err(os("sendmsg", e)),
            }
        }
    }

    /// Receives the next message; blocks until the deadline.
    ///
    /// # Errors
    ///
    /// [`FdChannelError`]. A malformed message is dropped whole, its descriptors closed.
    pub fn recv(&self, deadline: Option<Instant>) -> Result<FdMessage, FdChannelError> {
        loop {
            match self.try_recv()? {
                Some(message) => return Ok(message),
                None => self.until(PollFlags::POLLIN, "receive descriptors", deadline)?,
            }
        }
    }

    /// The next message if there is one; never blocks.
    ///
    /// # Errors
    ///
    /// As [`FdChannel::recv`].
    pub fn try_recv(&self) -> Result<Option<FdMessage>, FdChannelError> {
        let mut bytes = [0; HEADER_BYTES];
        let mut space = nix::cmsg_space!([RawFd; FDS_MAX]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        let (n_bytes, fds, whole) = loop {
            let mut iov = [IoSliceMut::new(&mut bytes)];
            match recvmsg::<()>(self.0.as_raw_fd(), &mut iov, Some(&mut space), flags) {
                Ok(message) => {
                    let (fds, rights_whole) = take_fds(message.cmsgs());
                    let cut = MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC;
                    break (
                        message.bytes,
                        fds,
                        rights_whole && !message.flags.intersects(cut),
                    );
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::ECONNRESET) => (bytes, _) = ([0; HEADER_BYTES], ()),
                Err(e) => return Err(os("recvmsg", e)),
            }
        };
        match n_bytes {
            0 => Err(FdChannelError::Closed {
                call: "receive descriptors",
            }),
            HEADER_BYTES if whole => Ok(Some(FdMessage {
                header: FdHeader::decode(&bytes),
                fds,
            })),
            bytes => Err(FdChannelError::Malformed {
                bytes,
                expected: HEADER_BYTES,
            }),
        }
    }

    fn until(
        &self,
        events: PollFlags,
        call: &'static str,
        deadline: Option<Instant>,
    ) -> Result<(), FdChannelError> {
        let timeout = match deadline.map(|d| d.saturating_duration_since(Instant::now())) {
            None => PollTimeout::NONE,
            Some(left) if left.is_zero() => return Err(FdChannelError::Deadline { call }),
            // Rounded up, so that the last millisecond does not become a busy loop.
            Some(left) => PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX),
        };
        match poll(&mut [PollFd::new(self.0.as_fd(), events)], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(os("poll", e)),
        }
    }
}

impl AsFd for FdChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes ownership of every descriptor that came with a message.
fn take_fds(
    messages: nix::Result<impl Iterator<Item = ControlMessageOwned>>,
) -> (Vec<OwnedFd>, bool) {
    let Ok(messages) = messages else {
        return (Vec::new(), false);
    };
    let raw = messages.flat_map(|message| match message {
        ControlMessageOwned::ScmRights(raw) => raw,
        _ => Vec::new(),
    });
    // SAFETY: the kernel has installed these descriptors for us just now, and they are taken once.
    (
        raw.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect(),
        true,
    )
}

fn os(call: &'static str, errno: Errno) -> FdChannelError {
    FdChannelError::Os {
        call,
        source: errno.into(),
    }
}
