//! Which training step is this?
//!
//! The number lies in the OpenTelemetry context, as baggage: it reaches everything that the context
//! reaches, across awaits, threads that were handed the context, and processes.

use opentelemetry::baggage::BaggageExt;
use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::{Context, KeyValue};

use crate::group::Bucket;
use crate::span::Found;
use crate::{ambient, semconv};

/// The number of the training step in which the caller runs; `None` outside of one, or where the
/// context was not handed on.
///
/// A step begins with an annotation that gives its number, `step = n`, while telemetry is on.
///
/// ```
/// use lens_runtime::{current_step, rl_span, testing};
///
/// #[rl_span(group = Step, name = "rl.grpo.step", step = number)]
/// fn step(number: u64) -> Option<u64> {
///     current_step()
/// }
///
/// let capture = testing::Capture::new("per_step");
/// assert_eq!(capture.run(|| step(7)), Some(7));
/// assert_eq!(current_step(), None);
/// ```
pub fn current_step() -> Option<u64> {
    ambient::with(of).flatten()
}

/// Where in a run a context is.
#[derive(Clone, Default)]
pub(crate) struct Around {
    /// Beside the baggage, where it is found without reading text.
    pub(crate) step: Option<u64>,
    /// What leaf spans count as.
    pub(crate) counts_as: Option<Bucket>,
    /// Whether this is within a call whose span was left out: then so is all that is within it, whatever a sampler would
    /// say.
    pub(crate) is_left_out: bool,
    /// The innermost call that cannot be told by its span: because no span is around it, or because its own is not
    /// recorded, and those beneath it that others make are not either.
    pub(crate) call: Option<Found>,
}

impl Around {
    pub(crate) fn of(context: &Context) -> Self {
        match context.get::<Self>() {
            Some(around) => around.clone(),
            None => Self { step: of_baggage(context), ..Self::default() },
        }
    }
}

/// The step of a context.
pub(crate) fn of(context: &Context) -> Option<u64> {
    match context.get::<Around>() {
        Some(around) => around.step,
        None => of_baggage(context),
    }
}

/// The step of a context, and what leaf spans count as there.
#[inline]
pub(crate) fn and_counts_as(context: &Context) -> (Option<u64>, Option<Bucket>) {
    match context.get::<Around>() {
        Some(around) => (around.step, around.counts_as),
        None => (of_baggage(context), None),
    }
}

/// Whether a context is within a call that was left out.
pub(crate) fn is_left_out(context: &Context) -> bool {
    context.get::<Around>().is_some_and(|around| around.is_left_out)
}

fn of_baggage(context: &Context) -> Option<u64> {
    context.baggage().get(semconv::ITERATION)?.as_str().parse().ok()
}

/// The context within step `number`.
pub(crate) fn within(context: &Context, number: u64) -> Context {
    let around = Around { step: Some(number), ..Around::of(context) };
    context.with_baggage([KeyValue::new(semconv::ITERATION, number.to_string())]).with_value(around)
}

/// The context in which leaf spans count as `bucket`.
pub(crate) fn counting_as(context: &Context, bucket: Bucket) -> Context {
    context.with_value(Around { counts_as: Some(bucket), ..Around::of(context) })
}

/// The context within a call that cannot be told by its span.
pub(crate) fn within_call(context: &Context, call: Found, is_left_out: bool) -> Context {
    let around = Around::of(context);
    let is_left_out = is_left_out || around.is_left_out;
    context.with_value(Around { call: Some(call), is_left_out, ..around })
}

/// The context within a call that was left out.
pub(crate) fn within_nothing(context: &Context) -> Context {
    context.with_value(Around { is_left_out: true, ..Around::of(context) })
}

/// Finds the step in a context whose baggage was read from a carrier.
#[derive(Debug)]
pub(crate) struct StepPropagator;

impl TextMapPropagator for StepPropagator {
    fn inject_context(&self, _context: &Context, _injector: &mut dyn Injector) {}

    fn extract_with_context(&self, context: &Context, _extractor: &dyn Extractor) -> Context {
        let around = Around::of(context);
        match of_baggage(context) {
            step @ Some(_) if around.step != step => context.with_value(Around { step, ..around }),
            _ => context.clone(),
        }
    }

    fn fields(&self) -> FieldIter<'_> {
        FieldIter::new(&[])
    }
}
