//! A picture of the tree: who is where, with which process and device, in which state.

use std::fmt;

use procfork::Settings;
use serde::{Deserialize, Serialize};

use crate::config::{Level, StartMode};
use crate::error::WorkerDied;

/// What a worker of the tree is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Role {
    /// A leaf that owns one device.
    Chip,
    /// A worker with children of its own.
    Node,
    /// A leaf that runs host functions.
    Sub,
}

/// One worker of the tree, as it said of itself when it became ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TreeNode {
    /// Names from the root down, joined by `/`.
    pub path: String,
    /// Level in the tree.
    pub level: Level,
    /// What the worker is for.
    pub role: Role,
    /// Process id.
    pub pid: u32,
    /// Device of a chip worker, as its driver names it.
    pub device: Option<String>,
    /// `ready`, or how the worker ended.
    pub state: String,
    /// How its process ended, where it has and that is known.
    pub died: Option<WorkerDied>,
    /// How its process was made; none for the root.
    pub made: Option<StartMode>,
    /// What holds in its process of the settings that were given for it, as the kernel says.
    pub settings: Settings,
    /// Workers below this one, in the order of their ids, sub workers last.
    pub children: Vec<TreeNode>,
}

impl TreeNode {
    /// The calling process as the worker of this role, ready; how it was made and what it was given is for its maker to say.
    pub(crate) fn here(path: &str, level: Level, role: Role) -> Self {
        Self {
            path: path.to_owned(),
            level,
            role,
            pid: std::process::id(),
            device: None,
            state: "ready".to_owned(),
            died: None,
            made: None,
            settings: Settings::new(),
            children: Vec::new(),
        }
    }

    /// The number of workers in this subtree, this one included.
    #[must_use]
    pub fn count(&self) -> usize {
        1 + self.children.iter().map(TreeNode::count).sum::<usize>()
    }

    /// All workers of this subtree, parents before their children.
    #[must_use]
    pub fn flatten(&self) -> Vec<&TreeNode> {
        let mut all = vec![self];
        all.extend(self.children.iter().flat_map(TreeNode::flatten));
        all
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, lead: &str, branch: &str) -> fmt::Result {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        let label = format!("{lead}{branch}{name}");
        write!(
            f,
            "{label:<24} {:<3} pid {:<8}",
            self.level.label(),
            self.pid
        )?;
        let device = self.device.as_deref().unwrap_or("-");
        write!(f, " {device:<24} {}", self.state)?;
        match self.settings.is_empty() {
            true => writeln!(f)?,
            false => writeln!(f, " [{}]", self.settings)?,
        }
        let lead = match branch {
            "" => String::new(),
            "└─ " => format!("{lead}   "),
            _ => format!("{lead}│  "),
        };
        for (idx, child) in self.children.iter().enumerate() {
            let last = idx + 1 == self.children.len();
            child.write(f, &lead, if last { "└─ " } else { "├─ " })?;
        }
        Ok(())
    }
}

impl fmt::Display for TreeNode {
    /// One line per worker: name, level, pid, device, state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "", "")
    }
}
