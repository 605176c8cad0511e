//! The scenes of this repository: `cargo xtask scene`, or `cargo test -p scenetest --test scenes`.

mod bgemm;
mod device_memory;
mod paged_attention;
mod qwen3_layer;
mod scale;
mod sub_verification;
mod two_chips;
mod vector_add;

scenetest::main!(
    scale::scene,
    vector_add::scene,
    vector_add::cpp,
    bgemm::scene,
    bgemm::cpp,
    paged_attention::scene,
    two_chips::scene,
    sub_verification::scene,
    device_memory::scene,
    qwen3_layer::scene,
);
