//! The program as it is with OpenTelemetry's own interface: the global tracer, which is kept, and an SDK behind it.

mod found;
mod measure;
mod sdk;
mod work;

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use found::{Kept, PROMPTS, SAMPLES};
use measure::{
    Case, MANY, OFF_ASYNC, OFF_SYNC, ON_ASYNC, ON_TREE, RECORD, REQUESTS, Recorder, THREADS, case, nobody,
};
use opentelemetry::global::{self, BoxedSpan, BoxedTracer};
use opentelemetry::metrics::Histogram;
use opentelemetry::trace::{FutureExt as _, TraceContextExt as _, Tracer as _, mark_span_as_active};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, HistogramDataPoint, MetricData, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use work::{KIND, SHARE, async_calls, async_work, calls, each, work};

const CASES: &[Case] = &[
    case(OFF_SYNC, "noop.a0", nobody, |number| calls(number, a0::call)),
    case(OFF_SYNC, "noop.a3", nobody, |number| calls(number, a3::call)),
    case(OFF_ASYNC, "noop.a0", nobody, |number| async_calls(number, a0::async_call)),
    case(OFF_ASYNC, "noop.a3", nobody, |number| async_calls(number, a3::async_call)),
    case(ON_TREE, "otel.a0", sdk::spans, |number| calls(number, a0::step)),
    case(ON_TREE, "otel.a3", sdk::spans, |number| calls(number, a3::step)),
    case(ON_ASYNC, "otel.a0", sdk::spans, |number| async_calls(number, a0::async_call)),
    case(ON_ASYNC, "otel.a3", sdk::spans, |number| async_calls(number, a3::async_call)),
    case(RECORD, "otel", metrics, record).measuring(1),
    case(REQUESTS, "otel", metrics, |number| record(number * MANY)).measuring(MANY),
    case(THREADS, "otel.a3", sdk::spans, |number| calls(number, a3::step)),
];

fn main() -> ExitCode {
    measure::main(&[work::CASES, CASES])
}

static TRACER: LazyLock<BoxedTracer> = LazyLock::new(|| global::tracer("bench"));

mod a0 {
    use opentelemetry::trace::Tracer as _;

    use super::{PROMPTS, SAMPLES, TRACER, async_work, each, within, within_async, work};

    #[inline(never)]
    pub(super) fn call(index: i64) -> i64 {
        within(TRACER.start("call"), || work(index))
    }

    #[inline(never)]
    pub(super) async fn async_call(index: i64) -> i64 {
        within_async(TRACER.start("call"), async_work(index)).await
    }

    #[inline(never)]
    pub(super) fn step(index: i64) -> i64 {
        within(TRACER.start("step"), || generate(index))
    }

    #[inline(never)]
    fn generate(index: i64) -> i64 {
        within(TRACER.start("generate"), || each(PROMPTS, |number| prompt(index + number)))
    }

    #[inline(never)]
    fn prompt(index: i64) -> i64 {
        within(TRACER.start("prompt"), || each(SAMPLES, |number| call(index + number)))
    }
}

mod a3 {
    use super::{PROMPTS, SAMPLES, async_work, each, start, within, within_async, work};

    #[inline(never)]
    pub(super) fn call(index: i64) -> i64 {
        within(start("call", index), || work(index))
    }

    #[inline(never)]
    pub(super) async fn async_call(index: i64) -> i64 {
        within_async(start("call", index), async_work(index)).await
    }

    #[inline(never)]
    pub(super) fn step(index: i64) -> i64 {
        within(start("step", index), || generate(index))
    }

    #[inline(never)]
    fn generate(index: i64) -> i64 {
        within(start("generate", index), || each(PROMPTS, |number| prompt(index + number)))
    }

    #[inline(never)]
    fn prompt(index: i64) -> i64 {
        within(start("prompt", index), || each(SAMPLES, |number| call(index + number)))
    }
}

#[inline]
fn start(name: &'static str, index: i64) -> BoxedSpan {
    let attributes =
        [KeyValue::new("kind", KIND), KeyValue::new("index", index), KeyValue::new("share", SHARE)];
    TRACER.span_builder(name).with_attributes(attributes).start(&*TRACER)
}

#[inline]
fn within<T>(span: BoxedSpan, body: impl FnOnce() -> T) -> T {
    let _current = mark_span_as_active(span);
    body()
}

#[inline]
async fn within_async<T>(span: BoxedSpan, body: impl Future<Output = T>) -> T {
    body.with_context(Context::current_with_span(span)).await
}

static HISTOGRAM: OnceLock<Histogram<f64>> = OnceLock::new();

/// What a call is measured with, made once.
fn attributes() -> [KeyValue; 4] {
    [
        KeyValue::new("gen_ai.operation.name", "text_completion"),
        KeyValue::new("gen_ai.provider.name", "vllm"),
        KeyValue::new("gen_ai.request.model", "tiny"),
        KeyValue::new("gen_ai.token.type", "output"),
    ]
}

fn record(number: u64) {
    let histogram = HISTOGRAM.get().expect("it is set up");
    let attributes = attributes();
    for index in 0..number {
        histogram.record(black_box(index as f64), black_box(&attributes));
    }
}

fn metrics(kept: Kept) -> Box<dyn Recorder> {
    // Nothing is collected by itself.
    let reader = PeriodicReader::builder(Nowhere(kept)).with_interval(Duration::from_hours(1)).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    global::set_meter_provider(provider.clone());
    HISTOGRAM.get_or_init(|| global::meter("bench").f64_histogram("tokens").build());
    Box::new(Meters(provider))
}

struct Meters(SdkMeterProvider);

impl Recorder for Meters {
    fn let_go(&self) {
        self.0.force_flush().expect("an exporter that does nothing");
    }
}

struct Nowhere(Kept);

impl PushMetricExporter for Nowhere {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        if let Some(mut place) = self.0.place() {
            let counts =
                metrics.scope_metrics().flat_map(ScopeMetrics::metrics).map(|metric| match metric.data() {
                    AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                        histogram.data_points().map(HistogramDataPoint::count).sum()
                    }
                    _ => 0,
                });
            place.measurements = counts.sum();
        }
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}
