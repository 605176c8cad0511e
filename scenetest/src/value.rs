//! Single elements: read for comparison and shown to people; and the pattern that marks an element
//! as never written.

use std::fmt;

use facade::DType;

/// An element of any type, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Float(f64),
    /// Wide enough for every integer type, and for the difference of two.
    Int(i128),
}

impl Value {
    /// The absolute difference; `None` when it is not a number.
    pub(crate) fn distance(self, other: Self) -> Option<f64> {
        match (self, other) {
            // Equal infinities are at no distance from each other.
            (Self::Float(a), Self::Float(b)) if a == b => Some(0.0),
            (Self::Float(a), Self::Float(b)) => Some((a - b).abs()).filter(|d| !d.is_nan()),
            (Self::Int(a), Self::Int(b)) => Some((a - b).unsigned_abs() as f64),
            _ => None,
        }
    }

    pub(crate) fn magnitude(self) -> f64 {
        match self {
            Self::Float(value) => value.abs(),
            Self::Int(value) => value.unsigned_abs() as f64,
        }
    }

    pub(crate) fn is_nan(self) -> bool {
        matches!(self, Self::Float(value) if value.is_nan())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Int(value) => write!(f, "{value}"),
        }
    }
}

/// How to read elements of a type out of bytes.
pub(crate) struct Reader {
    /// The size of an element.
    pub(crate) bytes: usize,
    read: fn(&[u8]) -> Value,
    /// What an element that was never written looks like.
    poison: &'static [u8],
}

macro_rules! float {
    ($type:ty, $poison:expr) => {
        Reader {
            bytes: size_of::<$type>(),
            read: |bytes| Value::Float(f64::from(bytemuck::pod_read_unaligned::<$type>(bytes))),
            poison: $poison,
        }
    };
}

macro_rules! int {
    ($type:ty) => {
        Reader {
            bytes: size_of::<$type>(),
            read: |bytes| Value::Int(i128::from(bytemuck::pod_read_unaligned::<$type>(bytes))),
            poison: &[0xa5; size_of::<$type>()],
        }
    };
}

impl Reader {
    /// For the types that a [`HostTensor`](crate::HostTensor) can have; `None` for others.
    ///
    /// Floats are poisoned with a quiet NaN whose payload no arithmetic produces, so that one
    /// that is read by mistake shows as well; integers with a pattern that stands out.
    pub(crate) fn of(dtype: DType) -> Option<Self> {
        Some(match dtype {
            DType::F64 => float!(f64, &[0xad, 0xde, 0, 0, 0, 0, 0xf8, 0x7f]),
            DType::F32 => float!(f32, &[0xad, 0xde, 0xc0, 0x7f]),
            DType::F16 => float!(half::f16, &[0xad, 0x7e]),
            DType::Bf16 => float!(half::bf16, &[0xed, 0x7f]),
            DType::I64 => int!(i64),
            DType::I32 => int!(i32),
            DType::I16 => int!(i16),
            DType::I8 => int!(i8),
            DType::U64 => int!(u64),
            DType::U32 => int!(u32),
            DType::U16 => int!(u16),
            DType::U8 => int!(u8),
            _ => return None,
        })
    }

    pub(crate) fn value(&self, bytes: &[u8]) -> Value {
        (self.read)(bytes)
    }

    /// Whether the element is as `poison` left it. An integer may be so by chance.
    pub(crate) fn is_poison(&self, bytes: &[u8]) -> bool {
        bytes == self.poison
    }

    /// Whether no run writes such elements by chance: an integer of 8 or 16 bits is in the pattern too often.
    pub(crate) fn poison_is_rare(&self) -> bool {
        self.bytes >= 4 || self.value(self.poison).is_nan()
    }

    /// Overwrites all elements.
    pub(crate) fn poison(&self, elements: &mut [u8]) {
        elements
            .chunks_exact_mut(self.bytes)
            .for_each(|one| one.copy_from_slice(self.poison));
    }
}

#[cfg(test)]
mod tests;
