//! Comparing what came out with what should have: exactly in names, types and shapes, within a
//! tolerance in values.
//!
//! An element is right if it differs from the expected one by at most
//! `absolute + relative * |expected|`. A NaN is never right, on either side, unless the tolerance
//! says that NaN equals NaN. An infinity equals only the same infinity.

use std::fmt;

use facade::DType;
use serde::{Deserialize, Serialize};

use crate::tensor::{HostTensor, Tensors};
use crate::value::{Reader, Value};

/// How far an output may be from the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerance {
    absolute: f64,
    relative: f64,
    nan_equals_nan: bool,
}

impl Tolerance {
    /// Not at all. The default.
    pub const EXACT: Self = Self {
        absolute: 0.0,
        relative: 0.0,
        nan_equals_nan: false,
    };

    /// By so much.
    pub const fn absolute(absolute: f64) -> Self {
        Self {
            absolute,
            ..Self::EXACT
        }
    }

    /// By so much of the expected value's magnitude.
    pub const fn relative(relative: f64) -> Self {
        Self {
            relative,
            ..Self::EXACT
        }
    }

    /// The two added, as numerical libraries do it.
    pub const fn both(absolute: f64, relative: f64) -> Self {
        Self {
            absolute,
            relative,
            ..Self::EXACT
        }
    }

    /// A NaN is right where a NaN is expected, and only there. The one with which outputs are poisoned
    /// before a round never is.
    #[must_use]
    pub const fn nan_equals_nan(self) -> Self {
        Self {
            nan_equals_nan: true,
            ..self
        }
    }

    fn allows(self, actual: Value, expected: Value) -> bool {
        if actual.is_nan() || expected.is_nan() {
            return self.nan_equals_nan && actual.is_nan() && expected.is_nan();
        }
        let allowed = self.absolute + self.relative * expected.magnitude();
        // An infinite allowance (of an infinite expectation) must not let everything pass.
        actual
            .distance(expected)
            .is_some_and(|far| far == 0.0 || (far <= allowed && far.is_finite()))
    }
}

impl Default for Tolerance {
    fn default() -> Self {
        Self::EXACT
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.absolute, self.relative) {
            (0.0, 0.0) => f.write_str("exact")?,
            (absolute, 0.0) => write!(f, "within {absolute:e}")?,
            (0.0, relative) => write!(f, "within {relative:e} of the expected value")?,
            (absolute, relative) => write!(
                f,
                "within {absolute:e} + {relative:e} of the expected value"
            )?,
        }
        f.write_str(if self.nan_equals_nan {
            ", NaN equals NaN"
        } else {
            ", NaN is wrong"
        })
    }
}

/// An element that is not what was expected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Difference {
    /// Where it is.
    pub index: Vec<usize>,
    /// What came out, as text.
    pub actual: String,
    /// What should have, as text.
    pub expected: String,
    /// The absolute difference; `None` when it is not a finite number.
    pub absolute: Option<f64>,
    /// The difference by the magnitude of the expected value; `None` when that is not finite.
    pub relative: Option<f64>,
}

/// What comparing one output came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Comparison {
    /// The output.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// By what it was judged.
    pub tolerance: Tolerance,
    /// How many elements were compared.
    pub elements: u64,
    /// How many were wrong.
    pub wrong: u64,
    /// How many of the wrong ones were as before the run: nobody wrote them.
    pub unwritten: u64,
    /// The first wrong ones, at most [`FIRST_MAX`].
    pub first: Vec<Difference>,
    /// The wrong one at the greatest absolute difference.
    pub worst_absolute: Option<Difference>,
    /// The wrong one at the greatest relative difference.
    pub worst_relative: Option<Difference>,
}

/// How many wrong elements a comparison lists.
pub const FIRST_MAX: usize = 8;

impl Comparison {
    /// Whether something was compared and nothing was wrong.
    pub fn holds(&self) -> bool {
        self.elements > 0 && self.wrong == 0
    }
}

/// Outputs that cannot even be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// An element type without a Rust type.
    #[error("compare output `{name}`: elements of type {dtype:?} cannot be read")]
    Unreadable {
        /// The output.
        name: String,
        /// Its type.
        dtype: DType,
    },
    /// Another element type.
    #[error("compare output `{name}`: it is {actual:?}, expected {expected:?}")]
    DType {
        /// The output.
        name: String,
        /// What came out.
        actual: DType,
        /// What should have.
        expected: DType,
    },
    /// Another shape.
    #[error("compare output `{name}`: its shape is {actual:?}, expected {expected:?}")]
    Shape {
        /// The output.
        name: String,
        /// What came out.
        actual: Vec<usize>,
        /// What should have.
        expected: Vec<usize>,
    },
    /// Other outputs.
    #[error("compare outputs: there are {actual:?}, expected {expected:?}")]
    Names {
        /// What came out.
        actual: Vec<String>,
        /// What should have.
        expected: Vec<String>,
    },
}

/// Compares all outputs; names, types and shapes must be the same.
///
/// # Errors
/// When they are not; values that differ are no error but in the result.
pub fn compare_all(
    actual: &Tensors,
    expected: &Tensors,
    tolerance: impl Fn(&str) -> Tolerance,
) -> Result<Vec<Comparison>, CompareError> {
    let names = |tensors: &Tensors| {
        let mut names: Vec<String> = tensors.iter().map(|(name, _)| name.to_owned()).collect();
        names.sort();
        names
    };
    let (found, wanted) = (names(actual), names(expected));
    if found != wanted {
        return Err(CompareError::Names {
            actual: found,
            expected: wanted,
        });
    }
    let by_name = |(name, expected)| {
        let actual = actual.get(name).expect("the names are the same");
        compare(name, actual, expected, tolerance(name))
    };
    expected.iter().map(by_name).collect()
}

/// Compares one output.
///
/// # Errors
/// When types or shapes differ.
///
/// Cost: one pass over both.
pub fn compare(
    name: &str,
    actual: &HostTensor,
    expected: &HostTensor,
    tolerance: Tolerance,
) -> Result<Comparison, CompareError> {
    let name = name.to_owned();
    if actual.dtype() != expected.dtype() {
        let (actual, expected) = (actual.dtype(), expected.dtype());
        return Err(CompareError::DType {
            name,
            actual,
            expected,
        });
    }
    if actual.shape() != expected.shape() {
        let (actual, expected) = (actual.shape().to_vec(), expected.shape().to_vec());
        return Err(CompareError::Shape {
            name,
            actual,
            expected,
        });
    }
    let Some(reader) = Reader::of(actual.dtype()) else {
        return Err(CompareError::Unreadable {
            name,
            dtype: actual.dtype(),
        });
    };
    let mut tally = Tally::new(name, expected.shape(), tolerance);
    let pairs = actual
        .as_bytes()
        .chunks_exact(reader.bytes)
        .zip(expected.as_bytes().chunks_exact(reader.bytes));
    for (at, (actual, expected)) in pairs.enumerate() {
        tally.add(
            at,
            reader.value(actual),
            reader.value(expected),
            reader.is_poison(actual),
        );
    }
    Ok(tally.finish())
}

/// How many elements of an output nobody wrote, as far as that is known without an expected value: all that
/// are as they were before the run, where none is so by chance, else only if all are.
pub(crate) fn unwritten(tensor: &HostTensor) -> usize {
    let Some(reader) = Reader::of(tensor.dtype()) else {
        return 0;
    };
    let elements = tensor.as_bytes().chunks_exact(reader.bytes);
    let unwritten = elements.filter(|one| reader.is_poison(one)).count();
    match reader.poison_is_rare() || unwritten == tensor.len() {
        true => unwritten,
        false => 0,
    }
}

/// A comparison that goes on.
struct Tally {
    result: Comparison,
    /// Where the worst are, with how bad they are.
    worst_absolute: Option<(f64, Pair)>,
    worst_relative: Option<(f64, Pair)>,
}

#[derive(Clone, Copy)]
struct Pair {
    at: usize,
    actual: Value,
    expected: Value,
}

impl Pair {
    /// Differences that are no number are the worst of all.
    fn absolute(self) -> f64 {
        self.actual.distance(self.expected).unwrap_or(f64::INFINITY)
    }

    fn relative(self) -> f64 {
        let relative = self.absolute() / self.expected.magnitude();
        if relative.is_nan() {
            f64::INFINITY
        } else {
            relative
        }
    }
}

impl Tally {
    fn new(name: String, shape: &[usize], tolerance: Tolerance) -> Self {
        let result = Comparison {
            name,
            shape: shape.to_vec(),
            tolerance,
            elements: 0,
            wrong: 0,
            unwritten: 0,
            first: Vec::new(),
            worst_absolute: None,
            worst_relative: None,
        };
        Self {
            result,
            worst_absolute: None,
            worst_relative: None,
        }
    }

    fn add(&mut self, at: usize, actual: Value, expected: Value, poison: bool) {
        self.result.elements += 1;
        // The NaN that was there before is not the one that is expected: nobody wrote it.
        let is_unwritten_nan = poison && actual.is_nan();
        if !is_unwritten_nan && self.result.tolerance.allows(actual, expected) {
            return;
        }
        let pair = Pair {
            at,
            actual,
            expected,
        };
        self.result.wrong += 1;
        self.result.unwritten += u64::from(poison);
        if self.result.first.len() < FIRST_MAX {
            self.result.first.push(self.difference(pair));
        }
        rise(&mut self.worst_absolute, pair.absolute(), pair);
        rise(&mut self.worst_relative, pair.relative(), pair);
    }

    fn finish(mut self) -> Comparison {
        let shown = |worst: Option<(f64, Pair)>| worst.map(|(_, pair)| self.difference(pair));
        let (absolute, relative) = (shown(self.worst_absolute), shown(self.worst_relative));
        self.result.worst_absolute = absolute;
        self.result.worst_relative = relative;
        self.result
    }

    fn difference(&self, pair: Pair) -> Difference {
        Difference {
            index: index(pair.at, &self.result.shape),
            actual: pair.actual.to_string(),
            expected: pair.expected.to_string(),
            absolute: Some(pair.absolute()).filter(|far| far.is_finite()),
            relative: Some(pair.relative()).filter(|far| far.is_finite()),
        }
    }
}

fn rise(worst: &mut Option<(f64, Pair)>, far: f64, pair: Pair) {
    if worst.is_none_or(|(least, _)| far > least) {
        *worst = Some((far, pair));
    }
}

/// The index of the element number `at` in row-major order.
fn index(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (dim, &size) in shape.iter().enumerate().rev() {
        index[dim] = at % size;
        at /= size;
    }
    index
}

/// A report for people: one line when it holds, the details when it does not.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            shape,
            tolerance,
            elements,
            wrong,
            ..
        } = self;
        if *elements == 0 {
            return write!(
                f,
                "output `{name}` {shape:?}: it is empty, so nothing was compared"
            );
        }
        if *wrong == 0 {
            return write!(
                f,
                "output `{name}` {shape:?}: {elements} elements right ({tolerance})"
            );
        }
        let share = 100.0 * *wrong as f64 / *elements as f64;
        write!(
            f,
            "output `{name}` {shape:?}: {wrong} of {elements} elements wrong ({share:.2} %), {tolerance}"
        )?;
        if self.unwritten > 0 {
            write!(f, "\n  {} of them were never written", self.unwritten)?;
        }
        for difference in &self.first {
            write!(f, "\n  {difference}")?;
        }
        if *wrong > self.first.len() as u64 {
            write!(f, "\n  ... and {} more", wrong - self.first.len() as u64)?;
        }
        let worst = [
            ("absolute", &self.worst_absolute),
            ("relative", &self.worst_relative),
        ];
        for (kind, worst) in worst {
            if let Some(worst) = worst {
                write!(f, "\n  greatest {kind} difference: {worst}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}: {}, expected {}",
            self.index, self.actual, self.expected
        )?;
        if let (Some(absolute), Some(relative)) = (self.absolute, self.relative) {
            write!(f, " (off by {absolute:.3e}, relative {relative:.3e})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
