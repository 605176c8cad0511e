//! What a spawned child is told: a record in the memory file that also holds its page.
//!
//! ```text
//! byte 0      the child's page (see `sys::page`)
//! byte 4096   the record: numbers of 8 bytes, little-endian; texts as length and bytes
//! ```
//!
//! The record is written by the same program in another process. It is decoded with checks all the
//! same: the variable that points to it may have leaked into a program that is no child of ours.

use crate::lifeline::PageSource;
use crate::pid::Pid;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boot {
    /// The process that spawned it.
    pub(crate) parent: Pid,
    /// The descriptor of the parent's page, and the thread that owns it.
    pub(crate) parent_page: Option<(i32, Pid)>,
    /// Whether the parent is the root of the tree.
    pub(crate) parent_is_root: bool,
    /// Where the root's page is found, by this process or its children.
    pub(crate) root_page: Option<PageSource>,
    /// The group of the tree; none when the child leads a new one or there is no tree.
    pub(crate) tree: Option<Pid>,
    pub(crate) leads: bool,
    /// Number of the death signal; 0 for none.
    pub(crate) death_signal: i32,
    pub(crate) given: Vec<i32>,
    pub(crate) kept: Vec<i32>,
    /// Pipe and page through which crashes are reported, if they are.
    pub(crate) crashes: Option<[i32; 2]>,
    pub(crate) name: String,
    pub(crate) function: String,
    pub(crate) args: Vec<u8>,
}

/// "procfork" and the version of the record.
const MAGIC: i64 = i64::from_le_bytes(*b"procfrk2");

impl Boot {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        let (page_fd, page_owner) = self
            .parent_page
            .map_or((-1, 0), |(fd, own)| (fd, own.raw()));
        out.number(MAGIC);
        out.number(self.parent.raw());
        out.number(page_fd);
        out.number(page_owner);
        out.source(self.root_page);
        out.number(self.parent_is_root);
        out.number(self.tree.map_or(0, Pid::raw));
        out.number(self.leads);
        out.number(self.death_signal);
        out.numbers(&self.given);
        out.numbers(&self.kept);
        out.numbers(self.crashes.as_ref().map_or(&[], |fds| &fds[..]));
        out.bytes(self.name.as_bytes());
        out.bytes(self.function.as_bytes());
        out.bytes(&self.args);
        out.0
    }

    /// The record, if these bytes begin with a whole one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Reader(bytes);
        if input.number()? != MAGIC {
            return None;
        }
        let parent = input.pid()??;
        let (page_fd, page_owner) = (input.small()?, input.pid()?);
        Some(Self {
            parent,
            parent_page: page_owner.map(|owner| (page_fd, owner)),
            root_page: input.source()?,
            parent_is_root: input.number()? != 0,
            tree: input.pid()?,
            leads: input.number()? != 0,
            death_signal: input.small()?,
            given: input.numbers()?,
            kept: input.numbers()?,
            crashes: input.numbers()?.try_into().ok(),
            name: String::from_utf8(input.bytes()?).ok()?,
            function: String::from_utf8(input.bytes()?).ok()?,
            args: input.bytes()?,
        })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: impl Into<i64>) {
        self.0.extend_from_slice(&number.into().to_le_bytes());
    }

    fn numbers(&mut self, numbers: &[i32]) {
        self.number(i64::try_from(numbers.len()).unwrap_or(i64::MAX));
        numbers.iter().for_each(|number| self.number(*number));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.0.extend_from_slice(bytes);
    }

    fn source(&mut self, source: Option<PageSource>) {
        let (pid, owner) = source.map_or((0, 0), |source| (source.pid.raw(), source.owner.raw()));
        self.number(pid);
        self.number(owner);
        self.number(source.map_or(-1, |source| source.fd));
        self.number(source.map_or(0, |source| source.inode.cast_signed()));
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<i64> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i64::from_le_bytes(*head))
    }

    fn small(&mut self) -> Option<i32> {
        i32::try_from(self.number()?).ok()
    }

    /// A pid, or zero for none; the outer `None` is a damaged record.
    fn pid(&mut self) -> Option<Option<Pid>> {
        match self.small()? {
            0 => Some(None),
            raw => Pid::new(raw).map(Some),
        }
    }

    fn numbers(&mut self) -> Option<Vec<i32>> {
        let count = self.number()?;
        (0..count).map(|_| self.small()).collect()
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok()?;
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head.to_vec())
    }

    fn source(&mut self) -> Option<Option<PageSource>> {
        let (pid, owner) = (self.pid()?, self.pid()?);
        let (fd, inode) = (self.small()?, self.number()?.cast_unsigned());
        let both = pid.zip(owner);
        Some(both.map(|(pid, owner)| PageSource {
            pid,
            fd,
            inode,
            owner,
        }))
    }
}

#[cfg(test)]
mod tests;
