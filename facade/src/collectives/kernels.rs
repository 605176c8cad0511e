//! What the chips execute for a collective: copies, reductions, nothing.

use device::{
    ChipArgs, ChipCallable, ChipOrchestrator, Kernel, KernelContext, KernelError,
    OrchestrationError, core_args,
};
use half::{bf16, f16};
use taskgraph::{DType, Element, Scalar};

use super::Reduce;

/// Tensors in pairs: the second of each becomes the first.
pub(super) static COPY: ChipCallable = ChipCallable::new(
    "collective copy",
    copy_pairs,
    &[Kernel::vector("copy", copy)],
);

/// The first tensor becomes the reduction of the others; with the scalar 1 set, its own value takes part.
pub(super) static FOLD: ChipCallable =
    ChipCallable::new("collective fold", fold_all, &[Kernel::vector("fold", fold)]);

/// Nothing: to be there is all.
pub(super) static BARRIER: ChipCallable =
    ChipCallable::new("collective barrier", |_, _| Ok(()), &[]);

/// Elements that are reduced at a time: they stay in the cache over all tensors.
const TILE: usize = 4096;

fn copy_pairs(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    for pair in 0..args.tensors.len() / 2 {
        let (from, to) = (args.tensor(2 * pair)?, args.tensor(2 * pair + 1)?);
        orch.submit("copy", core_args().input(from).output(to))?;
    }
    Ok(())
}

fn fold_all(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    let (to, in_place) = (args.tensor(0)?, args.scalar(1)? == Scalar::Bool(true));
    let list = if in_place {
        core_args().inout(to)
    } else {
        core_args().output(to)
    };
    let list = args.tensors[1..]
        .iter()
        .fold(list, |list, part| list.input(part));
    let list = list.scalar(args.scalar(0)?).scalar(in_place);
    orch.submit("fold", list).map(drop)
}

/// Calls a function that is generic over the element type with the type of a tensor.
macro_rules! with_elements {
    ($dtype:expr, $function:ident($($arg:expr),*)) => {
        match $dtype {
            DType::F64 => $function::<f64>($($arg),*),
            DType::F32 => $function::<f32>($($arg),*),
            DType::F16 => $function::<f16>($($arg),*),
            DType::Bf16 => $function::<bf16>($($arg),*),
            DType::I64 => $function::<i64>($($arg),*),
            DType::I32 => $function::<i32>($($arg),*),
            DType::I16 => $function::<i16>($($arg),*),
            DType::I8 => $function::<i8>($($arg),*),
            DType::U64 => $function::<u64>($($arg),*),
            DType::U32 => $function::<u32>($($arg),*),
            DType::U16 => $function::<u16>($($arg),*),
            DType::U8 => $function::<u8>($($arg),*),
            other => Err(KernelError::fail(format!("no collective has elements of {other}"))),
        }
    };
}

fn copy(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    with_elements!(cx.tensor(0)?.dtype(), copy_elements(cx))
}

fn copy_elements<T: Element>(cx: &KernelContext<'_>) -> Result<(), KernelError> {
    cx.output::<T>(1)?.copy_from_slice(cx.input::<T>(0)?);
    Ok(())
}

fn fold(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let reduce = match cx.scalar::<u32>(0)? {
        code if code == Reduce::Sum as u32 => Reduce::Sum,
        code if code == Reduce::Min as u32 => Reduce::Min,
        code if code == Reduce::Max as u32 => Reduce::Max,
        code => return Err(KernelError::fail(format!("there is no reduction {code}"))),
    };
    with_elements!(cx.tensor(0)?.dtype(), fold_elements(cx, reduce))
}

fn fold_elements<T: Combine>(cx: &KernelContext<'_>, reduce: Reduce) -> Result<(), KernelError> {
    let to = cx.output::<T>(0)?;
    let mut parts = Vec::new();
    while cx.tensor(parts.len() + 1).is_ok() {
        parts.push(cx.input::<T>(parts.len() + 1)?);
    }
    let in_place = cx.scalar::<bool>(1)?;
    for (tile, to) in to.chunks_mut(TILE).enumerate() {
        let tile = tile * TILE..tile * TILE + to.len();
        let mut parts = parts.iter().map(|part| &part[tile.clone()]);
        if !in_place && let Some(first) = parts.next() {
            match parts.next() {
                Some(second) => T::combine_two(to, first, second, reduce),
                None => to.copy_from_slice(first),
            }
        }
        parts.for_each(|part| T::combine(to, part, reduce));
    }
    Ok(())
}

/// Elements that can be reduced.
trait Combine: Element {
    fn sum(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;

    /// `to[i]` becomes the reduction of itself and `part[i]`. One loop per reduction, for the compiler to vectorize.
    fn combine(to: &mut [Self], part: &[Self], reduce: Reduce) {
        let pairs = to.iter_mut().zip(part);
        match reduce {
            Reduce::Sum => pairs.for_each(|(to, part)| *to = to.sum(*part)),
            Reduce::Min => pairs.for_each(|(to, part)| *to = to.smaller(*part)),
            Reduce::Max => pairs.for_each(|(to, part)| *to = to.larger(*part)),
        }
    }

    /// `to[i]` becomes the reduction of `a[i]` and `b[i]`.
    fn combine_two(to: &mut [Self], a: &[Self], b: &[Self], reduce: Reduce) {
        let all = to.iter_mut().zip(a.iter().zip(b));
        match reduce {
            Reduce::Sum => all.for_each(|(to, (a, b))| *to = a.sum(*b)),
            Reduce::Min => all.for_each(|(to, (a, b))| *to = a.smaller(*b)),
            Reduce::Max => all.for_each(|(to, (a, b))| *to = a.larger(*b)),
        }
    }
}

macro_rules! combine {
    ($($int:ty),*; $($float:ty),*; $($half:ty),*) => {
        $(impl Combine for $int {
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            fn smaller(self, other: Self) -> Self { self.min(other) }
            fn larger(self, other: Self) -> Self { self.max(other) }
        })*
        $(impl Combine for $float {
            fn sum(self, other: Self) -> Self { self + other }
            fn smaller(self, other: Self) -> Self { self.min(other) }
            fn larger(self, other: Self) -> Self { self.max(other) }
        })*
        $(impl Combine for $half {
            fn sum(self, other: Self) -> Self { self + other }
            fn smaller(self, other: Self) -> Self { <$half>::from_f32(self.to_f32().min(other.to_f32())) }
            fn larger(self, other: Self) -> Self { <$half>::from_f32(self.to_f32().max(other.to_f32())) }
        })*
    };
}

combine!(i8, i16, i32, i64, u8, u16, u32, u64; f32, f64; f16, bf16);
