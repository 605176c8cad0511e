//! The scenes of this repository: `cargo xtask scene`, or `cargo test -p scenetest --test scenes`.

mod vector_add;

scenetest::main!(vector_add::scene);
