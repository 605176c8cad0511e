//! Chips of the vendor (a2a3, a5), by libraries that are loaded at run time.
//!
//! ```text
//!   chip.rs      the trait: what a run is, what a fault does            policy
//!   run.rs       callables on the card, tasks on its stream
//!   acl.rs       every call checked, errors with both device numbers    results
//!   table.rs     function pointers with their signatures                raw
//!   search.rs    where libraries are looked for      visible.rs         which cards, two numbers each
//! ```
//!
//! Nothing of this is linked: a program runs without the libraries, and says what is missing when
//! such a chip is opened. Opening goes from what costs nothing to what touches the card: the list
//! of visible devices, the library with every function and its version, the runtime, the card.

mod acl;
mod chip;
mod options;
mod run;
mod search;
mod table;
mod visible;

pub use acl::VendorError;
pub(crate) use chip::VendorChip;
pub use options::VendorOptions;
pub use search::MissingLibrary;
pub use visible::VisibleError;
