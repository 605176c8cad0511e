//! A graph to look at: the tasks of a recorded run, their edges, and what took the time.
//!
//! A run that was [recorded](crate::Scheduler::record) keeps its tasks until it is over, so that the view
//! has the edges to tasks that ended long ago, too. The view is a copy; it outlives the scheduler.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::ids::{TaskId, WorkerId};
use crate::infer::Why;
use crate::schedule::{Placement, TaskEnd};

/// Where a task of a view runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphTarget {
    /// On one of these workers.
    OneOf(Vec<WorkerId>),
    /// On all of these workers at once.
    AllOf(Vec<WorkerId>),
    /// On so many sub workers at once.
    Subs(u32),
    /// A recorded graph of so many tasks, each with a target of its own.
    Graph(u32),
}

/// A task of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphNode {
    /// Its handle.
    pub task: TaskId,
    /// Where it runs.
    pub target: GraphTarget,
    /// How it ended, if it has.
    pub end: Option<TaskEnd>,
    /// When it began and ended, in nanoseconds from any common start.
    pub time_ns: Option<(u64, u64)>,
}

/// An edge of a view, between nodes by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphEdge {
    /// The task that comes first.
    pub from: usize,
    /// The task that waits.
    pub to: usize,
    /// Whether the second needs what the first produced, and does not merely reuse its memory.
    pub is_data: bool,
}

/// The longest chain of tasks that wait for each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CriticalPath {
    /// Its tasks, first to last.
    pub tasks: Vec<TaskId>,
    /// The sum of their costs.
    pub cost: u64,
}

/// What a traced run spent its time on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// From the begin of the first task to the end of the last, in nanoseconds.
    pub makespan_ns: u64,
    /// Inside of tasks, along the critical path, in nanoseconds: no schedule is faster.
    pub critical_ns: u64,
    /// The rest of the makespan, as a part of it: waiting for workers, and the scheduler itself.
    pub scheduling_share: f64,
}

/// The graph of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphView {
    nodes: Vec<GraphNode>,
    /// Sorted, each pair once.
    edges: Vec<GraphEdge>,
}

impl GraphView {
    /// The tasks, in the order of submission.
    pub fn nodes(&self) -> &[GraphNode] {
        &self.nodes
    }

    /// The edges, sorted by the task that comes first; they always lead to a later node.
    pub fn edges(&self) -> &[GraphEdge] {
        &self.edges
    }

    /// Notes when tasks began and ended, in nanoseconds; times of unknown tasks are left out.
    pub fn add_times(&mut self, times: impl IntoIterator<Item = (TaskId, u64, u64)>) {
        let times: HashMap<_, _> = times
            .into_iter()
            .map(|(task, begin, end)| (task, (begin, end)))
            .collect();
        for node in &mut self.nodes {
            node.time_ns = times.get(&node.task).copied().or(node.time_ns);
        }
    }

    /// The costliest chain of tasks, when each costs what `cost` says.
    pub fn critical_path(&self, cost: impl Fn(&GraphNode) -> u64) -> CriticalPath {
        let mut costs: Vec<u64> = self.nodes.iter().map(&cost).collect();
        let mut before: Vec<Option<usize>> = vec![None; self.nodes.len()];
        // Sorted by the first task, and edges lead forward: `from` is final when it is looked at.
        for &GraphEdge { from, to, .. } in &self.edges {
            let over = costs[from].saturating_add(cost(&self.nodes[to]));
            if over > costs[to] || before[to].is_none() && over >= costs[to] {
                (costs[to], before[to]) = (over, Some(from));
            }
        }
        let last = (0..costs.len()).rev().max_by_key(|&node| costs[node]);
        let chain = std::iter::successors(last, |&node| before[node]);
        let mut tasks: Vec<_> = chain.map(|node| self.nodes[node].task).collect();
        tasks.reverse();
        CriticalPath {
            tasks,
            cost: last.map_or(0, |node| costs[node]),
        }
    }

    /// Where the time went, when the times of all tasks that ran are known.
    pub fn profile(&self) -> Option<Profile> {
        let times = || self.nodes.iter().filter_map(|node| node.time_ns);
        let begin = times().map(|(begin, _)| begin).min()?;
        let end = times().map(|(_, end)| end).max()?;
        let makespan_ns = end.saturating_sub(begin);
        let critical_ns = self.critical_path(GraphNode::duration_ns).cost;
        let rest = makespan_ns.saturating_sub(critical_ns);
        let scheduling_share = rest as f64 / makespan_ns.max(1) as f64;
        Some(Profile {
            makespan_ns,
            critical_ns,
            scheduling_share,
        })
    }

    /// The graph in the DOT language: a box per task, dashed edges where memory is reused, the critical
    /// path drawn thick when times are known. `label` names the tasks.
    pub fn to_dot(&self, label: impl Fn(&GraphNode) -> String) -> String {
        let path = self.critical_path(GraphNode::duration_ns);
        let is_timed = path.cost > 0;
        let is_on_path = |node: &GraphNode| is_timed && path.tasks.contains(&node.task);
        let mut dot = String::from("digraph run {\n  node [shape=box];\n");
        for (at, node) in self.nodes.iter().enumerate() {
            let text = escape(&format!("{}\n{}", label(node), node.describe()));
            let (pen, fill) = (if is_on_path(node) { 3 } else { 1 }, node.color());
            let _ = writeln!(
                dot,
                "  n{at} [label=\"{text}\", penwidth={pen}, style=filled, fillcolor={fill}];"
            );
        }
        for &GraphEdge { from, to, is_data } in &self.edges {
            let style = if is_data { "solid" } else { "dashed" };
            let pen = if is_on_path(&self.nodes[from]) && is_on_path(&self.nodes[to]) {
                3
            } else {
                1
            };
            let _ = writeln!(dot, "  n{from} -> n{to} [style={style}, penwidth={pen}];");
        }
        dot.push_str("}\n");
        dot
    }

    /// The graph as one JSON object: `nodes` with `label`, `slot`, `generation`, `target`, `end`,
    /// `begin_ns`, `end_ns`, and `edges` as `[from, to, "data" | "order"]`.
    pub fn to_json(&self, label: impl Fn(&GraphNode) -> String) -> String {
        let nodes = self.nodes.iter().map(|node| node.to_json(&label(node)));
        let edges = self.edges.iter().map(|edge| {
            let kind = if edge.is_data { "data" } else { "order" };
            format!("[{},{},\"{kind}\"]", edge.from, edge.to)
        });
        let (nodes, edges): (Vec<_>, Vec<_>) = (nodes.collect(), edges.collect());
        format!(
            "{{\"nodes\":[{}],\"edges\":[{}]}}\n",
            nodes.join(","),
            edges.join(",")
        )
    }
}

impl GraphNode {
    /// How long it ran, in nanoseconds; 0 when that is not known.
    pub fn duration_ns(&self) -> u64 {
        self.time_ns
            .map_or(0, |(begin, end)| end.saturating_sub(begin))
    }

    fn describe(&self) -> String {
        let time = self.time_ns.map(|_| format!(", {} ns", self.duration_ns()));
        let target = match &self.target {
            GraphTarget::OneOf(list) => join(list, " or "),
            GraphTarget::AllOf(list) => join(list, " and "),
            GraphTarget::Subs(n) => format!("{n} sub workers"),
            GraphTarget::Graph(n) => format!("graph of {n} tasks"),
        };
        format!("{}, {target}{}", self.task, time.unwrap_or_default())
    }

    fn color(&self) -> &'static str {
        match self.end {
            None => "white",
            Some(TaskEnd::Completed) => "palegreen",
            Some(TaskEnd::Failed(_)) => "tomato",
            Some(TaskEnd::Skipped { .. }) => "lightgray",
            Some(TaskEnd::Cancelled) => "lightyellow",
        }
    }

    fn to_json(&self, label: &str) -> String {
        let TaskId { slot, generation } = self.task;
        let numbers = |list: &[WorkerId]| {
            let all: Vec<_> = list.iter().map(|worker| worker.0.to_string()).collect();
            all.join(",")
        };
        let target = match &self.target {
            GraphTarget::OneOf(list) => format!("{{\"one_of\":[{}]}}", numbers(list)),
            GraphTarget::AllOf(list) => format!("{{\"all_of\":[{}]}}", numbers(list)),
            GraphTarget::Subs(n) => format!("{{\"subs\":{n}}}"),
            GraphTarget::Graph(n) => format!("{{\"graph\":{n}}}"),
        };
        let end = match self.end {
            None => "null",
            Some(TaskEnd::Completed) => "\"completed\"",
            Some(TaskEnd::Failed(_)) => "\"failed\"",
            Some(TaskEnd::Skipped { .. }) => "\"skipped\"",
            Some(TaskEnd::Cancelled) => "\"cancelled\"",
        };
        let times = match self.time_ns {
            None => String::new(),
            Some((begin, end)) => format!(",\"begin_ns\":{begin},\"end_ns\":{end}"),
        };
        format!(
            "{{\"label\":\"{}\",\"slot\":{slot},\"generation\":{generation},\"target\":{target},\
             \"end\":{end}{times}}}",
            escape(label)
        )
    }
}

fn join(workers: &[WorkerId], between: &str) -> String {
    let names: Vec<_> = workers.iter().map(WorkerId::to_string).collect();
    names.join(between)
}

/// Text inside double quotes, for DOT and JSON alike.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A run while it is recorded.
#[derive(Default)]
pub(crate) struct Recording {
    view: GraphView,
    /// A `task -> position in nodes` pair for every task.
    by_task: HashMap<TaskId, usize>,
}

impl Recording {
    pub(crate) fn add_task(
        &mut self,
        task: TaskId,
        placement: &Placement<'_>,
        subs: Vec<WorkerId>,
    ) {
        let target = match *placement {
            Placement::On(worker) => GraphTarget::OneOf(vec![worker]),
            Placement::AnyOf(list) => GraphTarget::OneOf(list.to_vec()),
            Placement::Group(list) => GraphTarget::AllOf(list.to_vec()),
            Placement::Sub => GraphTarget::OneOf(subs),
            Placement::SubGroup(n) => GraphTarget::Subs(n),
        };
        self.add(task, target);
    }

    /// A graph task; its nodes are not part of the view.
    pub(crate) fn add_graph(&mut self, task: TaskId, n_nodes: u32) {
        self.add(task, GraphTarget::Graph(n_nodes));
    }

    fn add(&mut self, task: TaskId, target: GraphTarget) {
        self.by_task.insert(task, self.view.nodes.len());
        self.view.nodes.push(GraphNode {
            task,
            target,
            end: None,
            time_ns: None,
        });
    }

    /// An edge was found; tasks of other runs are not part of the view.
    pub(crate) fn add_edge(&mut self, from: TaskId, to: TaskId, why: Why) {
        if let (Some(&from), Some(&to)) = (self.by_task.get(&from), self.by_task.get(&to)) {
            self.view.edges.push(GraphEdge {
                from,
                to,
                is_data: why == Why::Data,
            });
        }
    }

    pub(crate) fn end_task(&mut self, task: TaskId, end: TaskEnd) {
        if let Some(&at) = self.by_task.get(&task) {
            self.view.nodes[at].end = Some(end);
        }
    }

    /// What was recorded so far.
    pub(crate) fn view(&self) -> GraphView {
        let mut view = self.view.clone();
        // Of two edges between the same tasks the one with data is kept.
        view.edges
            .sort_by_key(|edge| (edge.from, edge.to, !edge.is_data));
        view.edges.dedup_by_key(|edge| (edge.from, edge.to));
        view
    }
}

#[cfg(test)]
mod tests;
