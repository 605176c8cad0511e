//! Why domains and collectives over them were refused.

use taskgraph::DType;

use super::Name;

/// Why a domain, or a collective over one, was refused. No task was submitted and no memory is held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DomainError {
    /// A domain without members.
    #[error("allocate domain `{domain}`: it has no members; name the chips that share it")]
    NoMembers {
        /// The domain.
        domain: String,
    },
    /// A chip would have two ranks.
    #[error(
        "allocate domain `{domain}`: chip {chip} is named twice; each rank is a chip of its own"
    )]
    MemberTwice {
        /// The domain.
        domain: String,
        /// The chip's next-level index.
        chip: u32,
    },
    /// Buffers are told apart by their names.
    #[error("allocate domain `{domain}`: two of its buffers are named `{buffer}`")]
    BufferTwice {
        /// The domain.
        domain: String,
        /// The name.
        buffer: String,
    },
    /// The window is too small, empty, or larger than an address space.
    #[error(
        "allocate domain `{domain}`: its buffers need {needed} bytes of each window (each begins at a multiple of {alignment}), and the windows were to have {window_bytes}"
    )]
    Window {
        /// The domain.
        domain: String,
        /// What the buffers need.
        needed: u64,
        /// Where buffers begin.
        alignment: u64,
        /// What was asked for.
        window_bytes: u64,
    },
    /// There is no buffer of this name.
    #[error("find buffer `{buffer}` of domain `{domain}`: it has {known:?}")]
    NoBuffer {
        /// The domain.
        domain: Name,
        /// Asked for.
        buffer: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The buffer has other elements.
    #[error("find buffer `{buffer}` of domain `{domain}` as {asked}: its elements are {found}")]
    Elements {
        /// The domain.
        domain: Name,
        /// The buffer.
        buffer: String,
        /// The type asked for.
        asked: DType,
        /// The type that it was given.
        found: DType,
    },
    /// It was released.
    #[error(
        "use domain `{domain}`: it was released; allocate another, or call `retain_after_run` to keep one after its run"
    )]
    Released {
        /// The domain.
        domain: Name,
    },
    /// The buffers of a collective do not fit each other.
    #[error("{collective} over {ranks} ranks: {problem}")]
    Collective {
        /// Which one.
        collective: &'static str,
        /// Members of the domain.
        ranks: usize,
        /// What does not fit, and what would.
        problem: String,
    },
}
