//! What lies below this crate's errors: the types of the parts that they name, for who matches on them.
//!
//! ```
//! use facade::{Error, SubmitError, cause};
//!
//! /// Whether a task was refused because too many are live (`WorkerBuilder::tasks_max`).
//! fn is_full(error: &Error) -> bool {
//!     matches!(
//!         error,
//!         Error::Submit(SubmitError::Graph { reason: cause::GraphRefusal::SlotsFull { .. }, .. })
//!     )
//! }
//! # let _ = is_full;
//! ```

pub use lifecycle::CloseError as CloseRefusal;
pub use procfork::{SettingsError, Signal, StartError as ProcessError};
pub use provenance::Refused as PointerRefusal;
pub use taskgraph::{
    AllocError, ArgsError, BufferId, ScopeError, SubmitError as GraphRefusal, TensorError,
};
