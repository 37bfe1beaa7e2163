//! Is this call recorded? Span groups and the gate.
//!
//! A group is a `static` with a state of its own. A call of an annotated function reads that state
//! once, relaxed; if it is zero, that is all that happens. Nothing here knows where telemetry goes
//! or how it was configured: [`select`] is told which groups are on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::did_you_mean;
use crate::groups::{ALL, BUILT_IN, PRESETS};
use crate::sampling::{Share, percent_hint};

/// A named set of spans that is switched on and off together.
///
/// The built-in groups are in [`groups`](crate::groups). A library declares its own as a `static`
/// and names it by path; it is known from its first use, or from init if it is handed over with
/// [`TelemetryConfig::with_groups`](crate::TelemetryConfig::with_groups), which is needed to name
/// it in `span_groups`.
///
/// ```
/// use lens_runtime::{Bucket, SpanGroup, rl_span};
///
/// pub static TOOLS: SpanGroup = SpanGroup::leaf("tools", Bucket::Productive);
///
/// #[rl_span(group = TOOLS, name = "rl.tools.run_code")]
/// fn run_code(program: &str) -> Result<String, std::io::Error> {
///     Ok(program.to_uppercase())
/// }
/// # run_code("x").unwrap();
/// ```
pub struct SpanGroup {
    name: &'static str,
    bucket: Option<Bucket>,
    scope: Option<Bucket>,
    state: AtomicU8,
    /// The threshold of the share that is kept, of which the state says whether it is worth a look.
    threshold: AtomicU64,
}

/// What the time of a span counts as.
///
/// Leaf spans carry exactly one bucket; spans that enclose others (umbrellas) carry none, so that
/// a sum over spans never exceeds the time that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bucket {
    /// Work that the run exists for: generation, rewards, updates.
    Productive,
    /// Work that has to be done around it.
    Overhead,
    /// Waiting.
    Idle,
    /// Work whose result was thrown away.
    Wasted,
}

/// Bits of a group's state.
mod bit {
    /// Spans of this group are recorded.
    pub(super) const SPANS: u8 = 1;
    /// Metrics are recorded, whatever the group.
    pub(super) const METRICS: u8 = 1 << 1;
    /// A test somewhere captures: look for it in the context.
    pub(super) const CAPTURE: u8 = 1 << 2;
    /// Of the spans a share is kept.
    pub(super) const THINNED: u8 = 1 << 3;
    /// Never used before: the registry does not know this group yet.
    pub(super) const NEW: u8 = 1 << 7;
}

impl SpanGroup {
    /// A group of leaf spans, whose time counts as `bucket`.
    ///
    /// `name` is what `span_groups` calls the group: a word in lower case, unique in the process, without
    /// commas, `@` and a leading `-`, which mean something there.
    pub const fn leaf(name: &'static str, bucket: Bucket) -> Self {
        Self::new(name, Some(bucket))
    }

    /// A group of spans that enclose others and whose own time is counted nowhere.
    pub const fn umbrella(name: &'static str) -> Self {
        Self::new(name, None)
    }

    const fn new(name: &'static str, bucket: Option<Bucket>) -> Self {
        let threshold = AtomicU64::new(Share::ALL.threshold());
        Self { name, bucket, scope: None, state: AtomicU8::new(bit::NEW), threshold }
    }

    /// The same group, with the bucket that all leaf spans beneath its spans count as.
    ///
    /// ```
    /// use lens_runtime::{Bucket, SpanGroup};
    ///
    /// // Whatever is generated for a warm-up is thrown away.
    /// static WARM_UP: SpanGroup = SpanGroup::umbrella("warm_up").with_scope(Bucket::Wasted);
    /// ```
    #[must_use]
    pub const fn with_scope(self, bucket: Bucket) -> Self {
        Self { scope: Some(bucket), ..self }
    }

    /// The group's name, as in `span_groups`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What the time of the group's spans counts as; `None` for an umbrella.
    pub const fn bucket(&self) -> Option<Bucket> {
        self.bucket
    }

    pub(crate) const fn scope(&self) -> Option<Bucket> {
        self.scope
    }

    /// The gate: whether a call may leave at once.
    ///
    /// Relaxed is enough. The state says whether it is worth looking further, never where to; the
    /// look itself goes through cells that order themselves. A call that races with a switch is
    /// recorded or not, either of which is true of some moment during the call.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 0
    }

    /// What the process wants of this group, after the gate. A group that is used for the first
    /// time joins the registry here.
    pub(crate) fn wanted(&'static self) -> Wanted {
        let mut state = self.state.load(Ordering::Acquire);
        if state & bit::NEW != 0 {
            registry(|registry| registry.join(self));
            state = self.state.load(Ordering::Acquire);
        }
        Wanted {
            spans: state & bit::SPANS != 0,
            metrics: state & bit::METRICS != 0,
            captured: state & bit::CAPTURE != 0,
            // Written before the state. A call that races with a switch may find the share of the next one, which is
            // true of some moment during the call as well; what is decided and what is told of it are one value.
            share: match state & bit::THINNED {
                0 => Share::ALL,
                _ => Share::of_threshold(self.threshold.load(Ordering::Relaxed)),
            },
        }
    }
}

impl fmt::Debug for SpanGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpanGroup").field(&self.name).finish()
    }
}

impl Bucket {
    /// The bucket as `rl.bucket` has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Bucket::Productive => "productive",
            Bucket::Overhead => "overhead",
            Bucket::Idle => "idle",
            Bucket::Wasted => "wasted",
        }
    }
}

/// What is wanted of a call that passed the gate.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) spans: bool,
    pub(crate) metrics: bool,
    pub(crate) captured: bool,
    /// What is kept of the spans.
    pub(crate) share: Share,
}

/// The groups that a `span_groups` text selects, each with what is kept of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Groups that were named since `all` was; `None` is off.
    named: BTreeMap<&'static str, Option<Share>>,
    /// All others, of which some may not be known yet.
    others: Option<Share>,
}

/// A word of a `span_groups` text that means nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WrongWord {
    /// In lower case.
    pub(crate) word: String,
    /// Presets, then groups.
    pub(crate) known: Vec<&'static str>,
    problem: Problem,
}

#[derive(Debug, PartialEq, Eq)]
enum Problem {
    /// This is neither a preset nor a group.
    Unknown(String),
    /// What was expected in its place, and what stood there.
    Malformed(String),
}

impl Selection {
    /// Reads comma-separated words, in any case and from left to right; of those that name a group the last one
    /// decides about it. `group` records it, `-group` does not, `group@0.1` keeps a share of its spans; a preset in
    /// place of a group means each of its groups. `extra` are groups beyond the built-in ones and those that were used
    /// already.
    pub(crate) fn parse(text: &str, extra: &[&'static SpanGroup]) -> Result<Self, WrongWord> {
        let mut groups = registry(|registry| registry.groups.clone());
        groups.extend(extra);
        let mut selection = Self::default();
        let mut words = text.split(',').map(|word| word.trim().to_lowercase()).peekable();
        let mut is_first = true;
        while let Some(word) = words.next() {
            let wrong = |problem| WrongWord { word: word.clone(), known: known(&groups), problem };
            let (is_taken_away, name, ratio) = parts(&word);
            let preset = PRESETS.iter().find(|(preset, _)| *preset == name);
            let group = groups.iter().find(|group| group.name.to_lowercase() == name);
            let is_known = name == ALL || preset.is_some() || group.is_some();
            if !is_known {
                return Err(wrong(Problem::Unknown(name.to_owned())));
            }
            let share = match (is_taken_away, ratio) {
                (false, None) => Some(Share::ALL),
                (false, Some(ratio)) => {
                    let next = words.peek().map(String::as_str);
                    Some(share(name, ratio, next).map_err(|problem| wrong(Problem::Malformed(problem)))?)
                }
                (true, None) if is_first => {
                    let problem = format!(
                        "expected words in front of it to take it away from, such as \"{ALL},{word}\""
                    );
                    return Err(wrong(Problem::Malformed(problem)));
                }
                (true, None) => None,
                (true, Some(ratio)) => {
                    let problem = format!(
                        "expected \"-{name}\", which switches it off, or \"{name}@{ratio}\", which keeps a share of it"
                    );
                    return Err(wrong(Problem::Malformed(problem)));
                }
            };
            match (preset, group) {
                _ if name == ALL => selection = Self { named: BTreeMap::new(), others: share },
                (Some((_, names)), _) => selection.named.extend(names.iter().map(|name| (*name, share))),
                (None, group) => selection.named.extend(group.map(|group| (group.name, share))),
            }
            is_first = false;
        }
        Ok(selection)
    }

    /// What is kept of a group's spans; `None` if it is off.
    pub(crate) fn of(&self, group: &SpanGroup) -> Option<Share> {
        self.named.get(group.name).copied().unwrap_or(self.others)
    }
}

impl WrongWord {
    /// What is wrong with it. `place` is where it stands, such as ` in telemetry.span_groups`.
    pub(crate) fn told(&self, place: &str) -> String {
        let Self { word, known, problem } = self;
        match problem {
            Problem::Unknown(name) => {
                let within = if name == word { String::new() } else { format!(" of {word:?}") };
                format!(
                    "unknown span group {name:?}{within}{place}{}; expected presets and groups out of {}",
                    did_you_mean(name, known.iter().copied()),
                    known.join(", ")
                )
            }
            Problem::Malformed(expected) => format!("span group {word:?}{place}: {expected}"),
        }
    }
}

/// Presets, then groups.
fn known(groups: &[&'static SpanGroup]) -> Vec<&'static str> {
    let mut names: Vec<_> = groups.iter().map(|group| group.name).collect();
    names.sort_unstable();
    names.dedup();
    PRESETS.iter().map(|(name, _)| *name).chain([ALL]).chain(names).collect()
}

/// Whether a word takes away, what it names, and what stands behind its `@`.
fn parts(word: &str) -> (bool, &str, Option<&str>) {
    let (is_taken_away, rest) = word.strip_prefix('-').map_or((false, word), |rest| (true, rest));
    match rest.split_once('@') {
        Some((name, ratio)) => (is_taken_away, name.trim(), Some(ratio.trim())),
        None => (is_taken_away, rest.trim(), None),
    }
}

/// Reads what stands behind the `@`. Whatever is no share in full is an error: one that counts as 1 where 0.01 was
/// meant would be noticed by the bill.
fn share(name: &str, ratio: &str, next: Option<&str>) -> Result<Share, String> {
    let number = ratio.parse::<f64>().ok();
    if let Some(number) = number.filter(|number| 0.0 < *number && *number <= 1.0) {
        return Ok(Share::of_ratio(number));
    }
    let shown = match ratio {
        "" => "nothing".to_owned(),
        ratio => format!("{ratio:?}"),
    };
    let is_digits = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let hint = match (number, next.filter(is_digits)) {
        (Some(_), Some(decimals)) if ratio == "0" => format!("; with a point it is {name}@0.{decimals}"),
        (Some(number), _) if number <= 0.0 => format!("; \"-{name}\" switches it off"),
        _ => percent_hint(ratio),
    };
    Err(format!("expected a share of more than 0 and at most 1, such as {name}@0.1, got {shown}{hint}"))
}

/// Switches the groups of the process: the selected ones record spans, all record metrics if
/// `metrics`. Groups that are used later follow the same selection.
pub(crate) fn select(spans: Selection, metrics: bool) {
    registry(|registry| {
        registry.spans = spans;
        registry.metrics = metrics;
        registry.apply();
    });
}

/// Makes known groups that nobody has used yet.
pub(crate) fn join_all(groups: &[&'static SpanGroup]) {
    registry(|registry| groups.iter().for_each(|group| registry.join(group)));
}

/// Opens (`true`) or closes a capture: while any is open, every call looks into its context.
pub(crate) fn capture(open: bool) {
    registry(|registry| {
        registry.captures = if open { registry.captures + 1 } else { registry.captures.saturating_sub(1) };
        registry.apply();
    });
}

/// Every group that the process knows, and what is wanted of them.
struct Registry {
    groups: Vec<&'static SpanGroup>,
    spans: Selection,
    metrics: bool,
    captures: usize,
}

impl Registry {
    fn join(&mut self, group: &'static SpanGroup) {
        if !self.groups.iter().any(|known| std::ptr::eq(*known, group)) {
            self.groups.push(group);
        }
        self.apply_to(group);
    }

    fn apply(&self) {
        self.groups.iter().for_each(|group| self.apply_to(group));
    }

    fn apply_to(&self, group: &SpanGroup) {
        let share = self.spans.of(group);
        let bits = [
            (bit::SPANS, share.is_some()),
            (bit::THINNED, share.is_some_and(|share| share != Share::ALL)),
            (bit::METRICS, self.metrics),
            (bit::CAPTURE, self.captures > 0),
        ];
        let state = bits.iter().filter(|(_, on)| *on).fold(0, |state, (bit, _)| state | bit);
        // First what the state speaks of.
        group.threshold.store(share.unwrap_or(Share::ALL).threshold(), Ordering::Relaxed);
        group.state.store(state, Ordering::Release);
    }
}

/// Runs `look` with the registry. No user code runs under this lock.
fn registry<R>(look: impl FnOnce(&mut Registry) -> R) -> R {
    static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
    let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    look(registry.get_or_insert_with(|| Registry {
        groups: BUILT_IN.to_vec(),
        spans: Selection::default(),
        metrics: false,
        captures: 0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups;

    /// The share that a text keeps of a group, in 2⁵⁶; `None` if it is off.
    fn share(text: &str, group: &SpanGroup) -> Option<Share> {
        Selection::parse(text, &[]).ok().and_then(|selection| selection.of(group))
    }

    #[test]
    fn the_last_word_that_names_a_group_says_what_is_kept_of_it() {
        let half = Some(Share::of_ratio(0.5));
        for (text, generation, reward) in [
            ("generation", Some(Share::ALL), None),
            ("generation@0.5", half, None),
            ("GENERATION @ 5e-1,reward@1", half, Some(Share::ALL)),
            ("per_step,generation@0.5", half, Some(Share::ALL)),
            ("generation@0.5,per_step", Some(Share::ALL), Some(Share::ALL)),
            ("per_step@0.5,reward", half, Some(Share::ALL)),
            ("all@0.5,-reward", half, None),
            ("generation,all@0.5", half, half),
            ("reward@0.25,default@0.5", None, Some(Share::of_ratio(0.25))),
            ("all,-all,generation@0.5", half, None),
        ] {
            assert_eq!(share(text, &groups::Generation), generation, "{text}");
            assert_eq!(share(text, &groups::Reward), reward, "{text}");
        }
    }

    #[test]
    fn a_group_learns_its_share_with_the_selection_of_the_process() {
        static GROUP: SpanGroup = SpanGroup::umbrella("group_tests");
        let select = |text| select(Selection::parse(text, &[&GROUP]).unwrap_or_default(), false);
        let found = || (GROUP.is_off(), GROUP.wanted().spans, GROUP.wanted().share);
        select("all@0.25");
        assert!(!GROUP.is_off(), "it was never used");
        let quarter = Share::of_ratio(0.25);
        assert_eq!(GROUP.wanted().share, quarter);
        for (text, expected) in [
            ("all@0.25", (false, true, quarter)),
            ("all", (false, true, Share::ALL)),
            ("all,group_tests@0.5", (false, true, Share::of_ratio(0.5))),
            ("all,-group_tests", (true, false, Share::ALL)),
            ("group_tests@1", (false, true, Share::ALL)),
            ("job@0.5", (true, false, Share::ALL)),
        ] {
            select(text);
            assert_eq!(found(), expected, "{text}");
        }
    }
}
