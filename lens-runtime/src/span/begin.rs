//! What is a call when it begins: a span of its own, one that is left out, or none?
//!
//! Whichever it is, it has a record in the table, and a place in the context, where those find it who count tokens
//! from within.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use opentelemetry::Context;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{
    SpanContext, TraceContextExt as _, TraceState, Tracer as _,
};
use opentelemetry_sdk::trace::{SamplingDecision, ShouldSample};

use super::entry::CountsAs;
use super::handle::{Found, Handle, Within};
use super::ended::Fate;
use super::record::Record;
use super::{Open, TableRef};
use crate::{ambient, ids};
use crate::group::Bucket;
use crate::pipeline::{self, Live, Whose};
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

/// A call that has begun, and the context for its body.
struct Begun {
    call: Found,
    has_span: bool,
    context: Context,
}

impl Open {
    /// Begins the call, now. With the context for its body; `None` if telemetry is suppressed here, or at its end.
    #[inline]
    pub(super) fn begin(&mut self, name: &'static str) -> Option<Context> {
        let mut record = self.record.take()?;
        record.facts.called = name;
        record.facts.began = Instant::now();
        let begun = match &record.whose {
            Whose::Process(live) if record.is_plain(*live) => {
                Context::map_current(|around| plain(record, around))
            }
            _ => begin(record),
        };
        let Begun { call, has_span, context } = begun?;
        self.call = call;
        self.has_span = has_span;
        self.has_begun = true;
        Some(context)
    }
}

impl Record {
    /// Whether nobody needs to be asked, and nothing but its span is another one for what is beneath.
    #[inline]
    fn is_plain(&self, live: Live) -> bool {
        self.wants_span
            && live.is_plain()
            && self.share == Share::ALL
            && self.begins.is_none()
            && self.elsewhere.is_none()
            && self.facts.group.scope().is_none()
    }
}

/// The way of nearly all calls: [`with_span`] without what is rare.
fn plain(mut record: Box<Record>, around: &Context) -> Option<Begun> {
    if around.is_telemetry_suppressed() {
        return None;
    }
    let place = Around::of(around);
    record.facts.step = place.step;
    record.facts.bucket = bucket(&record, place);
    let span = around.span();
    let parent = span.span_context();
    let is_within = parent.is_valid();
    let is_kept = !is_within || parent.is_sampled();
    record.facts.trace = if is_within { parent.trace_id() } else { ids::trace() };
    record.facts.parent = parent.span_id();
    record.facts.parent_is_remote = parent.is_remote();
    record.facts.flags = parent.trace_flags().with_sampled(is_kept);
    record.set_state(parent.trace_state().clone());
    record.facts.fate = if is_kept { Fate::Kept } else { Fate::LeftOut };
    let span = record.span();
    let table = TableRef::default();
    let call = Found { ticket: table.begin(record)?, table };
    let context = around.with_span(Handle { span, call: call.clone() });
    Some(Begun { call, has_span: is_kept, context })
}

#[cold]
fn begin(record: Box<Record>) -> Option<Begun> {
    let pipeline = match &record.whose {
        Whose::Process(live) => {
            let active = pipeline::active();
            Arc::clone(active.as_ref().filter(|active| live.is(active))?)
        }
        Whose::Test(pipeline) => Arc::clone(pipeline),
        Whose::Nobody => return None,
    };
    let table = pipeline.table.clone();
    match pipeline.spans.as_ref().filter(|_| record.wants_span) {
        None => ambient::with(|around| without_span(record, table, around)).flatten(),
        // Code of the program's must be free to use the context.
        Some(spans) if spans.run_code_of_the_program() => {
            with_span(record, spans, table, &ambient::current())
        }
        Some(spans) => ambient::with(|around| with_span(record, spans, table, around)).flatten(),
    }
}

/// A call whose group is off: what is said of its span is said of the one around it.
fn without_span(
    mut record: Box<Record>,
    table: TableRef,
    around: &Context,
) -> Option<Begun> {
    if around.is_telemetry_suppressed() {
        return None;
    }
    let scoped = scoped(&record, around);
    let around = scoped.as_ref().unwrap_or(around);
    record.facts.fate = Fate::None;
    let call = Found { ticket: table.begin(record)?, table };
    let context = match around.has_active_span() {
        true => {
            let span = around.span().span_context().clone();
            around.with_span(Within { span, call: call.clone(), around: around.clone() })
        }
        false => around.with_value(call.clone()),
    };
    Some(Begun { call, has_span: false, context })
}

fn with_span(
    mut record: Box<Record>,
    spans: &Spans,
    table: TableRef,
    around: &Context,
) -> Option<Begun> {
    if around.is_telemetry_suppressed() {
        return None;
    }
    let scoped = scoped(&record, around);
    let around = scoped.as_ref().unwrap_or(around);
    // What a group says of those beneath holds for itself, too, which has no bucket then.
    let place = Around::of(around);
    record.facts.step = place.step;
    record.facts.bucket = bucket(&record, place);
    let elsewhere = record.elsewhere.take().map(|parent| around.with_remote_span_context(*parent));
    let parent = elsewhere.as_ref().unwrap_or(around);
    let verdict = {
        let span = parent.span();
        let parent_ids = span.span_context();
        record.facts.trace = if parent_ids.is_valid() { parent_ids.trace_id() } else { ids::trace() };
        record.facts.parent = parent_ids.span_id();
        record.facts.parent_is_remote = parent_ids.is_remote();
        record.facts.flags = parent_ids.trace_flags();
        spans.decide(&mut record, parent, &table)
    };
    if let Some(tracer) = spans.tracer.as_ref().filter(|_| verdict.is_recorded) {
        return with_span_of_sdk(record, tracer, table, around, parent, verdict.state);
    }
    record.facts.fate = if verdict.is_recorded { Fate::Kept } else { Fate::LeftOut };
    record.facts.flags = record.facts.flags.with_sampled(verdict.is_sampled);
    record.set_state(verdict.state);
    let span = record.span();
    let call = Found { ticket: table.begin(record)?, table };
    let context = around.with_span(Handle { span, call: call.clone() });
    Some(Begun { call, has_span: verdict.is_recorded, context })
}

/// The same with a span of the SDK's, which the program's own processors see.
fn with_span_of_sdk(
    mut record: Box<Record>,
    tracer: &BoxedTracer,
    table: TableRef,
    around: &Context,
    parent: &Context,
    state: TraceState,
) -> Option<Begun> {
    let told = told_to_sdk(parent, state);
    let parent = told.as_ref().unwrap_or(parent);
    let mut builder = tracer.span_builder(record.facts.called).with_start_time(record.facts.started_at(record.extras.as_deref()));
    builder.span_kind = Some(record.kind());
    builder.attributes = Some(record.attributes_so_far());
    builder.links = record.extras.as_ref().map(|extras| extras.links.links.clone());
    let context = around.with_span(tracer.build_with_context(builder, parent));
    let span = context.span();
    let ids = span.span_context();
    let is_kept = span.is_recording();
    (record.facts.trace, record.facts.id, record.facts.flags) = (ids.trace_id(), ids.span_id(), ids.trace_flags());
    record.facts.fate = if is_kept { Fate::None } else { Fate::LeftOut };
    record.of_sdk = is_kept.then(|| context.clone());
    let id = record.facts.id;
    let call = Found { ticket: table.begin(record)?, table };
    call.table.add_stranger(id, call.clone());
    Some(Begun { call, has_span: is_kept, context })
}

impl Verdict {
    fn plain(is_kept: bool, state: &TraceState) -> Self {
        Self { is_recorded: is_kept, is_sampled: is_kept, state: state.clone() }
    }
}

impl Spans {
    /// The sampler first; what it keeps, steps and shares may leave out.
    fn decide(&self, record: &mut Record, parent: &Context, table: &TableRef) -> Verdict {
        let sampled = match &self.tracer {
            // The SDK asks its sampler itself, and takes no span back: the share speaks before it does.
            Some(_) => Verdict::plain(true, parent.span().span_context().trace_state()),
            None => self.sampler.decide(record, parent, table),
        };
        self.thin(record, sampled)
    }
}

impl Sampling {
    /// What the sampler says of a span.
    fn decide(&self, record: &mut Record, parent: &Context, table: &TableRef) -> Verdict {
        let trace_id = record.facts.trace;
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
                        record.facts.called,
                        &record.kind(),
                        &attributes,
                        record.extras.as_ref().map_or(&[], |extras| &extras.links.links),
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
    fn thin(&self, record: &Record, sampled: Verdict) -> Verdict {
        if !sampled.is_sampled {
            return sampled;
        }
        let left_out = |state| Verdict { is_recorded: false, is_sampled: false, state };
        if record.facts.step.is_some_and(|number| !self.steps.includes(number)) {
            return left_out(sampled.state);
        }
        if record.share == Share::ALL {
            return sampled;
        }
        let draw = self.draw(record);
        match record.share.keeps(draw.randomness()) {
            true => Verdict { state: thinned(&sampled.state, record.share, draw), ..sampled },
            false => left_out(sampled.state),
        }
    }

    /// What decides about a call, in the same way in every process: its key, or its number among those of its step;
    /// outside of a step, its trace.
    fn draw(&self, record: &Record) -> Draw {
        let group = record.facts.group.name();
        let of_call = |step, key: Key<'_>| Draw::OfCall(randomness(&self.run_id, group, step, key));
        match (&record.sample_key, record.facts.step) {
            (Some(key), step) => of_call(step.unwrap_or_default(), key.as_key()),
            (None, Some(step)) => of_call(step, Key::Ordinal(self.ordinals.next(group, step))),
            (None, None) if self.sampler.leaves_ids_random() => Draw::OfTrace(randomness_of_trace(record.facts.trace)),
            // A sampler that decides by the ids has left some of them only.
            (None, None) => of_call(0, Key::Text(&record.facts.trace.to_string())),
        }
    }
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
fn scoped(record: &Record, around: &Context) -> Option<Context> {
    let (number, bucket) = (record.begins, record.facts.group.scope());
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
fn bucket(record: &Record, around: Around) -> Option<Bucket> {
    match record.counts_as {
        CountsAs::ItsGroup => record.facts.group.bucket().map(|own| around.counts_as.unwrap_or(own)),
        CountsAs::Bucket(bucket) => Some(bucket),
        CountsAs::Umbrella => None,
    }
}
