//! Behaviour of the graph through its public interface, a module per behaviour.

mod failures;
mod groups;
mod ordering;
mod runs;
mod support;
mod workers;
