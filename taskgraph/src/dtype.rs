//! Element types: what accelerators compute on, each with its size in bits.
//!
//! Sizes are in bits because 4-bit elements are packed two to a byte. The number of each variant is
//! its code on the wire and never changes.

use std::fmt;

/// The type of one element of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary64.
    F64 = 1,
    /// IEEE 754 binary32.
    F32 = 2,
    /// IEEE 754 binary16.
    F16 = 3,
    /// Upper half of a binary32.
    Bf16 = 4,
    /// 8-bit float, 4 exponent and 3 mantissa bits.
    F8E4M3 = 5,
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2 = 6,
    /// Signed 8-bit integer.
    I8 = 7,
    /// Signed 16-bit integer.
    I16 = 8,
    /// Signed 32-bit integer.
    I32 = 9,
    /// Signed 64-bit integer.
    I64 = 10,
    /// Unsigned 8-bit integer.
    U8 = 11,
    /// Unsigned 16-bit integer.
    U16 = 12,
    /// Unsigned 32-bit integer.
    U32 = 13,
    /// Unsigned 64-bit integer.
    U64 = 14,
    /// One byte, 0 or 1.
    Bool = 15,
    /// Signed 4-bit integer, two to a byte.
    I4 = 16,
    /// Unsigned 4-bit integer, two to a byte.
    U4 = 17,
    /// 4-bit float, 2 exponent bits and 1 mantissa bit, two to a byte.
    F4E2M1 = 18,
}

/// Every element type in the order of its wire code, which starts at 1.
const ALL: [DType; 18] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Bool,
    DType::I4,
    DType::U4,
    DType::F4E2M1,
];

impl DType {
    /// Every element type, in the order of the wire codes.
    pub const fn all() -> &'static [DType] {
        &ALL
    }

    /// Size of one element in bits: 4, 8, 16, 32 or 64.
    pub const fn bits(self) -> u64 {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 64,
            DType::F32 | DType::I32 | DType::U32 => 32,
            DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => 16,
            DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 | DType::Bool => 8,
            DType::I4 | DType::U4 | DType::F4E2M1 => 4,
        }
    }

    /// Alignment in bytes that a tensor of this type starts on.
    pub const fn align(self) -> u64 {
        self.bits().div_ceil(8)
    }

    /// The code of this type in a [`RawTensor`](crate::RawTensor).
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type with this wire code, or `None` for a code that was never given out.
    pub fn from_code(code: u8) -> Option<DType> {
        ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// The usual lower-case name, for example `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
            DType::I4 => "i4",
            DType::U4 => "u4",
            DType::F4E2M1 => "f4e2m1",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type whose values are elements of one [`DType`].
///
/// Plain old data only, so that a slice of elements can be viewed as the bytes of a buffer.
pub trait Element: bytemuck::Pod {
    /// The element type that `Self` is.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}

elements! {
    f64 => F64, f32 => F32,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
}

#[cfg(feature = "half")]
elements! { half::f16 => F16, half::bf16 => Bf16 }

#[cfg(test)]
mod tests;
