//! Durations counted by size.

use std::fmt;
use std::time::Duration;

/// Buckets per power of two: a bound is at most an eighth above what was counted.
const PER_OCTAVE: u32 = 8;
const OCTAVE_BITS: u32 = PER_OCTAVE.trailing_zeros();

/// How many durations fell where: any duration, at a resolution of an eighth of its size.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Grown to the longest duration that was counted.
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Histogram {
    /// Counts one duration.
    pub(crate) fn add(&mut self, ns: u64) {
        let bucket = bucket(ns);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean of all, zero for none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.checked_div(self.count).unwrap_or(0))
    }

    /// The longest, exactly.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// A duration that the share `q` (0 to 1) of all does not exceed, at most an eighth too long; zero for none.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = (q.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        });
        let bound = found.map_or(0, |bucket| upper_bound(bucket).min(self.max_ns));
        Duration::from_nanos(bound)
    }

    /// The buckets that are not empty: the longest duration of each, and how many fell there.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        filled.map(|(bucket, n)| (Duration::from_nanos(upper_bound(bucket)), *n))
    }
}

/// Small numbers have a bucket each; larger ones share one with those of the same leading four bits.
fn bucket(ns: u64) -> usize {
    let octave = ns.checked_ilog2().unwrap_or(0).saturating_sub(OCTAVE_BITS);
    ((octave * PER_OCTAVE) as u64 + (ns >> octave)) as usize
}

/// The largest number that falls into a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let octave = (bucket / u64::from(PER_OCTAVE)).saturating_sub(1);
    let lowest = (bucket - octave * u64::from(PER_OCTAVE)) << octave;
    lowest + ((1 << octave) - 1)
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count == 0 {
            return f.write_str("not measured");
        }
        let (half, most) = (self.quantile(0.5), self.quantile(0.99));
        write!(
            f,
            "{} times, half within {half:.1?}, 99 % within {most:.1?}, longest {:.1?}",
            self.count,
            self.max()
        )
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Histogram")
            .field(&format_args!("{self}"))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_falls_into_a_bucket_that_ends_at_most_an_eighth_above_it() {
        let numbers = (0..=4096).chain((12..64).flat_map(|bits| {
            let power = 1_u64 << bits;
            [power - 1, power, power + 1, power + power / 3]
        }));
        for ns in numbers.chain([u64::MAX]) {
            let bound = upper_bound(bucket(ns));
            assert!(bound >= ns && bound - ns <= ns / 8, "{ns}: {bound}");
        }
    }

    #[test]
    fn bounds_rise_without_gaps() {
        for index in 0..400 {
            assert_eq!(bucket(upper_bound(index)), index);
            assert_eq!(bucket(upper_bound(index) + 1), index + 1);
        }
    }

    #[test]
    fn quantiles_of_known_numbers_are_where_they_should_be() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        (1..=1000).for_each(|ns| histogram.add(ns));
        for (q, exact) in [(0.0, 1), (0.5, 500), (0.9, 900), (1.0, 1000)] {
            let found = histogram.quantile(q).as_nanos() as u64;
            assert!(found >= exact && found <= exact + exact / 8, "{q}: {found}");
        }
        assert_eq!(histogram.mean(), Duration::from_nanos(500));
        assert_eq!(histogram.buckets().map(|(_, n)| n).sum::<u64>(), 1000);
    }
}
