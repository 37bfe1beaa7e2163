//! Into what is a call recorded?
//!
//! A pipeline is what a recorded call needs to know: a tracer, the instruments, a logger. The
//! process has one between init and shutdown; a test has its own, which lies in the OpenTelemetry
//! context and so reaches exactly what the test calls, on whatever thread.

use std::sync::{Arc, LazyLock};

use arc_swap::{ArcSwapOption, Guard};
use opentelemetry::Context;
use opentelemetry::global::{BoxedTracer, ObjectSafeTracer, ObjectSafeTracerProvider};
use opentelemetry::metrics::MeterProvider;

use crate::group::{Selection, SpanGroup, Wanted};
use crate::metrics::{Instruments, StepEvents};
use crate::span::OpenSpans;
use crate::{ambient, process};

/// Where the calls of a process, or of a test, are recorded. What is `None` is off.
///
/// The SDK stands behind pointers, so that a program which is annotated and sets nothing up, as the tests of a
/// library are, links none of it.
pub(crate) struct Pipeline {
    pub(crate) tracer: Option<BoxedTracer>,
    pub(crate) instruments: Option<Instruments>,
    pub(crate) step_events: Option<StepEvents>,
    pub(crate) open_spans: OpenSpans,
    /// The process that it belongs to. In one that is forked from it nothing is recorded: who delivers is not in it.
    pub(crate) process: u32,
    /// For code that knows nothing of Lens.
    pub(crate) tracers: Option<Box<dyn ObjectSafeTracerProvider + Send + Sync>>,
    pub(crate) meters: Option<Box<dyn MeterProvider + Send + Sync>>,
}

/// A tracer for a pipeline.
pub(crate) fn boxed(tracer: impl ObjectSafeTracer + Send + Sync + 'static) -> BoxedTracer {
    BoxedTracer::new(Box::new(tracer))
}

/// A pipeline of a test, as it lies in the context.
#[derive(Clone)]
pub(crate) struct Captured {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) selection: Arc<Selection>,
}

static ACTIVE: LazyLock<ArcSwapOption<Pipeline>> = LazyLock::new(ArcSwapOption::empty);

/// Makes `pipeline` the one of the process; `None` ends recording.
pub(crate) fn activate(pipeline: Option<Arc<Pipeline>>) {
    ACTIVE.store(pipeline);
}

/// The pipeline of the process; none in one that was forked.
pub(crate) fn active() -> Guard<Option<Arc<Pipeline>>> {
    let active = ACTIVE.load();
    match active.as_ref().is_none_or(|pipeline| pipeline.process == process::generation()) {
        true => active,
        false => Guard::from_inner(None),
    }
}

/// The pipeline of the caller, whatever its groups.
pub(crate) fn current() -> Option<Arc<Pipeline>> {
    captured().map(|captured| captured.pipeline).or_else(|| Guard::into_inner(active()))
}

/// The pipeline for a call of `group` that passed the gate, and whether it makes a span. `None` if
/// the call is not recorded after all.
pub(crate) fn for_call(group: &SpanGroup, wanted: Wanted) -> Option<(Arc<Pipeline>, bool)> {
    if let Some(captured) = wanted.captured.then(captured).flatten() {
        let spans = captured.selection.includes(group);
        return Some((captured.pipeline, spans));
    }
    let pipeline = (wanted.spans || wanted.metrics).then(|| Guard::into_inner(active())).flatten()?;
    Some((pipeline, wanted.spans))
}

/// The test in whose context this runs.
pub(crate) fn captured() -> Option<Captured> {
    ambient::with(captured_in).flatten()
}

/// The test of a context.
pub(crate) fn captured_in(context: &Context) -> Option<Captured> {
    context.get::<Captured>().cloned()
}
