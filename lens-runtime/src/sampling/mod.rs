//! Which calls of a group that is on get a span? A share of a group, a choice of steps, and OpenTelemetry's samplers.
//!
//! Every decision is a function of values, so that processes which know nothing of each other decide alike: whether a
//! share keeps a call is asked of 56 bits that are drawn from what the call is about ([`randomness`]), or that the
//! trace's id has already ([`randomness_of_trace`]). What was decided travels in the `tracestate` of the span, so that
//! a backend can count what is not there ([`thinned`]).
//!
//! Nothing here knows of configuration, exporters or OTLP.

mod key;
mod ordinals;
mod sampler;
mod steps;
mod trace_state;

pub use key::SampleKey;
pub(crate) use key::{Key, OwnedKey, randomness};
pub(crate) use ordinals::Ordinals;
pub(crate) use sampler::{BuiltInSampler, Root};
pub(crate) use steps::Steps;
pub(crate) use trace_state::{Draw, thinned};

use opentelemetry::trace::TraceId;

/// How many values 56 bits have: the resolution of OpenTelemetry's consistent probability sampling.
const OUTCOMES: u64 = 1 << 56;

/// What is kept of a group's calls, as OpenTelemetry's rejection threshold: the number of those among 2⁵⁶ calls that
/// are dropped. At least one is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Share {
    threshold: u64,
}

impl Share {
    /// Every call.
    pub(crate) const ALL: Self = Self { threshold: 0 };

    /// The share that is nearest to a ratio.
    pub(crate) fn of_ratio(ratio: f64) -> Self {
        // What is kept, and not 1 - ratio, because that has lost the last digits of a small ratio.
        let kept = (ratio * OUTCOMES as f64).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates"
        )]
        Self::keeping(kept as u64)
    }

    /// The share that keeps so many of 2⁵⁶.
    fn keeping(kept: u64) -> Self {
        Self { threshold: OUTCOMES - kept.clamp(1, OUTCOMES) }
    }

    /// The share with this threshold, as [`threshold`](Self::threshold) gives it.
    pub(crate) const fn of_threshold(threshold: u64) -> Self {
        let most = OUTCOMES - 1;
        Self { threshold: if threshold < most { threshold } else { most } }
    }

    /// How many of 2⁵⁶ are dropped: less than 2⁵⁶.
    pub(crate) const fn threshold(self) -> u64 {
        self.threshold
    }

    /// How many of 2⁵⁶ are kept: at least 1.
    const fn kept(self) -> u64 {
        OUTCOMES - self.threshold
    }

    /// Whether the call for which these 56 bits were drawn is kept. What a share keeps, every greater one keeps too.
    pub(crate) const fn keeps(self, randomness: u64) -> bool {
        randomness >= self.threshold
    }

    /// What is kept of what `other` keeps, if the two decide independently.
    fn of(self, other: Self) -> Self {
        let kept = u128::from(self.kept()) * u128::from(other.kept());
        let rounded = (kept + u128::from(OUTCOMES / 2)) / u128::from(OUTCOMES);
        Self::keeping(u64::try_from(rounded).unwrap_or(OUTCOMES))
    }

    /// Maps what `self` keeps onto what `other` keeps, in order: evenly distributed values stay so.
    fn carry_over(self, randomness: u64, other: Self) -> u64 {
        let above = randomness.saturating_sub(self.threshold).min(self.kept() - 1);
        let above = u128::from(above) * u128::from(other.kept()) / u128::from(self.kept());
        other.threshold + u64::try_from(above).unwrap_or(other.kept() - 1)
    }
}

/// The randomness of a trace: the rightmost 56 bits of its id, which the W3C's trace context (level 2) and
/// OpenTelemetry expect to be random.
pub(crate) fn randomness_of_trace(trace_id: TraceId) -> u64 {
    end_of(trace_id) & (OUTCOMES - 1)
}

/// The rightmost 64 bits of a trace's id.
fn end_of(trace_id: TraceId) -> u64 {
    let [_, _, _, _, _, _, _, _, end @ ..] = trace_id.to_bytes();
    u64::from_be_bytes(end)
}

/// `; 50% is 0.5`, if a ratio was written so.
pub(crate) fn percent_hint(text: &str) -> String {
    match text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok()) {
        Some(percent) if percent > 0.0 && percent <= 100.0 => format!("; {text} is {}", percent / 100.0),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATIOS: [f64; 7] = [0.001, 0.01, 0.1, 1.0 / 3.0, 0.5, 0.9, 0.999];

    /// The ordinals below `count` that are kept.
    fn kept(ratio: f64, count: u64) -> Vec<u64> {
        let share = Share::of_ratio(ratio);
        (0..count)
            .filter(|ordinal| share.keeps(randomness("run-7", "generation", 3, Key::Ordinal(*ordinal))))
            .collect()
    }

    #[test]
    fn thresholds_are_those_of_the_specification() {
        for (ratio, threshold) in [
            (1.0, 0),
            (0.5, 0x80_0000_0000_0000),
            (0.25, 0xc0_0000_0000_0000),
            (0.1, 0xe6_6666_6666_6666),
            (0.01, 0xfd_70a3_d70a_3d71),
            // No ratio is so small that nothing is kept.
            (1e-300, OUTCOMES - 1),
            (f64::MIN_POSITIVE, OUTCOMES - 1),
        ] {
            assert_eq!(Share::of_ratio(ratio).threshold(), threshold, "{ratio}");
        }
        assert_eq!(Share::of_threshold(u64::MAX).threshold(), OUTCOMES - 1);
        assert!(Share::ALL.keeps(0));
        assert!(Share::of_ratio(1e-300).keeps(OUTCOMES - 1));
    }

    #[test]
    fn of_many_ordinals_the_share_is_kept_within_four_standard_deviations_and_the_same_ones_again() {
        const COUNT: u64 = 100_000;
        for ratio in RATIOS {
            let first = kept(ratio, COUNT);
            let expected = COUNT as f64 * ratio;
            let deviation = (expected * (1.0 - ratio)).sqrt();
            let off = (first.len() as f64 - expected) / deviation;
            assert!(
                off.abs() < 4.0,
                "{} kept of {COUNT} at {ratio}: {off} standard deviations off",
                first.len()
            );
            assert_eq!(first, kept(ratio, COUNT));
        }
    }

    #[test]
    fn what_a_share_keeps_a_greater_one_keeps_too() {
        for pair in RATIOS.windows(2) {
            let greater = kept(pair[1], 20_000);
            assert!(
                kept(pair[0], 20_000).iter().all(|ordinal| greater.binary_search(ordinal).is_ok()),
                "{pair:?}"
            );
        }
    }

    #[test]
    fn values_that_are_carried_over_stay_in_order_and_within_what_is_kept() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..10_000 {
            let from = Share::of_ratio(random.f64());
            let to = from.of(Share::of_ratio(random.f64()));
            let mut pair = [random.u64(from.threshold()..OUTCOMES), random.u64(from.threshold()..OUTCOMES)];
            pair.sort_unstable();
            let carried = pair.map(|value| from.carry_over(value, to));
            assert!(carried[0] <= carried[1] && carried[1] < OUTCOMES && to.keeps(carried[0]));
            assert_eq!(from.carry_over(pair[0], from), pair[0]);
            assert_eq!(from.carry_over(from.threshold(), to), to.threshold());
        }
    }

    #[test]
    fn the_randomness_of_a_trace_is_the_end_of_its_id() {
        let id = TraceId::from_hex("0af7651916cd43dd8448eb211c80319c").unwrap_or(TraceId::INVALID);
        assert_eq!(randomness_of_trace(id), 0x48_eb21_1c80_319c);
    }
}
