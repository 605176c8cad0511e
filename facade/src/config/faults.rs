//! Faults that simulated chips are told to have, so that a program can be tried on a device that breaks.

use device::{Platform, SimFault};

use super::{NodeSpec, WorkerBuilder};
use crate::error::ConfigError;

impl WorkerBuilder {
    /// Makes the simulated chip of `device`, one of this worker's own, have this fault. Repeatable. It happens once in each
    /// life of the chip worker: one that is started again has it again.
    ///
    /// What follows is what follows on hardware: a task that stops with a hardware fault or hangs leaves the device unusable,
    /// and its error says so with [`FaultKind::Unusable`](crate::FaultKind::Unusable).
    ///
    /// ```
    /// use facade::{SimFault, TaskFault, Worker};
    ///
    /// # fn main() -> Result<(), facade::Error> {
    /// let fault = SimFault::Task { run: 0, task: 0, kind: TaskFault::Hardware };
    /// let node = Worker::node().chips(2).sim_fault(1, fault).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sim_fault(mut self, device: u32, fault: SimFault) -> Self {
        self.spec.faults.push((device, fault));
        self
    }
}

impl NodeSpec {
    /// The faults of the chip of `device`.
    pub(crate) fn faults_of(&self, device: u32) -> Vec<SimFault> {
        let of_it = self.faults.iter().filter(|(of, _)| *of == device);
        of_it.map(|(_, fault)| *fault).collect()
    }

    /// Refuses faults that could never happen.
    pub(super) fn check_faults(&self, name: &str) -> Result<(), ConfigError> {
        let Some((device, _)) = self.faults.first() else {
            return Ok(());
        };
        if !matches!(self.platform, Platform::Sim(_)) {
            return Err(ConfigError::FaultOnHardware {
                name: name.to_owned(),
                device: *device,
                platform: self.platform.to_string(),
            });
        }
        let mut devices = self.faults.iter().map(|(device, _)| *device);
        match devices.find(|device| !self.devices.contains(device)) {
            Some(device) => Err(ConfigError::FaultElsewhere {
                name: name.to_owned(),
                device,
                devices: self.devices.clone(),
            }),
            None => Ok(()),
        }
    }
}
