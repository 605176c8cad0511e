//! Why a scene did not do what it should.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use facade::{FaultKind, MemoryError, RemoteError, RunError, StartError};

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

    /// The scene fails, and a device of the case cannot be used any more: no other scene gets it. Devices are named as
    /// [`SceneContext::devices`](crate::SceneContext::devices) does; others stay where they are.
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
/// A device that became unusable is known from the error itself or from one of its causes: what is out of the pool
/// then does not depend on the scene. (An error type of the scene's own must have facade's error as its `source`;
/// `#[error(transparent)]` hides it.)
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
    in_chain(error).unwrap_or(FailureKind::Failed)
}

fn in_chain(error: &(dyn Error + 'static)) -> Option<FailureKind> {
    unusable(error).or_else(|| in_chain(error.source()?))
}

/// What this one error of a chain says of a device that cannot be used any more.
fn unusable(error: &(dyn Error + 'static)) -> Option<FailureKind> {
    if let Some(remote) = error.downcast_ref::<RemoteError>() {
        return of_remote(remote);
    }
    let whole = error.downcast_ref::<facade::Error>();
    let whole = whole.or_else(|| error.downcast_ref().map(Box::<facade::Error>::as_ref));
    let whole = whole.or_else(|| error.downcast_ref().map(Arc::<facade::Error>::as_ref));
    match whole {
        Some(facade::Error::Orchestration(own)) => in_chain(&**own),
        Some(whole) => of_remote(whole.remote()?),
        None => of_remote(part(error)?.remote()?),
    }
}

/// An error that is one of several kinds of the facade's, as that.
fn part(error: &(dyn Error + 'static)) -> Option<facade::Error> {
    let run = error.downcast_ref::<RunError>().cloned().map(Into::into);
    let start = || error.downcast_ref::<StartError>().cloned().map(Into::into);
    let memory = || error.downcast_ref::<MemoryError>().cloned().map(Into::into);
    run.or_else(start).or_else(memory)
}

fn of_remote(remote: &RemoteError) -> Option<FailureKind> {
    let is_unusable = remote.kind == FaultKind::Unusable;
    is_unusable.then(|| FailureKind::ChipUnusable(remote.chip_index()))
}

#[cfg(test)]
mod tests;
