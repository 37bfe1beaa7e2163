//! What does a program bring along that has its part in every span?

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{ShouldSample, Span, SpanData, SpanProcessor};

/// The program's own parts.
#[derive(Clone, Default)]
pub(crate) struct Own {
    pub(crate) sampler: Option<Box<dyn ShouldSample>>,
    /// Each makes one for one telemetry.
    pub(crate) processors: Vec<Arc<dyn Fn() -> OwnProcessor + Send + Sync>>,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own")
            .field("sampler", &self.sampler)
            .field("processors", &self.processors.len())
            .finish()
    }
}

/// A processor of the program's, whatever its type.
#[derive(Debug)]
pub(crate) struct OwnProcessor(pub(super) Box<dyn SpanProcessor>);

impl SpanProcessor for OwnProcessor {
    // One that panics does not end the call that it is shown.
    fn on_start(&self, span: &mut Span, context: &Context) {
        let _panicked = catch_unwind(AssertUnwindSafe(|| self.0.on_start(span, context)));
    }

    fn on_end(&self, span: SpanData) {
        let _panicked = catch_unwind(AssertUnwindSafe(|| self.0.on_end(span)));
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}
