//! Replays on the lines: what the nodes of a graph task are sent as.
//!
//! A node has no payload before it is sent. It is made then, from the definition and what this replay binds, so that
//! a submit costs nothing per node and a graph that waits keeps nothing per node.

use std::sync::{Arc, OnceLock};

use device::Digest;
use smallvec::SmallVec;
use taskgraph::capture::{Binding, Bindings, Definition, ResolveError};
use taskgraph::{BufferId, RunId, TaskId, Tensor};
use tracing::Span;

use crate::args::{ArgList, Backing};
use crate::error::Name;
use crate::graph::{Cached, GraphCache};
use crate::wire::{self, Payload};

use super::Engine;
use super::copies::NotSubmitted;
use super::core::{Core, Holds, TaskRecord};

/// What the nodes of one replay are made of.
#[derive(Debug)]
pub(crate) struct GraphRecord {
    cached: Cached,
    args: ArgList,
    /// Intermediate memory; found after the arguments are known to fit.
    heap: OnceLock<Tensor>,
}

impl GraphRecord {
    pub(crate) fn new(cached: Cached, args: ArgList) -> Self {
        let heap = OnceLock::new();
        Self { cached, args, heap }
    }

    /// The arguments of a call that was not submitted.
    pub(crate) fn into_args(self) -> ArgList {
        self.args
    }

    /// With this intermediate memory, which is given once.
    pub(crate) fn with_heap(&self, memory: Tensor) -> &Tensor {
        self.heap.get_or_init(|| memory)
    }

    pub(crate) fn args(&self) -> &ArgList {
        &self.args
    }

    pub(crate) fn definition(&self) -> &Arc<Definition> {
        &self.cached.definition
    }

    /// The callables of its nodes, each once.
    pub(super) fn digests(&self) -> impl Iterator<Item = Digest> + '_ {
        let numbers = 0..self.cached.keeps.callables.len() as u32;
        numbers.map_while(|number| {
            self.definition()
                .digest(number)
                .map(|digest| Digest(*digest))
        })
    }

    /// What a node is sent as; its arguments are what this replay binds.
    pub(super) fn payload(&self, node: u32, member: u32) -> Result<Payload, String> {
        let definition = self.definition();
        let node = definition.node(node);
        let digest = definition.digest(node.callable());
        let digest = digest.ok_or("the callable of the node has no digest")?;
        let checked = self.args.checked().map_err(|error| error.to_string())?;
        let (boundary, backings) = checked;
        let bindings = Bindings {
            boundary,
            heap: self.heap.get().copied(),
        };
        let member = member.min(node.n_members() - 1);
        let tensors = node.args(member).map(|arg| {
            let tensor = definition.tensor(&arg, &bindings)?;
            let outer = arg
                .source
                .boundary()
                .and_then(|at| backings.get(at as usize));
            let mapped = outer.and_then(Backing::id);
            Ok((wire::raw_as(&tensor, mapped), arg.tag))
        });
        let tensors: Result<SmallVec<[_; 4]>, ResolveError> = tensors.collect();
        let scalars = node
            .scalars(member)
            .map(|source| definition.scalar(source, &bindings));
        let scalars: Result<SmallVec<[_; 4]>, _> = scalars.collect();
        let tensors = tensors.map_err(|error| error.to_string())?;
        let scalars = scalars.map_err(|error| error.to_string())?;
        Ok(wire::encode_parts(
            digest,
            tensors.into_iter(),
            scalars.into_iter(),
        ))
    }
}

impl Engine {
    /// The graphs that orchestrations of this worker recorded.
    pub(crate) fn graphs(&self) -> &GraphCache {
        &self.graphs
    }
}

impl Core {
    /// Submits a graph task. On an error nothing has changed.
    pub(crate) fn submit_graph(
        &mut self,
        run: RunId,
        binding: &Binding<'_>,
        (callable, holds, graph, span): (&Name, &mut Holds, &Arc<GraphRecord>, &Span),
    ) -> Result<TaskId, NotSubmitted> {
        self.copies.permit(holds)?;
        let id = self.graph.submit_graph(run, binding)?;
        let (called, graph) = (
            (Arc::clone(callable), span.clone()),
            Some(Arc::clone(graph)),
        );
        let holds = std::mem::take(holds);
        self.keep((run, id), called, SmallVec::new(), holds, graph);
        self.settle();
        Ok(id)
    }

    /// The shared buffers that a dispatched task, or the graph that it is of, names.
    pub(super) fn buffers_of(&self, task: TaskId) -> Option<Vec<BufferId>> {
        let (record, ..) = self.record_of(task)?;
        Some(record.buffers().map(|(buffer, _)| buffer.id()).collect())
    }

    /// The record that a dispatched task belongs to, and which task that is: itself, or its graph and which node
    /// of that it is.
    pub(super) fn record_of(&self, task: TaskId) -> Option<(&TaskRecord, TaskId, Option<u32>)> {
        match self.graph.node_of(task) {
            Some((graph, node)) => Some((self.task(graph)?, graph, Some(node))),
            None => Some((self.task(task)?, task, None)),
        }
    }
}

impl TaskRecord {
    /// The callable of the task, or of one node of a graph task.
    pub(super) fn callable_of(&self, node: Option<u32>) -> Name {
        let named = node.zip(self.graph.as_ref()).and_then(|(node, graph)| {
            let callable = graph.definition().node(node).callable();
            graph.cached.keeps.callables.get(callable as usize)
        });
        Name::clone(named.unwrap_or(&self.callable))
    }

    pub(super) fn graph(&self) -> Option<&GraphRecord> {
        self.graph.as_deref()
    }
}
