//! Settings of the processes of one worker: its own, and those of its chip and sub workers.

use procfork::Settings;
use serde::{Deserialize, Serialize};

use crate::error::ConfigError;

/// Which leaf: the settings of all of one kind, and what single ones have in front of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Leaves {
    each: Settings,
    single: Vec<(u32, Settings)>,
}

impl Leaves {
    fn of(&self, index: u32) -> Settings {
        let single = self.single.iter().filter(|(of, _)| *of == index);
        single.fold(self.each.clone(), |all, (_, one)| all.overridden_by(one))
    }

    fn check(&self, kind: &'static str, name: &str, n_leaves: u32) -> Result<(), ConfigError> {
        check_one(name, kind, &self.each)?;
        for (index, settings) in &self.single {
            if *index >= n_leaves {
                return Err(ConfigError::NoSuchChild {
                    name: name.to_owned(),
                    kind,
                    index: *index,
                    n_children: n_leaves,
                });
            }
            check_one(name, &format!("{kind} {index}"), settings)?;
        }
        Ok(())
    }
}

/// The settings of a worker and its leaves, as the builder collected them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessSettings {
    pub(crate) own: Settings,
    chips: Leaves,
    subs: Leaves,
}

impl ProcessSettings {
    pub(crate) fn each_chip(&mut self, settings: Settings) {
        self.chips.each = self.chips.each.overridden_by(&settings);
    }

    pub(crate) fn chip(&mut self, index: u32, settings: Settings) {
        self.chips.single.push((index, settings));
    }

    pub(crate) fn each_sub(&mut self, settings: Settings) {
        self.subs.each = self.subs.each.overridden_by(&settings);
    }

    pub(crate) fn sub(&mut self, index: u32, settings: Settings) {
        self.subs.single.push((index, settings));
    }

    pub(crate) fn of_chip(&self, index: u32) -> Settings {
        self.chips.of(index)
    }

    pub(crate) fn of_sub(&self, index: u32) -> Settings {
        self.subs.of(index)
    }

    pub(crate) fn check(&self, name: &str, n_chips: u32, n_subs: u32) -> Result<(), ConfigError> {
        check_one(name, "worker", &self.own)?;
        self.chips.check("chip", name, n_chips)?;
        self.subs.check("sub worker", name, n_subs)
    }
}

fn check_one(name: &str, of: &str, settings: &Settings) -> Result<(), ConfigError> {
    settings.check().map_err(|error| ConfigError::BadSetting {
        name: name.to_owned(),
        of: of.to_owned(),
        reason: error.to_string(),
    })
}
