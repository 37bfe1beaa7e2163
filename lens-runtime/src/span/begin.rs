//! What is a call when it begins: a span of its own, one that is left out, or none?
//!
//! Whichever it is, it has a record in the table, and a place in the context, where those find it who count tokens
//! from within.

use std::sync::Arc;
use std::time::Instant;

use opentelemetry::Context;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, Tracer as _};

use super::ended::Fate;
use super::entry::CountsAs;
use super::handle::{Found, Handle, Within};
use super::record::Record;
use super::sampler::{Sampling, Thinning, Verdict, with_thinning};
use super::{Open, TableRef};
use crate::pipeline::{self, Live, Whose};
use crate::sampling::{BuiltInSampler, Ordinals, Share, Steps};
use crate::{ambient, ids, step};

/// How a pipeline makes spans.
pub(crate) struct Spans {
    pub(crate) run_id: Arc<str>,
    pub(crate) sampling: Sampling,
    pub(crate) steps: Steps,
    /// The calls of groups of which a share is kept.
    pub(crate) ordinals: Arc<Ordinals>,
    /// If the program has processors of its own, which can only be given the SDK's spans, the tracer that makes them.
    pub(crate) tracer: Option<BoxedTracer>,
}

impl Spans {
    /// Those of a test: all that it selected.
    pub(crate) fn of_test() -> Self {
        Self {
            run_id: Arc::from("test"),
            sampling: Sampling::BuiltIn(BuiltInSampler::DEFAULT),
            steps: Steps::All,
            ordinals: Arc::default(),
            tracer: None,
        }
    }

    /// Whether code of the program's runs when a span begins.
    fn run_code_of_the_program(&self) -> bool {
        self.tracer.is_some() || matches!(self.sampling, Sampling::Own(_))
    }

    /// Whether each call of a group that is kept whole has a span if it has no parent, or one that is recorded.
    pub(crate) fn are_plain(&self) -> bool {
        let is_default =
            matches!(self.sampling, Sampling::BuiltIn(sampler) if sampler == BuiltInSampler::DEFAULT);
        is_default && self.tracer.is_none() && matches!(self.steps, Steps::All | Steps::Slowest { .. })
    }

    /// What is asked of a call that the sampler keeps.
    fn thinning(&self, record: &mut Record) -> Thinning {
        Thinning {
            run_id: Arc::clone(&self.run_id),
            ordinals: Arc::clone(&self.ordinals),
            share: record.share,
            is_in_steps: record.facts.step.is_none_or(|number| self.steps.includes(number)),
            group: record.facts.group.name(),
            step: record.facts.step,
            key: record.sample_key.take(),
            ids_are_random: self.sampling.leaves_ids_random(),
        }
    }
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

    /// It is within this span, if that is one; else it is the root of a trace.
    #[inline]
    fn descend(&mut self, parent: &SpanContext) {
        self.facts.trace = if parent.is_valid() { parent.trace_id() } else { ids::trace() };
        self.facts.parent = parent.span_id();
        self.facts.parent_is_remote = parent.is_remote();
        self.facts.flags = parent.trace_flags();
    }

    /// Where in a run it is, and what its time counts as: as its group says, unless a span around it says otherwise.
    fn place(&mut self, around: &Context) {
        let (step, counts_as) = step::and_counts_as(around);
        self.facts.step = step;
        self.facts.bucket = match self.counts_as {
            CountsAs::ItsGroup => self.facts.group.bucket().map(|own| counts_as.unwrap_or(own)),
            CountsAs::Bucket(bucket) => Some(bucket),
            CountsAs::Umbrella => None,
        };
    }
}

/// The way of nearly all calls: [`with_span`] without what is rare.
fn plain(mut record: Box<Record>, around: &Context) -> Option<Begun> {
    if around.is_telemetry_suppressed() {
        return None;
    }
    record.place(around);
    let span = around.span();
    let parent = span.span_context();
    let is_kept = !parent.is_valid() || parent.is_sampled();
    record.descend(parent);
    record.facts.flags = record.facts.flags.with_sampled(is_kept);
    record.set_state(parent.trace_state().clone());
    record.facts.fate = if is_kept { Fate::Kept } else { Fate::LeftOut };
    let span = record.span();
    let table = TableRef::default();
    let call = Found { ticket: table.begin(record)?, table };
    let context = around.with_span(Handle { span, call: call.clone() });
    let context = if is_kept { context } else { step::within_call(&context, call.clone(), false) };
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
fn without_span(mut record: Box<Record>, table: TableRef, around: &Context) -> Option<Begun> {
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
        false => step::within_call(around, call.clone(), false),
    };
    Some(Begun { call, has_span: false, context })
}

fn with_span(mut record: Box<Record>, spans: &Spans, table: TableRef, around: &Context) -> Option<Begun> {
    if around.is_telemetry_suppressed() {
        return None;
    }
    let scoped = scoped(&record, around);
    let around = scoped.as_ref().unwrap_or(around);
    // What a group says of those beneath holds for itself, too, which has no bucket then.
    record.place(around);
    let elsewhere = record.elsewhere.take().map(|parent| around.with_remote_span_context(*parent));
    let parent = elsewhere.as_ref().unwrap_or(around);
    if let Some(tracer) = &spans.tracer {
        return with_span_of_sdk(record, spans, tracer, table, around, parent);
    }
    let verdict = {
        let span = parent.span();
        let ids_of_parent = span.span_context();
        record.descend(ids_of_parent);
        match record.is_within_nothing || step::is_left_out(around) {
            true => Verdict::plain(false, ids_of_parent.trace_state().clone()),
            false => {
                let sampled = spans.sampling.decide(&mut record, parent);
                spans.thinning(&mut record).thin(sampled, record.facts.trace)
            }
        }
    };
    record.facts.fate = if verdict.is_recorded { Fate::Kept } else { Fate::LeftOut };
    record.facts.flags = record.facts.flags.with_sampled(verdict.is_sampled);
    record.set_state(verdict.state);
    let span = record.span();
    let call = Found { ticket: table.begin(record)?, table };
    let context = around.with_span(Handle { span, call: call.clone() });
    let context = match verdict.is_recorded {
        true => context,
        false => step::within_call(&context, call.clone(), true),
    };
    Some(Begun { call, has_span: verdict.is_recorded, context })
}

/// The same with a span of the SDK's, which the program's own processors see.
fn with_span_of_sdk(
    mut record: Box<Record>,
    spans: &Spans,
    tracer: &BoxedTracer,
    table: TableRef,
    around: &Context,
    parent: &Context,
) -> Option<Begun> {
    // What is within a call that was left out, is too: the sampler learns that from the parent.
    let nothing = record.is_within_nothing.then(|| step::within_nothing(parent));
    let parent = nothing.as_ref().unwrap_or(parent);
    let mut builder = tracer
        .span_builder(record.facts.called)
        .with_start_time(record.facts.started_at(record.extras.as_deref()))
        .with_attributes(record.attributes_so_far());
    builder.span_kind = Some(record.kind());
    builder.links = record.extras.as_ref().map(|extras| extras.links.links.clone());
    let thinning = spans.thinning(&mut record);
    let span = with_thinning(thinning, || tracer.build_with_context(builder, parent));
    let context = around.with_span(span);
    let span = context.span();
    let ids = span.span_context();
    let is_kept = span.is_recording();
    (record.facts.trace, record.facts.id, record.facts.flags) =
        (ids.trace_id(), ids.span_id(), ids.trace_flags());
    record.facts.fate = if is_kept { Fate::None } else { Fate::LeftOut };
    record.of_sdk = is_kept.then(|| context.clone());
    let id = record.facts.id;
    let call = Found { ticket: table.begin(record)?, table };
    let context = match is_kept {
        true => {
            call.table.add_stranger(id, call.clone());
            context
        }
        // Nobody would tell that it ends.
        false => step::within_call(&context, call.clone(), true),
    };
    Some(Begun { call, has_span: is_kept, context })
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
