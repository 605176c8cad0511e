//! The program as its user meets it: command line, exit code, output. It works on small workspaces
//! in temporary directories, which it builds with cargo.

#[path = "../../src/fixture.rs"]
mod fixture;

mod bench;
mod build;
mod ci;
mod interrupt;
mod names;
mod stamp;
mod support;
