//! The devices that cases take and give back.

/// Devices by number. A broken one is never given out again.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    free: Vec<u32>,
    taken: Vec<u32>,
    broken: Vec<u32>,
}

impl Pool {
    pub(crate) fn new(devices: &[u32]) -> Self {
        let mut free = devices.to_vec();
        free.sort_unstable();
        Self {
            free,
            taken: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// So many devices, those with the lowest numbers, if they are free.
    pub(crate) fn take(&mut self, count: u32) -> Option<Vec<u32>> {
        let count = count as usize;
        if self.free.len() < count {
            return None;
        }
        let devices: Vec<u32> = self.free.drain(..count).collect();
        self.taken.extend(&devices);
        Some(devices)
    }

    /// Gives devices back; those that are broken stay out.
    pub(crate) fn give_back(&mut self, devices: &[u32]) {
        self.taken.retain(|device| !devices.contains(device));
        let usable = devices
            .iter()
            .filter(|device| !self.broken.contains(device));
        self.free.extend(usable);
        self.free.sort_unstable();
    }

    /// Takes a device out for good.
    pub(crate) fn break_device(&mut self, device: u32) {
        self.free.retain(|&free| free != device);
        if !self.broken.contains(&device) {
            self.broken.push(device);
        }
    }

    /// Whether so many could ever be free at once.
    pub(crate) fn could_fit(&self, count: u32) -> bool {
        self.usable() >= count as usize
    }

    /// How many are not broken.
    pub(crate) fn usable(&self) -> usize {
        let taken = self
            .taken
            .iter()
            .filter(|device| !self.broken.contains(device));
        self.free.len() + taken.count()
    }

    pub(crate) fn broken(&self) -> &[u32] {
        &self.broken
    }
}

#[cfg(test)]
mod tests;
