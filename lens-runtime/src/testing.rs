//! What did this code record? Capture of spans, metrics and events in tests.
//!
//! A [`Capture`] is no global: it lies in the OpenTelemetry context, so that tests run in parallel
//! and each sees what it called itself, across awaits and on every thread that it hands
//! [`Capture::context`] to.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::logs::{AnyValue, LoggerProvider as _};
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::{FutureExt as _, Link, Span as _, SpanId, SpanKind, Status, TraceId};
use opentelemetry::{Context, InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord, SdkLoggerProvider};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};

use crate::group::{self, Selection};
use crate::metrics::{self, Instruments};
use crate::pipeline::{self, Captured, Pipeline};
use crate::span::{self, Spans, TableRef};
use crate::{process, semconv};

/// Records what runs within it.
///
/// ```
/// use lens_runtime::{rl_span, testing::Capture};
///
/// #[rl_span(group = Step, name = "step", step = n)]
/// fn step(n: u64) { reward() }
///
/// #[rl_span(group = Reward, name = "reward")]
/// fn reward() {}
///
/// let capture = Capture::new("per_step");
/// capture.run(|| step(1));
/// assert_eq!(capture.tree(), "step (ok)\n  reward (ok)\n");
/// ```
pub struct Capture {
    context: Context,
    record: Arc<Mutex<Record>>,
    table: TableRef,
    meter_provider: SdkMeterProvider,
}

impl Capture {
    /// A capture with these span groups, in the grammar of `span_groups`, and with metrics.
    ///
    /// # Panics
    /// If the text names an unknown group.
    pub fn new(span_groups: &str) -> Self {
        let selection = match Selection::parse(span_groups, &[]) {
            Ok(selection) => selection,
            Err(wrong) => panic!("{}", wrong.told("")),
        };
        let record = Arc::new(Mutex::new(Record::default()));
        let table = TableRef::of_test();
        let recorder = Recorder { record: Arc::clone(&record), table: table.clone() };
        let tracer_provider = SdkTracerProvider::builder().with_span_processor(recorder.clone()).build();
        let logger_provider = SdkLoggerProvider::builder().with_log_processor(recorder.clone()).build();
        // The reader's own interval is of no use here: metrics are collected when they are asked for.
        let reader = PeriodicReader::builder(recorder).with_interval(Duration::from_secs(3600)).build();
        let meter_provider = SdkMeterProvider::builder().with_reader(reader).build();
        let pipeline = Pipeline {
            spans: Some(Spans::of_test()),
            era: pipeline::next_era(),
            table: table.clone(),
            instruments: Some(Instruments::new(&meter_provider.meter(semconv::SCOPE))),
            step_events: Some(metrics::step_events(logger_provider.logger(semconv::SCOPE))),
            process: process::generation(),
            tracers: Some(Box::new(tracer_provider)),
            meters: Some(Box::new(meter_provider.clone())),
        };
        let captured = Captured { pipeline: Arc::new(pipeline), selection: Arc::new(selection) };
        group::capture(true);
        Self { context: Context::current().with_value(captured), record, table, meter_provider }
    }

    /// Runs `body` on this thread and records it.
    pub fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        let _attached = self.context.clone().attach();
        body()
    }

    /// Runs a future and records it, on whatever thread it is polled.
    pub fn run_async<F: Future>(&self, body: F) -> impl Future<Output = F::Output> + use<F> {
        body.with_context(self.context.clone())
    }

    /// The context of the capture, to be attached by other threads.
    pub fn context(&self) -> Context {
        self.context.clone()
    }

    /// The spans that ended, in the order in which they began.
    pub fn spans(&self) -> Vec<CapturedSpan> {
        let mut ended = Vec::new();
        self.table.take(0, &mut ended, usize::MAX);
        let new = ended.into_iter().filter(|ended| ended.is_span).map(|ended| CapturedSpan(ended.span));
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.spans.extend(new);
        // Two spans may begin in one tick of the clock; the one that ended later encloses the other.
        record.spans.sort_by_key(|span| (span.0.start_time, Reverse(span.0.end_time)));
        record.spans.clone()
    }

    /// The only span of this name.
    ///
    /// # Panics
    /// If there is none, or more than one.
    pub fn span(&self, name: &str) -> CapturedSpan {
        let mut named: Vec<_> = self.spans().into_iter().filter(|span| span.name() == name).collect();
        match named.pop().filter(|_| named.is_empty()) {
            Some(span) => span,
            None => panic!("expected one span {name:?} in\n{}", self.tree()),
        }
    }

    /// The spans as an indented tree, each with its outcome in parentheses.
    pub fn tree(&self) -> String {
        let spans = self.spans();
        let is_root = |span: &&CapturedSpan| !spans.iter().any(|parent| parent.id() == span.parent_id());
        let mut tree = String::new();
        for root in spans.iter().filter(is_root) {
            branch(&mut tree, &spans, root, 0);
        }
        tree
    }

    /// The points of a metric, in no particular order.
    pub fn points(&self, metric: &str) -> Vec<Point> {
        // Collection fails only after a shutdown, and nobody shuts this provider down.
        let _infallible = self.meter_provider.force_flush();
        self.look(|record| record.points.get(metric).cloned().unwrap_or_default())
    }

    /// The last value of a gauge without attributes.
    pub fn gauge(&self, metric: &str) -> Option<f64> {
        self.points(metric).first().map(|point| point.sum)
    }

    /// The log events, in order.
    pub fn events(&self) -> Vec<Event> {
        self.look(|record| record.events.clone())
    }

    fn look<R>(&self, read: impl FnOnce(&Record) -> R) -> R {
        read(&self.record.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        group::capture(false);
    }
}

fn branch(tree: &mut String, spans: &[CapturedSpan], span: &CapturedSpan, depth: usize) {
    let outcome = span.outcome().unwrap_or_else(|| "open".to_owned());
    // Writing to a string does not fail.
    let _infallible = writeln!(tree, "{}{} ({outcome})", "  ".repeat(depth), span.name());
    for child in spans.iter().filter(|child| child.parent_id() == span.id()) {
        branch(tree, spans, child, depth + 1);
    }
}

/// A span that ended.
#[derive(Clone, Debug)]
pub struct CapturedSpan(SpanData);

impl CapturedSpan {
    /// The span's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The value of an attribute.
    pub fn attribute(&self, key: &str) -> Option<&Value> {
        self.0.attributes.iter().find(|pair| pair.key.as_str() == key).map(|pair| &pair.value)
    }

    /// The keys of the attributes, in order.
    pub fn keys(&self) -> Vec<&str> {
        self.0.attributes.iter().map(|pair| pair.key.as_str()).collect()
    }

    /// `rl.outcome`.
    pub fn outcome(&self) -> Option<String> {
        self.attribute(semconv::OUTCOME).map(ToString::to_string)
    }

    /// The status.
    pub fn status(&self) -> &Status {
        &self.0.status
    }

    /// The kind.
    pub fn kind(&self) -> &SpanKind {
        &self.0.span_kind
    }

    /// The links, in order.
    pub fn links(&self) -> &[Link] {
        &self.0.links
    }

    /// The trace's id.
    pub fn trace_id(&self) -> TraceId {
        self.0.span_context.trace_id()
    }

    /// The span's id.
    pub fn id(&self) -> SpanId {
        self.0.span_context.span_id()
    }

    /// The parent's id; invalid for a root span.
    pub fn parent_id(&self) -> SpanId {
        self.0.parent_span_id
    }

    /// From start to end.
    pub fn duration(&self) -> Duration {
        self.0.end_time.duration_since(self.0.start_time).unwrap_or_default()
    }
}

/// A point of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// How many values a histogram holds; 1 for other kinds.
    pub count: u64,
    /// The sum of a histogram's values, or the value of another kind.
    pub sum: f64,
}

/// A log event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The event's name.
    pub name: &'static str,
    /// The severity's text.
    pub severity: &'static str,
    /// The attributes.
    pub attributes: BTreeMap<String, AnyValue>,
    /// The span in which it happened.
    pub span_id: Option<SpanId>,
}

#[derive(Default)]
struct Record {
    spans: Vec<CapturedSpan>,
    events: Vec<Event>,
    points: BTreeMap<String, Vec<Point>>,
}

#[derive(Clone)]
struct Recorder {
    record: Arc<Mutex<Record>>,
    table: TableRef,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl Recorder {
    fn add(&self, write: impl FnOnce(&mut Record)) {
        write(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl SpanProcessor for Recorder {
    fn on_start(&self, span: &mut Span, context: &Context) {
        span::stranger_begins(span.span_context().span_id(), context, &self.table);
    }

    fn on_end(&self, span: SpanData) {
        self.table.hand_in_foreign(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl LogProcessor for Recorder {
    fn emit(&self, log: &mut SdkLogRecord, _scope: &InstrumentationScope) {
        let event = Event {
            name: log.event_name().unwrap_or_default(),
            severity: log.severity_text().unwrap_or_default(),
            attributes: log
                .attributes_iter()
                .map(|(key, value)| (key.as_str().to_owned(), value.clone()))
                .collect(),
            span_id: log.trace_context().map(|context| context.span_id),
        };
        self.add(|record| record.events.push(event));
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl PushMetricExporter for Recorder {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let points = metrics
            .scope_metrics()
            .flat_map(ScopeMetrics::metrics)
            .map(|metric| {
                let points = match metric.data() {
                    AggregatedMetrics::F64(data) => points(data, |value| value),
                    AggregatedMetrics::I64(data) => points(data, |value| value as f64),
                    AggregatedMetrics::U64(data) => points(data, |value| value as f64),
                };
                (metric.name().to_owned(), points)
            })
            .collect();
        self.add(|record| record.points = points);
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

fn points<T: Copy>(data: &MetricData<T>, number: fn(T) -> f64) -> Vec<Point> {
    let point = |attributes: &mut dyn Iterator<Item = &KeyValue>, count, sum| Point {
        attributes: attributes.map(|pair| (pair.key.to_string(), pair.value.to_string())).collect(),
        count,
        sum,
    };
    match data {
        MetricData::Gauge(gauge) => {
            gauge.data_points().map(|p| point(&mut p.attributes(), 1, number(p.value()))).collect()
        }
        MetricData::Sum(sum) => {
            sum.data_points().map(|p| point(&mut p.attributes(), 1, number(p.value()))).collect()
        }
        MetricData::Histogram(histogram) => {
            histogram.data_points().map(|p| point(&mut p.attributes(), p.count(), number(p.sum()))).collect()
        }
        MetricData::ExponentialHistogram(histogram) => histogram
            .data_points()
            .map(|p| point(&mut p.attributes(), p.count() as u64, number(p.sum())))
            .collect(),
    }
}
