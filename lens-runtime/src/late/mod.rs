//! Into what does code record that knows OpenTelemetry and nothing of Lens?
//!
//! It takes a tracer or an instrument once and keeps it, be it before the telemetry is on, or across a shutdown
//! and what is set up after it. So what it is handed here is bound to no telemetry: it asks at each span and
//! each measurement which pipeline is current, and remembers what it found for as long as that is.
//!
//! Nothing here knows of configuration, exporters or OTLP.

mod meter;
mod tracer;

use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use opentelemetry::InstrumentationScope;
use opentelemetry::global::BoxedTracer;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry::trace::TracerProvider;

pub use meter::meter;
pub(crate) use meter::{catch_up, follow};
pub use tracer::tracer;

use crate::pipeline::Pipeline;

/// What OpenTelemetry's globals are from the first set-up on.
pub(crate) struct Late;

impl TracerProvider for Late {
    type Tracer = BoxedTracer;

    fn tracer_with_scope(&self, scope: InstrumentationScope) -> BoxedTracer {
        tracer::with_scope(scope)
    }
}

impl MeterProvider for Late {
    fn meter_with_scope(&self, scope: InstrumentationScope) -> Meter {
        meter::with_scope(scope)
    }
}

/// Something made for the pipeline that was current when it was last asked for.
struct Bound<T>(ArcSwapOption<Made<T>>);

struct Made<T> {
    /// Keeps the address from being another pipeline's.
    pipeline: Weak<Pipeline>,
    it: T,
}

impl<T> Bound<T> {
    const fn to_none() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    /// Looks at what was made for `pipeline`, or makes it. Threads that ask at once may each make it.
    fn look<R>(
        &self,
        pipeline: Option<&Arc<Pipeline>>,
        new: impl FnOnce(&Pipeline) -> Option<T>,
        look: impl FnOnce(Option<&T>) -> R,
    ) -> R {
        let Some(pipeline) = pipeline else { return look(None) };
        let made = self.0.load();
        match made.as_ref().filter(|made| made.is_for(pipeline)) {
            Some(made) => look(Some(&made.it)),
            None => {
                let made = new(pipeline).map(|it| Arc::new(Made { pipeline: Arc::downgrade(pipeline), it }));
                if made.is_some() {
                    self.0.store(made.clone());
                }
                look(made.as_ref().map(|made| &made.it))
            }
        }
    }
}

impl<T> Made<T> {
    fn is_for(&self, pipeline: &Arc<Pipeline>) -> bool {
        self.pipeline.as_ptr() == Arc::as_ptr(pipeline)
    }
}
