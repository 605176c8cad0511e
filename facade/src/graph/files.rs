//! Recorded graphs beyond the life of a process, and their counters.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use taskgraph::capture::{Definition, decode_file, encode_file};

use super::{GraphKey, Keeps};
use crate::callable::Registry;
use crate::config::NodeSpec;
use crate::error::{Error, GraphFileError, Name};
use crate::worker::Worker;

/// What became of the calls of [`Orchestrator::graph`](crate::Orchestrator::graph) on one worker. Exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphStats {
    /// Calls that ran as one task, those that recorded it included.
    pub hits: u64,
    /// Bodies that were recorded.
    pub recorded: u64,
    /// Calls that ran eagerly because their arguments did not fit the recorded ones, or a worker was missing.
    pub mismatches: u64,
    /// Calls that ran eagerly because their body cannot be recorded.
    pub uncacheable: u64,
    /// Calls that ran eagerly because replays under way had taken all intermediate memory that they may have
    /// ([`WorkerBuilder::heap`](crate::WorkerBuilder::heap)).
    pub without_memory: u64,
    /// Recordings that were dropped to make room.
    pub evicted: u64,
    /// Recordings that are kept.
    pub entries: usize,
    /// Their size in bytes.
    pub bytes: usize,
    /// Bytes of intermediate memory that replays use in turn.
    pub memory_bytes: u64,
}

impl Worker {
    /// What became of the graphs of this worker's own orchestrations. Workers below count theirs.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] when the engine cannot be made.
    pub fn graph_stats(&self) -> Result<GraphStats, Error> {
        let engine = self.engine()?;
        let cache = engine.graphs().lock();
        let counters = cache.counters();
        Ok(GraphStats {
            hits: counters.hits,
            recorded: counters.recorded,
            mismatches: counters.mismatches,
            uncacheable: counters.uncacheable,
            without_memory: engine.graphs().n_without_memory(),
            evicted: counters.evicted,
            entries: cache.len(),
            bytes: cache.bytes(),
            memory_bytes: engine.graphs().scratch_bytes(),
        })
    }

    /// Writes the recorded graphs to a file, for [`Worker::load_graphs`] of a later process of the same program.
    /// Returns how many there are. An existing file is replaced at once or not at all.
    ///
    /// In a file a key is what it feeds to a hasher: keys that differ and feed the same are left out, and a key whose
    /// `Hash` leaves something out that the body looks at must not be put in a file at all.
    ///
    /// # Errors
    ///
    /// [`Error::GraphFile`] when the file cannot be written; [`Error::Start`] when the engine cannot be made.
    pub fn save_graphs(&self, path: impl AsRef<Path>) -> Result<usize, Error> {
        let (engine, path) = (self.engine()?, path.as_ref());
        let failed = |error| GraphFileError::io("write", path, &error);
        let build = build_id().map_err(failed)?;
        let setting = setting(&self.spec());
        let cache = engine.graphs().lock();
        let all = cache.definitions();
        let mut all: Vec<_> = all
            .map(|(key, cached)| (key.to_bytes(), &*cached.definition))
            .collect();
        let mut seen = HashMap::new();
        all.iter()
            .for_each(|(key, _)| *seen.entry(key.clone()).or_insert(0) += 1);
        all.retain(|(key, _)| seen[key] == 1);
        let n_entries = all.len();
        let bytes = encode_file(&build, &setting, all);
        drop(cache);
        replace(path, &bytes).map_err(failed)?;
        Ok(n_entries)
    }

    /// Reads graphs that [`Worker::save_graphs`] of the same build of this program wrote, so that their first calls
    /// are replays. Returns how many were taken: those whose callables are all registered.
    ///
    /// # Errors
    ///
    /// [`Error::GraphFile`] when the file cannot be read, is damaged, belongs to another build, or was written by a
    /// worker with other children; nothing of it is used then. [`Error::Start`] when the engine cannot be made.
    pub fn load_graphs(&self, path: impl AsRef<Path>) -> Result<usize, Error> {
        let (engine, path) = (self.engine()?, path.as_ref());
        let failed = |error| GraphFileError::io("read", path, &error);
        let bytes = std::fs::read(path).map_err(failed)?;
        let build = build_id().map_err(failed)?;
        let setting = setting(&self.spec());
        let read =
            decode_file(&build, &setting, &bytes).map_err(|reason| GraphFileError::Contents {
                path: path.to_owned(),
                reason,
            })?;
        let registry = self.callables();
        let mut cache = engine.graphs().lock();
        let mut n_taken = 0;
        for (key, definition) in read {
            let Some(key) = GraphKey::from_bytes(&key) else {
                continue;
            };
            if let Some(keeps) = restored(&key, &definition, &registry) {
                cache.restore(key, definition, keeps);
                n_taken += 1;
            }
        }
        Ok(n_taken)
    }
}

/// What belongs to a definition that was read, when all that it names is there.
fn restored(key: &GraphKey, definition: &Definition, registry: &Arc<Registry>) -> Option<Keeps> {
    if definition.n_nodes() > 0 && definition.digest(0).is_none() {
        // Its callables are numbers of whoever recorded it, and nobody here did.
        return None;
    }
    let digests = (0..).map_while(|number| definition.digest(number));
    let names =
        digests.map(|digest| Some(Arc::clone(&registry.find(&device::Digest(*digest))?.name)));
    let names: Option<Vec<Name>> = names.collect();
    let keeps = Keeps::new(&Name::from(key.name()), names?, registry);
    Some(keeps.unclaimed())
}

/// What the definitions of a worker depend on: its children, in words.
fn setting(spec: &NodeSpec) -> String {
    let (chips, children) = (spec.devices.len(), spec.children.len());
    let subs = spec.sub_workers;
    format!("{chips} chips, {children} workers below, {subs} sub workers")
}

/// Whatever bytes are taken for a key are those that it is written as.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_key(bytes: &[u8]) {
    if let Some(key) = GraphKey::from_bytes(bytes) {
        let again = GraphKey::from_bytes(&key.to_bytes()).expect("a key is read again");
        assert_eq!(again.to_bytes(), key.to_bytes());
    }
}

/// Which build of which program this is: size, time and head of its executable, in which linkers put an identity too.
/// A copy of the executable may count as another build, which costs a recording; another build never counts as this one.
fn build_id() -> io::Result<[u8; 32]> {
    let executable = File::open("/proc/self/exe")?;
    let about = executable.metadata()?;
    let mut hash = Sha256::new();
    for number in [about.len() as i64, about.mtime(), about.mtime_nsec()] {
        hash.update(number.to_ne_bytes());
    }
    let mut head = Vec::new();
    executable.take(1 << 14).read_to_end(&mut head)?;
    hash.update(&head);
    Ok(hash.finalize().into())
}

/// Writes a file beside its place and moves it there.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let written = File::create(&beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // What is left of it is of no use; the error says why.
        let _ = std::fs::remove_file(&beside);
    }
    written
}
