//! The same program as the test `scenes`, under a name that `cargo run` and xtask find.

#[path = "main.rs"]
mod scenes;

fn main() -> std::process::ExitCode {
    scenes::main()
}
