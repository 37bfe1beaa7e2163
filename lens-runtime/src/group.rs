//! Is this call recorded? Span groups and the gate.
//!
//! A group is a `static` with a state of its own. A call of an annotated function reads that state
//! once, relaxed; if it is zero, that is all that happens. Nothing here knows where telemetry goes
//! or how it was configured: [`select`] is told which groups are on.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::groups::{ALL, BUILT_IN, PRESETS};

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
    /// Never used before: the registry does not know this group yet.
    pub(super) const NEW: u8 = 1 << 7;
}

impl SpanGroup {
    /// A group of leaf spans, whose time counts as `bucket`.
    ///
    /// `name` is what `span_groups` calls the group: lower case, unique in the process.
    pub const fn leaf(name: &'static str, bucket: Bucket) -> Self {
        Self { name, bucket: Some(bucket), scope: None, state: AtomicU8::new(bit::NEW) }
    }

    /// A group of spans that enclose others and whose own time is counted nowhere.
    pub const fn umbrella(name: &'static str) -> Self {
        Self { name, bucket: None, scope: None, state: AtomicU8::new(bit::NEW) }
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
        let mut state = self.state.load(Ordering::Relaxed);
        if state & bit::NEW != 0 {
            registry(|registry| registry.join(self));
            state = self.state.load(Ordering::Relaxed);
        }
        Wanted {
            spans: state & bit::SPANS != 0,
            metrics: state & bit::METRICS != 0,
            captured: state & bit::CAPTURE != 0,
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
}

/// The groups that a `span_groups` text selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    all: bool,
    names: BTreeSet<&'static str>,
}

/// A word of a `span_groups` text that is neither a preset nor a group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownGroup {
    pub(crate) word: String,
    /// Presets, then groups.
    pub(crate) known: Vec<&'static str>,
}

impl Selection {
    /// Reads comma-separated presets and groups, in any case: the union of them all. `extra` are
    /// groups beyond the built-in ones and those that were used already.
    pub(crate) fn parse(text: &str, extra: &[&'static SpanGroup]) -> Result<Self, UnknownGroup> {
        let mut groups = registry(|registry| registry.groups.clone());
        groups.extend(extra);
        let mut selection = Self::default();
        for word in text.split(',').map(|word| word.trim().to_lowercase()) {
            let preset = PRESETS.iter().find(|(name, _)| *name == word);
            let group = groups.iter().find(|group| group.name.to_lowercase() == word);
            match (word.as_str(), preset, group) {
                (ALL, _, _) => selection.all = true,
                (_, Some((_, names)), _) => selection.names.extend(*names),
                (_, None, Some(group)) => {
                    selection.names.insert(group.name);
                }
                (_, None, None) => {
                    let presets = PRESETS.iter().map(|(name, _)| *name);
                    let mut names: Vec<_> = groups.iter().map(|group| group.name).collect();
                    names.sort_unstable();
                    names.dedup();
                    let known = presets.chain([ALL]).chain(names).collect();
                    return Err(UnknownGroup { word, known });
                }
            }
        }
        Ok(selection)
    }

    pub(crate) fn includes(&self, group: &SpanGroup) -> bool {
        self.all || self.names.contains(group.name)
    }
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
        let bits = [
            (bit::SPANS, self.spans.includes(group)),
            (bit::METRICS, self.metrics),
            (bit::CAPTURE, self.captures > 0),
        ];
        let state = bits.iter().filter(|(_, on)| *on).fold(0, |state, (bit, _)| state | bit);
        group.state.store(state, Ordering::Relaxed);
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
