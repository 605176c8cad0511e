//! Callables: what workers can execute, named by the digest of a canonical descriptor.
//!
//! A registry is filled before the tree starts, and every process of the tree is born with a copy of it; it changes later by
//! agreement of all (module `agreement`). A task carries the
//! digest; each process looks up its own entry. So no local slot and no function address ever crosses a process.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use device::{ChipCallable, Digest};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::args::Args;
use crate::error::{CallableError, Error, Name};
use crate::orchestrator::Orchestrator;
use crate::remake::Maker;

/// What a host function returns: nothing, or any error, which reaches the waiting parent as text with its sources.
pub type TaskResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

pub(crate) type HostFunction = dyn Fn(&Args) -> TaskResult + Send + Sync;
pub(crate) type NodeFunction =
    dyn Fn(&mut Orchestrator<'_>, &Args) -> Result<(), Error> + Send + Sync;

/// Kinds of callables, as types: a handle of one kind cannot be submitted where another is wanted.
pub mod kind {
    /// An orchestration with kernels, executed by a chip worker.
    #[derive(Debug, Clone, Copy)]
    pub enum Chip {}
    /// A host function, executed by a sub worker.
    #[derive(Debug, Clone, Copy)]
    pub enum Function {}
    /// An orchestration, executed by a worker that has children of its own.
    #[derive(Debug, Clone, Copy)]
    pub enum Orchestration {}
}

/// Refers to a registered callable of kind `K`. Cheap to clone; valid in every process of the tree.
pub struct Handle<K> {
    digest: Digest,
    name: Name,
    tree: u64,
    kind: PhantomData<fn() -> K>,
}

/// A registered chip callable.
pub type ChipHandle = Handle<kind::Chip>;
/// A registered host function.
pub type FunctionHandle = Handle<kind::Function>;
/// A registered orchestration.
pub type OrchestrationHandle = Handle<kind::Orchestration>;

impl<K> Clone for Handle<K> {
    fn clone(&self) -> Self {
        let (digest, name, tree) = (self.digest, Arc::clone(&self.name), self.tree);
        Self {
            digest,
            name,
            tree,
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({} {:#})", self.name, self.digest)
    }
}

impl<K> Handle<K> {
    /// The name that it was registered with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The digest that names it in every process.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

/// What a callable is made of.
#[derive(Clone)]
pub(crate) enum Body {
    Chip(&'static ChipCallable),
    Function(Arc<HostFunction>),
    Orchestration(Arc<NodeFunction>),
}

/// Which of the three a callable is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallableKind {
    Chip,
    Function,
    Orchestration,
}

impl CallableKind {
    /// As messages call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CallableKind::Chip => "chip callable",
            CallableKind::Function => "function",
            CallableKind::Orchestration => "orchestration",
        }
    }
}

impl Body {
    pub(crate) fn kind(&self) -> CallableKind {
        match self {
            Body::Chip(_) => CallableKind::Chip,
            Body::Function(_) => CallableKind::Function,
            Body::Orchestration(_) => CallableKind::Orchestration,
        }
    }

    fn digest(&self, name: &str) -> Digest {
        match self {
            Body::Chip(callable) => callable.digest(),
            // A name is unique for its kind within a tree, and a tree is one program.
            Body::Function(_) | Body::Orchestration(_) => {
                let mut hash = Sha256::new();
                hash.update(b"facade callable 1\0");
                hash.update(self.kind().name());
                hash.update(b"\0");
                hash.update(name);
                Digest(hash.finalize().into())
            }
        }
    }
}

/// One registered callable.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) body: Body,
    /// How a process that runs already, or was spawned, makes it; none where only a fork can copy it.
    pub(crate) maker: Option<Maker>,
}

/// A registry as it crosses to a spawned child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireRegistry {
    tree: u64,
    entries: Vec<(String, Maker)>,
}

/// Every callable of a tree. Filled by the root; every process has a copy, which changes only whole.
#[derive(Clone)]
pub(crate) struct Registry {
    tree: u64,
    entries: HashMap<Digest, Entry, BuildHasherDefault<DigestHasher>>,
}

/// A digest is a hash already: eight bytes of it will do. Looked up once per task on each side.
#[derive(Default)]
struct DigestHasher(u64);

impl Hasher for DigestHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        if let Some(word) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*word);
        }
    }

    /// The length in front of a digest, which is always the same.
    #[inline]
    fn write_usize(&mut self, _length: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.entries.values().map(|entry| &entry.name);
        f.debug_list().entries(names).finish()
    }
}

impl Registry {
    pub(crate) fn new(tree: u64) -> Self {
        Self {
            tree,
            entries: HashMap::default(),
        }
    }

    pub(crate) fn insert<K>(
        &mut self,
        name: &str,
        body: Body,
        maker: Option<Maker>,
    ) -> Result<Handle<K>, CallableError> {
        let kind = body.kind();
        if name.is_empty() {
            return Err(CallableError::NoName { kind: kind.name() });
        }
        if self
            .entries
            .values()
            .any(|entry| &*entry.name == name && entry.body.kind() == kind)
        {
            return Err(CallableError::NameTwice {
                kind: kind.name(),
                name: name.to_owned(),
            });
        }
        let (digest, name) = (body.digest(name), Name::from(name));
        self.entries.insert(
            digest,
            Entry {
                name: Arc::clone(&name),
                body,
                maker,
            },
        );
        Ok(Handle {
            digest,
            name,
            tree: self.tree,
            kind: PhantomData,
        })
    }

    /// The form in which a spawned child gets it, or the names of the callables that captured something.
    pub(crate) fn to_wire(&self) -> Result<WireRegistry, Vec<String>> {
        let names = |entry: &Entry| entry.name.to_string();
        let bound: Vec<String> = self
            .entries
            .values()
            .filter(|entry| entry.maker.is_none())
            .map(names)
            .collect();
        if !bound.is_empty() {
            return Err(bound);
        }
        let entries = self
            .entries
            .values()
            .filter_map(|entry| Some((names(entry), entry.maker.clone()?)));
        Ok(WireRegistry {
            tree: self.tree,
            entries: entries.collect(),
        })
    }

    /// The registry that a parent sent, in a spawned child.
    pub(crate) fn from_wire(wire: &WireRegistry) -> Result<Self, CallableError> {
        let mut registry = Registry::new(wire.tree);
        for (name, maker) in &wire.entries {
            registry.insert_made(name, maker)?;
        }
        Ok(registry)
    }

    /// Adds a callable that a parent sent.
    pub(crate) fn insert_made(
        &mut self,
        name: &str,
        maker: &Maker,
    ) -> Result<Digest, CallableError> {
        let unmade = || CallableError::Unmade {
            name: name.to_owned(),
        };
        let body = maker.body().ok_or_else(unmade)?;
        let handle = self.insert::<kind::Function>(name, body, Some(maker.clone()))?;
        Ok(handle.digest)
    }

    /// Takes a callable out.
    pub(crate) fn remove(&mut self, digest: &Digest) {
        self.entries.remove(digest);
    }

    pub(crate) fn find(&self, digest: &Digest) -> Option<&Entry> {
        self.entries.get(digest)
    }

    /// A handle of the callable with this name and kind. `K` is the type of that kind.
    pub(crate) fn named<K>(
        &self,
        name: &str,
        kind: CallableKind,
    ) -> Result<Handle<K>, CallableError> {
        let wanted = |entry: &&Entry| &*entry.name == name && entry.body.kind() == kind;
        let mut entries = self.entries.iter();
        let found = entries.find(|(_, entry)| wanted(entry));
        let (digest, entry) = found.ok_or_else(|| CallableError::Unknown {
            kind: kind.name(),
            name: name.to_owned(),
        })?;
        Ok(Handle {
            digest: *digest,
            name: Arc::clone(&entry.name),
            tree: self.tree,
            kind: PhantomData,
        })
    }

    /// The entry of a handle, when the handle was made by this tree.
    pub(crate) fn own<K>(&self, handle: &Handle<K>) -> Result<&Entry, CallableError> {
        self.owned(handle.tree, &handle.digest, &handle.name)
    }

    /// As [`Registry::own`], for a handle whose kind is not in the type any more.
    pub(crate) fn own_callee(&self, callee: &Callee<'_>) -> Result<&Entry, CallableError> {
        self.owned(callee.tree, callee.digest, callee.name)
    }

    fn owned(&self, tree: u64, digest: &Digest, name: &Name) -> Result<&Entry, CallableError> {
        let name = || Arc::clone(name);
        if tree != self.tree {
            return Err(CallableError::Foreign { name: name() });
        }
        let entry = self.entries.get(digest);
        entry.ok_or_else(|| CallableError::Gone { name: name() })
    }

    /// The chip callables, for chip workers to register with their device before they are ready.
    pub(crate) fn chip_callables(
        &self,
    ) -> impl Iterator<Item = (Digest, &'static ChipCallable)> + '_ {
        self.entries
            .iter()
            .filter_map(|(digest, entry)| match entry.body {
                Body::Chip(callable) => Some((*digest, callable)),
                _ => None,
            })
    }
}

mod sealed {
    #[expect(
        unnameable_types,
        reason = "sealed: only this crate's handles are next-level callables"
    )]
    pub trait NextLevel {}
}

/// A handle of something that a next-level worker executes: a [`ChipHandle`] or an [`OrchestrationHandle`].
pub trait NextLevel: sealed::NextLevel {
    /// The parts that a submit needs.
    #[doc(hidden)]
    fn target(&self) -> Callee<'_>;
}

/// What is called, without its kind in the type.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
#[expect(unnameable_types, reason = "the inside of a sealed trait")]
pub struct Callee<'a> {
    pub(crate) digest: &'a Digest,
    pub(crate) name: &'a Name,
    pub(crate) tree: u64,
    pub(crate) kind: CallableKind,
}

impl<K> Handle<K> {
    pub(crate) fn callee(&self, kind: CallableKind) -> Callee<'_> {
        Callee {
            digest: &self.digest,
            name: &self.name,
            tree: self.tree,
            kind,
        }
    }
}

impl sealed::NextLevel for ChipHandle {}
impl sealed::NextLevel for OrchestrationHandle {}

impl NextLevel for ChipHandle {
    fn target(&self) -> Callee<'_> {
        self.callee(CallableKind::Chip)
    }
}

impl NextLevel for OrchestrationHandle {
    fn target(&self) -> Callee<'_> {
        self.callee(CallableKind::Orchestration)
    }
}

#[cfg(test)]
mod tests;
