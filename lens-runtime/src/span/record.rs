//! What is known of a call, and what is the span of it?
//!
//! A record is written in place while the call lasts, and is turned into the SDK's form when it is delivered,
//! on another thread. Its memory is used again: in the long run no call allocates any for its record.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context, Key, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLimits, SpanLinks};

use super::Told;
use super::entry::CountsAs;
use crate::clock;
use crate::group::{Bucket, SpanGroup};
use crate::groups;
use crate::metrics::{self, ModelCall};
use crate::outcome::Outcome;
use crate::pipeline::{self, Pipeline, Whose};
use crate::sampling::{OwnedKey, Share};
use crate::semconv;
use crate::value::{held, held_by, kept};

/// What is known of a call.
pub(crate) struct Record {
    /// The id of its span. A call without one has an id, too, by which it is told from others that had its place.
    pub(super) id: SpanId,
    /// The shard of the table that it is from, and where its memory goes back to.
    pub(super) home: u8,
    // What was asked for, before it began.
    pub(super) whose: Whose,
    pub(super) wants_span: bool,
    pub(super) wants_metrics: bool,
    pub(super) share: Share,
    pub(super) sample_key: Option<Box<OwnedKey>>,
    /// The number of the step that begins with it.
    pub(super) begins: Option<u64>,
    pub(super) counts_as: CountsAs,
    pub(super) elsewhere: Option<Box<SpanContext>>,
    // What it is.
    pub(super) trace: TraceId,
    pub(super) flags: TraceFlags,
    pub(super) state: TraceState,
    pub(super) parent: SpanId,
    pub(super) parent_is_remote: bool,
    pub(super) fate: Fate,
    /// Its name as the annotation has it, for what is measured.
    pub(super) called: &'static str,
    /// Another name, if the program gave it one.
    pub(super) renamed: Option<Cow<'static, str>>,
    pub(super) kind: SpanKind,
    pub(super) group: &'static SpanGroup,
    pub(super) bucket: Option<Bucket>,
    pub(super) step: Option<u64>,
    pub(super) began: Instant,
    /// If that is not for the clock to say.
    pub(super) began_at: Option<SystemTime>,
    pub(super) end: End,
    pub(super) outcome: Option<Outcome>,
    pub(super) attributes: Attributes,
    pub(super) status: Status,
    pub(super) events: SpanEvents,
    pub(super) links: SpanLinks,
    /// What model was called, and what it took.
    pub(super) model_call: Option<Box<ModelCall>>,
    /// Tokens that were counted from within.
    pub(super) said: Option<Box<ModelCall>>,
    /// What ended it, if that was the end of telemetry.
    pub(super) truncated: Option<&'static str>,
    pub(super) is_announced: bool,
    /// The context with its span, if that is the SDK's.
    pub(super) of_sdk: Option<Context>,
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

impl Record {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            id: SpanId::INVALID,
            home: 0,
            whose: Whose::Nobody,
            wants_span: false,
            wants_metrics: false,
            share: Share::ALL,
            sample_key: None,
            begins: None,
            counts_as: CountsAs::ItsGroup,
            elsewhere: None,
            trace: TraceId::INVALID,
            flags: TraceFlags::NOT_SAMPLED,
            state: TraceState::NONE,
            parent: SpanId::INVALID,
            parent_is_remote: false,
            fate: Fate::None,
            called: "",
            renamed: None,
            kind: SpanKind::Internal,
            group: &groups::Job,
            bucket: None,
            step: None,
            began: Instant::now(),
            began_at: None,
            end: End::Open,
            outcome: None,
            attributes: Attributes::default(),
            status: Status::Unset,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            model_call: None,
            said: None,
            truncated: None,
            is_announced: false,
            of_sdk: None,
        })
    }

    /// Empty again, with the memory that it has.
    pub(super) fn clear(&mut self) {
        // What is set anew for each call is not cleared.
        self.whose = Whose::Nobody;
        self.sample_key = None;
        self.begins = None;
        self.counts_as = CountsAs::ItsGroup;
        self.elsewhere = None;
        self.state = TraceState::NONE;
        self.renamed = None;
        self.kind = SpanKind::Internal;
        self.bucket = None;
        self.began_at = None;
        self.end = End::Open;
        self.outcome = None;
        self.attributes.clear();
        self.status = Status::Unset;
        if !self.events.events.is_empty() || self.events.dropped_count > 0 {
            self.events = SpanEvents::default();
        }
        if !self.links.links.is_empty() || self.links.dropped_count > 0 {
            self.links = SpanLinks::default();
        }
        self.model_call = None;
        self.said = None;
        self.truncated = None;
        self.is_announced = false;
        self.of_sdk = None;
    }

    /// Its span, as others see it.
    pub(super) fn span(&self) -> SpanContext {
        SpanContext::new(self.trace, self.id, self.flags, false, self.state.clone())
    }

    pub(super) fn name(&self) -> &str {
        self.renamed.as_deref().unwrap_or(self.called)
    }

    pub(super) fn is_sampled(&self) -> bool {
        self.flags.is_sampled()
    }

    pub(super) fn is_recording(&self) -> bool {
        self.fate == Fate::Kept && self.end == End::Open
    }

    /// Whether there is a span of it, ours or the SDK's, that is not left out.
    pub(super) fn is_span(&self) -> bool {
        self.fate == Fate::Kept || self.of_sdk.is_some()
    }

    /// Whether nobody is told of it.
    pub(super) fn goes_nowhere(&self) -> bool {
        self.fate == Fate::None
    }

    /// Whether there is more to do when it has ended than to deliver it.
    pub(super) fn wants_more_at_its_end(&self) -> bool {
        self.wants_metrics || self.model_call.is_some() || self.said.is_some() || self.of_sdk.is_some()
    }

    /// Takes the measurements of the call.
    pub(super) fn measure(&self, outcome: Outcome, took: Duration) {
        if !self.wants_metrics {
            return;
        }
        let record = |pipeline: &Pipeline| {
            if let Some(instruments) = &pipeline.instruments {
                instruments.record(self.called, self.group.name(), outcome, took, self.model_call.as_deref());
            }
        };
        match &self.whose {
            Whose::Nobody => {}
            Whose::Test(pipeline) => record(pipeline),
            // A call that began with a telemetry which has ended is not the next one's.
            Whose::Process(live) => {
                if let Some(pipeline) = pipeline::active().as_ref().filter(|active| live.is(active)) {
                    record(pipeline);
                }
            }
        }
    }

    /// Takes over what more is known of the model.
    pub(super) fn add(&mut self, call: Option<Box<ModelCall>>) {
        match (&mut self.model_call, call) {
            (Some(own), Some(call)) => own.add(*call),
            (None, call) => self.model_call = call,
            (Some(_), None) => {}
        }
    }

    /// Takes over the tokens that were counted from within.
    pub(super) fn hear(&mut self) {
        let said = self.said.take();
        self.add(said);
    }

    /// Ends its span, if that is the SDK's.
    pub(super) fn end_of_sdk(&mut self) {
        let Some(context) = self.of_sdk.take() else { return };
        let span = context.span();
        if let Some(reason) = self.truncated {
            span.add_event(semconv::TRUNCATED, vec![KeyValue::new(semconv::TRUNCATED_REASON, reason)]);
        }
        span.set_attributes(self.own_at_last());
        span.set_status(std::mem::take(&mut self.status));
        span.end_with_timestamp(self.ended_at(self.started_at()));
    }

    pub(super) fn limit_links(&mut self, limits: &SpanLimits) {
        let most = limits.max_links_per_span as usize;
        self.links.dropped_count +=
            u32::try_from(self.links.links.len().saturating_sub(most)).unwrap_or(u32::MAX);
        self.links.links.truncate(most);
    }

    pub(super) fn started_at(&self) -> SystemTime {
        self.began_at.unwrap_or_else(|| clock::wall(self.began))
    }

    fn ended_at(&self, start: SystemTime) -> SystemTime {
        match self.end {
            End::Open => start,
            End::At(at) => clock::wall(at),
            End::On(time) => time,
            End::After(took) => start.checked_add(took).unwrap_or(start),
        }
    }

    /// The memory that it holds, about.
    pub(crate) fn bytes(&self) -> usize {
        let events = self.events.iter().map(|event| size_of_val(event) + held(&event.attributes));
        let links = self.links.iter().map(|link| size_of_val(link) + held(&link.attributes));
        size_of::<Self>() + self.attributes.bytes + events.sum::<usize>() + links.sum::<usize>()
    }

    /// How the call ended, of which `told` is said.
    pub(super) fn close(&mut self, outcome: Outcome, told: Told, end: End) {
        if self.end == End::Open {
            self.end = end;
        }
        self.outcome = Some(outcome);
        let is_hidden = matches!((outcome, &told), (Outcome::Error(_), Told::Nothing));
        if outcome.error_type().is_none() || is_hidden {
            return;
        }
        self.set_status(match (outcome, told) {
            (Outcome::Panic, _) => Status::error("panic"),
            (_, Told::Text(text)) => Status::error(text),
            (_, Told::Type | Told::Nothing) => Status::error(""),
        });
        if let Outcome::Error(_) | Outcome::Panic = outcome {
            self.attributes.error_type = outcome.error_type();
        }
    }

    pub(super) fn set_status(&mut self, status: Status) {
        // Their order is OpenTelemetry's: what the program called well stays so.
        if status > self.status {
            self.status = status;
        }
    }

    pub(super) fn add_event(&mut self, event: Event, limits: &SpanLimits) {
        let mut event = event;
        match self.events.events.len() < limits.max_events_per_span as usize {
            false => self.events.dropped_count += 1,
            true => {
                event.dropped_attributes_count += cut(&mut event.attributes, limits.max_attributes_per_event);
                self.events.events.push(event);
            }
        }
    }

    pub(super) fn add_link(&mut self, mut link: Link, limits: &SpanLimits) {
        match self.links.links.len() < limits.max_links_per_span as usize {
            false => self.links.dropped_count += 1,
            true => {
                link.dropped_attributes_count += cut(&mut link.attributes, limits.max_attributes_per_link);
                self.links.links.push(link);
            }
        }
    }

    /// The attributes that Lens knows when a call begins.
    pub(super) fn own_at_first(&self) -> impl Iterator<Item = KeyValue> {
        let model = self.model_call.as_ref().map(|call| {
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
    pub(super) fn own_at_last(&self) -> impl Iterator<Item = KeyValue> {
        let outcome = self.outcome.map(|outcome| KeyValue::new(semconv::OUTCOME, outcome.as_str()));
        let error = self.attributes.error_type.map(|name| KeyValue::new(semconv::ERROR_TYPE, name));
        let tokens = self.model_call.as_ref().map(|call| {
            [
                (semconv::GEN_AI_USAGE_INPUT_TOKENS, metrics::sum(&call.input)),
                (semconv::GEN_AI_USAGE_OUTPUT_TOKENS, metrics::sum(&call.output)),
            ]
            .map(|(key, sum)| sum.map(|sum| KeyValue::new(key, saturated(sum))))
        });
        let truncated = self.truncated.map(|_| KeyValue::new(semconv::TRUNCATED, true));
        [outcome, error].into_iter().flatten().chain(tokens.into_iter().flatten().flatten()).chain(truncated)
    }

    /// The attributes that are known when a call begins, and those that the program gave it. Of two values for one
    /// key, the program's.
    pub(super) fn take_attributes(&mut self) -> Vec<KeyValue> {
        let mut attributes = Vec::with_capacity(self.attributes.list.len() + MOST_OF_OURS);
        attributes.extend(self.own_at_first().filter(|own| !self.attributes.has(&own.key)));
        attributes.extend(self.attributes.drain());
        attributes
    }

    /// The same, for a sampler of the program's.
    pub(super) fn attributes_so_far(&self) -> Vec<KeyValue> {
        let Attributes { list, texts, .. } = &self.attributes;
        let users = list.iter().map(|(key, held)| KeyValue::new(key.clone(), held.clone().value(texts)));
        self.own_at_first().chain(users).collect()
    }

    /// The span of it. What is taken out of it is not cleared.
    pub(crate) fn take_span(&mut self) -> SpanData {
        let start_time = self.started_at();
        let end_time = self.ended_at(start_time);
        let mut events = std::mem::take(&mut self.events);
        if let Some(reason) = self.truncated {
            let why = vec![KeyValue::new(semconv::TRUNCATED_REASON, reason)];
            events.events.push(Event::new(semconv::TRUNCATED, end_time, why, 0));
        }
        // Of two values for one key, what was found out at the end wins over the program's.
        let last: Vec<_> = self.own_at_last().collect();
        let mut attributes = self.take_attributes();
        attributes.retain(|user| last.iter().all(|own| own.key != user.key));
        attributes.extend(last);
        SpanData {
            span_context: self.span(),
            parent_span_id: self.parent,
            parent_span_is_remote: self.parent_is_remote,
            span_kind: self.kind.clone(),
            name: self.renamed.take().unwrap_or(Cow::Borrowed(self.called)),
            start_time,
            end_time,
            attributes,
            dropped_attributes_count: self.attributes.dropped,
            events,
            links: std::mem::take(&mut self.links),
            status: std::mem::take(&mut self.status),
            instrumentation_scope: metrics::scope(),
        }
    }
}

/// Sets an attribute of a span of the SDK's. Its processors are the program's, so that no lock must be held.
pub(super) fn set_attribute_of_sdk(context: &Context, attribute: KeyValue) {
    context.span().set_attribute(attribute);
}

fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Drops what is too much, and says how many that were.
fn cut(attributes: &mut Vec<KeyValue>, limit: u32) -> u32 {
    let too_many = attributes.len().saturating_sub(limit as usize);
    attributes.truncate(limit as usize);
    u32::try_from(too_many).unwrap_or(u32::MAX)
}

/// How many attributes of a span are Lens's own, at the most.
const MOST_OF_OURS: usize = 11;

/// For how many attributes a record that is used again has memory.
const MOST_KEPT: usize = 32;

/// The attributes that the program gives a span.
#[derive(Default)]
pub struct Attributes {
    list: Vec<(Key, Held)>,
    /// The texts of those that were given once, one behind the other.
    texts: String,
    dropped: u32,
    error_type: Option<&'static str>,
    /// The memory that they hold, about.
    bytes: usize,
}

/// The memory of an attribute, beside what its value holds.
const ONE: usize = size_of::<(Key, Held)>() + 16;

#[derive(Clone)]
pub(crate) enum Held {
    Bool(bool),
    I64(i64),
    F64(f64),
    /// A part of `texts`.
    Text {
        from: u32,
        to: u32,
    },
    Other(Box<Value>),
}

impl Held {
    fn value(self, texts: &str) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(value),
            Self::I64(value) => Value::I64(value),
            Self::F64(value) => Value::F64(value),
            Self::Text { from, to } => {
                Value::String(StringValue::from(texts[from as usize..to as usize].to_owned()))
            }
            Self::Other(value) => *value,
        }
    }
}

impl From<Value> for Held {
    fn from(value: Value) -> Self {
        match value {
            Value::Bool(value) => Self::Bool(value),
            Value::I64(value) => Self::I64(value),
            Value::F64(value) => Self::F64(value),
            value => Self::Other(Box::new(value)),
        }
    }
}

impl Attributes {
    /// Sets an attribute when the span is described, of which no two have the same key.
    pub(crate) fn push(&mut self, key: &'static str, value: Value) {
        self.bytes += held_by(&value);
        self.push_held(key, Held::from(value));
    }

    #[inline]
    pub(crate) fn push_held(&mut self, key: &'static str, held: Held) {
        self.bytes += ONE;
        self.list.push((Key::from_static_str(key), held));
    }

    /// The same for a text, which is copied without a place of its own.
    pub(crate) fn push_text(&mut self, key: &'static str, text: &str) {
        let text = kept(text);
        let text = &*text;
        let from = self.texts.len();
        self.texts.push_str(text);
        self.bytes += text.len();
        let held = match (u32::try_from(from), u32::try_from(self.texts.len())) {
            (Ok(from), Ok(to)) => Held::Text { from, to },
            _ => Held::from(Value::from(text.to_owned())),
        };
        self.push_held(key, held);
    }

    /// Sets an attribute at any time: it takes the place of one with its key.
    pub(super) fn set(&mut self, attribute: KeyValue, limit: u32) {
        let KeyValue { key, value, .. } = attribute;
        let bytes = held_by(&value);
        let value = Held::from(value);
        match self.list.iter().position(|(own, _)| *own == key) {
            Some(index) => {
                self.bytes += bytes;
                self.list[index].1 = value;
            }
            None if self.list.len() < limit as usize => {
                self.bytes += bytes + ONE;
                self.list.push((key, value));
            }
            None => self.dropped += 1,
        }
    }

    /// Drops what is too much.
    pub(super) fn limit(&mut self, limit: u32) {
        let limit = limit as usize;
        if self.list.len() > limit {
            self.dropped += u32::try_from(self.list.len() - limit).unwrap_or(u32::MAX);
            self.list.truncate(limit);
        }
    }

    fn has(&self, key: &Key) -> bool {
        self.list.iter().any(|(own, _)| own == key)
    }

    /// All of them, in order; of one key the last.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = KeyValue> {
        for index in (1..self.list.len()).rev() {
            let (before, from) = self.list.split_at(index);
            if let Some(double) = before.iter().position(|(key, _)| *key == from[0].0) {
                self.list.remove(double);
            }
        }
        let texts = &self.texts;
        self.list.drain(..).map(|(key, held)| KeyValue::new(key, held.value(texts)))
    }

    fn clear(&mut self) {
        self.list.clear();
        self.texts.clear();
        self.dropped = 0;
        self.error_type = None;
        self.bytes = 0;
        // A span that was much larger than others leaves its memory.
        self.list.shrink_to(MOST_KEPT);
        self.texts.shrink_to(MOST_KEPT * 16);
    }
}
