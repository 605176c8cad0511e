//! The allocation of a domain: every member has mapped every window, or nothing is held.
//!
//! 1. Names are set aside for all windows, so that each member can be told all of them at once.
//! 2. One shared object for all windows is created, zeroed by the kernel.
//! 3. Every member maps all windows of it. Until all have answered nobody has a handle.
//! 4. The windows enter the table; only now a handle of them is worth something.
//!
//! When a step fails, the members that had mapped unmap again, and the names are given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};

use provenance::{Reservation, WorkerRef};

use super::layout::Layout;
use super::{Domain, DomainCore, LIVE, Member, NamedBuffer};
use crate::buffer::BufferCore;
use crate::control::{ControlReply, ControlRequest, DeviceName, WireWindow};
use crate::desk::Desk;
use crate::engine::Job;
use crate::error::{BufferError, DomainError, Error, Name};
use crate::wire::WireBuffer;

/// The names of all windows of a domain that does not exist yet.
struct Names {
    roots: Vec<Reservation>,
    /// By viewer, then by rank.
    windows: Vec<Vec<Reservation>>,
}

impl Desk<'_> {
    pub(crate) fn allocate_domain(
        &self,
        name: &str,
        workers: &[u32],
        window_bytes: u64,
        buffers: &[NamedBuffer],
    ) -> Result<Domain, Error> {
        self.check_members(name, workers)?;
        let layout = Layout::new(name, window_bytes, buffers)?;
        let members: Vec<WorkerRef> = {
            let core = self.engine.core();
            workers.iter().map(|&id| core.life(id as usize)).collect()
        };
        let names = self.reserve(&members)?;
        let stride = device::window_stride(window_bytes);
        let segment = self.shared_object(stride, members.len())?;
        let stride = stride.unwrap_or(u64::MAX);
        let wanted: Vec<Vec<WireWindow>> = (0..members.len())
            .map(|viewer| names.wire(&layout, viewer, stride))
            .collect();
        let addresses = self.map(&members, &wanted, &segment)?;
        let members = self.enter(&members, names, &addresses, window_bytes);
        let members = members.inspect_err(|_| self.unmap(workers, &wanted))?;
        let core = Arc::new(DomainCore {
            name: Name::from(name),
            layout,
            members,
            stride,
            engine: self.engine.weak(),
            retained: AtomicBool::new(false),
            state: AtomicU8::new(LIVE),
            owed: Arc::default(),
        });
        Ok(Domain { core })
    }

    fn check_members(&self, name: &str, workers: &[u32]) -> Result<(), Error> {
        if workers.is_empty() {
            let domain = name.to_owned();
            return Err(DomainError::NoMembers { domain }.into());
        }
        for (idx, &chip) in workers.iter().enumerate() {
            self.need_chip("allocate a domain", chip)?;
            if workers[..idx].contains(&chip) {
                let domain = name.to_owned();
                return Err(DomainError::MemberTwice { domain, chip }.into());
            }
        }
        Ok(())
    }

    /// Names for everything that will exist.
    fn reserve(&self, members: &[WorkerRef]) -> Result<Names, Error> {
        let one = |&worker: &WorkerRef| {
            let reserved = self.table().reserve(worker);
            reserved.map_err(|error| self.not_alive(worker.id, "allocate a domain", &error))
        };
        let all = |viewer| {
            members
                .iter()
                .map(|_| one(viewer))
                .collect::<Result<_, _>>()
        };
        Ok(Names {
            roots: members.iter().map(one).collect::<Result<_, Error>>()?,
            windows: members.iter().map(all).collect::<Result<_, Error>>()?,
        })
    }

    fn shared_object(&self, stride: Option<u64>, ranks: usize) -> Result<Arc<BufferCore>, Error> {
        let bytes = stride.and_then(|stride| stride.checked_mul(ranks as u64));
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let n_elements = usize::MAX;
        let bytes = bytes.ok_or(BufferError::Size {
            n_elements,
            element_bytes: 1,
        })?;
        Ok(self.engine.create_buffer(bytes)?)
    }

    /// Has every member map all windows; where they begin, by viewer and rank.
    fn map(
        &self,
        members: &[WorkerRef],
        wanted: &[Vec<WireWindow>],
        segment: &Arc<BufferCore>,
    ) -> Result<Vec<Vec<u64>>, Error> {
        let buffer = WireBuffer::new(segment.id(), segment.bytes());
        let jobs: Vec<Arc<Job>> = members
            .iter()
            .zip(wanted)
            .map(|(member, windows)| {
                let windows = windows.clone();
                let request = ControlRequest::MapDomain { windows, buffer };
                Job::on_buffer(member.id as usize, request, segment)
            })
            .collect();
        self.ask_all(&jobs);
        let answers: Vec<Result<Vec<u64>, Error>> =
            jobs.iter().map(|job| self.addresses(job)).collect();
        if answers.iter().all(Result::is_ok) {
            return answers.into_iter().collect();
        }
        let done = members.iter().zip(wanted).zip(&answers);
        let done = done.filter(|(_, answer)| answer.is_ok());
        let (workers, windows): (Vec<u32>, Vec<Vec<WireWindow>>) = done
            .map(|((member, windows), _)| (member.id, windows.clone()))
            .unzip();
        self.unmap(&workers, &windows);
        answers.into_iter().collect()
    }

    fn addresses(&self, job: &Job) -> Result<Vec<u64>, Error> {
        match self.answer(job)? {
            ControlReply::Addresses(addresses) => Ok(addresses),
            reply => Err(self.unexpected(job.line as u32, "map a domain", &reply)),
        }
    }

    /// Takes back what some members have mapped.
    fn unmap(&self, workers: &[u32], windows: &[Vec<WireWindow>]) {
        let jobs: Vec<Arc<Job>> = workers
            .iter()
            .zip(windows)
            .map(|(&worker, windows)| {
                let windows = windows.clone();
                Job::new(worker as usize, ControlRequest::UnmapDomain { windows })
            })
            .collect();
        self.ask_all(&jobs);
        for error in jobs.iter().filter_map(|job| self.answer(job).err()) {
            tracing::error!(%error, "windows of a domain that was not allocated are leaked");
        }
    }

    /// Enters what was mapped into the table. A failure, because a member died meanwhile, leaves nothing there that is
    /// worth anything: what had entered is struck out again.
    fn enter(
        &self,
        members: &[WorkerRef],
        names: Names,
        addresses: &[Vec<u64>],
        bytes: u64,
    ) -> Result<Vec<Member>, Error> {
        let Names { roots, windows } = names;
        let failed =
            |worker: WorkerRef| move |error| self.not_alive(worker.id, "allocate a domain", &error);
        let mut entered = Vec::with_capacity(members.len());
        for (rank, root) in roots.into_iter().enumerate() {
            let root = root.record(addresses[rank][rank], bytes);
            let root = root.map_err(failed(members[rank]));
            match root {
                Ok(root) => entered.push(Member {
                    worker: members[rank],
                    root,
                    windows: Vec::new(),
                    leaked: AtomicBool::new(false),
                }),
                Err(error) => return Err(self.strike(&entered, error)),
            }
        }
        for (viewer, names) in windows.into_iter().enumerate() {
            for (rank, name) in names.into_iter().enumerate() {
                let behind = Some(entered[rank].root);
                let window = name.record_window(addresses[viewer][rank], bytes, behind);
                match window.map_err(failed(members[viewer])) {
                    Ok(window) => entered[viewer].windows.push(window),
                    Err(error) => return Err(self.strike(&entered, error)),
                }
            }
        }
        Ok(entered)
    }

    /// Strikes out what had entered, windows first.
    fn strike(&self, entered: &[Member], error: Error) -> Error {
        use provenance::{Ask, Operation, Revoked};
        let windows = entered.iter().flat_map(|member| &member.windows);
        let windows = windows.map(|&window| (Operation::Release, window));
        let roots = entered.iter().map(|member| (Operation::Free, member.root));
        for (operation, ptr) in windows.chain(roots) {
            // An error says that it was lost with its worker. Nobody has had the handle, so nobody uses it.
            let struck = self.table().revoke(Ask::owner(operation), ptr);
            struck.into_iter().for_each(Revoked::freed);
        }
        error
    }
}

impl Names {
    fn wire(&self, layout: &Layout, viewer: usize, stride: u64) -> Vec<WireWindow> {
        let names = self.windows[viewer].iter().zip(&self.roots).enumerate();
        names
            .map(|(rank, (name, root))| {
                let (name, root) = (
                    DeviceName::of(&name.ticket()),
                    DeviceName::of(&root.ticket()),
                );
                layout.wire_window(name, root, rank, viewer == rank, stride)
            })
            .collect()
    }
}
