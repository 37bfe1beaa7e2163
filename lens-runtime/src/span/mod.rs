//! What happens when a call is recorded?
//!
//! The way of a call: [`enter`] passes the gate, or leaves; an [`Entry`] is described by the annotation
//! and becomes [`Open`], a call that is recorded, held by a [`Scope`] on one thread or by a [`Call`] that
//! may move between threads; the body runs in the span's context; `settle` learns from the result how it
//! went. Whatever ends a call, it ends in one place, `Open`'s `drop`, with exactly one outcome.
//!
//! What an expansion calls is either a few instructions that are inlined, or out of line and not generic:
//! a crate may have a thousand annotated functions, and each has all of it once more that is not.
//!
//! Nothing here knows of configuration, exporters or OTLP.

mod entry;
mod follow;
mod settle;
mod table;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, ContextGuard, KeyValue};
use opentelemetry_sdk::trace::SpanData;

use entry::CountsAs;
pub use entry::{Entry, SpanRef};
pub use follow::{followed, streamed, traced};
pub use settle::taken;
pub(crate) use table::OpenSpans;
use table::{OpenSpan, Ticket};

use crate::ambient;
use crate::current::Said;
use crate::group::{Bucket, SpanGroup};
use crate::metrics::ModelCall;
use crate::outcome::{Failure, Outcome};
use crate::pipeline::Pipeline;
use crate::{process, semconv, step};

/// The gate: a call that is about to begin, if its group is wanted.
#[inline]
pub fn enter(group: &'static SpanGroup) -> Option<Box<Entry>> {
    match group.is_off() {
        true => None,
        false => Entry::begin(group),
    }
}

/// Runs the body of a function with its arguments. Both come as parameters so that their types are known
/// where the body is checked, and so that the arguments are dropped as a function drops them.
#[inline]
pub fn run<A, R>(arguments: A, body: impl FnOnce(A) -> R) -> R {
    body(arguments)
}

/// Records a call that is over.
pub(crate) fn record_interval(entry: Entry, name: &'static str, began_at: SystemTime, took: Duration) {
    let mut open = Open::new(entry, name, began_at);
    open.took = Some(took);
    open.settled = Some(Outcome::Ok);
}

/// What the time of a span counts as: as its group says, unless a span around it says otherwise.
fn bucket(group: &SpanGroup, parent: &Context) -> Option<Bucket> {
    let scope = parent.get::<BucketScope>().map(|scope| scope.0);
    group.bucket().map(|own| scope.unwrap_or(own))
}

/// The attributes that Lens gives every span.
fn own_attributes(
    group: &SpanGroup,
    bucket: Option<Bucket>,
    around: &Context,
    model_call: Option<&ModelCall>,
) -> impl Iterator<Item = KeyValue> {
    let model_call = model_call.map(|call| {
        [
            (semconv::GEN_AI_OPERATION_NAME, &call.operation),
            (semconv::GEN_AI_PROVIDER_NAME, &call.provider),
            (semconv::GEN_AI_REQUEST_MODEL, &call.model),
        ]
        .map(|(key, text)| text.as_ref().map(|text| KeyValue::new(key, text.clone())))
    });
    [
        Some(KeyValue::new(semconv::GROUP, group.name())),
        bucket.map(|bucket| KeyValue::new(semconv::BUCKET, bucket.as_str())),
        step::of(around).map(|n| KeyValue::new(semconv::ITERATION, i64::try_from(n).unwrap_or(i64::MAX))),
    ]
    .into_iter()
    .flatten()
    .chain(model_call.into_iter().flatten().flatten())
}

/// Ours first, so that a limit cuts the user's; but of two values for one key, the user's.
fn merge(own: impl Iterator<Item = KeyValue>, users: Vec<KeyValue>) -> Vec<KeyValue> {
    let mut merged: Vec<_> = own.filter(|own| users.iter().all(|user| user.key != own.key)).collect();
    merged.extend(users);
    merged
}

/// What leaf spans beneath count as, in the context.
struct BucketScope(Bucket);

/// A call that lasts as long as a scope, whose span is the current one there; off, or open until this is
/// dropped.
pub struct Scope(Option<Box<Entered>>);

struct Entered {
    // Ends before the call does.
    _attached: Option<ContextGuard>,
    open: Open,
}

impl Scope {
    /// A call that is not recorded.
    pub const OFF: Self = Self(None);

    /// `unsettled` says what ends the call if its value is not looked at.
    fn new(mut open: Open, unsettled: Unsettled) -> Self {
        open.unsettled = unsettled;
        Self(Some(Box::new(Entered { _attached: open.attach(), open })))
    }

    /// The call, if it is recorded.
    #[inline]
    pub fn recorded(&mut self) -> Option<&mut Open> {
        self.0.as_mut().map(|entered| &mut entered.open)
    }

    /// The scope ends, and the call goes on.
    fn leave(mut self) -> Call {
        Call(self.0.take().map(|entered| {
            let mut open = entered.open;
            open.unsettled = Unsettled::Cancelled;
            Box::new(open)
        }))
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        if let Some(entered) = self.0.take() {
            end_scope(entered);
        }
    }
}

#[cold]
#[inline(never)]
fn end_scope(entered: Box<Entered>) {
    drop(entered);
}

/// A call that goes from poll to poll, on whatever thread; off, or open until this is dropped.
pub struct Call(Option<Box<Open>>);

impl Call {
    /// A call that is not recorded.
    pub const OFF: Self = Self(None);

    /// The call, if it is recorded.
    #[inline]
    pub fn recorded(&mut self) -> Option<&mut Open> {
        self.0.as_deref_mut()
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            end_call(open);
        }
    }
}

#[cold]
#[inline(never)]
fn end_call(open: Box<Open>) {
    drop(open);
}

/// A call is only looked at again to be ended, which is what a panic does to it.
impl UnwindSafe for Scope {}
impl RefUnwindSafe for Scope {}
impl UnwindSafe for Call {}
impl RefUnwindSafe for Call {}

/// A call that is recorded and has not ended.
pub struct Open {
    pipeline: Arc<Pipeline>,
    group: &'static SpanGroup,
    name: &'static str,
    began: Instant,
    began_at: SystemTime,
    /// How long it took, if that is not for the clock to say.
    took: Option<Duration>,
    /// The context of the body.
    context: Context,
    said: Said,
    /// If there is a span, its place among those that are open.
    ticket: Option<Ticket>,
    model_call: Option<Box<ModelCall>>,
    settled: Option<Outcome>,
    told: Told,
    unsettled: Unsettled,
    is_discarded: bool,
}

/// What is told of an error.
#[derive(Default)]
enum Told {
    /// Its type.
    #[default]
    Type,
    /// Nothing: the span has not failed.
    Nothing,
    /// Its type and this.
    Text(String),
}

/// What ended a call of which no value was seen.
#[derive(Clone, Copy)]
enum Unsettled {
    /// Nobody polls it any more.
    Cancelled,
    /// A panic, for there would be a value otherwise.
    Panic,
    /// Perhaps a panic: the value is not looked at. Where the call began within a destructor that a panic
    /// runs, another panic cannot be told from that one.
    PerhapsPanic { was_panicking: bool },
}

impl Unsettled {
    fn outcome(self) -> Outcome {
        match self {
            Self::Cancelled => Outcome::Cancelled,
            Self::Panic => Outcome::Panic,
            Self::PerhapsPanic { was_panicking: false } if std::thread::panicking() => Outcome::Panic,
            Self::PerhapsPanic { .. } => Outcome::Ok,
        }
    }
}

impl Open {
    /// Starts the span, if there is one, and makes the context in which the body will run.
    fn new(entry: Entry, name: &'static str, began_at: SystemTime) -> Self {
        let Entry { pipeline, group, spans, attributes, step, model_call, of_span } = entry;
        let parent = ambient::current();
        let began = Instant::now();
        let said = Said::default();
        let mut context = parent.with_value(said.clone());
        let mut ticket = None;
        if let Some(number) = step {
            context = step::within(&context, number);
        }
        if let Some(bucket) = group.scope() {
            context = context.with_value(BucketScope(bucket));
        }
        if let Some(tracer) = pipeline.tracer.as_ref().filter(|_| spans) {
            let bucket = match of_span.counts_as {
                CountsAs::ItsGroup => bucket(group, &parent),
                CountsAs::Bucket(bucket) => Some(bucket),
                CountsAs::Umbrella => None,
            };
            let own = own_attributes(group, bucket, &context, model_call.as_deref());
            let mut builder =
                tracer.span_builder(name).with_start_time(began_at).with_attributes(merge(own, attributes));
            builder.span_kind = of_span.kind;
            if !of_span.links.is_empty() {
                builder = builder.with_links(of_span.links);
            }
            if let Some(elsewhere) = of_span.parent {
                context = context.with_remote_span_context(elsewhere);
            }
            let parent = context.span().span_context().span_id();
            context = context.with_span(tracer.build_with_context(builder, &context));
            ticket = Some(pipeline.open_spans.add(OpenSpan {
                context: context.clone(),
                parent,
                name,
                group: group.name(),
                began,
                began_at,
                is_announced: false,
            }));
        }
        Self {
            pipeline,
            group,
            name,
            began,
            began_at,
            took: None,
            context,
            said,
            ticket,
            model_call,
            settled: None,
            told: Told::Type,
            unsettled: Unsettled::Cancelled,
            is_discarded: false,
        }
    }

    /// The body returned; this is how it went.
    #[cold]
    #[inline(never)]
    pub fn settle(&mut self, failure: Option<Failure>) {
        self.settled = Some(failure.map_or(Outcome::Ok, Outcome::Error));
    }

    /// Whether there is a span to hold attributes.
    pub fn has_span(&self) -> bool {
        self.ticket.is_some()
    }

    /// Makes the span the current one.
    fn attach(&self) -> Option<ContextGuard> {
        ambient::attach(&self.context)
    }

    fn set_attribute(&self, attribute: KeyValue) {
        if self.has_span() {
            self.context.span().set_attribute(attribute);
        }
    }

    /// Takes over the tokens that were counted from within.
    fn hear(&mut self) {
        if let Some(mut said) = self.said.take() {
            let call = self.model_call.get_or_insert_default();
            call.counted = true;
            call.input.append(&mut said.input);
            call.output.append(&mut said.output);
        }
    }

    fn end(&mut self) {
        let elapsed = self.took.unwrap_or_else(|| self.began.elapsed());
        self.hear();
        let outcome = self.settled.unwrap_or_else(|| self.unsettled.outcome());
        self.end_span(outcome, elapsed);
        self.record_metrics(outcome, elapsed);
    }

    fn end_span(&self, outcome: Outcome, elapsed: Duration) {
        if !self.has_span() {
            return;
        }
        let span = self.context.span();
        span.set_attribute(KeyValue::new(semconv::OUTCOME, outcome.as_str()));
        if let Some(error_type) = outcome.error_type()
            && !matches!((outcome, &self.told), (Outcome::Error(_), Told::Nothing))
        {
            span.set_attribute(KeyValue::new(semconv::ERROR_TYPE, error_type));
            span.set_status(match (outcome, &self.told) {
                (Outcome::Panic, _) => Status::error("panic"),
                (_, Told::Text(text)) => Status::error(text.clone()),
                (_, Told::Type | Told::Nothing) => Status::error(""),
            });
        }
        if let Some(model_call) = &self.model_call {
            let sides = [
                (semconv::GEN_AI_USAGE_INPUT_TOKENS, &model_call.input),
                (semconv::GEN_AI_USAGE_OUTPUT_TOKENS, &model_call.output),
            ];
            for (key, counts) in sides.into_iter().filter(|(_, counts)| !counts.is_empty()) {
                let sum = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
                span.set_attribute(KeyValue::new(key, i64::try_from(sum).unwrap_or(i64::MAX)));
            }
        }
        // The wall clock may be set while the call runs; its duration is that of the steady clock.
        span.end_with_timestamp(self.began_at + elapsed);
    }

    fn record_metrics(&self, outcome: Outcome, elapsed: Duration) {
        let Some(instruments) = &self.pipeline.instruments else {
            return;
        };
        let seconds = elapsed.as_secs_f64();
        let attributes = [
            KeyValue::new(semconv::PHASE, self.name),
            KeyValue::new(semconv::GROUP, self.group.name()),
            KeyValue::new(semconv::OUTCOME, outcome.as_str()),
        ];
        instruments.phase_duration.record(seconds, &attributes);
        if let Some(model_call) = self.model_call.as_ref().filter(|call| call.counted) {
            model_call.record(instruments, seconds, outcome.error_type());
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.pipeline.process != process::generation() {
            // Begun before a fork, and the other process's to end. A lock that another thread of that held stays
            // locked here.
            return;
        }
        match self.is_discarded {
            true => self.set_attribute(KeyValue::new(semconv::DISCARDED, true)),
            false => self.end(),
        }
        // Last, so that a span which a shutdown does not find in the table has ended.
        if let Some(ticket) = &self.ticket {
            self.pipeline.open_spans.remove(ticket);
        }
    }
}

/// Whether a span was taken back.
pub(crate) fn is_discarded(span: &SpanData) -> bool {
    // Set last, where it is set.
    span.attributes.last().is_some_and(|attribute| attribute.key.as_str() == semconv::DISCARDED)
}

/// Leaves the last of the attributes with the same key, as a map would: the SDK keeps each that was set.
pub(crate) fn keep_last(attributes: &mut Vec<KeyValue>) {
    for index in (0..attributes.len()).rev() {
        if attributes[index + 1..].iter().any(|later| later.key == attributes[index].key) {
            attributes.remove(index);
        }
    }
}

/// A value that is never made; only its type is used, to tell the body what to coerce to.
pub fn never<T>() -> T {
    unreachable!("stands behind `if false`")
}
