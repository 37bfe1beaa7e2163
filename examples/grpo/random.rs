//! Where does every random number of a run come from?

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The one generator of a run.
///
/// Weights, prompts and sampled tokens all draw from it, in a fixed order, so a seed fixes a run bit
/// for bit. (candle's own generator for the CPU cannot be seeded.)
#[derive(Debug, Clone)]
pub struct Random(ChaCha8Rng);

/// All that is needed to continue a generator where another one stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomState {
    pub key: [u8; 32],
    pub position: u128,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub fn restore(state: RandomState) -> Self {
        let mut generator = ChaCha8Rng::from_seed(state.key);
        generator.set_word_pos(state.position);
        Self(generator)
    }

    pub fn state(&self) -> RandomState {
        RandomState { key: self.0.get_seed(), position: self.0.get_word_pos() }
    }

    /// A number in `[0, 1)`, with the 24 random bits that an `f32` can hold.
    pub fn uniform(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / (1_u32 << 24) as f32
    }

    /// A number in `0..bound`. For the small bounds of this program, the bias of the remainder is
    /// below one in a million.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.next_u32() as usize % bound
    }

    /// A draw from the standard normal distribution, by the Box-Muller transform.
    pub fn normal(&mut self) -> f32 {
        // `1 - u` lies in `(0, 1]`, so the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.uniform()).cos()
    }
}
