//! The recorded graphs of one chip: which calls have been recorded, and how a body is.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;
use taskgraph::capture::{Definition, Mismatch, MismatchKind, NodeSpec, NotRecordable, Recorder};
use taskgraph::{DType, Placement, TaskArgs, Tensor, WorkerId};

use super::memory::DeviceMemory;
use crate::allocations::Allocations;
use crate::args::{CoreArgs, DeviceTensor};
use crate::callable::ChipCallable;
use crate::chip::DeviceAddress;
use crate::error::OrchestrationError;
use crate::graph::{ChipGraphArgs, GraphCall};
use crate::orchestrator::{ChipOrchestrator, CoreTaskId, Numbered, RunBuilder, Submitted};

/// How many recordings a chip keeps, and how many bytes they may take together.
const KEPT_MAX: usize = 256;
const KEPT_BYTES_MAX: usize = 64 << 20;

/// The address of intermediate memory of a recording: it has none.
const RECORDED: DeviceAddress = DeviceAddress(u64::MAX);

/// The workers of the graph by core shape.
pub(crate) type Pools = [Vec<WorkerId>; 3];

/// All recordings, the least recently used of which go first.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    kept: HashMap<Key, Kept>,
    kept_bytes: usize,
    /// Counts the calls, to know what was not used for long.
    now: u64,
    n_recordings: u32,
    /// The kinds of differences that were logged.
    logged: HashSet<MismatchKind>,
}

/// What names a recording: the callable whose kernels its nodes are, the body, the parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    callable: usize,
    body: usize,
    params: SmallVec<[u64; 4]>,
}

#[derive(Debug)]
struct Kept {
    /// `None` if the body cannot be recorded.
    definition: Option<Arc<Definition>>,
    last_used: u64,
}

/// What is known of a call.
#[derive(Debug)]
pub(crate) enum Known {
    Definition {
        definition: Arc<Definition>,
        is_new: bool,
    },
    Refused,
}

impl Graphs {
    /// The recording of a call, made now if there is none.
    ///
    /// # Errors
    /// What the body returned; nothing is kept then.
    pub(crate) fn find(
        &mut self,
        call: &GraphCall<'_>,
        args: &CoreArgs<'_>,
        boundary: &TaskArgs,
        pools: &Pools,
        memory: &DeviceMemory,
    ) -> Result<Known, OrchestrationError> {
        let key = Key::of(call);
        self.now += 1;
        if let Some(kept) = self.kept.get_mut(&key) {
            kept.last_used = self.now;
            let is_new = false;
            return Ok(kept
                .definition
                .clone()
                .map_or(Known::Refused, |definition| Known::Definition {
                    definition,
                    is_new,
                }));
        }
        let number = self.next_number();
        let recorded = record(number, call, args, boundary, pools, memory.allocations())?;
        let definition = match recorded {
            Ok(definition) => Some(Arc::new(definition)),
            Err(reason) => {
                let (callable, at) = (call.callable.name, call.place);
                tracing::warn!(callable, %at, %reason, "a graph cannot be recorded and is built task by task");
                None
            }
        };
        self.keep(key, definition.clone());
        let is_new = true;
        Ok(
            definition.map_or(Known::Refused, |definition| Known::Definition {
                definition,
                is_new,
            }),
        )
    }

    /// Says once per kind that calls differ from the recorded one.
    pub(crate) fn log_mismatch(&mut self, call: &GraphCall<'_>, mismatch: &Mismatch) {
        if self.logged.insert(mismatch.kind) {
            let (callable, at) = (call.callable.name, call.place);
            tracing::warn!(callable, %at, %mismatch, "a graph does not fit its recording and is built task by task; further ones of this kind are only counted");
        }
    }

    fn keep(&mut self, key: Key, definition: Option<Arc<Definition>>) {
        self.kept_bytes += bytes(definition.as_ref());
        let last_used = self.now;
        self.kept.insert(
            key,
            Kept {
                definition,
                last_used,
            },
        );
        while self.kept.len() > KEPT_MAX
            || (self.kept_bytes > KEPT_BYTES_MAX && self.kept.len() > 1)
        {
            self.evict();
        }
    }

    /// Forgets what was not used for longest. A replay under way keeps its definition alive.
    fn evict(&mut self) {
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.last_used);
        let Some(key) = oldest.map(|(key, _)| key.clone()) else {
            return;
        };
        let evicted = self.kept.remove(&key);
        self.kept_bytes -= bytes(evicted.and_then(|kept| kept.definition).as_ref());
    }

    fn next_number(&mut self) -> NonZeroU32 {
        self.n_recordings = self.n_recordings.wrapping_add(1).max(1);
        NonZeroU32::new(self.n_recordings).expect("at least 1")
    }
}

impl Key {
    fn of(call: &GraphCall<'_>) -> Self {
        Self {
            callable: std::ptr::from_ref(call.callable).addr(),
            body: call.body as usize,
            params: SmallVec::from_slice(call.params),
        }
    }
}

fn bytes(definition: Option<&Arc<Definition>>) -> usize {
    definition.map_or(0, |it| it.bytes())
}

/// Calls a body and takes its tasks down.
fn record(
    number: NonZeroU32,
    call: &GraphCall<'_>,
    args: &CoreArgs<'_>,
    boundary: &TaskArgs,
    pools: &Pools,
    allocations: &Allocations,
) -> Result<Result<Definition, NotRecordable>, OrchestrationError> {
    let recorder = match Recorder::new(number, boundary, &[]) {
        Ok(recorder) => recorder,
        Err(reason) => return Ok(Err(reason)),
    };
    let scalars = (0..args.scalars.len()).filter_map(|at| recorder.scalar(at));
    let body_args = ChipGraphArgs::new(call.params, args, scalars.collect());
    let mut recording = Recording {
        recorder,
        number,
        callable: call.callable,
        pools,
        allocations,
        refused: None,
    };
    let built = (call.body)(
        &mut ChipOrchestrator::new(call.callable, &mut recording),
        &body_args,
    );
    if let Some(reason) = recording.refused {
        return Ok(Err(reason));
    }
    built?;
    Ok(recording.recorder.finish())
}

/// The builder of a graph that is being recorded.
struct Recording<'r> {
    recorder: Recorder,
    number: NonZeroU32,
    callable: &'static ChipCallable,
    pools: &'r Pools,
    allocations: &'r Allocations,
    /// Why it is no use to go on.
    refused: Option<NotRecordable>,
}

impl RunBuilder for Recording<'_> {
    fn submit(
        &mut self,
        kernel_idx: usize,
        args: &CoreArgs<'_>,
    ) -> Result<CoreTaskId, OrchestrationError> {
        let kernel = &self.callable.kernels[kernel_idx];
        let n_blocks = args.block_count(kernel.name)?;
        let task_args = self.task_args(kernel.name, args)?;
        let element = args
            .predicate
            .as_ref()
            .map(|it| self.located(args.tensors.len(), &it.element))
            .transpose()?;
        let condition = args.predicate.as_ref().map_or(0, |it| it.condition.code());
        let after: SmallVec<[u32; 2]> = args.after.iter().map(|id| self.node(*id)).collect();
        let placement = Placement::AnyOf(&self.pools[kernel.core as usize]);
        let members = [&task_args];
        let spec = NodeSpec {
            n_blocks,
            after: &after,
            predicate: element.as_ref().map(|element| (element, condition)),
            ..NodeSpec::new(kernel_idx as u32, placement, &members)
        };
        match self.recorder.submit(&spec) {
            Ok(node) => {
                let recording = self.number;
                Ok(CoreTaskId(Numbered::Node { recording, node }))
            }
            Err(reason) => Err(self.refuse(reason)),
        }
    }

    fn alloc(&mut self, dtype: DType, shape: &[u64]) -> Result<DeviceTensor, OrchestrationError> {
        let view = self.recorder.alloc(dtype, shape)?;
        Ok(DeviceTensor::new(RECORDED, view))
    }

    /// A graph inside of this one becomes part of it.
    fn graph(
        &mut self,
        _call: &GraphCall<'_>,
        _args: &CoreArgs<'_>,
    ) -> Result<Submitted, OrchestrationError> {
        Ok(Submitted::No)
    }
}

impl Recording<'_> {
    /// The arguments of a task, by allocation or by intermediate memory.
    fn task_args(
        &mut self,
        kernel: &'static str,
        args: &CoreArgs<'_>,
    ) -> Result<TaskArgs, OrchestrationError> {
        let mut task_args = TaskArgs::new();
        for (argument, (tensor, tag)) in args.tensors.iter().enumerate() {
            let tensor = self.located(argument, tensor)?;
            task_args.tensor(tensor, *tag).map_err(|error| {
                let problem = error.to_string();
                OrchestrationError::Task { kernel, problem }
            })?;
        }
        for at in 0..args.scalars.len() {
            match args.forwarded.iter().find(|(known, _)| *known == at) {
                Some((_, scalar)) => task_args.scalar(*scalar),
                None => task_args.scalar(args.scalars[at]),
            };
        }
        Ok(task_args)
    }

    /// A tensor by allocation, or as the recorder gave it out.
    fn located(
        &mut self,
        argument: usize,
        tensor: &DeviceTensor,
    ) -> Result<Tensor, OrchestrationError> {
        if tensor.address == RECORDED {
            return Ok(tensor.view);
        }
        let node = self.recorder.n_nodes();
        let buffer = tensor.view.buffer();
        // One that is not aligned is in no boundary.
        let outside = NotRecordable::Outside {
            node,
            argument,
            buffer,
        };
        let found = self.allocations.tensor(tensor)?;
        found.ok_or_else(|| self.refuse(outside))
    }

    fn refuse(&mut self, reason: NotRecordable) -> OrchestrationError {
        self.refused.get_or_insert(reason);
        OrchestrationError::refuse(format!("record a graph: {reason}"))
    }

    /// The number of an earlier node; one that cannot be for anything else.
    fn node(&self, id: CoreTaskId) -> u32 {
        match id.0 {
            Numbered::Node { recording, node } if recording == self.number => node,
            _ => u32::MAX,
        }
    }
}
