//! What is kept of a call until it is delivered, and what is the span of it?
//!
//! The facts of many calls stand one behind the other in a chunk of memory, which whoever ends a call writes and whoever
//! delivers reads, once each. The record of an open call is much larger, and stays with the thread that uses it again.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::attributes::{Attributes, Held, without_doubles};
use crate::clock;
use crate::group::{Bucket, SpanGroup};
use crate::groups;
use crate::metrics::{self, ModelCall};
use crate::outcome::Outcome;
use crate::semconv;
use crate::value::held;

/// What is known of every call.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    pub(super) trace: TraceId,
    /// The id of its span. A call without one has an id, too, by which it is told from others that had its place.
    pub(super) id: SpanId,
    pub(super) parent: SpanId,
    pub(super) parent_is_remote: bool,
    pub(super) flags: TraceFlags,
    pub(super) fate: Fate,
    /// Its name, as the annotation has it.
    pub(super) called: &'static str,
    pub(super) group: &'static SpanGroup,
    pub(super) bucket: Option<Bucket>,
    pub(super) step: Option<u64>,
    pub(super) began: Instant,
    pub(super) end: End,
    pub(super) outcome: Option<Outcome>,
    /// An error is the function's way of answering.
    pub(super) hides_error: bool,
}

/// What is known of few calls.
#[derive(Default)]
pub(super) struct Extras {
    pub(super) kind: Option<SpanKind>,
    pub(super) state: TraceState,
    /// If it began by the wall clock, as code of the program's said.
    pub(super) began_at: Option<SystemTime>,
    pub(super) renamed: Option<Cow<'static, str>>,
    pub(super) status: Status,
    pub(super) events: SpanEvents,
    pub(super) links: SpanLinks,
    /// What model was called, and what it took.
    pub(super) model_call: Option<Box<ModelCall>>,
    /// What ended it, if that was the end of telemetry.
    pub(super) truncated: Option<&'static str>,
}

/// What becomes of a call when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// A span.
    Kept,
    /// Nothing but a row in the table of the phases: its span was left out, by a sampler or by a share.
    LeftOut,
    /// Nothing: its group is off, or its span is the SDK's.
    None,
}

/// When a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has not.
    Open,
    At(Instant),
    /// By the wall clock, as code of the program's said.
    On(SystemTime),
    After(Duration),
}

impl Facts {
    /// Its span, as others see it.
    pub(super) fn span(&self, state: TraceState) -> SpanContext {
        SpanContext::new(self.trace, self.id, self.flags, false, state)
    }

    /// Whether it is exported.
    pub(super) fn is_exported(&self) -> bool {
        self.fate == Fate::Kept && self.flags.is_sampled()
    }

    pub(super) fn started_at(&self, extras: Option<&Extras>) -> SystemTime {
        extras.and_then(|extras| extras.began_at).unwrap_or_else(|| clock::wall(self.began))
    }

    pub(super) fn ended_at(&self, start: SystemTime) -> SystemTime {
        match self.end {
            End::Open => start,
            End::At(at) => clock::wall(at),
            End::On(time) => time,
            End::After(took) => start.checked_add(took).unwrap_or(start),
        }
    }

    /// How long it took; `now` is when it ended, if that was told by the wall clock.
    pub(super) fn took(&self, now: Instant) -> Duration {
        match self.end {
            End::Open | End::On(_) => now.saturating_duration_since(self.began),
            End::At(at) => at.saturating_duration_since(self.began),
            End::After(took) => took,
        }
    }

    /// The type of the error with which it ended, if that is told.
    fn error_type(&self) -> Option<&'static str> {
        self.outcome.filter(|_| !self.hides_error).and_then(Outcome::error_type)
    }

    /// The status, if the program gave this one.
    pub(super) fn status(&self, users: Status) -> Status {
        let own = match (self.outcome, self.error_type()) {
            (Some(Outcome::Panic), Some(_)) => Status::error("panic"),
            (_, Some(_)) => Status::error(""),
            (_, None) => Status::Unset,
        };
        if users == Status::Unset { own } else { users }
    }

    /// The attributes that Lens knows when a call begins.
    pub(super) fn own_at_first(&self, model: Option<&ModelCall>) -> impl Iterator<Item = KeyValue> {
        let model = model.map(|call| {
            [
                (semconv::GEN_AI_OPERATION_NAME, &call.operation),
                (semconv::GEN_AI_PROVIDER_NAME, &call.provider),
                (semconv::GEN_AI_REQUEST_MODEL, &call.model),
            ]
            .map(|(key, text)| text.as_ref().map(|text| KeyValue::new(key, text.clone())))
        });
        [
            Some(KeyValue::new(semconv::GROUP, self.group.name())),
            self.bucket.map(|bucket| KeyValue::new(semconv::BUCKET, bucket.as_str())),
            self.step.map(|number| KeyValue::new(semconv::ITERATION, saturated(number))),
        ]
        .into_iter()
        .flatten()
        .chain(model.into_iter().flatten().flatten())
    }

    /// The attributes that Lens knows when a call has ended.
    pub(super) fn own_at_last(&self, extras: Option<&Extras>) -> impl Iterator<Item = KeyValue> {
        let outcome = self.outcome.map(|outcome| KeyValue::new(semconv::OUTCOME, outcome.as_str()));
        let error = self.error_type().map(|name| KeyValue::new(semconv::ERROR_TYPE, name));
        let tokens = extras.and_then(|extras| extras.model_call.as_ref()).map(|call| {
            [
                (semconv::GEN_AI_USAGE_INPUT_TOKENS, metrics::sum(&call.input)),
                (semconv::GEN_AI_USAGE_OUTPUT_TOKENS, metrics::sum(&call.output)),
            ]
            .map(|(key, sum)| sum.map(|sum| KeyValue::new(key, saturated(sum))))
        });
        let is_truncated = extras.is_some_and(|extras| extras.truncated.is_some());
        let truncated = is_truncated.then(|| KeyValue::new(semconv::TRUNCATED, true));
        [outcome, error].into_iter().flatten().chain(tokens.into_iter().flatten().flatten()).chain(truncated)
    }
}

impl Extras {
    fn bytes(&self) -> usize {
        size_of::<Self>() + bytes_beside(&self.events, &self.links)
    }
}

fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A span that ended, or the call of one that was left out.
pub(crate) struct Ended {
    pub(crate) span: SpanData,
    /// What it is counted as among the run's phases: a call that is renamed is the same phase.
    pub(crate) phase: Option<&'static str>,
    /// The step that it is within, or is.
    pub(crate) step: Option<u64>,
    pub(crate) is_step: bool,
    /// Whether it is a span, and no call of which there is none.
    pub(crate) is_span: bool,
    /// The memory that it held while it waited, about.
    pub(crate) bytes: usize,
}

/// Calls that ended, one behind the other.
pub(super) struct Chunk {
    calls: Vec<Waiting>,
    attributes: Vec<(Key, Held)>,
    texts: String,
}

enum Waiting {
    Ours {
        facts: Facts,
        extras: Option<Box<Extras>>,
        /// How much of the chunk's attributes and texts is its own.
        attributes: u32,
        texts: u32,
        dropped: u32,
        bytes: u32,
    },
    Foreign {
        span: Box<SpanData>,
        step: Option<u64>,
    },
}

/// How many calls a chunk holds.
const CALLS: usize = 256;

/// What a chunk that is used again holds of attributes and texts, at the most.
const MOST_ATTRIBUTES: usize = 16 * CALLS;
const MOST_TEXTS: usize = 64 * CALLS;

impl Default for Chunk {
    /// With place for all its calls.
    fn default() -> Self {
        Self { calls: Vec::with_capacity(CALLS), attributes: Vec::new(), texts: String::new() }
    }
}

impl Chunk {
    pub(super) fn is_full(&self) -> bool {
        self.calls.len() >= CALLS
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Writes what is known of a call behind the others. `bytes` are those that [`bytes`] says.
    pub(super) fn push(
        &mut self,
        facts: &Facts,
        attributes: &mut Attributes,
        extras: Option<Box<Extras>>,
        bytes: usize,
    ) {
        let (count, texts, dropped) = attributes.move_to(&mut self.attributes, &mut self.texts);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.calls.push(Waiting::Ours { facts: *facts, extras, attributes: count, texts, dropped, bytes });
    }

    pub(super) fn push_foreign(&mut self, span: SpanData, step: Option<u64>) {
        self.calls.push(Waiting::Foreign { span: Box::new(span), step });
    }

    /// Makes spans of them all, and is empty.
    pub(super) fn take(&mut self, into: &mut Vec<Ended>) {
        let mut attributes = self.attributes.drain(..);
        let mut rest = self.texts.as_str();
        into.extend(self.calls.drain(..).map(|waiting| match waiting {
            Waiting::Ours { facts, extras, attributes: count, texts: length, dropped, bytes } => {
                let (texts, behind) = rest.split_at(length as usize);
                rest = behind;
                let users = attributes.by_ref().take(count as usize);
                let users = users.map(|(key, held)| KeyValue::new(key, held.value(texts)));
                let is_span = facts.is_exported();
                let phase = Some(facts.called);
                let (step, is_step) = (facts.step, facts.group.name() == groups::Step.name());
                let span = span(facts, extras.map(|extras| *extras), users, dropped);
                Ended { span, phase, step, is_step, is_span, bytes: bytes as usize }
            }
            Waiting::Foreign { span, step } => {
                let bytes = bytes_of_foreign(&span);
                let mut span = *span;
                span.attributes = without_doubles(span.attributes);
                // An annotated call whose span the SDK made.
                let says = |key: &str, text: &str| {
                    span.attributes.iter().any(|own| own.key.as_str() == key && own.value.as_str() == text)
                };
                let is_step = says(semconv::GROUP, groups::Step.name());
                let is_step = is_step && span.instrumentation_scope.name() == semconv::SCOPE;
                Ended { span, phase: None, step, is_step, is_span: true, bytes }
            }
        }));
        drop(attributes);
        self.texts.clear();
        self.attributes.shrink_to(MOST_ATTRIBUTES);
        self.texts.shrink_to(MOST_TEXTS);
    }
}

/// The memory that a call holds while it waits, about.
pub(super) fn bytes(attributes: &Attributes, extras: Option<&Extras>) -> usize {
    size_of::<Waiting>() + attributes.bytes() + extras.map_or(0, Extras::bytes)
}

/// The same of a span that others made.
pub(super) fn bytes_of_foreign(span: &SpanData) -> usize {
    size_of::<Waiting>()
        + size_of::<SpanData>()
        + span.name.len()
        + held(&span.attributes)
        + bytes_beside(&span.events, &span.links)
}

/// What the events and links of a span hold.
fn bytes_beside(events: &[Event], links: &[Link]) -> usize {
    let events = events.iter().map(|event| size_of_val(event) + held(&event.attributes));
    let links = links.iter().map(|link| size_of_val(link) + held(&link.attributes));
    events.sum::<usize>() + links.sum::<usize>()
}

/// How many attributes of a span are Lens's own, at the most.
const MOST_OF_OURS: usize = 11;

/// The attributes that are known when a call begins, and those that the program gave it. Of two values for one key, the
/// program's.
pub(super) fn with_ours(
    facts: &Facts,
    model: Option<&ModelCall>,
    users: impl Iterator<Item = KeyValue>,
) -> Vec<KeyValue> {
    let mut all = Vec::with_capacity(users.size_hint().0 + MOST_OF_OURS);
    all.extend(facts.own_at_first(model));
    all.extend(users);
    without_doubles(all)
}

/// The span of a call.
fn span(
    facts: Facts,
    extras: Option<Extras>,
    users: impl Iterator<Item = KeyValue>,
    dropped: u32,
) -> SpanData {
    let start_time = facts.started_at(extras.as_ref());
    let end_time = facts.ended_at(start_time);
    let model = extras.as_ref().and_then(|extras| extras.model_call.as_deref());
    let mut attributes = with_ours(&facts, model, users);
    // What was found out at the end wins over the program's.
    for own in facts.own_at_last(extras.as_ref()) {
        attributes.retain(|user| user.key != own.key);
        attributes.push(own);
    }
    let Extras { kind, state, renamed, status, mut events, links, truncated, .. } =
        extras.unwrap_or_default();
    if let Some(reason) = truncated {
        let why = vec![KeyValue::new(semconv::TRUNCATED_REASON, reason)];
        events.events.push(Event::new(semconv::TRUNCATED, end_time, why, 0));
    }
    SpanData {
        span_context: facts.span(state),
        parent_span_id: facts.parent,
        parent_span_is_remote: facts.parent_is_remote,
        name: renamed.unwrap_or(Cow::Borrowed(facts.called)),
        start_time,
        end_time,
        attributes,
        dropped_attributes_count: dropped,
        events,
        links,
        status: facts.status(status),
        span_kind: kind.unwrap_or(SpanKind::Internal),
        instrumentation_scope: metrics::scope(),
    }
}
