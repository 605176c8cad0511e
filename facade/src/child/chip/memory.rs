//! Device memory of a chip worker: allocations, copies, windows of domains, and how much there is.
//!
//! Each request is checked by this worker's own table, whatever the parent believes, before the device is called.

use std::os::fd::AsFd;

use device::{DeviceAddress, DeviceError, Window, WindowSide};
use hashbrown::HashSet;
use provenance::{Ask, DevicePtr, Operation, Revoked, Role, WorkerRef};

use super::{Failed, Opened};
use crate::buffer::BufferCore;
use crate::control::{ControlReply, ControlRequest, DeviceName, WireWindow, chain};
use crate::memory_report::DeviceUsage;

/// Calls of the device, counted.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) runs: u64,
    memory_calls: u64,
    copies_to: u64,
    bytes_to: u64,
    copies_from: u64,
    bytes_from: u64,
}

impl Traffic {
    pub(super) fn copied_to(&mut self, bytes: usize) {
        self.copies_to += 1;
        self.bytes_to += bytes as u64;
    }

    pub(super) fn copied_from(&mut self, bytes: usize) {
        self.copies_from += 1;
        self.bytes_from += bytes as u64;
    }
}

impl Opened {
    /// Serves a request about memory; the buffer that it names is mapped already.
    pub(super) fn memory(
        &mut self,
        request: &ControlRequest,
        buffer: Option<&BufferCore>,
        owner: WorkerRef,
    ) -> Result<ControlReply, Failed> {
        match request {
            ControlRequest::Malloc { name, bytes } => self.malloc(*name, *bytes, owner),
            ControlRequest::Free { name } => Ok(self.free(name, owner)?),
            ControlRequest::CopyTo {
                name,
                offset,
                bytes,
                ..
            } => self.copy_in_whole(name, *offset, *bytes, buffer, owner),
            ControlRequest::CopyFrom {
                name,
                offset,
                bytes,
                ..
            } => self.copy_out_whole(name, *offset, *bytes, buffer, owner),
            ControlRequest::MapDomain { windows, .. } => self.map_domain(windows, buffer, owner),
            ControlRequest::UnmapDomain { windows } => Ok(self.unmap_domain(windows, owner)?),
            ControlRequest::MemoryReport => Ok(ControlReply::Memory(self.usage()?)),
            _ => Err(Failed::text("no request about device memory")),
        }
    }

    fn malloc(
        &mut self,
        name: DeviceName,
        bytes: u64,
        owner: WorkerRef,
    ) -> Result<ControlReply, Failed> {
        if let Some(refused) = self.over_budget(bytes)? {
            return Ok(refused);
        }
        self.traffic.memory_calls += 1;
        let address = match self.chip.malloc(bytes) {
            Ok(address) => address,
            Err(error) => return self.not_allocated(bytes, error),
        };
        match self.record(name, address, bytes, Role::Allocation, owner) {
            Ok(ptr) => {
                self.named.insert(name, ptr);
                Ok(ControlReply::Address(address.0))
            }
            Err(reason) => {
                self.traffic.memory_calls += 1;
                self.chip.free(address)?;
                Err(reason.into())
            }
        }
    }

    /// Out of memory is an answer, everything else a failure.
    fn not_allocated(&self, wanted: u64, error: DeviceError) -> Result<ControlReply, Failed> {
        if !matches!(error, DeviceError::OutOfMemory { .. }) {
            return Err(error.into());
        }
        let usage = self.usage()?;
        Ok(ControlReply::OutOfMemory { wanted, usage })
    }

    fn record(
        &self,
        name: DeviceName,
        address: DeviceAddress,
        bytes: u64,
        role: Role,
        owner: WorkerRef,
    ) -> Result<DevicePtr, String> {
        if name.incarnation != owner.incarnation {
            return Err("the memory is named for another life of this worker".to_owned());
        }
        // Also the name of what a window shows, which no table here knows.
        if self.named.contains_key(&name) {
            return Err("the name is that of other memory here".to_owned());
        }
        // In an entry of this table's own: the parent's may be a new name's while the old one's window is still mapped
        // here, because it showed memory of a member that has died.
        let recorded = match role {
            Role::Allocation => self.table.record(owner, address.0, bytes),
            Role::Window => self.table.record_window(owner, address.0, bytes, None),
        };
        recorded.map_err(|error| chain(&error))
    }

    fn free(&mut self, name: &DeviceName, owner: WorkerRef) -> Result<ControlReply, String> {
        let ptr = self.known(name)?;
        let (table, chip, traffic) = (&self.table, &mut *self.chip, &mut self.traffic);
        let ask = Ask::on(Operation::Free, owner.id);
        let freed = table.free(ask, ptr, |address| {
            traffic.memory_calls += 1;
            chip.free(DeviceAddress(address))
        });
        if !matches!(freed, Err(provenance::FreeError::Refused(_))) {
            self.named.remove(name);
        }
        freed
            .map(|()| ControlReply::Done)
            .map_err(|error| chain(&error))
    }

    fn known(&self, name: &DeviceName) -> Result<DevicePtr, String> {
        let ptr = self.named.get(name).copied();
        ptr.ok_or_else(|| {
            let DeviceName {
                incarnation,
                entry,
                generation,
            } = name;
            format!(
                "no memory #{entry}.{generation} of life {incarnation:x} is alive on this device"
            )
        })
    }

    fn copy_in_whole(
        &mut self,
        name: &DeviceName,
        offset: u64,
        bytes: u64,
        buffer: Option<&BufferCore>,
        owner: WorkerRef,
    ) -> Result<ControlReply, Failed> {
        let (buffer, len) = whole(buffer, bytes)?;
        let address = self.checked(name, offset, bytes, Operation::CopyTo, owner)?;
        let mut data = vec![0; len];
        let read = buffer.segment().read_at(0, &mut data);
        read.map_err(|error| chain(&error))?;
        self.traffic.copied_to(len);
        self.chip.copy_to(address, &data)?;
        Ok(ControlReply::Done)
    }

    fn copy_out_whole(
        &mut self,
        name: &DeviceName,
        offset: u64,
        bytes: u64,
        buffer: Option<&BufferCore>,
        owner: WorkerRef,
    ) -> Result<ControlReply, Failed> {
        let (buffer, len) = whole(buffer, bytes)?;
        let address = self.checked(name, offset, bytes, Operation::CopyFrom, owner)?;
        let mut data = vec![0; len];
        self.traffic.copied_from(len);
        self.chip.copy_from(&mut data, address)?;
        let written = buffer.segment().write_at(0, &data);
        written.map_err(|error| chain(&error))?;
        Ok(ControlReply::Done)
    }

    fn checked(
        &self,
        name: &DeviceName,
        offset: u64,
        bytes: u64,
        operation: Operation,
        owner: WorkerRef,
    ) -> Result<DeviceAddress, String> {
        let ptr = self.known(name)?;
        let span = ptr.plus(offset).map_err(|error| chain(&error))?.span(bytes);
        let address = self.table.check(Ask::on(operation, owner.id), span);
        address.map(DeviceAddress).map_err(|error| chain(&error))
    }

    /// Maps all windows, or none.
    fn map_domain(
        &mut self,
        windows: &[WireWindow],
        buffer: Option<&BufferCore>,
        owner: WorkerRef,
    ) -> Result<ControlReply, Failed> {
        let buffer = buffer.ok_or_else(|| Failed::text("the request names no buffer"))?;
        self.check_names(windows)?;
        let home = windows.iter().map(home_bytes).fold(0, u64::saturating_add);
        if let Some(refused) = self.over_budget(home)? {
            return Ok(refused);
        }
        let mut addresses = Vec::with_capacity(windows.len());
        for (done, window) in windows.iter().enumerate() {
            match self.map_window(window, buffer, owner) {
                Ok(address) => addresses.push(address.0),
                Err(error) => {
                    self.unmap_domain(&windows[..done], owner)?;
                    return match error {
                        MapError::Device(error) => self.not_allocated(window.bytes, error),
                        MapError::Name(reason) => Err(reason.into()),
                    };
                }
            }
        }
        Ok(ControlReply::Addresses(addresses))
    }

    /// Every window and what it shows has a name of its own: one that is in use already would shadow memory.
    fn check_names(&self, windows: &[WireWindow]) -> Result<(), String> {
        let mut seen = HashSet::with_capacity(2 * windows.len());
        let mut names = windows.iter().flat_map(|it| [it.name, it.root]);
        let taken = names.find(|name| self.named.contains_key(name) || !seen.insert(*name));
        match taken {
            None => Ok(()),
            Some(name) => Err(format!(
                "the name #{}.{} is that of other memory here",
                name.entry, name.generation
            )),
        }
    }

    fn map_window(
        &mut self,
        window: &WireWindow,
        buffer: &BufferCore,
        owner: WorkerRef,
    ) -> Result<DeviceAddress, MapError> {
        let side = if window.is_home {
            WindowSide::Home
        } else {
            WindowSide::Peer
        };
        self.traffic.memory_calls += 1;
        let mapped = self.chip.map_window(&Window {
            memory: buffer.segment().as_fd(),
            offset: window.offset,
            bytes: window.bytes,
            side,
        });
        let address = mapped.map_err(MapError::Device)?;
        match self.record(window.name, address, window.bytes, Role::Window, owner) {
            Ok(ptr) => {
                self.named.insert(window.name, ptr);
                self.named.insert(window.root, ptr);
                self.home_window_bytes += home_bytes(window);
                Ok(address)
            }
            Err(reason) => {
                self.traffic.memory_calls += 1;
                self.chip.unmap_window(address).map_err(MapError::Device)?;
                Err(MapError::Name(reason))
            }
        }
    }

    /// Unmaps windows, last first. One that fails does not keep the others.
    fn unmap_domain(
        &mut self,
        windows: &[WireWindow],
        owner: WorkerRef,
    ) -> Result<ControlReply, String> {
        let mut first = None;
        for window in windows.iter().rev() {
            if let Err(reason) = self.unmap_window(window, owner) {
                first.get_or_insert(reason);
            }
        }
        match first {
            None => Ok(ControlReply::Done),
            Some(reason) => Err(reason),
        }
    }

    fn unmap_window(&mut self, window: &WireWindow, owner: WorkerRef) -> Result<(), String> {
        let ptr = self.known(&window.name)?;
        if self.known(&window.root)? != ptr {
            return Err("the window shows other memory than the request says".to_owned());
        }
        let ask = Ask::on(Operation::Release, owner.id);
        let revoked: Revoked = self
            .table
            .revoke(ask, ptr)
            .map_err(|refused| chain(&refused))?;
        self.named.remove(&window.name);
        self.named.remove(&window.root);
        self.traffic.memory_calls += 1;
        let unmapped = self.chip.unmap_window(DeviceAddress(revoked.address()));
        unmapped.map_err(|error| chain(&error))?;
        revoked.freed();
        self.home_window_bytes -= home_bytes(window).min(self.home_window_bytes);
        Ok(())
    }

    /// The answer, when so many more bytes are more than the budget has left.
    fn over_budget(&self, wanted: u64) -> Result<Option<ControlReply>, String> {
        if self.budget.is_none() {
            return Ok(None);
        }
        let usage = self.usage()?;
        let fits = wanted <= usage.free_bytes;
        Ok((!fits).then_some(ControlReply::OutOfMemory { wanted, usage }))
    }

    /// How the memory is used: by the device's own account, within the budget.
    fn usage(&self) -> Result<DeviceUsage, String> {
        let device = self.chip.memory().map_err(|error| chain(&error))?;
        let stats = self.table.stats();
        let (total, used) = match self.budget {
            Some(budget) => {
                // What leaked is not there for anybody else.
                let held = stats.bytes + stats.leaked_bytes;
                (budget, held + self.home_window_bytes)
            }
            None => (device.total_bytes, device.used_bytes),
        };
        let free = total.saturating_sub(used).min(device.free_bytes);
        let traffic = &self.traffic;
        Ok(DeviceUsage {
            total_bytes: total,
            used_bytes: used,
            free_bytes: free,
            largest_block_bytes: device.largest_block_bytes.min(free),
            allocations: stats.live,
            windows: stats.windows,
            leaked: stats.leaked,
            copies_to: traffic.copies_to,
            copied_to_bytes: traffic.bytes_to,
            copies_from: traffic.copies_from,
            copied_from_bytes: traffic.bytes_from,
            device_calls: traffic.memory_calls
                + traffic.copies_to
                + traffic.copies_from
                + traffic.runs,
        })
    }
}

/// Why a window was not mapped.
enum MapError {
    Device(DeviceError),
    Name(String),
}

/// What a window takes of this chip's own memory.
fn home_bytes(window: &WireWindow) -> u64 {
    if window.is_home { window.bytes } else { 0 }
}

/// The buffer of a copy, and the length, when the buffer holds as much.
fn whole(buffer: Option<&BufferCore>, bytes: u64) -> Result<(&BufferCore, usize), String> {
    let buffer = buffer.ok_or("the request names no buffer")?;
    if bytes > buffer.bytes() {
        return Err(format!("{bytes} bytes are more than {} holds", buffer.id()));
    }
    usize::try_from(bytes)
        .map(|len| (buffer, len))
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
