//! The checked configuration of a tree, as people and programs read it.

use std::fmt;
use std::time::Duration;

use procfork::Settings;
use serde::Serialize;

use super::{Level, NodeSpec, StartMode};
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
    pub(crate) fn new(path: &str, spec: &NodeSpec) -> Self {
        let indices = |n: usize| 0..n as u32;
        let workers = spec.children.iter().enumerate();
        Self {
            path: path.to_owned(),
            level: spec.level().unwrap_or(Level::Network3),
            platform: spec.platform.to_string(),
            devices: spec.devices.clone(),
            start_mode: spec.mode,
            start_timeout: spec.limits.start,
            close_timeout: spec.limits.close,
            grace: spec.limits.grace,
            settings: spec.settings.own.clone(),
            chips: indices(spec.devices.len())
                .map(|index| spec.settings.of_chip(index))
                .collect(),
            sub_workers: indices(spec.sub_workers as usize)
                .map(|index| spec.settings.of_sub(index))
                .collect(),
            workers: workers
                .map(|(idx, child)| Config::new(&tree_plan::node_path(path, idx, child), child))
                .collect(),
        }
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
        let label = format!(
            "{} {}: children by {mode}, start {:?}, close {:?}, grace {:?}",
            self.path,
            self.level.label(),
            self.start_timeout,
            self.close_timeout,
            self.grace
        );
        Self::write_leaf(f, label, &self.settings)?;
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
