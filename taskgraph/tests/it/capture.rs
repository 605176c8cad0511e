//! Capture and replay: what is recorded, what a replay does, what is refused.

mod caching;
mod contract;
mod failures;
mod random;
mod recording;
mod replaying;

use std::num::NonZeroU32;
use std::sync::Arc;

use taskgraph::capture::{Definition, NodeSpec, NotRecordable, Recorder};
use taskgraph::*;

use crate::support::{args, tensor};

/// The recording number of most tests.
const FIRST: NonZeroU32 = NonZeroU32::MIN;

/// A recorder with this boundary.
fn recorder(boundary: &TaskArgs) -> Recorder {
    Recorder::new(FIRST, boundary, &[]).unwrap()
}

/// Takes down a task on a worker.
fn on(recorder: &mut Recorder, worker: u32, args: &TaskArgs) -> Result<u32, NotRecordable> {
    let placement = Placement::On(WorkerId(worker));
    recorder.submit(&NodeSpec::new(0, placement, &[args]))
}

/// A definition with a boundary of whole buffers, whose tasks are all on worker 0.
fn definition(boundary: &[(u64, Tag)], tasks: &[&[(u64, Tag)]]) -> Arc<Definition> {
    let mut recorder = recorder(&args(boundary));
    for task in tasks {
        on(&mut recorder, 0, &args(task)).unwrap();
    }
    Arc::new(recorder.finish().unwrap())
}

/// The edges into every node, sorted.
fn fan_in(definition: &Definition) -> Vec<Vec<(u32, bool)>> {
    let sorted = |node: capture::NodeRef<'_>| {
        let mut edges: Vec<_> = node.fan_in().collect();
        edges.sort_unstable();
        edges
    };
    definition.nodes().map(sorted).collect()
}
