//! Behaviour of the graph through its public interface, a module per behaviour.

mod allocation;
mod capture;
mod failures;
mod groups;
mod memory;
mod odd;
mod ordering;
mod runs;
mod simulation;
mod support;
mod view;
mod workers;

/// The simulation is an example, so that it can be run for long; the tests run a little of it.
#[path = "../../examples/sim_test/model.rs"]
mod model;
#[path = "../../examples/sim_test/play.rs"]
mod play;
#[path = "../../examples/sim_test/scenario.rs"]
mod scenario;
