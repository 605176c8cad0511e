//! Why a file of recorded graphs was not written or not read.

use std::path::{Path, PathBuf};

use taskgraph::capture::FileError;

/// Why a file of recorded graphs was not written or not read. Recording them again needs no file.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GraphFileError {
    /// The system refused.
    #[error("{operation} recorded graphs at `{}`: {reason}", path.display())]
    Io {
        /// `read` or `write`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// What is in it cannot be used.
    #[error("read recorded graphs at `{}`: {reason}", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: FileError,
    },
}

impl GraphFileError {
    pub(crate) fn io(operation: &'static str, path: &Path, error: &std::io::Error) -> Self {
        GraphFileError::Io {
            operation,
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }
}
