//! The host runtime for accelerator nodes: a tree of worker processes, composed from six small crates.
