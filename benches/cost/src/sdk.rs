//! The OpenTelemetry SDK, with an exporter that does nothing.

use std::fmt;

use opentelemetry::global;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, SpanData, SpanExporter,
};

use crate::found::{Kept, Seen};
use crate::measure::Recorder;

/// The queue has room for everything that a case makes at once: with the default, most of it would be dropped, which
/// is quick.
const QUEUE: usize = 131_072;

/// The processor that a program has in production, behind the global provider.
pub fn spans(kept: Kept) -> Box<dyn Recorder> {
    let config = BatchConfigBuilder::default().with_max_queue_size(QUEUE).build();
    let processor = BatchSpanProcessor::builder(Nowhere(kept)).with_batch_config(config).build();
    let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
    global::set_tracer_provider(provider.clone());
    Box::new(Sdk(provider))
}

struct Sdk(SdkTracerProvider);

impl Recorder for Sdk {
    fn let_go(&self) {
        self.0.force_flush().expect("an exporter that does nothing");
    }
}

struct Nowhere(Kept);

impl fmt::Debug for Nowhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nowhere")
    }
}

impl SpanExporter for Nowhere {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.count(batch.len() as u64);
        if let Some(mut place) = self.0.place() {
            place.spans.extend(batch.into_iter().map(seen));
        }
        Ok(())
    }
}

fn seen(span: SpanData) -> Seen {
    let id = |bytes: [u8; 8]| u64::from_be_bytes(bytes);
    Seen {
        id: id(span.span_context.span_id().to_bytes()),
        parent: id(span.parent_span_id.to_bytes()),
        name: span.name.into_owned(),
        attributes: span
            .attributes
            .into_iter()
            .map(|attribute| (attribute.key.to_string(), attribute.value.to_string()))
            .collect(),
    }
}
