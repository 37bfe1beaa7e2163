//! What is a line of OTLP-JSON?
//!
//! Each line is one export request of the OpenTelemetry protocol in its JSON encoding: what a
//! Collector's file exporter writes and its `otlpjsonfile` receiver reads. The structs below are
//! that schema. Its particulars: ids in hex, enums as numbers, 64-bit integers as decimal strings,
//! bytes in base64, and numbers that are not finite as the strings "NaN", "Infinity" and
//! "-Infinity" (the usual serializer writes null for them).
//!
//! Absent is the same as default there, so that defaults are left out.

mod convert;

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::Resource as OtelResource;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data as sdk;
use opentelemetry_sdk::trace::SpanData;
use serde::{Serialize, Serializer};

use super::{Body, line, points};
use crate::delivery::Log;

/// The longest line that a Collector's file receiver takes by default, in bytes. Of a longer one it
/// drops everything, without a word.
const LINE_LIMIT: usize = 1 << 20;

/// The spans of a batch, in as few lines as the limit allows.
pub(super) fn spans(batch: &[SpanData], resource: &OtelResource) -> Vec<Body> {
    lines(batch, &|_| 1, &|batch| {
        let scope_spans = grouped(batch, |span| &span.instrumentation_scope, Span::from)
            .map(|(scope, spans)| ScopeSpans {
                schema_url: schema_url(scope),
                scope: Scope::from(scope),
                spans,
            })
            .collect();
        line(&TracesRequest {
            resource_spans: [ResourceSpans {
                resource: Resource::from(resource),
                scope_spans,
                schema_url: resource.schema_url().unwrap_or_default(),
            }],
        })
    })
}

/// The log records of a batch, in as few lines as the limit allows.
pub(super) fn logs(batch: &[Log], resource: &OtelResource) -> Vec<Body> {
    lines(batch, &|_| 1, &|batch| {
        // The target of a log line is the name of its scope, as in the protocol's own conversion.
        let scope_logs =
            grouped(batch, |(record, scope)| (scope, record.target()), |(record, _)| LogRecord::from(record))
                .map(|((scope, target), log_records)| ScopeLogs {
                    schema_url: schema_url(scope),
                    scope: match target {
                        Some(target) => Scope { name: target, ..Scope::from(scope) },
                        None => Scope::from(scope),
                    },
                    log_records,
                })
                .collect();
        line(&LogsRequest {
            resource_logs: [ResourceLogs {
                resource: Resource::from(resource),
                scope_logs,
                schema_url: resource.schema_url().unwrap_or_default(),
            }],
        })
    })
}

/// A collection of metrics, in as few lines as the limit allows.
pub(super) fn metrics(collection: &sdk::ResourceMetrics) -> Vec<Body> {
    let resource = collection.resource();
    let metrics: Vec<_> = collection
        .scope_metrics()
        .flat_map(|scope| scope.metrics().map(move |metric| (scope.scope(), metric)))
        .collect();
    lines(&metrics, &|(_, metric)| points(metric), &|batch| {
        let scope_metrics = grouped(batch, |(scope, _)| *scope, |(_, metric)| Metric::from(*metric))
            .map(|(scope, metrics)| ScopeMetrics {
                schema_url: schema_url(scope),
                scope: Scope::from(scope),
                metrics,
            })
            .collect();
        line(&MetricsRequest {
            resource_metrics: [ResourceMetrics {
                resource: Resource::from(resource),
                scope_metrics,
                schema_url: resource.schema_url().unwrap_or_default(),
            }],
        })
    })
}

/// A batch as one line, or, where that is too long, its halves. A record that is too long by itself
/// is a line of its own.
fn lines<T>(batch: &[T], records: &impl Fn(&T) -> u64, line: &impl Fn(&[T]) -> String) -> Vec<Body> {
    if batch.is_empty() {
        return Vec::new();
    }
    let text = line(batch);
    if text.len() < LINE_LIMIT || batch.len() < 2 {
        return vec![Body { bytes: text.into(), records: batch.iter().map(records).sum() }];
    }
    let (front, back) = batch.split_at(batch.len() / 2);
    let mut bodies = lines(front, records, line);
    bodies.append(&mut lines(back, records, line));
    bodies
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TracesRequest<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: Vec<ScopeSpans<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    schema_url: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScopeSpans<'a> {
    scope: Scope<'a>,
    spans: Vec<Span<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    schema_url: &'a str,
}

#[expect(clippy::struct_field_names, reason = "the names are those of the protocol")]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    trace_state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    parent_span_id: String,
    flags: u32,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    dropped_attributes_count: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<Event<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    dropped_events_count: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<Link<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    dropped_links_count: u32,
    status: Status<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    time_unix_nano: String,
    name: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    dropped_attributes_count: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Link<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    trace_state: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    dropped_attributes_count: u32,
    flags: u32,
}

#[derive(Serialize)]
struct Status<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    code: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogsRequest<'a> {
    resource_logs: [ResourceLogs<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceLogs<'a> {
    resource: Resource<'a>,
    scope_logs: Vec<ScopeLogs<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    schema_url: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScopeLogs<'a> {
    scope: Scope<'a>,
    log_records: Vec<LogRecord<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    schema_url: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogRecord<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    time_unix_nano: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_time_unix_nano: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    severity_number: u32,
    #[serde(skip_serializing_if = "str::is_empty")]
    severity_text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Value<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    flags: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    event_name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetricsRequest<'a> {
    resource_metrics: [ResourceMetrics<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceMetrics<'a> {
    resource: Resource<'a>,
    scope_metrics: Vec<ScopeMetrics<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    schema_url: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScopeMetrics<'a> {
    scope: Scope<'a>,
    metrics: Vec<Metric<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    schema_url: &'a str,
}

#[derive(Serialize)]
struct Metric<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'a str,
    #[serde(flatten)]
    data: MetricData<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum MetricData<'a> {
    #[serde(rename_all = "camelCase")]
    Gauge { data_points: Vec<NumberPoint<'a>> },
    #[serde(rename_all = "camelCase")]
    Sum { data_points: Vec<NumberPoint<'a>>, aggregation_temporality: u32, is_monotonic: bool },
    #[serde(rename_all = "camelCase")]
    Histogram { data_points: Vec<HistogramPoint<'a>>, aggregation_temporality: u32 },
    #[serde(rename_all = "camelCase")]
    ExponentialHistogram { data_points: Vec<ExponentialPoint<'a>>, aggregation_temporality: u32 },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NumberPoint<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time_unix_nano: Option<String>,
    time_unix_nano: String,
    #[serde(flatten)]
    value: Number,
}

#[derive(Serialize)]
enum Number {
    #[serde(rename = "asDouble")]
    Double(Double),
    #[serde(rename = "asInt")]
    Int(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HistogramPoint<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<KeyValue<'a>>,
    start_time_unix_nano: String,
    time_unix_nano: String,
    count: String,
    sum: Double,
    bucket_counts: Vec<String>,
    explicit_bounds: Vec<Double>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<Double>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<Double>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExponentialPoint<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<KeyValue<'a>>,
    start_time_unix_nano: String,
    time_unix_nano: String,
    count: String,
    sum: Double,
    scale: i32,
    zero_count: String,
    positive: Buckets,
    negative: Buckets,
    zero_threshold: Double,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<Double>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<Double>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Buckets {
    offset: i32,
    bucket_counts: Vec<String>,
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Serialize)]
struct Scope<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Serialize)]
struct KeyValue<'a> {
    key: &'a str,
    value: Value<'a>,
}

#[expect(clippy::enum_variant_names, reason = "the names are those of the protocol")]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Value<'a> {
    StringValue(Cow<'a, str>),
    BoolValue(bool),
    IntValue(String),
    DoubleValue(Double),
    ArrayValue(Values<'a>),
    KvlistValue(Entries<'a>),
    BytesValue(String),
}

#[derive(Serialize)]
struct Values<'a> {
    values: Vec<Value<'a>>,
}

#[derive(Serialize)]
struct Entries<'a> {
    values: Vec<KeyValue<'a>>,
}

/// A float as OTLP-JSON writes it: not finite becomes a string.
pub(super) struct Double(pub(super) f64);

impl Serialize for Double {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_finite() => serializer.serialize_f64(value),
            value if value.is_nan() => serializer.serialize_str("NaN"),
            value if value > 0.0 => serializer.serialize_str("Infinity"),
            _ => serializer.serialize_str("-Infinity"),
        }
    }
}

/// Nanoseconds since the epoch; zero, which is OTLP's "unknown", for a time before it.
pub(super) fn unix_nanos(time: SystemTime) -> u64 {
    let nanos = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// OTLP's number for a temporality.
pub(super) fn temporality(temporality: Temporality) -> u32 {
    match temporality {
        Temporality::Delta => 1,
        _ => 2,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn schema_url(scope: &InstrumentationScope) -> &str {
    scope.schema_url().unwrap_or_default()
}

/// The items of a batch by a key, such as the instrumentation scope, in order of appearance.
fn grouped<'a, T, K: PartialEq, R>(
    batch: &'a [T],
    key: impl Fn(&'a T) -> K,
    convert: impl Fn(&'a T) -> R,
) -> impl Iterator<Item = (K, Vec<R>)> {
    let mut groups: Vec<(K, Vec<R>)> = Vec::new();
    for item in batch {
        let own = key(item);
        match groups.iter_mut().find(|(key, _)| *key == own) {
            Some((_, items)) => items.push(convert(item)),
            None => groups.push((own, vec![convert(item)])),
        }
    }
    groups.into_iter()
}
