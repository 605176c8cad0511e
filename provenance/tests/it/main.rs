//! What users of the table can rely on, through its public names only.

#![cfg(not(loom))]

mod fixture;

mod errors;
mod hostile;
mod lifetime;
mod mirror;
mod model;
mod ownership;
mod ranges;
mod targets;
mod threads;
mod windows;
