//! Behaviour through the public interface, a module per subject.
//!
//! Races are staged with gates, never with sleeps: [`fixture`] has them.
//! The interleavings that no gate can reach are the loom models' subject (`src/loom_models/`).
#![cfg(not(loom))]

mod close;
mod fixture;
mod inside;
mod lease;
mod owner;
mod promises;
mod start;
mod teardown;
mod texts;
