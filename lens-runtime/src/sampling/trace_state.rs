//! For how many calls does a span stand? What was decided, as it travels in the `tracestate`.
//!
//! Each span that a share has kept says with how likely it was kept, and what was drawn for it, in OpenTelemetry's
//! entry: `ot=th:e66;rv:f3a9c1d2e4b5a6`. A backend counts it `1 / likelihood` times, and may thin further without
//! being wrong: what was drawn is never less than the threshold (`rv >= th`).

use opentelemetry::trace::TraceState;

#[cfg(test)]
use super::OUTCOMES;
use super::Share;

/// OpenTelemetry's entry.
const ENTRY: &str = "ot";

/// The sub-keys of it that are ours to write: the rejection threshold and what was drawn.
const THRESHOLD: &str = "th";
const RANDOMNESS: &str = "rv";

/// Hex digits of 56 bits.
const DIGITS: usize = 14;

/// What a share was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    /// 56 bits of the trace, see [`randomness_of_trace`](super::randomness_of_trace).
    OfTrace(u64),
    /// 56 bits of a call, see [`randomness`](super::randomness).
    OfCall(u64),
}

impl Draw {
    pub(crate) const fn randomness(self) -> u64 {
        match self {
            Self::OfTrace(drawn) | Self::OfCall(drawn) => drawn,
        }
    }
}

/// The `tracestate` of a span that `share` kept, beneath a span with that of `parent`. A share of everything changes
/// nothing. Entries of others, and other sub-keys of OpenTelemetry's, stay; what is malformed goes.
///
/// Beneath a span that was thinned itself, the likelihood is that of both. If the same was drawn for both, as for two
/// calls with one key or two decisions by the trace's id, the second decision was the first one again, and the
/// smaller likelihood counts; else it is the product, and what was drawn is carried over to what that keeps.
pub(crate) fn thinned(parent: &TraceState, share: Share, draw: Draw) -> TraceState {
    if share == Share::ALL {
        return parent.clone();
    }
    let earlier = Entry::read(parent);
    let (share, randomness) = earlier.thinned(share, draw);
    let own = written(share, randomness);
    let whole = earlier.others.iter().fold(own.clone(), |text, (key, value)| format!("{text};{key}:{value}"));
    // The specification's advice for an entry that grows too long is to leave it as it is. It would be wrong then.
    [whole, own]
        .into_iter()
        .find_map(|entry| {
            let others = parent.into_iter().filter(|(key, _)| *key != ENTRY);
            TraceState::from_key_value([(ENTRY, entry.as_str())].into_iter().chain(others)).ok()
        })
        .unwrap_or_default()
}

/// For how many spans one with this `tracestate` stands; `None` if it does not say, which is the case for one that
/// was not thinned.
#[cfg(test)]
pub(crate) fn adjusted_count(state: &TraceState) -> Option<f64> {
    Entry::read(state).threshold.map(|share| OUTCOMES as f64 / share.kept() as f64)
}

/// The randomness that a trace has been given in place of its id's, or that was drawn for the span.
#[cfg(test)]
pub(crate) fn explicit_randomness(state: &TraceState) -> Option<u64> {
    Entry::read(state).randomness
}

/// OpenTelemetry's entry, as far as it can be read.
#[derive(Default)]
struct Entry<'a> {
    threshold: Option<Share>,
    randomness: Option<u64>,
    others: Vec<(&'a str, &'a str)>,
}

impl<'a> Entry<'a> {
    fn read(state: &'a TraceState) -> Self {
        let mut entry = Self::default();
        for (key, value) in
            state.get(ENTRY).unwrap_or_default().split(';').filter_map(|part| part.split_once(':'))
        {
            match key {
                // Trailing zeros may be left out.
                THRESHOLD => {
                    entry.threshold =
                        hex(value).map(|(value, missing)| Share::of_threshold(value << (4 * missing)));
                }
                RANDOMNESS => {
                    entry.randomness =
                        hex(value).filter(|(_, missing)| *missing == 0).map(|(value, _)| value);
                }
                _ if is_key(key)
                    && is_value(value)
                    && entry.others.iter().all(|(known, _)| *known != key) =>
                {
                    entry.others.push((key, value));
                }
                _ => {}
            }
        }
        entry
    }

    /// The share that is kept altogether, and what was drawn for it if that does not show from the trace's id.
    fn thinned(&self, share: Share, draw: Draw) -> (Share, Option<u64>) {
        let (drawn, of_trace) = match draw {
            Draw::OfTrace(drawn) => (drawn, true),
            Draw::OfCall(drawn) => (drawn, false),
        };
        let before = self.randomness.or_else(|| of_trace.then_some(drawn));
        // A span that says that it should not be there is not believed.
        let earlier = self.threshold.filter(|earlier| before.is_none_or(|before| earlier.keeps(before)));
        let Some(earlier) = earlier else {
            let is_explicit = !of_trace || self.randomness == Some(drawn);
            return (share, is_explicit.then_some(drawn));
        };
        if before == Some(drawn) {
            return (earlier.max(share), self.randomness);
        }
        // The same one, which had to be carried over already.
        if earlier >= share && before == Some(share.carry_over(drawn, earlier)) {
            return (earlier, self.randomness);
        }
        let both = share.of(earlier);
        (both, Some(share.carry_over(drawn, both)))
    }
}

fn written(share: Share, randomness: Option<u64>) -> String {
    let digits = format!("{:0DIGITS$x}", share.threshold());
    let threshold = match digits.trim_end_matches('0') {
        "" => "0",
        digits => digits,
    };
    match randomness {
        Some(randomness) => format!("{THRESHOLD}:{threshold};{RANDOMNESS}:{randomness:0DIGITS$x}"),
        None => format!("{THRESHOLD}:{threshold}"),
    }
}

/// Up to 14 hex digits, and how many are missing.
fn hex(text: &str) -> Option<(u64, usize)> {
    let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let missing = DIGITS.checked_sub(text.len()).filter(|_| is_hex)?;
    u64::from_str_radix(text, 16).ok().map(|value| (value, missing))
}

fn is_key(key: &str) -> bool {
    key.starts_with(|first: char| first.is_ascii_lowercase())
        && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn is_value(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it comes in, also where the SDK's own reader would refuse it.
    fn state(header: &str) -> TraceState {
        header.parse().unwrap_or_default()
    }

    fn header(parent: &str, ratio: f64, draw: Draw) -> String {
        thinned(&state(parent), Share::of_ratio(ratio), draw).header()
    }

    #[test]
    fn a_kept_span_says_how_likely_it_was_kept_and_what_was_drawn() {
        let drawn = Draw::OfCall(0xff_3a9c_1d2e_4b5a);
        assert_eq!(header("", 0.5, drawn), "ot=th:8;rv:ff3a9c1d2e4b5a");
        assert_eq!(header("", 0.1, drawn), "ot=th:e6666666666666;rv:ff3a9c1d2e4b5a");
        assert_eq!(header("", 0.25, Draw::OfTrace(0xff_3a9c_1d2e_4b5a)), "ot=th:c");
        assert_eq!(header("", 1.0, drawn), "");
        // Leading zeros are kept.
        assert_eq!(
            header("", 0.999_999, Draw::OfCall(0x00_3a9c_1d2e_4b5a)),
            "ot=th:000010c6f7a0b8;rv:003a9c1d2e4b5a"
        );
    }

    #[test]
    fn entries_and_sub_keys_of_others_stay() {
        let drawn = Draw::OfCall(0xff_3a9c_1d2e_4b5a);
        let own = "ot=th:8;rv:ff3a9c1d2e4b5a";
        assert_eq!(header("a=1,b@x=2", 0.5, drawn), format!("{own},a=1,b@x=2"));
        assert_eq!(header("a=1,ot=p:8;k1:-._Az9,b=2", 0.5, drawn), format!("{own};p:8;k1:-._Az9,a=1,b=2"));
        assert_eq!(header("a=1,ot=p:8,b=2", 1.0, drawn), "a=1,ot=p:8,b=2");
        // There is room for 32 entries.
        let many: Vec<_> = (0..32).map(|number| format!("v{number}=1")).collect();
        assert_eq!(header(&many.join(","), 0.5, drawn), format!("{own},{}", many[..31].join(",")));
    }

    #[test]
    fn what_is_malformed_goes_without_a_panic() {
        let drawn = Draw::OfCall(0xff_3a9c_1d2e_4b5a);
        let long = format!("ot=k:{}", "x".repeat(250));
        for parent in [
            "ot=",
            "ot=;",
            "ot=:",
            "ot=th",
            "ot=th:",
            "ot=th:xyz",
            "ot=th:+8",
            "ot=th:123456789abcdef",
            "ot=th:8;th:x",
            "ot=rv:1",
            "ot=rv:123456789abcdef",
            "ot=th:ü",
            "ot=Th:8",
            "ot=1k:1",
            "ot=k:a/b",
            "ot=th:f;rv:00000000000000",
            "ot=th:8,ot=th:c",
            "ot",
            ",,,",
            long.as_str(),
        ] {
            let header = header(parent, 0.5, drawn);
            // One that is there twice, and what the SDK cannot read whole, apart.
            let expected = match parent {
                "ot=th:8,ot=th:c" => "ot=th:c;rv:fe75383a5c96b5",
                _ => "ot=th:8;rv:ff3a9c1d2e4b5a",
            };
            let expected = match parent {
                "ot=th:8,ot=th:c" => {
                    format!("ot=th:c;rv:{:014x}", 0xc0_0000_0000_0000_u64 + 0x7f_3a9c_1d2e_4b5a / 2)
                }
                _ => expected.to_owned(),
            };
            assert_eq!(header, expected, "{parent}");
        }
        let letters = ['o', 't', 'r', 'v', 'h', ':', ';', '=', ',', '-', '0', '8', 'f', 'F', ' ', 'ü'];
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let text: String =
                (0..random.usize(0..24)).map(|_| random.choice(letters).unwrap_or(' ')).collect();
            for parent in [text.clone(), format!("ot={text}"), format!("ot=th:{text}")] {
                let state =
                    thinned(&state(&parent), Share::of_ratio(random.f64()), Draw::OfCall(OUTCOMES - 1));
                assert!(adjusted_count(&state).is_some_and(|count| count >= 1.0), "{parent}");
            }
        }
    }

    #[test]
    fn beneath_a_thinned_span_likelihoods_multiply_and_what_was_drawn_stays_above_the_threshold() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..10_000 {
            let [above, own] = [(); 2].map(|()| Share::of_ratio(random.f64()));
            let [first, second] = [above, own].map(|share| random.u64(share.threshold()..OUTCOMES));
            let parent = thinned(&TraceState::NONE, above, Draw::OfCall(first));
            let child = thinned(&parent, own, Draw::OfCall(second));
            let (count, expected) = (
                adjusted_count(&child).unwrap_or_default(),
                [&above, &own].map(|share| OUTCOMES as f64 / share.kept() as f64).iter().product::<f64>(),
            );
            assert!((count / expected - 1.0).abs() < 1e-6, "{count} {expected} {above:?} {own:?}");
            let entry = Entry::read(&child);
            assert!(entry.threshold.zip(entry.randomness).is_some_and(|(share, drawn)| share.keeps(drawn)));
        }
    }

    #[test]
    fn what_is_carried_over_is_evenly_distributed_over_what_is_kept() {
        let (above, own) = (Share::of_ratio(0.3), Share::of_ratio(0.2));
        let parent = thinned(&TraceState::NONE, above, Draw::OfCall(OUTCOMES - 1));
        let mut random = fastrand::Rng::with_seed(9);
        // Of what is left at 0.06, a backend that wants 0.015 keeps a quarter.
        let further = Share::of_ratio(0.015);
        let kept = (0..10_000)
            .filter(|_| {
                let drawn = random.u64(own.threshold()..OUTCOMES);
                explicit_randomness(&thinned(&parent, own, Draw::OfCall(drawn)))
                    .is_some_and(|drawn| further.keeps(drawn))
            })
            .count();
        assert!((2_500_i32 - i32::try_from(kept).unwrap_or_default()).abs() < 4 * 44, "{kept}");
    }

    #[test]
    fn the_same_decision_again_is_not_counted_twice() {
        let drawn = 0xff_fa9c_1d2e_4b5a;
        // By the id of the trace.
        assert_eq!(header("ot=th:8", 0.1, Draw::OfTrace(drawn)), "ot=th:e6666666666666");
        assert_eq!(header("ot=th:e66", 0.5, Draw::OfTrace(drawn)), "ot=th:e66");
        // By the same key.
        let rv = format!("rv:{drawn:014x}");
        assert_eq!(header(&format!("ot=th:8;{rv}"), 0.5, Draw::OfCall(drawn)), format!("ot=th:8;{rv}"));
        assert_eq!(header(&format!("ot=th:8;{rv}"), 0.25, Draw::OfCall(drawn)), format!("ot=th:c;{rv}"));
        // By the same key, within another group's span that is thinned.
        let outer = header("ot=th:8;rv:f0000000000000", 0.25, Draw::OfCall(drawn));
        assert!(outer.starts_with("ot=th:e;rv:"), "{outer}");
        assert_eq!(header(&outer, 0.25, Draw::OfCall(drawn)), outer);
        // By the id of the trace, beneath a span for which something else was drawn.
        assert_eq!(
            header("ot=th:8;rv:f0000000000000", 0.5, Draw::OfTrace(0xff_0000_0000_0000)),
            "ot=th:c;rv:ff800000000000"
        );
    }

    #[test]
    fn a_span_that_was_not_thinned_does_not_say_for_how_many_it_stands() {
        assert_eq!(adjusted_count(&TraceState::NONE), None);
        assert_eq!(adjusted_count(&state("ot=th:x")), None);
        assert_eq!(adjusted_count(&state("ot=th:0")), Some(1.0));
        assert_eq!(adjusted_count(&state("a=1,ot=p:8;th:f")), Some(16.0));
    }
}
