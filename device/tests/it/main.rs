//! What a chip does, seen from outside: one conformance suite for every backend, and the
//! simulator's own promises.

mod conformance;
mod cores;
mod errors;
mod fake;
mod faults;
mod graphs;
mod kernels;
mod strays;
mod support;
mod vendor;
mod windows;
