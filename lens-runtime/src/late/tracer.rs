//! Into what is a span recorded whose tracer may be older than the telemetry?

use std::borrow::Cow;

use opentelemetry::global::{BoxedTracer, ObjectSafeSpan, ObjectSafeTracer};
use opentelemetry::trace::noop::NoopTracer;
use opentelemetry::trace::{SpanBuilder, Tracer as _};
use opentelemetry::{Context, InstrumentationScope};

use super::Bound;
use crate::pipeline::{self, Pipeline};

/// A tracer of OpenTelemetry's that may be taken at any time, also before the telemetry is on: its spans go
/// into the telemetry that is on when they begin, those within a [`testing::Capture`](crate::testing::Capture)
/// into that, and those that begin while telemetry is off are not recorded and hand their parent's ids on. No
/// span group switches them off.
///
/// `opentelemetry::global::tracer` hands out the same from the first [`Telemetry::init_driver`] on. What it
/// hands out before, for instance to a `static`, never records anything, whatever is set up later; that
/// is what this is for.
///
/// [`Telemetry::init_driver`]: crate::Telemetry::init_driver
///
/// # Example
/// ```
/// use std::sync::LazyLock;
/// use lens_runtime::opentelemetry::{global::BoxedTracer, trace::Tracer as _};
/// use lens_runtime::testing::Capture;
///
/// static TRACER: LazyLock<BoxedTracer> = LazyLock::new(|| lens_runtime::tracer("replay-buffer"));
///
/// TRACER.in_span("evict", |_| { /* telemetry is off: not recorded */ });
/// let capture = Capture::new("default");
/// capture.run(|| TRACER.in_span("evict", |_| { /* … */ }));
/// assert_eq!(capture.spans().len(), 1);
/// ```
pub fn tracer(name: impl Into<Cow<'static, str>>) -> BoxedTracer {
    with_scope(InstrumentationScope::builder(name).build())
}

pub(super) fn with_scope(scope: InstrumentationScope) -> BoxedTracer {
    BoxedTracer::new(Box::new(LateTracer { scope, bound: Bound::to_none() }))
}

struct LateTracer {
    scope: InstrumentationScope,
    bound: Bound<Box<dyn ObjectSafeTracer + Send + Sync>>,
}

// Not `Tracer`, whose spans would be put into a box twice.
impl ObjectSafeTracer for LateTracer {
    fn build_with_context_boxed(
        &self,
        builder: SpanBuilder,
        parent: &Context,
    ) -> Box<dyn ObjectSafeSpan + Send + Sync> {
        let build = |tracer: Option<&Box<dyn ObjectSafeTracer + Send + Sync>>| match tracer {
            Some(tracer) => tracer.build_with_context_boxed(builder, parent),
            None => Box::new(NoopTracer::new().build_with_context(builder, parent)),
        };
        let make = |pipeline: &Pipeline| {
            pipeline.tracers.as_ref().map(|tracers| tracers.boxed_tracer(self.scope.clone()))
        };
        match pipeline::captured_in(parent).or_else(pipeline::captured) {
            // A test's is used for a few spans, and would live on in `bound`.
            Some(captured) => build(make(&captured.pipeline).as_ref()),
            None => self.bound.look(pipeline::active().as_ref(), make, build),
        }
    }
}
