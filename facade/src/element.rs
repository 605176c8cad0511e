//! Element types: which Rust types may stand in a buffer, and what the graph calls them.

mod sealed {
    #[expect(unnameable_types, reason = "sealed: the set equals the graph's types")]
    pub trait Sealed {}
}

/// A plain-old-data number that buffers hold, tensors name and kernels compute with: `f64`, `f32`, [`f16`](half::f16),
/// [`bf16`](half::bf16), and the signed and unsigned integers of 8 to 64 bits.
///
/// `DTYPE` is the graph's name for the type. Sealed: the set equals what the graph has a [`DType`](crate::DType) for and
/// Rust has a type for. The packed 4-bit and the 8-bit float types have no Rust type; such tensors are views of `u8` buffers.
pub trait Element: taskgraph::Element + Send + Sync + sealed::Sealed + 'static {}

macro_rules! elements {
    ($($rust:ty),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {}
    )*};
}

elements! { f64, f32, half::f16, half::bf16, i64, i32, i16, i8, u64, u32, u16, u8 }
