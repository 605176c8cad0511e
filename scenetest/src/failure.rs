//! Why a scene did not do what it should.

use std::error::Error;
use std::fmt;

use facade::FaultKind;

/// What the body of a scene returns when it does not pass.
///
/// Every error converts into one, with its causes, so that `?` works on anything:
///
/// ```
/// use scenetest::{Failure, SceneContext};
///
/// fn body(_: &mut SceneContext) -> Result<(), Failure> {
///     let table = std::fs::read("/proc/devices").map_err(|_| Failure::skip("there is no /proc"))?;
///     let text = String::from_utf8(table)?;
///     if text.is_empty() {
///         return Err(Failure::new("the table of devices is empty"));
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    Failed,
    Skipped,
    /// These devices of the case cannot be used any more.
    DeviceUnusable(Vec<u32>),
    /// Neither can that of this chip worker, counted in the order of the case's devices; all of them if
    /// it is not known which.
    ChipUnusable(Option<usize>),
}

impl Failure {
    /// The scene fails, for this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Failed,
            message: reason.into(),
        }
    }

    /// The scene cannot run here, for this reason: neither passed nor failed.
    pub fn skip(reason: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Skipped,
            message: reason.into(),
        }
    }

    /// The scene fails, and a device cannot be used any more: no other scene gets it.
    ///
    /// Before the first round it is not the scene's fault, and the scene is run once more
    /// on other devices.
    pub fn device_unusable(devices: impl Into<Vec<u32>>, reason: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::DeviceUnusable(devices.into()),
            message: reason.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error with all of its causes. (That is why a failure is no [`Error`] itself.)
///
/// A device that became unusable is known from the error itself: what is out of the pool then does not
/// depend on the scene.
impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let kind = kind_of(&error);
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors print their cause themselves.
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = error.source();
        }
        Self { kind, message }
    }
}

fn kind_of(error: &(dyn Error + 'static)) -> FailureKind {
    let remote = error.downcast_ref().and_then(facade::Error::remote);
    match remote {
        Some(remote) if remote.kind == FaultKind::Unusable => {
            FailureKind::ChipUnusable(remote.chip_index())
        }
        _ => FailureKind::Failed,
    }
}

#[cfg(test)]
mod tests;
