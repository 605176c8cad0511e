//! What a worker is to be, before anything of it exists: the builder and the checked specification behind it.
//!
//! A specification is plain data and is checked whole by [`WorkerBuilder::build`], so that a wrong one is refused before a
//! process is forked, a segment reserved or a device opened. Children hold a copy of it, so that the values a child uses
//! are those that the parent checked.

use std::time::Duration;

use device::{Arch, Platform, SimFault};
use procfork::Settings;

use crate::error::{ConfigError, Error};
use crate::tree_plan;
use crate::worker::Worker;

use self::settings::ProcessSettings;

mod capacity;
mod chips;
mod faults;
mod settings;
mod show;
mod trace;

pub(crate) use self::chips::ChipOptions;
pub use self::show::Config;
pub(crate) use self::trace::TraceTo;

/// Position of a worker in the tree.
///
/// A label for people and paths: no code branches on it above `Chip`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[non_exhaustive]
pub enum Level {
    /// L2: a leaf that owns one device, or a sub worker beside it.
    Chip,
    /// L3: a worker above chips and sub workers.
    Node,
    /// L4: a worker above nodes.
    Network1,
    /// L5: a worker above first-level networks.
    Network2,
    /// L6: a worker above second-level networks.
    Network3,
}

impl Level {
    /// The short label of the level, `L2` to `L6`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Level::Chip => "L2",
            Level::Node => "L3",
            Level::Network1 => "L4",
            Level::Network2 => "L5",
            Level::Network3 => "L6",
        }
    }

    /// The default name of a worker at this level.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Level::Chip => "chip",
            Level::Node => "node",
            Level::Network1 => "network1",
            Level::Network2 => "network2",
            Level::Network3 => "network3",
        }
    }

    fn above(self) -> Option<Level> {
        match self {
            Level::Chip => Some(Level::Node),
            Level::Node => Some(Level::Network1),
            Level::Network1 => Some(Level::Network2),
            Level::Network2 => Some(Level::Network3),
            Level::Network3 => None,
        }
    }
}

/// The most children that one worker may have; deeper trees hold more.
pub const CHILDREN_MAX: usize = 64;

/// Time limits and capacities of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Limits {
    pub(crate) start: Duration,
    pub(crate) close: Duration,
    pub(crate) grace: Duration,
    /// Bytes of the ring of intermediate tensors of each scope depth.
    pub(crate) heap_bytes: u64,
    /// Tasks that may be live at once.
    pub(crate) tasks_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            close: Duration::from_secs(10),
            grace: Duration::from_millis(500),
            heap_bytes: capacity::HEAP_BYTES,
            tasks_max: capacity::TASKS_MAX,
        }
    }
}

/// The checked specification of one worker and its subtree.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct NodeSpec {
    pub(crate) name: Option<String>,
    #[serde(with = "platform_text")]
    pub(crate) platform: Platform,
    pub(crate) devices: Vec<u32>,
    pub(crate) sub_workers: u32,
    pub(crate) children: Vec<NodeSpec>,
    pub(crate) limits: Limits,
    pub(crate) mode: StartMode,
    pub(crate) settings: ProcessSettings,
    pub(crate) chip: ChipOptions,
    /// What goes wrong, by device.
    pub(crate) faults: Vec<(u32, SimFault)>,
    /// Where the engines of this tree write their traces.
    pub(crate) trace: Option<TraceTo>,
}

/// A platform crosses to a spawned child as the text that command lines use.
pub(crate) mod platform_text {
    use device::Platform;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(platform: &Platform, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(platform)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Platform, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// How the processes of a tree are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum StartMode {
    /// Fork from a process of one thread with little memory, or where a callable captured something; spawn elsewhere.
    #[default]
    Auto,
    /// Copy this process. It must have one thread; closures are copied with what they captured. Costs grow with the
    /// memory of this process.
    Fork,
    /// Start this program again, from any thread, at a cost that does not depend on the size of this process. Callables
    /// must have captured nothing; orchestrations find others by name ([`Orchestrator::chip`](crate::Orchestrator::chip),
    /// [`Orchestrator::function`](crate::Orchestrator::function)).
    Spawn,
}

impl NodeSpec {
    /// The level of this worker: one above the highest of its children; `None` above L6.
    pub(crate) fn level(&self) -> Option<Level> {
        let mut below = Level::Chip;
        for child in &self.children {
            below = below.max(child.level()?);
        }
        below.above()
    }

    /// The name of this worker where its parent gave it none.
    pub(crate) fn own_name(&self) -> String {
        let noun = self.level().unwrap_or(Level::Network3).noun();
        self.name.clone().unwrap_or_else(|| noun.to_owned())
    }

    /// The number of workers of this tree, this one included.
    pub(crate) fn n_workers(&self) -> usize {
        let below: usize = self.children.iter().map(NodeSpec::n_workers).sum();
        1 + self.devices.len() + self.sub_workers as usize + below
    }

    fn n_children(&self) -> usize {
        self.devices.len() + self.sub_workers as usize + self.children.len()
    }

    /// Refuses a worker with nothing below it, anywhere in the tree. Asked when the tree starts, since children may be
    /// added until then.
    pub(crate) fn check_not_empty(&self) -> Result<(), ConfigError> {
        if self.n_children() == 0 {
            return Err(ConfigError::NoChildren {
                name: self.own_name(),
            });
        }
        self.children.iter().try_for_each(NodeSpec::check_not_empty)
    }

    /// Whether a chip worker is anywhere in this tree.
    pub(crate) fn has_chip(&self) -> bool {
        !self.devices.is_empty() || self.children.iter().any(NodeSpec::has_chip)
    }

    /// Whether a sub worker is anywhere in this tree.
    pub(crate) fn has_sub(&self) -> bool {
        self.sub_workers > 0 || self.children.iter().any(NodeSpec::has_sub)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let name = self.own_name();
        if self.level().is_none() {
            return Err(ConfigError::TooDeep { name });
        }
        self.check_children(&name)?;
        self.check_limits(&name)?;
        self.limits.check_capacity(&name)?;
        let n_chips = self.devices.len() as u32;
        self.settings.check(&name, n_chips, self.sub_workers)?;
        self.chip.check(&name)?;
        self.check_faults(&name)?;
        self.children.iter().try_for_each(NodeSpec::check)
    }

    fn check_children(&self, name: &str) -> Result<(), ConfigError> {
        let children = self.n_children();
        if children > CHILDREN_MAX {
            let name = name.to_owned();
            return Err(ConfigError::TooManyChildren {
                name,
                children,
                max: CHILDREN_MAX,
            });
        }
        let mut devices = self.devices.clone();
        devices.sort_unstable();
        if let Some(pair) = devices.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::DeviceTwice {
                name: name.to_owned(),
                device: pair[0],
            });
        }
        self.check_names(name)
    }

    /// Names are parts of paths, so they have no slash, are not empty, and differ among siblings.
    fn check_names(&self, name: &str) -> Result<(), ConfigError> {
        if name.is_empty() || name.contains('/') {
            return Err(ConfigError::BadName {
                name: name.to_owned(),
            });
        }
        let paths = tree_plan::child_paths(name, self);
        for (idx, path) in paths.iter().enumerate() {
            if paths[..idx].contains(path) {
                let child = path.rsplit('/').next().unwrap_or(path).to_owned();
                let name = name.to_owned();
                return Err(ConfigError::NameTwice { name, child });
            }
        }
        Ok(())
    }

    fn check_limits(&self, name: &str) -> Result<(), ConfigError> {
        let limits = [
            ("start_timeout", self.limits.start),
            ("close_timeout", self.limits.close),
            ("grace", self.limits.grace),
        ];
        for (option, value) in limits {
            check_limit(name, option, value)?;
        }
        Ok(())
    }
}

fn check_limit(name: &str, option: &'static str, value: Duration) -> Result<(), ConfigError> {
    // A year is beyond any meant limit and keeps `Instant` arithmetic from overflowing.
    if value.is_zero() || value > Duration::from_secs(365 * 24 * 3600) {
        return Err(ConfigError::BadLimit {
            name: name.to_owned(),
            option,
            value,
        });
    }
    Ok(())
}

/// Assembles a [`Worker`]: what its children are, on which platform, and how long start and close may take.
///
/// ```
/// use facade::{Arch, Platform, Worker};
///
/// # fn main() -> Result<(), facade::Error> {
/// let node = Worker::node().platform(Platform::Sim(Arch::A2a3)).chips(2).sub_workers(1).build()?;
/// assert_eq!(node.level().label(), "L3");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct WorkerBuilder {
    spec: NodeSpec,
}

impl WorkerBuilder {
    pub(crate) fn new() -> Self {
        let spec = NodeSpec {
            name: None,
            platform: Platform::Sim(Arch::A2a3),
            devices: Vec::new(),
            sub_workers: 0,
            children: Vec::new(),
            limits: Limits::default(),
            mode: StartMode::Auto,
            settings: ProcessSettings::default(),
            chip: ChipOptions::default(),
            faults: Vec::new(),
            trace: None,
        };
        Self { spec }
    }

    /// Names the worker; the name is its part of every path below it. Default: the noun of its level.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.spec.name = Some(name.into());
        self
    }

    /// Selects the platform of the chip workers of this worker. Default: the simulator of an a2a3.
    pub fn platform(mut self, platform: Platform) -> Self {
        self.spec.platform = platform;
        self
    }

    /// Adds `n_chips` chip workers on the devices `0..n_chips`.
    pub fn chips(self, n_chips: u32) -> Self {
        self.devices(0..n_chips)
    }

    /// Adds one chip worker for each of `devices` (logical device ids), in this order.
    pub fn devices(mut self, devices: impl IntoIterator<Item = u32>) -> Self {
        // One more than allowed is enough for `build` to refuse it; a mistyped count must not allocate gigabytes.
        self.spec
            .devices
            .extend(devices.into_iter().take(CHILDREN_MAX + 1));
        self
    }

    /// Sets the number of sub workers: leaves that run host functions.
    pub fn sub_workers(mut self, n_workers: u32) -> Self {
        self.spec.sub_workers = n_workers;
        self
    }

    /// Adds a worker below this one, with a subtree of its own. It gets the next-level index after all chips and the
    /// workers that were added before.
    pub fn worker(mut self, child: WorkerBuilder) -> Self {
        self.spec.children.push(child.spec);
        self
    }

    /// Sets how long the start of the whole tree may take: one absolute deadline, handed down. Default: 30 s.
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.spec.limits.start = limit;
        self
    }

    /// Sets how the children of this worker are made. Default: [`StartMode::Auto`].
    pub fn start_mode(mut self, mode: StartMode) -> Self {
        self.spec.mode = mode;
        self
    }

    /// Sets how long a close may take, draining of running operations included. Default: 10 s.
    pub fn close_timeout(mut self, limit: Duration) -> Self {
        self.spec.limits.close = limit;
        self
    }

    /// Sets how long a child may take to leave after it was asked to, before its group is ended. Default: 500 ms.
    pub fn grace(mut self, limit: Duration) -> Self {
        self.spec.limits.grace = limit;
        self
    }

    /// Sets CPUs, nice value, environment and resource limits of the process of this worker, which the processes below it
    /// inherit. For a worker below another: the process of the root is the caller's own, see [`Settings::apply`].
    ///
    /// ```
    /// use facade::{Settings, Worker};
    ///
    /// # fn main() -> Result<(), facade::Error> {
    /// let low = Worker::node().sub_workers(2).name("low").settings(Settings::new().nice(10));
    /// let pinned = Worker::node()
    ///     .chips(2)
    ///     .each_chip(Settings::new().env("OMP_NUM_THREADS", "1"))
    ///     .chip(1, Settings::new().cpus([0]));
    /// let root = pinned.worker(low).build()?;
    /// println!("{}", root.config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn settings(mut self, settings: Settings) -> Self {
        self.spec.settings.own = self.spec.settings.own.overridden_by(&settings);
        self
    }

    /// Sets the process settings of every chip worker of this worker.
    pub fn each_chip(mut self, settings: Settings) -> Self {
        self.spec.settings.each_chip(settings);
        self
    }

    /// Sets process settings of one chip worker, in front of those of [`WorkerBuilder::each_chip`].
    pub fn chip(mut self, index: u32, settings: Settings) -> Self {
        self.spec.settings.chip(index, settings);
        self
    }

    /// Sets the process settings of every sub worker of this worker.
    pub fn each_sub_worker(mut self, settings: Settings) -> Self {
        self.spec.settings.each_sub(settings);
        self
    }

    /// Sets process settings of one sub worker, in front of those of [`WorkerBuilder::each_sub_worker`].
    pub fn sub_worker(mut self, index: u32, settings: Settings) -> Self {
        self.spec.settings.sub(index, settings);
        self
    }

    /// Checks the specification and makes a worker in state `New`.
    ///
    /// Starts no process and opens no device: that is [`Worker::init`].
    ///
    /// # Errors
    ///
    /// [`Error::Config`] where the specification has too many children, one device twice, more than five levels, a
    /// name that cannot stand in a path, a limit of zero, or settings that no process can have.
    pub fn build(self) -> Result<Worker, Error> {
        self.spec.check()?;
        if !self.spec.settings.own.is_empty() {
            let name = self.spec.own_name();
            return Err(ConfigError::RootSettings { name }.into());
        }
        Ok(Worker::new(self.spec))
    }

    pub(crate) fn into_spec(self) -> Result<NodeSpec, Error> {
        self.spec.check()?;
        Ok(self.spec)
    }
}

#[cfg(test)]
mod tests;
