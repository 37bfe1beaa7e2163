//! Of which steps are spans recorded?

use std::ops::RangeInclusive;

use crate::error::did_you_mean;

/// The steps whose spans are recorded in full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Steps {
    /// All.
    #[default]
    All,
    /// Those whose number can be divided by this one. 0 can be, and 1 only by 1.
    Every(u64),
    /// Those in one of these ranges.
    Listed(Vec<RangeInclusive<u64>>),
    /// The slowest `keep` among each `of` that follow one another: at least one, and fewer than `of`. Which they are
    /// shows when they are over.
    Slowest {
        /// How many.
        keep: u32,
        /// Of how many.
        of: u32,
    },
}

/// What a text may be, for errors.
const EXPECTED: &str =
    "all, steps and ranges such as \"1,5,10-20,100-\", \"every 10\" or \"slowest 3 of 100\"";

impl Steps {
    /// Reads a `steps` text, in any case.
    ///
    /// # Errors
    /// What was expected and what stood there.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim().to_lowercase();
        let words: Vec<_> = text.split_whitespace().collect();
        match words.as_slice() {
            ["all"] => Ok(Self::All),
            ["every", rest @ ..] => match number(&rest.join(" ")) {
                Some(every) if every > 0 => Ok(Self::Every(every)),
                _ => Err(format!(
                    "expected a whole number of at least 1 behind \"every\", such as \"every 10\", got {}",
                    shown(&rest.join(" "))
                )),
            },
            ["slowest", rest @ ..] => Self::slowest(rest),
            [word, ..] if word.starts_with(|first: char| first.is_ascii_digit() || "-,+".contains(first)) => {
                text.split(',').map(|item| range(item.trim())).collect::<Result<_, _>>().map(Self::Listed)
            }
            words => {
                let first = words.first().copied().unwrap_or_default();
                let hint = did_you_mean(first, ["all", "every", "slowest"]);
                Err(format!("expected {EXPECTED}, got {}{hint}", shown(&text)))
            }
        }
    }

    fn slowest(rest: &[&str]) -> Result<Self, String> {
        let small = |text: &str| number(text).and_then(|number| u32::try_from(number).ok());
        let pair = match rest {
            [keep, "of", of] => small(keep).zip(small(of)),
            _ => None,
        };
        match pair {
            Some((keep, of)) if 0 < keep && keep < of => Ok(Self::Slowest { keep, of }),
            _ => Err(format!(
                "expected two whole numbers behind \"slowest\", the first at least 1 and less than the second, such as \
                 \"slowest 3 of 100\", got {}",
                shown(&rest.join(" "))
            )),
        }
    }

    /// Whether spans of this step are recorded while it runs. Of the slowest steps that is not known before they are
    /// over, so that all are.
    pub(crate) fn includes(&self, step: u64) -> bool {
        match self {
            Self::All | Self::Slowest { .. } => true,
            Self::Every(every) => step.is_multiple_of(*every),
            Self::Listed(ranges) => ranges.iter().any(|range| range.contains(&step)),
        }
    }
}

/// `7`, `10-20` or `100-`.
fn range(item: &str) -> Result<RangeInclusive<u64>, String> {
    let told = |hint: &str| {
        format!("expected a step or a range, such as 5, 10-20 or 100-, got {}{hint}", shown(item))
    };
    let Some((from, to)) = item.split_once('-') else {
        return number(item).map(|step| step..=step).ok_or_else(|| told(""));
    };
    let (from, to) = (from.trim(), to.trim());
    match (number(from), number(to)) {
        (Some(from), None) if to.is_empty() => Ok(from..=u64::MAX),
        (Some(from), Some(to)) if from <= to => Ok(from..=to),
        (Some(_), Some(_)) => Err(told(", which ends before it begins")),
        (None, Some(to)) if from.is_empty() => Err(told(&format!("; all up to {to} are 0-{to}"))),
        _ => Err(told("")),
    }
}

/// A number of digits alone: `+5` is none.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn shown(text: &str) -> String {
    match text {
        "" => "nothing".to_owned(),
        text => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn included(text: &str) -> Vec<u64> {
        let steps = Steps::parse(text).unwrap_or(Steps::Listed(Vec::new()));
        (0..=25).filter(|step| steps.includes(*step)).collect()
    }

    #[test]
    fn a_text_says_which_steps_are_recorded() {
        let all: Vec<_> = (0..=25).collect();
        for text in ["all", " ALL ", "0-", "every 1", "slowest 3 of 100", "0-10,11-"] {
            assert_eq!(included(text), all, "{text}");
        }
        assert_eq!(included("every 10"), [0, 10, 20]);
        assert_eq!(included("EVERY  7"), [0, 7, 14, 21]);
        assert_eq!(included("3"), [3]);
        assert_eq!(included("1, 5,10 - 12 ,24-"), [1, 5, 10, 11, 12, 24, 25]);
        assert_eq!(included("5-5,3,4-5"), [3, 4, 5]);
        assert_eq!(Steps::parse("Slowest 3 of 100"), Ok(Steps::Slowest { keep: 3, of: 100 }));
        assert!(Steps::parse("100-").is_ok_and(|steps| steps.includes(u64::MAX)));
    }
}
