//! What is a call when it begins: a span of its own, one that is left out, or none?
//!
//! Whichever it is, it has a record in the table, and a place in the context, where those find it who count tokens
//! from within.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use opentelemetry::Context;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState, Tracer as _,
};
use opentelemetry_sdk::trace::{IdGenerator as _, SamplingDecision, ShouldSample};

use super::entry::CountsAs;
use super::handle::{Found, Handle, Within};
use super::record::{Fate, Record};
use super::{Entry, Open, TableRef};
use crate::ambient;
use crate::group::Bucket;
use crate::ids::Ids;
use crate::pipeline::{self, Pipeline, Whose};
use crate::sampling::{
    BuiltInSampler, Draw, Key, Ordinals, Root, Share, Steps, randomness, randomness_of_trace, thinned,
};
use crate::step::{self, Around};

/// How a pipeline makes spans.
pub(crate) struct Spans {
    pub(crate) run_id: String,
    pub(crate) sampler: Sampling,
    pub(crate) steps: Steps,
    /// The calls of groups of which a share is kept.
    pub(crate) ordinals: Ordinals,
    /// If the program has processors of its own, which can only be given the SDK's spans, the tracer that makes them.
    pub(crate) tracer: Option<BoxedTracer>,
}

/// Who is asked first whether a span is recorded.
pub(crate) enum Sampling {
    BuiltIn(BuiltInSampler),
    /// The program's own.
    Own(Box<dyn ShouldSample>),
}

impl Spans {
    /// Those of a test: all that it selected.
    pub(crate) fn of_test() -> Self {
        Self {
            run_id: "test".to_owned(),
            sampler: Sampling::BuiltIn(BuiltInSampler::DEFAULT),
            steps: Steps::All,
            ordinals: Ordinals::default(),
            tracer: None,
        }
    }

    /// Whether code of the program's runs when a span begins.
    fn run_code_of_the_program(&self) -> bool {
        self.tracer.is_some() || matches!(self.sampler, Sampling::Own(_))
    }

    /// Whether each call of a group that is kept whole has a span if it has no parent, or one that is recorded.
    pub(crate) fn are_plain(&self) -> bool {
        let is_default =
            matches!(self.sampler, Sampling::BuiltIn(sampler) if sampler == BuiltInSampler::DEFAULT);
        is_default && self.tracer.is_none() && matches!(self.steps, Steps::All | Steps::Slowest { .. })
    }
}

/// What was decided of a span.
struct Verdict {
    is_recorded: bool,
    is_sampled: bool,
    state: TraceState,
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
            Whose::Process(live) if open.has_span && live.is_plain() && open.share == Share::ALL => {
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
    let parent_span = parent.span();
    let ids = parent_span.span_context();
    let (trace_id, flags) = match ids.is_valid() {
        true => (ids.trace_id(), ids.trace_flags()),
        false => (Ids.new_trace_id(), TraceFlags::default()),
    };
    record.parent = ids.span_id();
    record.parent_is_remote = ids.is_remote();
    let verdict = match spans.filter(|spans| open.share != Share::ALL || !spans.are_plain()) {
        None => {
            let is_kept = !ids.is_valid() || ids.is_sampled();
            Verdict { is_recorded: is_kept, is_sampled: is_kept, state: ids.trace_state().clone() }
        }
        Some(spans) => {
            // The SDK asks its sampler itself, and takes no span back: the share speaks before it does.
            let sampled = match &spans.tracer {
                Some(_) => Verdict { is_recorded: true, is_sampled: true, state: ids.trace_state().clone() },
                None => spans.sampler.decide(&mut record, parent, trace_id, table),
            };
            let verdict = spans.thin(open, &record, sampled, trace_id);
            if let Some(tracer) = spans.tracer.as_ref().filter(|_| verdict.is_recorded) {
                return with_span_of_sdk(open, record, table, tracer, around, parent, verdict.state);
            }
            verdict
        }
    };
    record.fate = if verdict.is_recorded { Fate::Kept } else { Fate::LeftOut };
    open.has_span = verdict.is_recorded;
    let id = Ids.new_span_id();
    let span = SpanContext::new(trace_id, id, flags.with_sampled(verdict.is_sampled), false, verdict.state);
    record.span = span.clone();
    let call = put(open, record, table, id)?;
    Some(around.with_span(Handle { span, call }))
}

impl Sampling {
    /// What the sampler says of a span.
    fn decide(&self, record: &mut Record, parent: &Context, trace_id: TraceId, table: &TableRef) -> Verdict {
        let span = parent.span();
        let ids = span.span_context();
        let is_within = ids.is_valid();
        let state = ids.trace_state().clone();
        // What is beneath a span that was left out is left out, whatever the sampler says of spans without it.
        let is_beneath_nothing = is_within && !ids.is_sampled() && !ids.is_remote() && {
            Found::within(parent, table).is_some_and(|call| call.is_left_out())
        };
        let dropped = |state| Verdict { is_recorded: false, is_sampled: false, state };
        if is_beneath_nothing {
            return dropped(state);
        }
        match self {
            Self::BuiltIn(sampler) => {
                let is_kept = sampler.decide(is_within.then(|| ids.is_sampled()), trace_id);
                Verdict { is_recorded: is_kept, is_sampled: is_kept, state }
            }
            Self::Own(sampler) => {
                let attributes: Vec<_> = record.attributes_so_far();
                let ask = || {
                    sampler.should_sample(
                        Some(parent),
                        trace_id,
                        &record.name,
                        &record.kind,
                        &attributes,
                        &record.links,
                    )
                };
                // One that panics has not said that the span is to be recorded.
                let Ok(said) = catch_unwind(AssertUnwindSafe(ask)) else { return dropped(state) };
                for attribute in said.attributes {
                    record.attributes.set(attribute, u32::MAX);
                }
                let (is_recorded, is_sampled) = match said.decision {
                    SamplingDecision::Drop => (false, false),
                    SamplingDecision::RecordOnly => (true, false),
                    SamplingDecision::RecordAndSample => (true, true),
                };
                Verdict { is_recorded, is_sampled, state: said.trace_state }
            }
        }
    }

    /// Whether the ids of traces are as good as random among those that it samples.
    fn leaves_ids_random(&self) -> bool {
        matches!(self, Self::BuiltIn(BuiltInSampler { root: Root::On | Root::Off, .. }))
    }
}

impl Spans {
    /// The choice of steps and the share of the group: they only take away.
    fn thin(&self, open: &Open, record: &Record, sampled: Verdict, trace_id: TraceId) -> Verdict {
        if !sampled.is_sampled {
            return sampled;
        }
        let left_out = |state| Verdict { is_recorded: false, is_sampled: false, state };
        if record.step.is_some_and(|number| !self.steps.includes(number)) {
            return left_out(sampled.state);
        }
        if open.share == Share::ALL {
            return sampled;
        }
        let draw = self.draw(open, record.step, trace_id);
        match open.share.keeps(draw.randomness()) {
            true => Verdict { state: thinned(&sampled.state, open.share, draw), ..sampled },
            false => left_out(sampled.state),
        }
    }

    /// What decides about a call, in the same way in every process: its key, or its number among those of its step;
    /// outside of a step, its trace.
    fn draw(&self, open: &Open, step: Option<u64>, trace_id: TraceId) -> Draw {
        let group = open.group.name();
        let of_call = |step, key: Key<'_>| Draw::OfCall(randomness(&self.run_id, group, step, key));
        match (&open.key, step) {
            (Some(key), step) => of_call(step.unwrap_or_default(), key.as_key()),
            (None, Some(step)) => of_call(step, Key::Ordinal(self.ordinals.next(group, step))),
            (None, None) if self.sampler.leaves_ids_random() => Draw::OfTrace(randomness_of_trace(trace_id)),
            // A sampler that decides by the ids has left some of them only.
            (None, None) => of_call(0, Key::Text(&trace_id.to_string())),
        }
    }
}

/// The same with a span of the SDK's, which the program's own processors see.
fn with_span_of_sdk(
    open: &mut Open,
    mut record: Box<Record>,
    table: &TableRef,
    tracer: &BoxedTracer,
    around: &Context,
    parent: &Context,
    state: TraceState,
) -> Option<Context> {
    let told = told_to_sdk(parent, state);
    let parent = told.as_ref().unwrap_or(parent);
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

/// The parent with the `tracestate` that the span is to have, which the SDK's takes from it.
fn told_to_sdk(parent: &Context, state: TraceState) -> Option<Context> {
    let span = parent.span();
    let ids = span.span_context();
    (ids.is_valid() && *ids.trace_state() != state).then(|| {
        let told = SpanContext::new(ids.trace_id(), ids.span_id(), ids.trace_flags(), ids.is_remote(), state);
        parent.with_remote_span_context(told)
    })
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
