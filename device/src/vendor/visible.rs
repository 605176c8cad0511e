//! Which cards a process may use, and the two numbers that each of them has.
//!
//! With `ASCEND_RT_VISIBLE_DEVICES=6,2` a process has two devices. The runtime library renumbers
//! them: its device 0 is card 6. The driver below it does not: its card 6 is card 6. So every call
//! site takes one of two types, and mixing them up does not compile: [`LogicalId`] for the runtime
//! library, [`PhysicalId`] for the driver.
//!
//! A malformed list is refused whole. (The runtime library itself would silently use what stands
//! before the first bad entry, so that a slip of the pen moves a program to other cards.)

use std::fmt;

use thiserror::Error;

/// The variable that the vendor's runtime library reads.
pub(crate) const VARIABLE: &str = "ASCEND_RT_VISIBLE_DEVICES";

/// The number of a device among the visible ones: what programs and the runtime library use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogicalId(pub(crate) u32);

/// The number of the card itself: what the driver uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhysicalId(pub(crate) u32);

/// A list of visible devices that cannot be used. Nothing was opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VisibleError {
    /// An entry is not a number.
    #[error(
        "read {VARIABLE}=`{list}`: entry {idx} is `{entry}`, expected card numbers such as 2,3"
    )]
    Entry {
        /// The list.
        list: String,
        /// Position of the entry.
        idx: usize,
        /// The entry.
        entry: String,
    },
    /// A card stands in the list twice.
    #[error("read {VARIABLE}=`{list}`: card {card} stands there twice")]
    Twice {
        /// The list.
        list: String,
        /// The card.
        card: u32,
    },
    /// The list is empty, so there is no device.
    #[error("read {VARIABLE}: it is set and empty, so no device is visible; unset it to see all")]
    Empty,
    /// The program asked for a device behind the end of the list.
    #[error("use device {logical}: {VARIABLE}=`{list}` makes {count} visible, numbered from 0")]
    OutOfRange {
        /// The number asked for.
        logical: u32,
        /// The list.
        list: String,
        /// How many devices it has.
        count: usize,
    },
}

/// The visible devices of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VisibleDevices {
    /// No list: both numbers are the same.
    All,
    /// The cards, by logical number.
    List { text: String, cards: Vec<u32> },
}

impl VisibleDevices {
    /// Reads a list as the variable has it; `None` is the variable unset.
    pub(crate) fn parse(list: Option<&str>) -> Result<Self, VisibleError> {
        let Some(list) = list else {
            return Ok(Self::All);
        };
        if list.trim().is_empty() {
            return Err(VisibleError::Empty);
        }
        let text = list.to_owned();
        let mut cards = Vec::new();
        for (idx, entry) in list.split(',').enumerate() {
            let digits = !entry.is_empty() && entry.bytes().all(|byte| byte.is_ascii_digit());
            let Some(card) = entry.parse().ok().filter(|_| digits) else {
                return Err(VisibleError::Entry {
                    list: text,
                    idx,
                    entry: entry.to_owned(),
                });
            };
            if cards.contains(&card) {
                return Err(VisibleError::Twice { list: text, card });
            }
            cards.push(card);
        }
        Ok(Self::List { text, cards })
    }

    /// The card behind a logical number.
    pub(crate) fn physical(&self, logical: LogicalId) -> Result<PhysicalId, VisibleError> {
        let Self::List { text, cards } = self else {
            return Ok(PhysicalId(logical.0));
        };
        let out_of_range = || VisibleError::OutOfRange {
            logical: logical.0,
            list: text.clone(),
            count: cards.len(),
        };
        cards
            .get(logical.0 as usize)
            .map(|card| PhysicalId(*card))
            .ok_or_else(out_of_range)
    }
}

impl fmt::Display for LogicalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

impl fmt::Display for PhysicalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "card {}", self.0)
    }
}

#[cfg(test)]
mod tests;
