//! Random inputs that are the same every time: from the seed of a case.

use facade::Element;

use crate::tensor::{HostTensor, TensorError};

/// A stream of numbers that its seed determines, on every machine and in every version.
///
/// (SplitMix64: a counter and a mixing function. Not for secrets.)
///
/// ```
/// use scenetest::Random;
///
/// let once: Vec<u64> = { let mut random = Random::new(7); (0..3).map(|_| random.bits()).collect() };
/// let again: Vec<u64> = { let mut random = Random::new(7); (0..3).map(|_| random.bits()).collect() };
/// assert_eq!(once, again);
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`; 0 when that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: unbiased enough for inputs, and without a division.
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number from -1 to 1, that no `f32` rounds.
    pub fn unit(&mut self) -> f32 {
        let steps = (self.bits() >> 40) as f32;
        steps / (1 << 23) as f32 - 1.0
    }

    /// A tensor of such numbers, made into elements by `of`.
    ///
    /// # Errors
    /// As for [`HostTensor::new`].
    pub fn tensor<T: Element>(
        &mut self,
        shape: &[usize],
        of: impl Fn(f32) -> T,
    ) -> Result<HostTensor, TensorError> {
        let elements: Vec<T> = (0..shape.iter().product())
            .map(|_| of(self.unit()))
            .collect();
        HostTensor::new(&elements, shape)
    }
}

#[cfg(test)]
mod tests;
