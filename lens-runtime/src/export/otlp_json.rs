//! What is a line of OTLP-JSON?
//!
//! Each line is one export request of the OpenTelemetry protocol in its JSON encoding: what a
//! Collector's file exporter writes and its `otlpjsonfile` receiver reads. The structs below are
//! that schema. Its particulars: ids in hex, enums as numbers, 64-bit integers as decimal strings,
//! bytes in base64, and numbers that are not finite as the strings "NaN", "Infinity" and
//! "-Infinity" (the usual serializer writes null for them).
//!
//! Absent is the same as default there, so that defaults are left out.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use opentelemetry::logs::AnyValue;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status as OtelStatus};
use opentelemetry::{Array, InstrumentationScope, KeyValue as OtelKeyValue, Value as OtelValue};
use opentelemetry_sdk::Resource as OtelResource;
use opentelemetry_sdk::logs::SdkLogRecord;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data as sdk;
use opentelemetry_sdk::trace::SpanData;
use serde::{Serialize, Serializer};

use super::line;

/// One line with the spans of a batch.
pub(super) fn spans(batch: &[SpanData], resource: &OtelResource) -> String {
    let scope_spans = by_scope(batch, |span| &span.instrumentation_scope, Span::from)
        .map(|(scope, spans)| ScopeSpans { schema_url: schema_url(scope), scope: Scope::from(scope), spans })
        .collect();
    line(&TracesRequest {
        resource_spans: [ResourceSpans {
            resource: Resource::from(resource),
            scope_spans,
            schema_url: resource.schema_url().unwrap_or_default(),
        }],
    })
}

/// One line with the log records of a batch.
pub(super) fn logs(batch: &[(SdkLogRecord, InstrumentationScope)], resource: &OtelResource) -> String {
    let scope_logs = by_scope(batch, |(_, scope)| scope, |(record, _)| LogRecord::from(record))
        .map(|(scope, log_records)| ScopeLogs {
            schema_url: schema_url(scope),
            scope: Scope::from(scope),
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
}

/// One line with a collection of metrics.
pub(super) fn metrics(collection: &sdk::ResourceMetrics) -> String {
    let scope_metrics = collection
        .scope_metrics()
        .map(|metrics| ScopeMetrics {
            schema_url: schema_url(metrics.scope()),
            scope: Scope::from(metrics.scope()),
            metrics: metrics.metrics().map(Metric::from).collect(),
        })
        .collect();
    line(&MetricsRequest {
        resource_metrics: [ResourceMetrics {
            resource: Resource::from(collection.resource()),
            scope_metrics,
            schema_url: collection.resource().schema_url().unwrap_or_default(),
        }],
    })
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

fn nanos(time: SystemTime) -> String {
    unix_nanos(time).to_string()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn schema_url(scope: &InstrumentationScope) -> &str {
    scope.schema_url().unwrap_or_default()
}

/// The items of a batch by instrumentation scope, in order of appearance.
fn by_scope<'a, T, R>(
    batch: &'a [T],
    scope: impl Fn(&'a T) -> &'a InstrumentationScope,
    convert: impl Fn(&'a T) -> R,
) -> impl Iterator<Item = (&'a InstrumentationScope, Vec<R>)> {
    let mut groups: Vec<(&InstrumentationScope, Vec<R>)> = Vec::new();
    for item in batch {
        let own = scope(item);
        match groups.iter_mut().find(|(scope, _)| *scope == own) {
            Some((_, items)) => items.push(convert(item)),
            None => groups.push((own, vec![convert(item)])),
        }
    }
    groups.into_iter()
}

/// Flags of a span: the W3C flags, and whether the parent is known to be remote.
fn flags(context: &SpanContext, remote: bool) -> u32 {
    const HAS_IS_REMOTE: u32 = 0x100;
    const IS_REMOTE: u32 = 0x200;
    let remote = if remote { IS_REMOTE } else { 0 };
    u32::from(context.trace_flags().to_u8()) | HAS_IS_REMOTE | remote
}

fn attributes<'a>(attributes: impl IntoIterator<Item = &'a OtelKeyValue>) -> Vec<KeyValue<'a>> {
    attributes
        .into_iter()
        .map(|attribute| KeyValue { key: attribute.key.as_str(), value: Value::from(&attribute.value) })
        .collect()
}

impl<'a> From<&'a SpanData> for Span<'a> {
    fn from(span: &'a SpanData) -> Self {
        Self {
            trace_id: span.span_context.trace_id().to_string(),
            span_id: span.span_context.span_id().to_string(),
            trace_state: span.span_context.trace_state().header(),
            parent_span_id: match span.parent_span_id {
                SpanId::INVALID => String::new(),
                id => id.to_string(),
            },
            flags: flags(&span.span_context, span.parent_span_is_remote),
            name: &span.name,
            kind: match span.span_kind {
                SpanKind::Internal => 1,
                SpanKind::Server => 2,
                SpanKind::Client => 3,
                SpanKind::Producer => 4,
                SpanKind::Consumer => 5,
            },
            start_time_unix_nano: nanos(span.start_time),
            end_time_unix_nano: nanos(span.end_time),
            attributes: attributes(&span.attributes),
            dropped_attributes_count: span.dropped_attributes_count,
            events: span
                .events
                .iter()
                .map(|event| Event {
                    time_unix_nano: nanos(event.timestamp),
                    name: &event.name,
                    attributes: attributes(&event.attributes),
                    dropped_attributes_count: event.dropped_attributes_count,
                })
                .collect(),
            dropped_events_count: span.events.dropped_count,
            links: span
                .links
                .iter()
                .map(|link| Link {
                    trace_id: link.span_context.trace_id().to_string(),
                    span_id: link.span_context.span_id().to_string(),
                    trace_state: link.span_context.trace_state().header(),
                    attributes: attributes(&link.attributes),
                    dropped_attributes_count: link.dropped_attributes_count,
                    flags: flags(&link.span_context, link.span_context.is_remote()),
                })
                .collect(),
            dropped_links_count: span.links.dropped_count,
            status: match &span.status {
                OtelStatus::Unset => Status { message: "", code: 0 },
                OtelStatus::Ok => Status { message: "", code: 1 },
                OtelStatus::Error { description } => Status { message: description, code: 2 },
            },
        }
    }
}

impl<'a> From<&'a SdkLogRecord> for LogRecord<'a> {
    fn from(record: &'a SdkLogRecord) -> Self {
        let context = record.trace_context();
        let flags = context.and_then(|context| context.trace_flags).unwrap_or_default();
        Self {
            time_unix_nano: record.timestamp().map(nanos),
            observed_time_unix_nano: record.observed_timestamp().map(nanos),
            severity_number: record.severity_number().map_or(0, |severity| severity as u32),
            severity_text: record.severity_text().unwrap_or_default(),
            body: record.body().map(Value::from),
            attributes: record
                .attributes_iter()
                .map(|(key, value)| KeyValue { key: key.as_str(), value: Value::from(value) })
                .collect(),
            flags: u32::from(flags.to_u8()),
            trace_id: context.map(|context| context.trace_id.to_string()),
            span_id: context.map(|context| context.span_id.to_string()),
            event_name: record.event_name().unwrap_or_default(),
        }
    }
}

impl<'a> From<&'a sdk::Metric> for Metric<'a> {
    fn from(metric: &'a sdk::Metric) -> Self {
        Self {
            name: metric.name(),
            description: metric.description(),
            unit: metric.unit(),
            data: match metric.data() {
                sdk::AggregatedMetrics::F64(data) => {
                    metric_data(data, |value| Number::Double(Double(value)), Double)
                }
                sdk::AggregatedMetrics::I64(data) => {
                    metric_data(data, |value| Number::Int(value.to_string()), |value| Double(value as f64))
                }
                sdk::AggregatedMetrics::U64(data) => {
                    metric_data(data, |value| Number::Int(value.to_string()), |value| Double(value as f64))
                }
            },
        }
    }
}

fn metric_data<T: Copy>(
    data: &sdk::MetricData<T>,
    number: fn(T) -> Number,
    double: fn(T) -> Double,
) -> MetricData<'_> {
    match data {
        sdk::MetricData::Gauge(gauge) => MetricData::Gauge {
            data_points: gauge
                .data_points()
                .map(|point| NumberPoint {
                    attributes: attributes(point.attributes()),
                    start_time_unix_nano: gauge.start_time().map(nanos),
                    time_unix_nano: nanos(gauge.time()),
                    value: number(point.value()),
                })
                .collect(),
        },
        sdk::MetricData::Sum(sum) => MetricData::Sum {
            data_points: sum
                .data_points()
                .map(|point| NumberPoint {
                    attributes: attributes(point.attributes()),
                    start_time_unix_nano: Some(nanos(sum.start_time())),
                    time_unix_nano: nanos(sum.time()),
                    value: number(point.value()),
                })
                .collect(),
            aggregation_temporality: temporality(sum.temporality()),
            is_monotonic: sum.is_monotonic(),
        },
        sdk::MetricData::Histogram(histogram) => MetricData::Histogram {
            data_points: histogram
                .data_points()
                .map(|point| HistogramPoint {
                    attributes: attributes(point.attributes()),
                    start_time_unix_nano: nanos(histogram.start_time()),
                    time_unix_nano: nanos(histogram.time()),
                    count: point.count().to_string(),
                    sum: double(point.sum()),
                    bucket_counts: point.bucket_counts().map(|count| count.to_string()).collect(),
                    explicit_bounds: point.bounds().map(Double).collect(),
                    min: point.min().map(double),
                    max: point.max().map(double),
                })
                .collect(),
            aggregation_temporality: temporality(histogram.temporality()),
        },
        sdk::MetricData::ExponentialHistogram(histogram) => MetricData::ExponentialHistogram {
            data_points: histogram
                .data_points()
                .map(|point| ExponentialPoint {
                    attributes: attributes(point.attributes()),
                    start_time_unix_nano: nanos(histogram.start_time()),
                    time_unix_nano: nanos(histogram.time()),
                    count: point.count().to_string(),
                    sum: double(point.sum()),
                    scale: i32::from(point.scale()),
                    zero_count: point.zero_count().to_string(),
                    positive: Buckets::from(point.positive_bucket()),
                    negative: Buckets::from(point.negative_bucket()),
                    zero_threshold: Double(point.zero_threshold()),
                    min: point.min().map(double),
                    max: point.max().map(double),
                })
                .collect(),
            aggregation_temporality: temporality(histogram.temporality()),
        },
    }
}

/// OTLP's number for a temporality.
pub(super) fn temporality(temporality: Temporality) -> u32 {
    match temporality {
        Temporality::Delta => 1,
        _ => 2,
    }
}

impl From<&sdk::ExponentialBucket> for Buckets {
    fn from(bucket: &sdk::ExponentialBucket) -> Self {
        Self {
            offset: bucket.offset(),
            bucket_counts: bucket.counts().map(|count| count.to_string()).collect(),
        }
    }
}

impl<'a> From<&'a OtelResource> for Resource<'a> {
    fn from(resource: &'a OtelResource) -> Self {
        let mut attributes: Vec<_> = resource
            .iter()
            .map(|(key, value)| KeyValue { key: key.as_str(), value: Value::from(value) })
            .collect();
        // The SDK's resource is a hash map; sorted, the same resource is the same text.
        attributes.sort_by_key(|attribute| attribute.key);
        Self { attributes }
    }
}

impl<'a> From<&'a InstrumentationScope> for Scope<'a> {
    fn from(scope: &'a InstrumentationScope) -> Self {
        Self {
            name: scope.name(),
            version: scope.version().unwrap_or_default(),
            attributes: attributes(scope.attributes()),
        }
    }
}

impl<'a> From<&'a OtelValue> for Value<'a> {
    fn from(value: &'a OtelValue) -> Self {
        let list = |values: Vec<Value<'a>>| Value::ArrayValue(Values { values });
        match value {
            OtelValue::Bool(value) => Value::BoolValue(*value),
            OtelValue::I64(value) => Value::IntValue(value.to_string()),
            OtelValue::F64(value) => Value::DoubleValue(Double(*value)),
            OtelValue::String(value) => Value::StringValue(value.as_str().into()),
            OtelValue::Array(Array::Bool(values)) => {
                list(values.iter().map(|value| Value::BoolValue(*value)).collect())
            }
            OtelValue::Array(Array::I64(values)) => {
                list(values.iter().map(|value| Value::IntValue(value.to_string())).collect())
            }
            OtelValue::Array(Array::F64(values)) => {
                list(values.iter().map(|value| Value::DoubleValue(Double(*value))).collect())
            }
            OtelValue::Array(Array::String(values)) => {
                list(values.iter().map(|value| Value::StringValue(value.as_str().into())).collect())
            }
            // Both enums may grow; a kind that is not known yet is kept as its text.
            other => Value::StringValue(other.to_string().into()),
        }
    }
}

impl<'a> From<&'a AnyValue> for Value<'a> {
    fn from(value: &'a AnyValue) -> Self {
        match value {
            AnyValue::Int(value) => Value::IntValue(value.to_string()),
            AnyValue::Double(value) => Value::DoubleValue(Double(*value)),
            AnyValue::String(value) => Value::StringValue(value.as_str().into()),
            AnyValue::Boolean(value) => Value::BoolValue(*value),
            AnyValue::Bytes(bytes) => Value::BytesValue(BASE64_STANDARD.encode(bytes.as_slice())),
            AnyValue::ListAny(values) => {
                Value::ArrayValue(Values { values: values.iter().map(Value::from).collect() })
            }
            AnyValue::Map(map) => Value::KvlistValue(Entries {
                values: map
                    .iter()
                    .map(|(key, value)| KeyValue { key: key.as_str(), value: Value::from(value) })
                    .collect(),
            }),
            other => Value::StringValue(format!("{other:?}").into()),
        }
    }
}
