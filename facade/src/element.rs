//! Element types: which Rust types may stand in a buffer, and what the graph calls them.

use taskgraph::DType;

mod sealed {
    #[expect(unnameable_types, reason = "sealed: the set equals the graph's types")]
    pub trait Sealed {}
}

/// A plain-old-data number that buffers hold and tensors name.
///
/// Sealed: the set equals what the graph has a [`DType`] for and Rust has a type for. The packed 4-bit and the 8-bit
/// float types have no Rust type; such tensors are views of `u8` buffers.
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed + 'static {
    /// The graph's name for the type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    f64 => F64, f32 => F32, half::f16 => F16, half::bf16 => Bf16,
    i64 => I64, i32 => I32, i16 => I16, i8 => I8,
    u64 => U64, u32 => U32, u16 => U16, u8 => U8,
}
