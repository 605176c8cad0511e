//! What a process may use: CPUs, scheduling weight, environment, resource limits.
//!
//! A child applies the settings itself, as its first act: then they hold for everything that it does and for all of its
//! children, and a setting that the kernel refuses is the child's own error, with its name. [`Settings::effective`] reads
//! back from the kernel what holds in the end.

use std::ffi::CString;
use std::fmt;
use std::io;

use crate::sys::settings as sys;
use crate::threads::{self, NotAlone, ThreadName};

/// Settings of one process. What is not set stays as the parent has it.
///
/// ```
/// use procfork::{Resource, Settings};
///
/// let settings = Settings::new().cpus([0]).nice(5).env("OMP_NUM_THREADS", "1").limit(Resource::Core, 0);
/// assert_eq!(settings.to_string(), "cpus 0, nice 5, OMP_NUM_THREADS=1, core 0");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[must_use]
pub struct Settings {
    cpus: Option<Vec<u32>>,
    nice: Option<i32>,
    env: Vec<(String, String)>,
    limits: Vec<(Resource, u64)>,
}

/// A resource whose use the kernel limits, per process. See getrlimit(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Resource {
    /// Bytes of address space, mappings included (`RLIMIT_AS`).
    AddressSpace,
    /// Bytes of a core dump; 0 for none (`RLIMIT_CORE`).
    Core,
    /// Seconds of CPU time; a process that uses more is ended by `SIGXCPU` (`RLIMIT_CPU`).
    Cpu,
    /// Bytes of the heap and private writable mappings (`RLIMIT_DATA`).
    Data,
    /// Bytes of a file that is written (`RLIMIT_FSIZE`).
    FileSize,
    /// Bytes of memory that is locked into RAM (`RLIMIT_MEMLOCK`).
    LockedMemory,
    /// Descriptors, plus one (`RLIMIT_NOFILE`).
    OpenFiles,
    /// Processes and threads of the user (`RLIMIT_NPROC`).
    Processes,
    /// Bytes of the stack of threads started later (`RLIMIT_STACK`).
    Stack,
}

/// Why settings were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value that no process can have.
    #[error("set {setting}: {reason}")]
    Invalid {
        /// Which setting, with its value.
        setting: String,
        /// What is allowed.
        reason: &'static str,
    },
    /// The kernel refused it.
    #[error("set {setting}: {cause}; {}", advice(cause))]
    Refused {
        /// Which setting, with its value.
        setting: String,
        /// The kernel's answer, which is in the text; hence no `source()`.
        cause: io::Error,
    },
    /// The environment is shared by all threads, which may read it at any time.
    #[error(
        "set {setting}: this process has other threads ({}); set the environment before they start",
        list(threads)
    )]
    Threads {
        /// The first variable.
        setting: String,
        /// The threads beside the calling one; none where `/proc` could not be read.
        threads: Vec<ThreadName>,
    },
}

fn advice(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "a nice value can only be raised and a limit only be lowered without privileges"
        }
        Some(libc::EINVAL) => "look whether the machine has it and this process may use it",
        _ => "look at the limits of the parent process",
    }
}

fn list(threads: &[ThreadName]) -> String {
    let names: Vec<String> = threads.iter().map(ToString::to_string).collect();
    names.join(", ")
}

impl Settings {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restricts the process to these CPUs, numbered as the kernel does. See sched_setaffinity(2).
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = u32>) -> Self {
        // One more than possible is enough to be refused; a mistyped range must not allocate gigabytes.
        let mut cpus: Vec<u32> = cpus.into_iter().take(CPUS_MAX as usize + 1).collect();
        cpus.sort_unstable();
        cpus.dedup();
        self.cpus = Some(cpus);
        self
    }

    /// Sets the nice value, from -20 (served first) to 19 (served last). See setpriority(2).
    pub fn nice(mut self, nice: i32) -> Self {
        self.nice = Some(nice);
        self
    }

    /// Sets a variable of the environment; a later value of one name replaces an earlier one.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.env.retain(|(set, _)| *set != name);
        self.env.push((name, value.into()));
        self
    }

    /// Limits a resource, in its unit: soft and hard limit at once, so that the process cannot raise it again.
    pub fn limit(mut self, resource: Resource, value: u64) -> Self {
        self.limits.retain(|(set, _)| *set != resource);
        self.limits.push((resource, value));
        self
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These settings, with those of `over` in front of them.
    pub fn overridden_by(&self, over: &Self) -> Self {
        let mut merged = self.clone();
        merged.cpus = over.cpus.clone().or(merged.cpus);
        merged.nice = over.nice.or(merged.nice);
        for (name, value) in &over.env {
            merged = merged.env(name, value);
        }
        for (resource, value) in &over.limits {
            merged = merged.limit(*resource, *value);
        }
        merged
    }

    /// Refuses values that no process of any machine can have. Touches nothing.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Invalid`].
    pub fn check(&self) -> Result<(), SettingsError> {
        if let Some(cpus) = &self.cpus {
            let invalid = cpus.is_empty() || cpus.iter().any(|cpu| *cpu >= CPUS_MAX);
            let reason = "give at least one CPU, each below 1024";
            refuse(invalid, || cpu_text(cpus), reason)?;
        }
        if let Some(nice) = self.nice {
            let reason = "nice values go from -20 to 19";
            refuse(
                !(-20..=19).contains(&nice),
                || format!("nice {nice}"),
                reason,
            )?;
        }
        for (name, value) in &self.env {
            let invalid = name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
            let reason = "a name is not empty and has no `=`, and neither side has a zero byte";
            refuse(invalid, || format!("{name}={value}"), reason)?;
        }
        Ok(())
    }

    /// Applies the settings to the calling process, in the order CPUs, nice value, limits, environment.
    ///
    /// CPUs and the nice value are those of the calling thread and of what it starts later: call this before threads are
    /// started. The first setting that is refused ends it; those before it stay.
    ///
    /// # Errors
    ///
    /// [`SettingsError`], with the setting.
    pub fn apply(&self) -> Result<(), SettingsError> {
        self.check()?;
        if let Some(cpus) = &self.cpus {
            sys::set_cpus(cpus).map_err(refused(cpu_text(cpus)))?;
        }
        if let Some(nice) = self.nice {
            sys::set_nice(nice).map_err(refused(format!("nice {nice}")))?;
        }
        for (resource, value) in &self.limits {
            let setting = format!("{} {value}", resource.noun());
            sys::set_limit(resource.number(), *value).map_err(refused(setting))?;
        }
        self.apply_env()
    }

    fn apply_env(&self) -> Result<(), SettingsError> {
        let Some((name, value)) = self.env.first() else {
            return Ok(());
        };
        let alone = threads::alone().map_err(|error| SettingsError::Threads {
            setting: format!("{name}={value}"),
            threads: match error {
                NotAlone::Others(threads) => threads,
                NotAlone::Unknown(_) => Vec::new(),
            },
        })?;
        for (name, value) in &self.env {
            let c_string = |text: &str| CString::new(text).expect("checked for zero bytes");
            sys::set_variable(&alone, &c_string(name), &c_string(value))
                .map_err(refused(format!("{name}={value}")))?;
        }
        Ok(())
    }

    /// What holds in the calling process, for the settings that are set here: read back from the kernel and from the
    /// environment.
    ///
    /// # Errors
    ///
    /// A value cannot be read.
    pub fn effective(&self) -> io::Result<Self> {
        let cpus = self.cpus.as_ref().map(|_| sys::cpus()).transpose()?;
        let nice = self.nice.map(|_| sys::nice()).transpose()?;
        let env = self.env.iter().filter_map(|(name, _)| {
            let value = std::env::var_os(name)?;
            Some((name.clone(), value.to_string_lossy().into_owned()))
        });
        let limits = self
            .limits
            .iter()
            .map(|(resource, _)| Ok((*resource, sys::limit(resource.number())?)));
        Ok(Self {
            cpus,
            nice,
            env: env.collect(),
            limits: limits.collect::<io::Result<_>>()?,
        })
    }
}

/// As many as a `cpu_set_t` has places for.
const CPUS_MAX: u32 = 1024;

fn refuse(
    invalid: bool,
    setting: impl Fn() -> String,
    reason: &'static str,
) -> Result<(), SettingsError> {
    if invalid {
        let setting = setting();
        return Err(SettingsError::Invalid { setting, reason });
    }
    Ok(())
}

fn refused(setting: String) -> impl FnOnce(io::Error) -> SettingsError {
    move |cause| SettingsError::Refused { setting, cause }
}

impl Resource {
    fn number(self) -> u32 {
        match self {
            Resource::AddressSpace => libc::RLIMIT_AS,
            Resource::Core => libc::RLIMIT_CORE,
            Resource::Cpu => libc::RLIMIT_CPU,
            Resource::Data => libc::RLIMIT_DATA,
            Resource::FileSize => libc::RLIMIT_FSIZE,
            Resource::LockedMemory => libc::RLIMIT_MEMLOCK,
            Resource::OpenFiles => libc::RLIMIT_NOFILE,
            Resource::Processes => libc::RLIMIT_NPROC,
            Resource::Stack => libc::RLIMIT_STACK,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Resource::AddressSpace => "address space",
            Resource::Core => "core",
            Resource::Cpu => "cpu seconds",
            Resource::Data => "data",
            Resource::FileSize => "file size",
            Resource::LockedMemory => "locked memory",
            Resource::OpenFiles => "open files",
            Resource::Processes => "processes",
            Resource::Stack => "stack",
        }
    }
}

/// `cpus 0-3,7`.
fn cpu_text(cpus: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let runs: Vec<String> = runs.iter().map(text).collect();
    format!("cpus {}", runs.join(","))
}

impl fmt::Display for Settings {
    /// What is set, separated by commas; nothing where nothing is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = self.cpus.as_ref().map(|cpus| cpu_text(cpus));
        let nice = self.nice.map(|nice| format!("nice {nice}"));
        let env = self
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let limits = self
            .limits
            .iter()
            .map(|(resource, value)| format!("{} {value}", resource.noun()));
        let all: Vec<String> = cpus
            .into_iter()
            .chain(nice)
            .chain(env)
            .chain(limits)
            .collect();
        f.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests;
