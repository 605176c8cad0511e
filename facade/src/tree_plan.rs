//! What a worker knows of its children while it submits: how many of which kind, their names, and what they can run.

use std::sync::Arc;

use parking_lot::RwLock;
use provenance::Table;

use crate::callable::Registry;
use crate::config::NodeSpec;
use crate::engine::LineKind;

/// The most bytes that a task's encoded arguments may take, spilling included.
pub(crate) const PAYLOAD_MAX: usize = 1 << 20;

fn chip_path(path: &str, idx: usize) -> String {
    format!("{path}/chip{idx}")
}

/// The `idx` of a path of a chip.
pub(crate) fn chip_index(path: &str) -> Option<usize> {
    path.rsplit('/').next()?.strip_prefix("chip")?.parse().ok()
}

/// The path of the worker `idx` of those with children of their own.
pub(crate) fn node_path(path: &str, idx: usize, spec: &NodeSpec) -> String {
    let name = spec.name.clone();
    let name = name.unwrap_or_else(|| format!("{}{idx}", spec.own_name()));
    format!("{path}/{name}")
}

fn sub_path(path: &str, idx: u32) -> String {
    format!("{path}/sub{idx}")
}

/// The paths of the children of a worker, in the order of their lines.
pub(crate) fn child_paths(path: &str, spec: &NodeSpec) -> Vec<String> {
    let chips = (0..spec.devices.len()).map(|idx| chip_path(path, idx));
    let nodes = spec.children.iter().enumerate();
    let nodes = nodes.map(|(idx, child)| node_path(path, idx, child));
    let subs = (0..spec.sub_workers).map(|idx| sub_path(path, idx));
    chips.chain(nodes).chain(subs).collect()
}

/// The paths of a whole tree: a worker, then the subtree of each of its children in the order of their lines.
pub(crate) fn all_paths(path: &str, spec: &NodeSpec) -> Vec<String> {
    let mut paths = vec![path.to_owned()];
    paths.extend((0..spec.devices.len()).map(|idx| chip_path(path, idx)));
    for (idx, child) in spec.children.iter().enumerate() {
        paths.extend(all_paths(&node_path(path, idx, child), child));
    }
    paths.extend((0..spec.sub_workers).map(|idx| sub_path(path, idx)));
    paths
}

/// How far the slot of a child is behind that of its parent, in the order of [`all_paths`].
pub(crate) fn slot_offset(spec: &NodeSpec, index: usize) -> usize {
    let n_chips = spec.devices.len();
    let nodes = index.saturating_sub(n_chips).min(spec.children.len());
    let below: usize = spec.children[..nodes].iter().map(NodeSpec::n_workers).sum();
    1 + index - nodes + below
}

/// The fixed part of a started worker, shared by all who submit to it.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Replaced whole when a callable comes or goes; every clone of the plan sees it.
    registry: Arc<RwLock<Arc<Registry>>>,
    next_level: Vec<(LineKind, String)>,
    n_sub_workers: u32,
    table: Table,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan")
            .field("next_level", &self.next_level)
            .finish_non_exhaustive()
    }
}

impl Plan {
    pub(crate) fn new(path: &str, spec: &NodeSpec, registry: Arc<Registry>, table: Table) -> Self {
        let chips = (0..spec.devices.len()).map(|idx| (LineKind::Chip, chip_path(path, idx)));
        let nodes = spec.children.iter().enumerate();
        let nodes = nodes.map(|(idx, child)| (LineKind::Node, node_path(path, idx, child)));
        let next_level = chips.chain(nodes).collect();
        Self {
            registry: Arc::new(RwLock::new(registry)),
            next_level,
            n_sub_workers: spec.sub_workers,
            table,
        }
    }

    /// Every child in the order of its line: next-level workers, then sub workers.
    pub(crate) fn lines(&self, path: &str) -> Vec<(LineKind, String)> {
        let subs = (0..self.n_sub_workers).map(|idx| (LineKind::Sub, sub_path(path, idx)));
        self.next_level.iter().cloned().chain(subs).collect()
    }

    /// The callables as they are now.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read())
    }

    /// What is submitted from now on finds these callables.
    pub(crate) fn set_registry(&self, registry: Arc<Registry>) {
        *self.registry.write() = registry;
    }

    /// Who owns which device pointer.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// What every child is, in the order of its line.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = LineKind> + '_ {
        let subs = (0..self.n_sub_workers).map(|_| LineKind::Sub);
        self.next_level.iter().map(|(kind, _)| *kind).chain(subs)
    }

    pub(crate) fn n_next_level(&self) -> u32 {
        self.next_level.len() as u32
    }

    pub(crate) fn n_sub_workers(&self) -> u32 {
        self.n_sub_workers
    }

    pub(crate) fn next_level(&self, index: u32) -> Option<LineKind> {
        self.next_level.get(index as usize).map(|(kind, _)| *kind)
    }

    pub(crate) fn path_of(&self, index: u32) -> String {
        self.next_level
            .get(index as usize)
            .map(|(_, path)| path.clone())
            .unwrap_or_default()
    }

    pub(crate) fn payload_max(&self) -> usize {
        PAYLOAD_MAX
    }
}
