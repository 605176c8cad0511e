//! Names of operations, so that a close that waits can say for what.

use std::sync::PoisonError;

use crate::sync::unmodelled::{Mutex, OnceLock};

#[cfg(all(test, not(loom)))]
mod tests;

/// A kind of operation that holds leases: `static RUN: Operation = Operation::new("run");`.
///
/// The name appears in [`Refused`](crate::Refused) and in the list of what a close still waits for.
/// Two operations of the same name are fine. The first lease of each operation registers its name in a process-wide
/// table that never shrinks; later leases read one word.
#[derive(Debug)]
pub struct Operation {
    name: &'static str,
    id: OnceLock<u16>,
}

/// Every name in use; an id is an index.
static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The name that the 65 536th operation and its successors share.
const OVERFLOW: &str = "(one of too many operations)";

impl Operation {
    /// An operation of this name, meant for a `static`.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            id: OnceLock::new(),
        }
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The number under which [`name_of`] finds the name.
    #[inline]
    pub(crate) fn id(&self) -> u16 {
        match self.id.get() {
            Some(id) => *id,
            None => self.register(),
        }
    }

    #[cold]
    fn register(&self) -> u16 {
        *self.id.get_or_init(|| intern(self.name))
    }
}

fn intern(name: &'static str) -> u16 {
    intern_in(
        &mut NAMES.lock().unwrap_or_else(PoisonError::into_inner),
        name,
    )
}

/// The index of `name`, which is added if it is new and there is a number left.
fn intern_in(names: &mut Vec<&'static str>, name: &'static str) -> u16 {
    let known = names.iter().position(|known| *known == name);
    let Ok(id) = u16::try_from(known.unwrap_or(names.len())) else {
        return u16::MAX;
    };
    if known.is_none() {
        names.push(if id == u16::MAX { OVERFLOW } else { name });
    }
    id
}

/// The name that was registered under `id`.
pub(crate) fn name_of(id: u16) -> &'static str {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.get(usize::from(id)).copied().unwrap_or(OVERFLOW)
}
