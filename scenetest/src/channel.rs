//! Messages through a pipe that several processes may write to at once.
//!
//! A write of at most [`FRAME_MAX`] bytes into a pipe is atomic: it is never mixed with another
//! one. So every message is sent as frames of at most that size, each in one write, and put
//! together again by writer and number. A frame:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | `SCN1` |
//! | 4..8 | pid of the writer |
//! | 8..12 | number of the message |
//! | 12..14 | number of the frame in it |
//! | 14..16 | how many frames it has |
//! | 16..18 | length of the payload |
//! | 18..20 | zero |
//! | 20..24 | checksum of all but these four bytes |
//! | 24.. | payload |
//!
//! What arrives is not trusted: bytes that are no frame (somebody else wrote to the descriptor) are
//! skipped and counted as torn, and so are messages that never became whole.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// `PIPE_BUF` on Linux.
const FRAME_MAX: usize = 4096;
const HEADER: usize = 24;
const MAGIC: &[u8; 4] = b"SCN1";

/// The writing end.
#[derive(Debug)]
pub(crate) struct Sender {
    pipe: File,
    next: AtomicU32,
}

impl Sender {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            pipe: File::from(fd),
            next: AtomicU32::new(0),
        }
    }

    /// Sends a message. Blocks while the pipe is full.
    ///
    /// # Errors
    /// The runner is gone, or the message is longer than some 250 MB.
    pub(crate) fn send(&self, message: &[u8]) -> io::Result<()> {
        // Relaxed: only uniqueness matters.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let payloads: Vec<&[u8]> = match message {
            [] => vec![message],
            _ => message.chunks(FRAME_MAX - HEADER).collect(),
        };
        let parts = u16::try_from(payloads.len()).map_err(io::Error::other)?;
        for (part, payload) in (0..parts).zip(payloads) {
            let frame = frame(std::process::id(), number, part, parts, payload);
            write_whole(&self.pipe, &frame)?;
        }
        Ok(())
    }
}

/// A frame at once, as no other writer may come between its parts. A handler of the scene's own may interrupt the
/// wait for a full pipe, and nothing is written then.
fn write_whole(mut pipe: impl io::Write, frame: &[u8]) -> io::Result<()> {
    loop {
        match pipe.write(frame) {
            Ok(written) if written == frame.len() => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn frame(pid: u32, number: u32, part: u16, parts: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER + payload.len());
    frame.extend_from_slice(MAGIC);
    frame.extend_from_slice(&pid.to_le_bytes());
    frame.extend_from_slice(&number.to_le_bytes());
    frame.extend_from_slice(&part.to_le_bytes());
    frame.extend_from_slice(&parts.to_le_bytes());
    frame.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    frame.extend_from_slice(&[0; 2]);
    let sum = checksum(&frame, payload);
    frame.extend_from_slice(&sum.to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// FNV-1a over both.
fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let bytes = header.iter().chain(payload);
    bytes.fold(0x811c_9dc5, |sum, &byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Puts messages together from what was read.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    unread: Vec<u8>,
    /// (writer, message) -> its frames until now.
    partial: HashMap<(u32, u32), Vec<Option<Vec<u8>>>>,
    torn: u64,
    skipping: bool,
}

struct Frame {
    key: (u32, u32),
    part: u16,
    parts: u16,
    payload: Vec<u8>,
    bytes: usize,
}

enum Parsed {
    Frame(Frame),
    Incomplete,
    Garbage,
}

impl Receiver {
    /// Takes bytes as they were read; returns the messages that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.unread.extend_from_slice(bytes);
        let mut messages = Vec::new();
        let mut at = 0;
        loop {
            match parse(&self.unread[at..]) {
                Parsed::Incomplete => break,
                Parsed::Garbage => {
                    at += 1;
                    // A stretch of garbage counts once.
                    self.torn += u64::from(!self.skipping);
                    self.skipping = true;
                }
                Parsed::Frame(frame) => {
                    at += frame.bytes;
                    self.skipping = false;
                    messages.extend(self.add(frame));
                }
            }
        }
        self.unread.drain(..at);
        messages
    }

    fn add(&mut self, frame: Frame) -> Option<Vec<u8>> {
        let parts = self.partial.entry(frame.key).or_default();
        parts.resize(usize::from(frame.parts), None);
        parts[usize::from(frame.part)] = Some(frame.payload);
        if parts.iter().any(Option::is_none) {
            return None;
        }
        let parts = self.partial.remove(&frame.key)?;
        Some(parts.into_iter().flatten().flatten().collect())
    }

    /// At the end of the stream: how much arrived that is no whole message.
    pub(crate) fn torn(&self) -> u64 {
        let rest = u64::from(!self.unread.is_empty() && !self.skipping);
        self.torn + rest + self.partial.len() as u64
    }
}

fn parse(bytes: &[u8]) -> Parsed {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Parsed::Garbage;
    }
    if bytes.len() < HEADER {
        return Parsed::Incomplete;
    }
    let (half, word) = (
        |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]),
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]),
    );
    let (part, parts, length) = (half(12), half(14), usize::from(half(16)));
    if part >= parts || length > FRAME_MAX - HEADER {
        return Parsed::Garbage;
    }
    let Some(payload) = bytes.get(HEADER..HEADER + length) else {
        return Parsed::Incomplete;
    };
    if checksum(&bytes[..HEADER - 4], payload) != word(20) {
        return Parsed::Garbage;
    }
    let (key, payload) = ((word(4), word(8)), payload.to_vec());
    Parsed::Frame(Frame {
        key,
        part,
        parts,
        payload,
        bytes: HEADER + length,
    })
}

#[cfg(test)]
mod tests;
