//! Which chip: architectures, their core counts, and the platforms a program can ask for by name.
//!
//! Nothing here touches a device or loads a library, so a parent process may ask before it forks.

use std::fmt;
use std::str::FromStr;

/// A chip architecture; it fixes the number of cores of each type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// 24 AIC (matrix) and 48 AIV (vector) cores.
    A2a3,
    /// 36 AIC (matrix) and 72 AIV (vector) cores.
    A5,
}

/// How many cores of each type a chip has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreCounts {
    /// Matrix cores.
    pub aic: u16,
    /// Vector cores; two of them belong to each matrix core.
    pub aiv: u16,
}

impl Arch {
    /// The cores of one chip.
    #[must_use]
    pub const fn cores(self) -> CoreCounts {
        match self {
            Arch::A2a3 => CoreCounts { aic: 24, aiv: 48 },
            Arch::A5 => CoreCounts { aic: 36, aiv: 72 },
        }
    }

    /// The name used on command lines and in messages: `a2a3` or `a5`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Arch::A2a3 => "a2a3",
            Arch::A5 => "a5",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a program runs: on a simulated chip of some architecture, or on real ones.
///
/// Parsed from and shown as `sim` (the same as `a2a3sim`), `a5sim`, `a2a3` and `a5`.
///
/// ```
/// use device::{Arch, Platform};
/// assert_eq!("sim".parse(), Ok(Platform::Sim(Arch::A2a3)));
/// assert_eq!(Platform::Sim(Arch::A5).to_string(), "a5sim");
/// let error = "a2a4".parse::<Platform>().unwrap_err();
/// assert!(error.to_string().contains("did you mean `a2a3`"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Platform {
    /// The simulator: no vendor library, no hardware.
    Sim(Arch),
    /// A real chip of architecture a2a3.
    A2a3,
    /// A real chip of architecture a5.
    A5,
}

impl Platform {
    /// Every platform, in the order in which messages list them.
    pub const ALL: [Platform; 4] = [
        Platform::Sim(Arch::A2a3),
        Platform::Sim(Arch::A5),
        Platform::A2a3,
        Platform::A5,
    ];

    /// The architecture of its chips.
    #[must_use]
    pub const fn arch(self) -> Arch {
        match self {
            Platform::Sim(arch) => arch,
            Platform::A2a3 => Arch::A2a3,
            Platform::A5 => Arch::A5,
        }
    }

    /// Whether its chips are simulated, so that no hardware and no vendor library is needed.
    #[must_use]
    pub const fn is_simulated(self) -> bool {
        matches!(self, Platform::Sim(_))
    }

    /// The platform with the same architecture that needs no hardware.
    #[must_use]
    pub const fn simulated(self) -> Platform {
        Platform::Sim(self.arch())
    }

    /// The name used on command lines and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Platform::Sim(Arch::A2a3) => "sim",
            Platform::Sim(Arch::A5) => "a5sim",
            Platform::A2a3 => "a2a3",
            Platform::A5 => "a5",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Platform {
    type Err = UnknownPlatform;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Platform::ALL
            .into_iter()
            .find(|platform| platform.name() == text);
        match (known, text) {
            (Some(platform), _) => Ok(platform),
            (None, "a2a3sim") => Ok(Platform::Sim(Arch::A2a3)),
            (None, _) => Err(UnknownPlatform {
                found: text.to_owned(),
            }),
        }
    }
}

/// A platform name that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPlatform {
    /// What was written.
    pub found: String,
}

impl UnknownPlatform {
    /// The known name with the fewest single-character edits, if it is near enough to be a slip.
    #[must_use]
    pub fn nearest(&self) -> Option<&'static str> {
        let found = self.found.to_ascii_lowercase();
        let distance = |name: &str| edit_distance(&found, name);
        let names = Platform::ALL.map(Platform::name);
        let nearest = names.into_iter().min_by_key(|name| distance(name))?;
        (distance(nearest) <= 2 && distance(nearest) < nearest.len()).then_some(nearest)
    }
}

impl fmt::Display for UnknownPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found } = self;
        write!(
            f,
            "unknown platform `{found}`, expected sim (or a2a3sim), a5sim, a2a3 or a5"
        )?;
        match self.nearest() {
            Some(name) => write!(f, "; did you mean `{name}`?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for UnknownPlatform {}

/// Levenshtein distance over bytes, one row at a time.
fn edit_distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in right.bytes().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests;
