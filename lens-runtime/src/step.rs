//! Which training step is this?
//!
//! The number lies in the OpenTelemetry context, as baggage: it reaches everything that the context
//! reaches, across awaits, threads that were handed the context, and processes.

use opentelemetry::baggage::BaggageExt;
use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::{Context, KeyValue};

use crate::ambient;
use crate::semconv;

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

/// The number of a step beside the baggage, where it is found without reading text.
struct Numbered(u64);

/// The step of a context.
pub(crate) fn of(context: &Context) -> Option<u64> {
    context.get::<Numbered>().map(|step| step.0).or_else(|| of_baggage(context))
}

fn of_baggage(context: &Context) -> Option<u64> {
    context.baggage().get(semconv::ITERATION)?.as_str().parse().ok()
}

/// The context within step `number`.
pub(crate) fn within(context: &Context, number: u64) -> Context {
    context.with_baggage([KeyValue::new(semconv::ITERATION, number.to_string())]).with_value(Numbered(number))
}

/// Finds the step in a context whose baggage was read from a carrier.
#[derive(Debug)]
pub(crate) struct StepPropagator;

impl TextMapPropagator for StepPropagator {
    fn inject_context(&self, _context: &Context, _injector: &mut dyn Injector) {}

    fn extract_with_context(&self, context: &Context, _extractor: &dyn Extractor) -> Context {
        match of_baggage(context) {
            Some(number) if of(context) != Some(number) => context.with_value(Numbered(number)),
            _ => context.clone(),
        }
    }

    fn fields(&self) -> FieldIter<'_> {
        FieldIter::new(&[])
    }
}
