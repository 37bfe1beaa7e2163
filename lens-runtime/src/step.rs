//! Which training step is this?
//!
//! The number lies in the OpenTelemetry context, as baggage: it reaches everything that the context
//! reaches, across awaits, threads that were handed the context, and processes.

use opentelemetry::Context;
use opentelemetry::KeyValue;
use opentelemetry::baggage::BaggageExt;

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

/// The step of a context.
pub(crate) fn of(context: &Context) -> Option<u64> {
    context.baggage().get(semconv::ITERATION)?.as_str().parse().ok()
}

/// The context within step `number`.
pub(crate) fn within(context: &Context, number: u64) -> Context {
    context.with_baggage([KeyValue::new(semconv::ITERATION, number.to_string())])
}
