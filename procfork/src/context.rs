//! What a child's function gets.

use std::os::fd::OwnedFd;

use crate::watch::ParentWatch;

/// What a child's function gets besides what it captured.
#[derive(Debug)]
#[non_exhaustive]
pub struct ChildContext {
    /// The name that it was given, whole.
    pub name: String,
    /// Watches the parent and the root of the tree. Ask it in every loop, or wait with it.
    pub parent: ParentWatch,
    /// The descriptors that it was given, in the order of
    /// [`ForkOptions::give`](crate::ForkOptions::give); close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// The bytes that [`spawn`](crate::spawn()) was given; none after a fork.
    pub args: Vec<u8>,
}
