//! What is a call when it begins: a span of its own, one that is left out, or none?
//!
//! Whichever it is, it has a record in the table, and a place in the context, where those find it who count tokens
//! from within.

use std::borrow::Cow;
use std::time::Instant;

use opentelemetry::Context;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceState, Tracer as _};
use opentelemetry_sdk::trace::IdGenerator as _;

use super::entry::CountsAs;
use super::handle::{Found, Handle, Within};
use super::record::{Fate, Record};
use super::{Entry, Open, TableRef};
use crate::ambient;
use crate::group::Bucket;
use crate::ids::Ids;
use crate::pipeline::{self, Pipeline, Whose};
use crate::step::{self, Around};

/// How a pipeline makes spans.
pub(crate) struct Spans {
    /// If the program has processors of its own, which can only be given the SDK's spans, the tracer that makes them.
    pub(crate) tracer: Option<BoxedTracer>,
}

impl Spans {
    /// Whether code of the program's runs when a span begins.
    fn run_code_of_the_program(&self) -> bool {
        self.tracer.is_some()
    }

    /// Whether each has a span that has no parent, or one that is recorded.
    pub(crate) fn are_plain(&self) -> bool {
        self.tracer.is_none()
    }
}

impl Entry {
    /// Begins the call, now. With the context for its body, if there is anything in it.
    pub(super) fn open(self, name: &'static str) -> (Box<Open>, Option<Context>) {
        let Self { mut open } = self;
        open.name = name;
        let mut record = open.record.take().unwrap_or_else(Record::new);
        record.name = Cow::Borrowed(name);
        record.group = open.group;
        record.model_call = open.model_call.take();
        record.began_at = open.began_at;
        open.began = Instant::now();
        record.began = open.began;
        let context = match open.whose.clone() {
            // Nobody needs to be asked.
            Whose::Process(live) if open.has_span && live.is_plain() => {
                let begin =
                    |around: &Context| with_span(&mut open, record, None, &TableRef::default(), around);
                live.is_active().then(|| ambient::with(begin)).flatten().flatten()
            }
            Whose::Process(live) => match pipeline::active().as_ref().filter(|active| live.is(active)) {
                Some(pipeline) => begin(&mut open, record, pipeline),
                None => None,
            },
            Whose::Test(pipeline) => begin(&mut open, record, &pipeline),
        };
        (open, context)
    }
}

fn begin(open: &mut Open, record: Box<Record>, pipeline: &Pipeline) -> Option<Context> {
    let table = &pipeline.table;
    match pipeline.spans.as_ref().filter(|_| open.has_span) {
        None => ambient::with(|around| without_span(open, record, table, around)).flatten(),
        // Code of the program's must be free to use the context.
        Some(spans) if spans.run_code_of_the_program() => {
            with_span(open, record, Some(spans), table, &ambient::current())
        }
        Some(spans) => ambient::with(|around| with_span(open, record, Some(spans), table, around)).flatten(),
    }
}

/// A call whose group is off: what is said of its span is said of the one around it.
fn without_span(
    open: &mut Open,
    mut record: Box<Record>,
    table: &TableRef,
    around: &Context,
) -> Option<Context> {
    if around.is_telemetry_suppressed() {
        return None;
    }
    let scoped = scoped(open, around);
    let around = scoped.as_ref().unwrap_or(around);
    open.has_span = false;
    record.fate = Fate::None;
    let call = put(open, record, table, Ids.new_span_id())?;
    Some(match around.has_active_span() {
        true => {
            let span = around.span().span_context().clone();
            around.with_span(Within { span, call, around: around.clone() })
        }
        false => around.with_value(call),
    })
}

fn with_span(
    open: &mut Open,
    mut record: Box<Record>,
    spans: Option<&Spans>,
    table: &TableRef,
    around: &Context,
) -> Option<Context> {
    if around.is_telemetry_suppressed() {
        return None;
    }
    let scoped = scoped(open, around);
    let around = scoped.as_ref().unwrap_or(around);
    // What a group says of those beneath holds for itself, too, which has no bucket then.
    let place = Around::of(around);
    record.step = place.step;
    record.bucket = bucket(open, place);
    let elsewhere = open.parent.take().map(|parent| around.with_remote_span_context(*parent));
    let parent = elsewhere.as_ref().unwrap_or(around);
    if let Some(tracer) = spans.and_then(|spans| spans.tracer.as_ref()) {
        return with_span_of_sdk(open, record, table, tracer, around, parent);
    }
    let parent = parent.span();
    let parent = parent.span_context();
    let id = Ids.new_span_id();
    let (trace_id, flags, state) = match parent.is_valid() {
        true => {
            record.parent = parent.span_id();
            record.parent_is_remote = parent.is_remote();
            (parent.trace_id(), parent.trace_flags(), parent.trace_state().clone())
        }
        false => {
            record.parent = SpanId::INVALID;
            record.parent_is_remote = false;
            (Ids.new_trace_id(), TraceFlags::default(), TraceState::NONE)
        }
    };
    let is_kept = !parent.is_valid() || parent.is_sampled();
    record.fate = if is_kept { Fate::Kept } else { Fate::LeftOut };
    open.has_span = is_kept;
    let span = SpanContext::new(trace_id, id, flags.with_sampled(is_kept), false, state);
    record.span = span.clone();
    let call = put(open, record, table, id)?;
    Some(around.with_span(Handle { span, call }))
}

/// The same with a span of the SDK's, which the program's own processors see.
fn with_span_of_sdk(
    open: &mut Open,
    mut record: Box<Record>,
    table: &TableRef,
    tracer: &BoxedTracer,
    around: &Context,
    parent: &Context,
) -> Option<Context> {
    let mut builder = tracer.span_builder(record.name.clone()).with_start_time(record.started_at());
    builder.span_kind = Some(record.kind.clone());
    builder.attributes = Some(record.take_attributes());
    builder.links = Some(std::mem::take(&mut record.links.links));
    let context = around.with_span(tracer.build_with_context(builder, parent));
    let span = context.span();
    record.span = span.span_context().clone();
    record.parent = parent.span().span_context().span_id();
    let is_kept = span.is_recording();
    record.fate = if is_kept { Fate::None } else { Fate::LeftOut };
    record.of_sdk = is_kept.then(|| context.clone());
    open.has_span = is_kept;
    let id = record.span.span_id();
    let call = put(open, record, table, id)?;
    table.add_stranger(id, call);
    Some(context)
}

/// The context around a call that changes what is beneath it.
fn scoped(open: &Open, around: &Context) -> Option<Context> {
    let (number, bucket) = (open.step, open.group.scope());
    if number.is_none() && bucket.is_none() {
        return None;
    }
    let numbered = number.map(|number| step::within(around, number));
    match bucket {
        Some(bucket) => Some(step::counting_as(numbered.as_ref().unwrap_or(around), bucket)),
        None => numbered,
    }
}

/// What the time of a span counts as: as its group says, unless a span around it says otherwise.
fn bucket(open: &Open, around: Around) -> Option<Bucket> {
    match open.counts_as {
        CountsAs::ItsGroup => open.group.bucket().map(|own| around.counts_as.unwrap_or(own)),
        CountsAs::Bucket(bucket) => Some(bucket),
        CountsAs::Umbrella => None,
    }
}

/// Puts a call into the table.
fn put(open: &mut Open, mut record: Box<Record>, table: &TableRef, id: SpanId) -> Option<Found> {
    record.id = id;
    match table.begin(record, id) {
        Ok(ticket) => {
            open.ticket = Some(ticket);
            Some(Found { table: table.clone(), ticket })
        }
        // Telemetry is at its end.
        Err(mut record) => {
            record.clear();
            open.record = Some(record);
            None
        }
    }
}
