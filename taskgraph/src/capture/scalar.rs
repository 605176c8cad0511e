//! Scalars of the boundary: to be forwarded, and nothing else.

use std::fmt;
use std::num::NonZeroU32;

use crate::args::Scalar;

/// A scalar of the call that is recorded or replayed.
///
/// It can be given to a task and cloned. No documented way leads to its value: what is computed from it while a
/// graph is recorded, or decided by it, would be frozen at the value of the first call. Pass a derived
/// value as one more scalar, make it part of the key, or compute it in a kernel.
///
/// ```compile_fail
/// # fn body(s: taskgraph::capture::BoundaryScalar) {
/// let derived = s + 1; // no arithmetic
/// # }
/// ```
/// ```compile_fail
/// # fn body(s: taskgraph::capture::BoundaryScalar) {
/// if s > 2 {} // no comparison
/// # }
/// ```
/// ```compile_fail
/// # fn body(s: taskgraph::capture::BoundaryScalar) {
/// let value: taskgraph::Scalar = s.into(); // no value
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct BoundaryScalar {
    value: Scalar,
    origin: Origin,
}

/// Where a scalar comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is a value.
    Value,
    /// It is a scalar of the boundary of a body that is not being recorded.
    Eager,
    /// It is a scalar of the boundary of this recording.
    Recorded { recording: NonZeroU32, index: u32 },
}

impl BoundaryScalar {
    pub(crate) fn of(value: Scalar, origin: Origin) -> BoundaryScalar {
        let origin = match origin {
            Origin::Value => Origin::Eager,
            origin => origin,
        };
        BoundaryScalar { value, origin }
    }

    /// Scalar `index` of the recording with this number.
    pub(crate) fn recorded(value: Scalar, recording: NonZeroU32, index: u32) -> BoundaryScalar {
        let origin = Origin::Recorded { recording, index };
        BoundaryScalar { value, origin }
    }

    /// A scalar of a body that runs eagerly, or whose tasks become part of another recording: to every
    /// task that it is given to, it is this value.
    pub fn eager(value: Scalar) -> BoundaryScalar {
        BoundaryScalar::of(value, Origin::Eager)
    }
}

impl fmt::Debug for BoundaryScalar {
    /// Without the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoundaryScalar")
    }
}

/// What a task can be given as a scalar: a value, or a scalar of the boundary.
pub trait IntoScalar: sealed::IntoScalar {}

impl<T: sealed::IntoScalar> IntoScalar for T {}

pub(crate) mod sealed {
    use super::{BoundaryScalar, Origin};
    use crate::args::Scalar;

    #[expect(
        unnameable_types,
        reason = "sealed: where a scalar comes from is for the recorder only"
    )]
    pub trait IntoScalar {
        fn parts(self) -> Parts;
    }

    /// A value, and where it comes from when it is one of a boundary.
    #[derive(Debug)]
    #[expect(unnameable_types, reason = "the inside of a sealed trait")]
    pub struct Parts(pub(crate) Scalar, pub(crate) Origin);

    impl<T: Into<Scalar>> IntoScalar for T {
        fn parts(self) -> Parts {
            Parts(self.into(), Origin::Value)
        }
    }

    impl IntoScalar for BoundaryScalar {
        fn parts(self) -> Parts {
            Parts(self.value, self.origin)
        }
    }
}
