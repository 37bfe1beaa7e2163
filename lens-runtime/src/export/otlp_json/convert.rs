//! How do the SDK's records become the protocol's?

use std::time::SystemTime;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use opentelemetry::logs::AnyValue;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status as OtelStatus};
use opentelemetry::{Array, InstrumentationScope, KeyValue as OtelKeyValue, Value as OtelValue};
use opentelemetry_sdk::Resource as OtelResource;
use opentelemetry_sdk::logs::SdkLogRecord;
use opentelemetry_sdk::metrics::data as sdk;
use opentelemetry_sdk::trace::SpanData;

use crate::semconv;

use super::{
    Buckets, Double, Entries, Event, ExponentialPoint, HistogramPoint, KeyValue, Link, LogRecord, Metric,
    MetricData, Number, NumberPoint, Resource, Scope, Span, Status, Value, Values, temporality, unix_nanos,
};

fn nanos(time: SystemTime) -> String {
    unix_nanos(time).to_string()
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
                    metric_data(data, unsigned, |value| Double(value as f64))
                }
            },
        }
    }
}

/// The protocol's integers are signed; a number beyond them is kept as a float.
fn unsigned(value: u64) -> Number {
    match i64::try_from(value) {
        Ok(value) => Number::Int(value.to_string()),
        Err(_) => Number::Double(Double(value as f64)),
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
        // The SDK's resource is a hash map; sorted, the same resource is the same text. The process
        // comes first: a Collector tells files apart by how they begin.
        attributes.sort_by_key(|attribute| (attribute.key != semconv::SERVICE_INSTANCE_ID, attribute.key));
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
