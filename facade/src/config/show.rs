//! The checked configuration of a tree, as people and programs read it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use procfork::Settings;
use serde::Serialize;

use super::{Level, Limits, NodeSpec, StartMode};
use crate::tree_plan;

/// What a worker and its subtree are going to be, every default filled in.
///
/// Children are started from a copy of exactly this; [`TreeNode::settings`](crate::TreeNode) is what they found to hold
/// when they had started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Config {
    /// Names from the root down, joined by `/`.
    pub path: String,
    /// Level in the tree.
    pub level: Level,
    /// Platform of its chip workers, as command lines write it.
    pub platform: String,
    /// Logical device of each chip worker.
    pub devices: Vec<u32>,
    /// How its children are made.
    pub start_mode: StartMode,
    /// Limit of a start that begins here.
    pub start_timeout: Duration,
    /// Limit of a close.
    pub close_timeout: Duration,
    /// How long a child may take to leave when it is asked to.
    pub grace: Duration,
    /// Bytes of the ring of intermediate tensors of each scope depth.
    pub heap: u64,
    /// Tasks that may be live at once.
    pub tasks_max: u32,
    /// The most bytes that the allocations and windows of one chip may take; none is all that the chip has.
    pub device_memory: Option<u64>,
    /// How long one operation of a chip may take; none is the device's own limit.
    pub device_timeout: Option<Duration>,
    /// Whether its simulated chips hand a freed address out again at once.
    pub addresses_return_at_once: bool,
    /// What goes wrong in its simulated chips, by device.
    pub faults: Vec<(u32, String)>,
    /// The folder in which the engines of this tree write their traces.
    pub trace: Option<PathBuf>,
    /// Settings of its own process; always empty for the root.
    pub settings: Settings,
    /// Settings of each chip worker.
    pub chips: Vec<Settings>,
    /// Settings of each sub worker.
    pub sub_workers: Vec<Settings>,
    /// The workers below that have children of their own.
    pub workers: Vec<Config>,
}

impl Config {
    /// Names every field of the specification, so that a new option does not compile unless it is shown.
    pub(crate) fn new(path: &str, spec: &NodeSpec) -> Self {
        let NodeSpec {
            name: _,
            platform,
            devices,
            sub_workers,
            children,
            limits,
            mode,
            settings,
            chip,
            faults,
            trace,
        } = spec;
        let Limits {
            start,
            close,
            grace,
            heap_bytes,
            tasks_max,
        } = *limits;
        let chips = 0..devices.len() as u32;
        let below = |(idx, child)| Config::new(&tree_plan::node_path(path, idx, child), child);
        Self {
            path: path.to_owned(),
            level: spec.level().unwrap_or(Level::Network3),
            platform: platform.to_string(),
            devices: devices.clone(),
            start_mode: *mode,
            start_timeout: start,
            close_timeout: close,
            grace,
            heap: heap_bytes,
            tasks_max,
            device_memory: chip.budget,
            device_timeout: chip.timeout,
            addresses_return_at_once: chip.reuse_at_once,
            faults: faults
                .iter()
                .map(|(on, fault)| (*on, format!("{fault:?}")))
                .collect(),
            trace: trace.as_ref().map(|trace| trace.dir.clone()),
            settings: settings.own.clone(),
            chips: chips.map(|index| settings.of_chip(index)).collect(),
            sub_workers: (0..*sub_workers)
                .map(|index| settings.of_sub(index))
                .collect(),
            workers: children.iter().enumerate().map(below).collect(),
        }
    }

    /// The capacities, and what is out of the ordinary.
    fn write_capacities(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", heap {} bytes, {} tasks", self.heap, self.tasks_max)?;
        if let Some(bytes) = self.device_memory {
            write!(f, ", {bytes} bytes of each chip")?;
        }
        if let Some(limit) = self.device_timeout {
            write!(f, ", {limit:?} for each operation of a chip")?;
        }
        if self.addresses_return_at_once {
            f.write_str(", addresses return at once")?;
        }
        if let Some(dir) = &self.trace {
            write!(f, ", traces in {}", dir.display())?;
        }
        let mut faults = self.faults.iter();
        faults.try_for_each(|(device, fault)| write!(f, ", device {device}: {fault}"))
    }

    fn write_leaf(f: &mut fmt::Formatter<'_>, label: String, settings: &Settings) -> fmt::Result {
        match settings.is_empty() {
            true => writeln!(f, "{label}"),
            false => writeln!(f, "{label} [{settings}]"),
        }
    }
}

impl fmt::Display for Config {
    /// A line per worker; the lines of one level stand together.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = format!("{:?}", self.start_mode).to_lowercase();
        write!(
            f,
            "{} {}: children by {mode}, start {:?}, close {:?}, grace {:?}",
            self.path,
            self.level.label(),
            self.start_timeout,
            self.close_timeout,
            self.grace
        )?;
        self.write_capacities(f)?;
        Self::write_leaf(f, String::new(), &self.settings)?;
        for (idx, (settings, device)) in self.chips.iter().zip(&self.devices).enumerate() {
            let label = format!("{}/chip{idx} {}:{device}", self.path, self.platform);
            Self::write_leaf(f, label, settings)?;
        }
        for (idx, settings) in self.sub_workers.iter().enumerate() {
            Self::write_leaf(f, format!("{}/sub{idx}", self.path), settings)?;
        }
        self.workers.iter().try_for_each(|worker| worker.fmt(f))
    }
}
