//! Whether what came out is near enough to what should have.

use std::fmt;

/// How far a value may be from the expected one: `absolute + relative * |expected|`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    pub(crate) relative: f64,
    pub(crate) absolute: f64,
}

impl Tolerance {
    /// For activations in `bf16`.
    pub(crate) const BF16: Tolerance = Tolerance {
        relative: 5e-2,
        absolute: 1e-1,
    };

    /// For activations in `f32`.
    pub(crate) const F32: Tolerance = Tolerance {
        relative: 1e-3,
        absolute: 1e-4,
    };
}

/// All that was compared under one heading.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    what: &'static str,
    with: &'static str,
    tolerance: Tolerance,
    values: usize,
    /// The largest difference, as a part of what is allowed there.
    worst: f64,
    failure: Option<String>,
}

impl Comparison {
    pub(crate) fn new(what: &'static str, with: &'static str, tolerance: Tolerance) -> Self {
        Self {
            what,
            with,
            tolerance,
            values: 0,
            worst: 0.0,
            failure: None,
        }
    }

    /// Compares values in order; `place` says where they belong if one is wrong.
    pub(crate) fn add(
        &mut self,
        found: &[f32],
        expected: impl IntoIterator<Item = f64>,
        place: impl Fn() -> String,
    ) {
        let (mut expected, mut count) = (expected.into_iter(), 0);
        for (at, (found, expected)) in found.iter().zip(&mut expected).enumerate() {
            let allowed = self.tolerance.absolute + self.tolerance.relative * expected.abs();
            let part = (f64::from(*found) - expected).abs() / allowed;
            count += 1;
            self.worst = self.worst.max(part);
            // Not a number is no good either.
            let is_near = part <= 1.0;
            if !is_near && self.failure.is_none() {
                self.failure = Some(format!(
                    "element {at} of {}: {found} instead of {expected:.6}",
                    place()
                ));
            }
        }
        self.values += count;
        let wanted = count + expected.count();
        if wanted != found.len() {
            self.failure.get_or_insert(format!(
                "{}: {} values, {wanted} expected",
                place(),
                found.len()
            ));
        }
    }

    /// The first value that was too far off, if one was, or that nothing was compared.
    pub(crate) fn outcome(&self) -> Result<(), String> {
        match &self.failure {
            Some(failure) => Err(format!(
                "compare {} with {}: {failure}",
                self.what, self.with
            )),
            None if self.values == 0 => Err(format!(
                "compare {} with {}: there were none",
                self.what, self.with
            )),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            with,
            tolerance: Tolerance { relative, absolute },
            values,
            worst,
            failure,
        } = self;
        let verdict = if failure.is_none() { "agree" } else { "DIFFER" };
        write!(
            f,
            "{values} {what} {verdict} with {with}: worst at {:.1} % of rtol {relative:.0e}, atol {absolute:.0e}",
            100.0 * worst
        )
    }
}
