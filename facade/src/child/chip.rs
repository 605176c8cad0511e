//! The chip worker: owns one device, runs chip callables on it.
//!
//! The device is opened here and nowhere else: the parent has touched none. Every registered chip callable is made known
//! to the device before this worker says ready, so that the first task pays nothing extra.
//!
//! Tensors in shared memory are copied to dense device memory before a launch and back after it; tensors in device
//! memory are looked up in this worker's own table, which trusts no parent.

use std::sync::{Arc, Weak};
use std::time::Instant;

use device::{
    CallableSlot, Chip, ChipArgs, DeviceAddress, DeviceError, DeviceTensor, Digest, KernelError,
    OrchestrationError, Platform, Progress, SimFault,
};
use hashbrown::HashMap;
use mailbox::Segment;
use provenance::{Ask, DevicePtr, Operation, Table, WorkerRef};
use taskgraph::{BufferId, Tag, Tensor};

use crate::agreement::Change;
use crate::args::Args;
use crate::buffer::BufferCore;
use crate::callable::{Body, Entry, Registry};
use crate::config::{ChipOptions, Level};
use crate::control::{ControlReply, ControlRequest, DeviceName, FaultKind, RemoteError, chain};
use crate::engine::Engine;
use crate::progress::{Board, StartPhase};
use crate::tree::{Role, TreeNode};
use crate::view::Grant;

use super::staging::{self, Runs};
use super::{Executor, Seat, operation, panics, wrong_kind};

mod memory;

use self::memory::Traffic;

/// Staging memory that is kept for later tasks, at most so many bytes.
const STAGING_KEPT_BYTES: u64 = 256 << 20;

pub(super) struct ChipWorker {
    path: String,
    registry: Arc<Registry>,
    platform: Platform,
    device: u32,
    options: ChipOptions,
    faults: Vec<SimFault>,
    owner: WorkerRef,
    opened: Option<Opened>,
}

/// The device and all that lives on it.
struct Opened {
    chip: Box<dyn Chip>,
    slots: HashMap<Digest, CallableSlot>,
    table: Table,
    named: HashMap<DeviceName, DevicePtr>,
    staging: Staging,
    /// The most bytes that allocations and windows of this chip may take.
    budget: Option<u64>,
    /// What windows of this chip's own memory take.
    home_window_bytes: u64,
    traffic: Traffic,
}

impl ChipWorker {
    pub(super) fn new(
        seat: &Seat,
        registry: Arc<Registry>,
        platform: Platform,
        device: u32,
        index: u32,
        options: ChipOptions,
        faults: Vec<SimFault>,
    ) -> Self {
        Self {
            path: seat.path.clone(),
            registry,
            platform,
            device,
            options,
            faults,
            owner: WorkerRef {
                id: index,
                incarnation: seat.incarnation,
            },
            opened: None,
        }
    }

    fn failed(&self, operation: &str, error: &DeviceError) -> RemoteError {
        RemoteError::new(kind_of(error), &self.path, operation, chain(error))
    }

    fn open(&self, board: &Board) -> Result<Opened, RemoteError> {
        let what = format!("open device {} of platform {}", self.device, self.platform);
        let mut options = self.options.open_options();
        options.sim.faults = self.faults.clone();
        let opened = device::open(self.platform, self.device, &options);
        let mut chip = opened.map_err(|error| self.failed(&what, &error))?;
        board.note(StartPhase::DeviceOpen);
        let mut slots = HashMap::new();
        for (digest, callable) in self.registry.chip_callables() {
            let what = format!("register chip callable `{}`", callable.name);
            let slot = chip
                .register(callable)
                .map_err(|error| self.failed(&what, &error))?;
            slots.insert(digest, slot);
        }
        let (table, named, staging) = (Table::new(), HashMap::new(), Staging::default());
        Ok(Opened {
            chip,
            slots,
            table,
            named,
            staging,
            budget: self.options.budget,
            home_window_bytes: 0,
            traffic: Traffic::default(),
        })
    }

    fn opened(&mut self) -> Result<&mut Opened, RemoteError> {
        let closed = || {
            RemoteError::new(
                FaultKind::Runtime,
                &self.path,
                "use the device",
                "it is not open",
            )
        };
        self.opened.as_mut().ok_or_else(closed)
    }
}

impl Executor for ChipWorker {
    fn init(&mut self, _until: Instant, board: &Board) -> Result<TreeNode, RemoteError> {
        let opened = self.open(board)?;
        let info = opened.chip.info();
        let cores = format!("{} AIC + {} AIV", info.cores.aic, info.cores.aiv);
        let device = format!("{}:{} ({cores})", info.platform, info.logical_id);
        self.opened = Some(opened);
        Ok(TreeNode {
            device: Some(device),
            ..TreeNode::here(&self.path, Level::Chip, Role::Chip)
        })
    }

    fn run(
        &mut self,
        digest: &Digest,
        entry: &Entry,
        args: &Args,
        accept: &mut dyn FnMut(),
    ) -> Result<(), RemoteError> {
        let Body::Chip(_) = entry.body else {
            return Err(wrong_kind(&self.path, entry, "chip callables"));
        };
        let (path, owner) = (self.path.clone(), self.owner);
        let opened = self.opened()?;
        let run = || opened.run(digest, args, owner, accept);
        panics::caught(&path, || operation(entry), run)?
            .map_err(|error| RemoteError::new(error.kind, &path, operation(entry), error.reason))
    }

    fn prepare(
        &mut self,
        change: &Change,
        digest: &Digest,
        entry: &Entry,
        _until: Instant,
    ) -> Result<(), RemoteError> {
        let (Change::Add { .. }, Body::Chip(callable)) = (change, &entry.body) else {
            return Ok(());
        };
        let what = format!("register chip callable `{}`", callable.name);
        let registered = self.opened()?.chip.register(callable);
        let slot = registered.map_err(|error| self.failed(&what, &error))?;
        self.opened()?.slots.insert(*digest, slot);
        Ok(())
    }

    fn commit(&mut self, digest: &Digest, registry: &Arc<Registry>) {
        self.registry = Arc::clone(registry);
        self.abort(digest);
    }

    /// Keeps the slot of a callable that is registered. The chip itself keeps what it has loaded, and gives the same slot to
    /// the same callable again.
    fn abort(&mut self, digest: &Digest) {
        if let (Some(opened), None) = (&mut self.opened, self.registry.find(digest)) {
            opened.slots.remove(digest);
        }
    }

    fn memory(
        &mut self,
        request: &ControlRequest,
        buffer: Option<&BufferCore>,
    ) -> Result<ControlReply, RemoteError> {
        let (path, owner) = (self.path.clone(), self.owner);
        let served = self.opened()?.memory(request, buffer, owner);
        served.map_err(|failed| {
            RemoteError::new(failed.kind, path, request.operation(), failed.reason)
        })
    }

    fn adopt(&self, id: BufferId, segment: Segment) -> Arc<BufferCore> {
        BufferCore::new(id, segment, Weak::<Engine>::new())
    }

    fn close(&mut self) {
        if let Some(mut opened) = self.opened.take()
            && let Err(error) = opened.chip.close()
        {
            tracing::error!(worker = self.path, %error, "the device did not close cleanly");
        }
    }
}

/// Why a run on the device, or a request about its memory, failed.
#[derive(Debug)]
struct Failed {
    reason: String,
    kind: FaultKind,
}

impl Failed {
    fn text(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            kind: FaultKind::Device,
        }
    }
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self::text(reason)
    }
}

impl From<DeviceError> for Failed {
    fn from(error: DeviceError) -> Self {
        Self {
            reason: chain(&error),
            kind: kind_of(&error),
        }
    }
}

fn kind_of(error: &DeviceError) -> FaultKind {
    if error.is_device_fault() {
        FaultKind::Unusable
    } else if is_panic(error) {
        FaultKind::Panicked
    } else {
        FaultKind::Device
    }
}

/// Whether a kernel or an orchestration panicked, which stands somewhere down the sources.
fn is_panic(error: &DeviceError) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        let kernel = error.downcast_ref::<KernelError>();
        let orchestration = error.downcast_ref::<OrchestrationError>();
        if matches!(kernel, Some(KernelError::Panicked { .. }))
            || matches!(orchestration, Some(OrchestrationError::Panicked { .. }))
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// The tensor as its task may use it.
fn granted(tensor: DeviceTensor, grant: &Grant) -> DeviceTensor {
    match grant.may_write() {
        true => tensor,
        false => tensor.read_only(),
    }
}

impl Opened {
    /// One task: stage in, launch, finish, stage out. Staging memory is given back whatever happens.
    fn run(
        &mut self,
        digest: &Digest,
        args: &Args,
        owner: WorkerRef,
        accept: &mut dyn FnMut(),
    ) -> Result<(), Failed> {
        let slot = *self
            .slots
            .get(digest)
            .ok_or_else(|| Failed::text("the device does not know it"))?;
        let mut staged = Vec::new();
        let outcome = self.staged_run(slot, args, owner, accept, &mut staged);
        for (bytes, address) in staged {
            self.staging.give_back(&mut *self.chip, bytes, address);
        }
        outcome
    }

    fn staged_run(
        &mut self,
        slot: CallableSlot,
        args: &Args,
        owner: WorkerRef,
        accept: &mut dyn FnMut(),
        staged: &mut Vec<(u64, DeviceAddress)>,
    ) -> Result<(), Failed> {
        let mut chip_args = ChipArgs::new();
        let mut outputs: Vec<(&Grant, Runs, DeviceAddress)> = Vec::new();
        for (index, grant) in args.grants().iter().enumerate() {
            if grant.core().is_none() {
                let tensor = self.resolve(grant.tensor(), owner)?;
                chip_args = chip_args.with_tensor(granted(tensor, grant));
                continue;
            }
            let too_odd = || {
                Failed::text(format!(
                    "tensor {index}: a packed view that is not contiguous cannot be copied to the device"
                ))
            };
            let runs = staging::runs(grant.tensor()).ok_or_else(too_odd)?;
            let bytes = staging::dense_bytes(grant.tensor()).ok_or_else(too_odd)?;
            let address = self.staging.take(&mut *self.chip, bytes)?;
            staged.push((bytes, address));
            if grant.tag() != Tag::Output {
                self.copy_in(grant, &runs, address)?;
            }
            let tensor =
                DeviceTensor::contiguous(address, grant.tensor().dtype(), grant.tensor().shape());
            let tensor = tensor.map_err(|error| Failed::text(chain(&error)))?;
            chip_args = chip_args.with_tensor(granted(tensor, grant));
            if grant.may_write() {
                outputs.push((grant, runs, address));
            }
        }
        chip_args.scalars.extend_from_slice(args.scalars());
        self.launch(slot, chip_args, accept)?;
        outputs
            .iter()
            .try_for_each(|(grant, runs, address)| self.copy_out(grant, runs, *address))
    }

    /// Acceptance is reported at the real launch.
    fn launch(
        &mut self,
        slot: CallableSlot,
        args: ChipArgs,
        accept: &mut dyn FnMut(),
    ) -> Result<(), Failed> {
        self.traffic.runs += 1;
        let run = self.chip.prepare(slot, args)?;
        if let Err(error) = self.chip.launch(run) {
            self.chip.finalize(run)?;
            return Err(error.into());
        }
        accept();
        while self.chip.poll(run)? == Progress::Running {}
        self.chip.finalize(run)?;
        Ok(())
    }

    /// A device tensor by this worker's own table.
    fn resolve(&self, tensor: &Tensor, owner: WorkerRef) -> Result<DeviceTensor, Failed> {
        let id = tensor.buffer();
        let entry =
            u32::try_from(id.id).map_err(|_| Failed::text(format!("{id} is no device memory")))?;
        let name = DeviceName {
            incarnation: id.owner,
            entry,
            generation: id.generation,
        };
        let ptr = self.named.get(&name);
        let ptr = ptr.ok_or_else(|| Failed::text(format!("{id} is not alive on this device")))?;
        let span = ptr.span(tensor.backing_bytes());
        let ask = Ask::on(Operation::Argument, owner.id);
        let address = self
            .table
            .check(ask, span)
            .map_err(|error| Failed::text(chain(&error)))?;
        Ok(DeviceTensor::new(DeviceAddress(address), *tensor))
    }

    fn copy_in(
        &mut self,
        grant: &Grant,
        runs: &Runs,
        address: DeviceAddress,
    ) -> Result<(), Failed> {
        for (idx, &start) in runs.starts.iter().enumerate() {
            let to = DeviceAddress(address.0 + (idx * runs.run_bytes) as u64);
            let chip = &mut *self.chip;
            let copied = grant.with_bytes(start, runs.run_bytes, |bytes| chip.copy_to(to, bytes));
            self.traffic.copied_to(runs.run_bytes);
            copied.ok_or_else(|| Failed::text("the argument is not mapped"))??;
        }
        Ok(())
    }

    fn copy_out(
        &mut self,
        grant: &Grant,
        runs: &Runs,
        address: DeviceAddress,
    ) -> Result<(), Failed> {
        for (idx, &start) in runs.starts.iter().enumerate() {
            let from = DeviceAddress(address.0 + (idx * runs.run_bytes) as u64);
            let chip = &mut *self.chip;
            let copied =
                grant.with_bytes_mut(start, runs.run_bytes, |bytes| chip.copy_from(bytes, from));
            self.traffic.copied_from(runs.run_bytes);
            copied.ok_or_else(|| Failed::text("the argument is not mapped for writing"))??;
        }
        Ok(())
    }
}

/// Device memory for arguments of tasks, kept by size, since a graph's tasks use the same sizes again and again.
#[derive(Default)]
struct Staging {
    free: HashMap<u64, Vec<DeviceAddress>>,
    kept_bytes: u64,
}

impl Staging {
    fn take(&mut self, chip: &mut dyn Chip, bytes: u64) -> Result<DeviceAddress, Failed> {
        if let Some(address) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            self.kept_bytes -= bytes;
            return Ok(address);
        }
        match chip.malloc(bytes) {
            Ok(address) => Ok(address),
            // What is kept may be what is missing.
            Err(_) if self.kept_bytes > 0 => {
                self.drop_kept(chip);
                Ok(chip.malloc(bytes)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn give_back(&mut self, chip: &mut dyn Chip, bytes: u64, address: DeviceAddress) {
        if self.kept_bytes + bytes <= STAGING_KEPT_BYTES {
            self.kept_bytes += bytes;
            self.free.entry(bytes).or_default().push(address);
        } else if let Err(error) = chip.free(address) {
            tracing::error!(%error, "staging memory is leaked");
        }
    }

    fn drop_kept(&mut self, chip: &mut dyn Chip) {
        for address in std::mem::take(&mut self.free).into_values().flatten() {
            if let Err(error) = chip.free(address) {
                tracing::error!(%error, "staging memory is leaked");
            }
        }
        self.kept_bytes = 0;
    }
}
