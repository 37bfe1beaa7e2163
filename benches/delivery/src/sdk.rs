//! The same program as it is with the OpenTelemetry SDK's batch processor and exporter.

mod measure;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use measure::{Ended, Program};
use opentelemetry::trace::{Tracer as _, TracerProvider as _};
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanData};
use tokio::runtime::Runtime;

struct Sdk {
    provider: SdkTracerProvider,
    exported: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    _runtime: Runtime,
}

/// What the exporter answered, which nobody else keeps.
#[derive(Debug)]
struct Counted {
    exporter: SpanExporter,
    exported: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

static TRACER: OnceLock<SdkTracer> = OnceLock::new();
/// Spans that ended.
static MADE: AtomicU64 = AtomicU64::new(0);

fn main() {
    measure::run::<Sdk>();
}

impl Program for Sdk {
    fn start() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let _entered = runtime.enter();
        let builder = SpanExporter::builder();
        let built = match std::env::var("OTEL_EXPORTER_OTLP_PROTOCOL").as_deref() {
            Ok("grpc") => builder.with_tonic().build(),
            _ => builder.with_http().build(),
        };
        let (exported, failed) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let counted = Counted {
            exporter: built.expect("an exporter"),
            exported: Arc::clone(&exported),
            failed: Arc::clone(&failed),
        };
        let provider = SdkTracerProvider::builder().with_batch_exporter(counted).build();
        global::set_tracer_provider(provider.clone());
        TRACER.get_or_init(|| provider.tracer("bench"));
        Self { provider, exported, failed, _runtime: runtime }
    }

    fn tree(number: u64) {
        spanned("rl.bench.step", "grpo", number, 0.25, || {
            spanned("rl.bench.generate", "rollouts", number, 0.5, || {
                for prompt in 0..measure::PROMPTS {
                    spanned("rl.bench.prompt", "prompt", number + prompt, 0.75, || {
                        for index in 0..measure::SAMPLES {
                            Self::call(number + prompt + index);
                        }
                    });
                }
            });
        });
    }

    fn call(number: u64) {
        spanned("rl.bench.sample", "sample", number, 1.5, || {
            std::hint::black_box(number);
        });
    }

    fn end(self, deadline: Duration) -> Ended {
        let is_ok = self.provider.shutdown_with_timeout(deadline).is_ok();
        let made = MADE.load(Ordering::Relaxed);
        let [exported, failed] = [&self.exported, &self.failed].map(|count| count.load(Ordering::Acquire));
        let left = made.saturating_sub(exported + failed);
        // Whether what is left was dropped or is still on its way, nobody says.
        Ended { is_ok, made, became: vec![("exported", exported), ("failed", failed), ("left", left)] }
    }
}

/// With telemetry off there is no tracer.
fn spanned(name: &'static str, kind: &'static str, index: u64, share: f64, body: impl FnOnce()) {
    let Some(tracer) = TRACER.get() else { return body() };
    MADE.fetch_add(1, Ordering::Relaxed);
    let attributes = [
        KeyValue::new("kind", kind),
        KeyValue::new("index", i64::try_from(index).unwrap_or(i64::MAX)),
        KeyValue::new("share", share),
    ];
    let builder = tracer.span_builder(name).with_attributes(attributes);
    let span = tracer.build_with_context(builder, &opentelemetry::Context::current());
    let _current = opentelemetry::trace::mark_span_as_active(span);
    body();
}

impl opentelemetry_sdk::trace::SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let result = self.exporter.export(batch).await;
        let count = if result.is_ok() { &self.exported } else { &self.failed };
        count.fetch_add(spans, Ordering::AcqRel);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
