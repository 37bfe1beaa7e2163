//! Which traces are recorded? What OpenTelemetry's variables can ask for.

use std::fmt;

use opentelemetry::trace::TraceId;
use opentelemetry_sdk::trace::Sampler;

/// A sampler of OpenTelemetry's specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BuiltInSampler {
    /// Whether a span within another one is recorded if that is, whatever the root says.
    pub(crate) parent_based: bool,
    pub(crate) root: Root,
}

/// What is decided of a span that has no parent, or whose parent is not asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Root {
    /// All are recorded.
    On,
    /// None is.
    Off,
    /// This share of the traces, from 0 to 1, by their ids.
    Ratio(f64),
}

impl BuiltInSampler {
    /// What is used where nothing is said.
    pub(crate) const DEFAULT: Self = Self { parent_based: true, root: Root::On };

    /// The name in OpenTelemetry's variable.
    pub(crate) const fn name(self) -> &'static str {
        match (self.parent_based, self.root) {
            (false, Root::On) => "always_on",
            (false, Root::Off) => "always_off",
            (false, Root::Ratio(_)) => "traceidratio",
            (true, Root::On) => "parentbased_always_on",
            (true, Root::Off) => "parentbased_always_off",
            (true, Root::Ratio(_)) => "parentbased_traceidratio",
        }
    }

    /// Whether a span is recorded, before it is made: exactly as the SDK's sampler decides, to which this converts.
    /// `parent` says of the span that is current whether it is sampled; one that is not valid counts as one that is not.
    pub(crate) fn decide(self, parent: Option<bool>, trace_id: TraceId) -> bool {
        match (parent, self.root) {
            (Some(is_sampled), _) if self.parent_based => is_sampled,
            (_, Root::On) => true,
            (_, Root::Off) => false,
            (_, Root::Ratio(ratio)) => is_below(ratio, trace_id),
        }
    }
}

/// Whether a trace is among the share that the SDK records. It looks at other bits than
/// [`randomness_of_trace`](super::randomness_of_trace), and keeps the lower end.
fn is_below(ratio: f64, trace_id: TraceId) -> bool {
    let drawn = super::end_of(trace_id) >> 1;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "as the SDK does; a cast saturates"
    )]
    let bound = (ratio.max(0.0) * (1_u64 << 63) as f64) as u64;
    ratio >= 1.0 || drawn < bound
}

impl From<BuiltInSampler> for Sampler {
    fn from(sampler: BuiltInSampler) -> Self {
        let root = match sampler.root {
            Root::On => Sampler::AlwaysOn,
            Root::Off => Sampler::AlwaysOff,
            Root::Ratio(ratio) => Sampler::TraceIdRatioBased(ratio),
        };
        match sampler.parent_based {
            true => Sampler::ParentBased(Box::new(root)),
            false => root,
        }
    }
}

impl fmt::Display for BuiltInSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self.root {
            Root::Ratio(ratio) => write!(f, " {ratio}"),
            Root::On | Root::Off => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::Context;
    use opentelemetry::trace::{SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceState};
    use opentelemetry_sdk::trace::{SamplingDecision, ShouldSample as _};

    use super::*;

    /// What the SDK decides of a span beneath `parent`.
    fn sdk(sampler: BuiltInSampler, parent: Option<bool>, is_remote: bool, trace_id: TraceId) -> bool {
        let context = parent.map_or_else(Context::new, |is_sampled| {
            let flags = TraceFlags::default().with_sampled(is_sampled);
            let span = SpanContext::new(trace_id, SpanId::from(1), flags, is_remote, TraceState::NONE);
            Context::new().with_remote_span_context(span)
        });
        let result =
            Sampler::from(sampler).should_sample(Some(&context), trace_id, "", &SpanKind::Internal, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }

    #[test]
    fn decisions_are_those_of_the_sdk() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut recorded = 0;
        for round in 0..20_000 {
            let ratio = match round % 8 {
                0 => 0.0,
                1 => 1.0,
                2 => f64::MIN_POSITIVE,
                3 => 1.0 - f64::EPSILON,
                4 => 0.001,
                _ => random.f64(),
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is from 0 to 2⁶⁴"
            )]
            let bound = (ratio * (1_u128 << 64) as f64) as u128;
            let trace_id = match round % 5 {
                // On either side of the bound.
                0 => TraceId::from(bound.saturating_sub(3) + random.u128(0..6)),
                1 => TraceId::from(u128::MAX),
                2 => TraceId::from(1),
                _ => TraceId::from(random.u128(..)),
            };
            let parent = [None, Some(false), Some(true)][random.usize(0..3)];
            for root in [Root::On, Root::Off, Root::Ratio(ratio)] {
                for parent_based in [false, true] {
                    let sampler = BuiltInSampler { parent_based, root };
                    let decided = sampler.decide(parent, trace_id);
                    let expected = sdk(sampler, parent, random.bool(), trace_id);
                    assert_eq!(decided, expected, "{sampler} {parent:?} {trace_id}");
                    recorded += usize::from(decided);
                }
            }
        }
        // Both answers were given.
        assert!((30_000..90_000).contains(&recorded), "{recorded}");
    }
}
