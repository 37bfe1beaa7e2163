//! What does the console print?
//!
//! The JSON objects of the OpenTelemetry Python SDK, which NeMo-RL's console exporter prints, with
//! the same keys: one object a line, so that a captured console can be read back line by line,
//! whatever the program printed in between. Spans carry no scope and no flags there; use the file
//! exporter for records that lose nothing.

use std::io::{self, Write as _};
use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::logs::AnyValue;
use opentelemetry::trace::{Event, Link, SpanContext, SpanId, SpanKind, Status, TraceId};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLogRecord;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, ExponentialBucket, Metric, MetricData, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_sdk::trace::SpanData;
use serde_json::{Map, Value, json};

use super::otlp_json::{Double, temporality, unix_nanos};
use super::{Body, line, points};
use crate::delivery::Log;

/// Prints whole lines at once, so that they do not mix with what the program prints. Runs on the
/// delivery thread: a program that holds the lock of its standard output delays nobody else.
pub(super) fn print(lines: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(lines)?;
    stdout.flush()
}

pub(super) fn spans(batch: &[SpanData], resource: &Resource) -> Vec<Body> {
    let resource = resource_object(resource);
    let text: String = batch.iter().map(|span| line(&span_object(span, &resource))).collect();
    vec![Body { bytes: text.into(), records: batch.len() as u64 }]
}

pub(super) fn logs(batch: &[Log], resource: &Resource) -> Vec<Body> {
    let resource = resource_object(resource);
    let text: String = batch.iter().map(|(record, _)| line(&log_object(record, &resource))).collect();
    vec![Body { bytes: text.into(), records: batch.len() as u64 }]
}

pub(super) fn metrics(collection: &ResourceMetrics) -> Vec<Body> {
    let scopes: Vec<Value> = collection
        .scope_metrics()
        .map(|scope| {
            let schema_url = scope.scope().schema_url().unwrap_or_default();
            json!({
                "scope": {
                    "name": scope.scope().name(),
                    "version": scope.scope().version(),
                    "schema_url": schema_url,
                    "attributes": attributes(scope.scope().attributes()),
                },
                "metrics": scope.metrics().map(metric_object).collect::<Vec<_>>(),
                "schema_url": schema_url,
            })
        })
        .collect();
    let records = collection.scope_metrics().flat_map(ScopeMetrics::metrics).map(points).sum();
    let resource = collection.resource();
    let text = line(&json!({
        "resource_metrics": [{
            "resource": resource_object(resource),
            "scope_metrics": scopes,
            "schema_url": resource.schema_url().unwrap_or_default(),
        }],
    }));
    vec![Body { bytes: text.into(), records }]
}

fn span_object(span: &SpanData, resource: &Value) -> Value {
    let (status_code, description) = match &span.status {
        Status::Unset => ("UNSET", None),
        Status::Ok => ("OK", None),
        Status::Error { description } => ("ERROR", Some(description).filter(|text| !text.is_empty())),
    };
    let mut status = json!({ "status_code": status_code });
    if let Some(description) = description {
        status["description"] = json!(description);
    }
    json!({
        "name": span.name,
        "context": context_object(&span.span_context),
        "kind": format!("SpanKind.{}", kind(&span.span_kind)),
        "parent_id": match span.parent_span_id {
            SpanId::INVALID => Value::Null,
            id => json!(format!("0x{id}")),
        },
        "start_time": iso(span.start_time),
        "end_time": iso(span.end_time),
        "status": status,
        "attributes": attributes(&span.attributes),
        "events": span.events.iter().map(event_object).collect::<Vec<_>>(),
        "links": span.links.iter().map(link_object).collect::<Vec<_>>(),
        "resource": resource,
    })
}

fn kind(kind: &SpanKind) -> &'static str {
    match kind {
        SpanKind::Client => "CLIENT",
        SpanKind::Server => "SERVER",
        SpanKind::Producer => "PRODUCER",
        SpanKind::Consumer => "CONSUMER",
        SpanKind::Internal => "INTERNAL",
    }
}

fn context_object(context: &SpanContext) -> Value {
    let state = context.trace_state().header();
    let entries: Vec<_> = state
        .split(',')
        .filter_map(|entry| entry.split_once('='))
        .map(|(key, value)| format!("'{{key={key}, value={value}}}'"))
        .collect();
    json!({
        "trace_id": format!("0x{}", context.trace_id()),
        "span_id": format!("0x{}", context.span_id()),
        "trace_state": format!("[{}]", entries.join(", ")),
    })
}

fn event_object(event: &Event) -> Value {
    json!({
        "name": event.name,
        "timestamp": iso(event.timestamp),
        "attributes": attributes(&event.attributes),
    })
}

fn link_object(link: &Link) -> Value {
    json!({
        "context": context_object(&link.span_context),
        "attributes": attributes(&link.attributes),
    })
}

fn log_object(record: &SdkLogRecord, resource: &Value) -> Value {
    let context = record.trace_context();
    let attributes: Map<String, Value> =
        record.attributes_iter().map(|(key, value)| (key.to_string(), any(value))).collect();
    json!({
        "body": record.body().map(any),
        "severity_number": record.severity_number().map(|severity| severity as i32),
        "severity_text": record.severity_text(),
        "attributes": attributes,
        "dropped_attributes": 0,
        "timestamp": record.timestamp().map(iso),
        "observed_timestamp": record.observed_timestamp().map(iso),
        "trace_id": format!("0x{}", context.map_or(TraceId::INVALID, |context| context.trace_id)),
        "span_id": format!("0x{}", context.map_or(SpanId::INVALID, |context| context.span_id)),
        "trace_flags": context.and_then(|context| context.trace_flags).unwrap_or_default().to_u8(),
        "resource": resource,
        "event_name": record.event_name().unwrap_or_default(),
    })
}

fn metric_object(metric: &Metric) -> Value {
    let data = match metric.data() {
        AggregatedMetrics::F64(data) => data_object(data, |value| json!(Double(value))),
        AggregatedMetrics::I64(data) => data_object(data, |value| json!(value)),
        AggregatedMetrics::U64(data) => data_object(data, |value| json!(value)),
    };
    json!({
        "name": metric.name(),
        "description": metric.description(),
        "unit": metric.unit(),
        "data": data,
    })
}

fn data_object<T: Copy>(data: &MetricData<T>, number: impl Fn(T) -> Value) -> Value {
    match data {
        MetricData::Gauge(gauge) => {
            let value = |p: T| vec![("value", number(p))];
            let points = gauge.data_points();
            let points = points.map(|p| point(p.attributes(), None, gauge.time(), value(p.value())));
            json!({ "data_points": points.collect::<Vec<_>>() })
        }
        MetricData::Sum(sum) => {
            let value = |p: T| vec![("value", number(p))];
            let start = Some(sum.start_time());
            let points = sum.data_points();
            let points = points.map(|p| point(p.attributes(), start, sum.time(), value(p.value())));
            json!({
                "data_points": points.collect::<Vec<_>>(),
                "aggregation_temporality": temporality(sum.temporality()),
                "is_monotonic": sum.is_monotonic(),
            })
        }
        MetricData::Histogram(histogram) => {
            let start = Some(histogram.start_time());
            let points = histogram.data_points().map(|p| {
                let values = vec![
                    ("count", json!(p.count())),
                    ("sum", number(p.sum())),
                    ("bucket_counts", p.bucket_counts().collect()),
                    ("explicit_bounds", p.bounds().collect()),
                    ("min", p.min().map(&number).unwrap_or_default()),
                    ("max", p.max().map(&number).unwrap_or_default()),
                ];
                point(p.attributes(), start, histogram.time(), values)
            });
            json!({
                "data_points": points.collect::<Vec<_>>(),
                "aggregation_temporality": temporality(histogram.temporality()),
            })
        }
        MetricData::ExponentialHistogram(histogram) => {
            let start = Some(histogram.start_time());
            let buckets = |bucket: &ExponentialBucket| json!({ "offset": bucket.offset(), "bucket_counts": bucket.counts().collect::<Vec<_>>() });
            let points = histogram.data_points().map(|p| {
                let values = vec![
                    ("count", json!(p.count())),
                    ("sum", number(p.sum())),
                    ("scale", json!(p.scale())),
                    ("zero_count", json!(p.zero_count())),
                    ("positive", buckets(p.positive_bucket())),
                    ("negative", buckets(p.negative_bucket())),
                    ("flags", json!(0)),
                    ("min", p.min().map(&number).unwrap_or_default()),
                    ("max", p.max().map(&number).unwrap_or_default()),
                ];
                point(p.attributes(), start, histogram.time(), values)
            });
            json!({
                "data_points": points.collect::<Vec<_>>(),
                "aggregation_temporality": temporality(histogram.temporality()),
            })
        }
    }
}

/// A point: what all kinds have, around what this kind has.
fn point<'a>(
    attributes_of: impl Iterator<Item = &'a KeyValue>,
    start: Option<SystemTime>,
    time: SystemTime,
    values: Vec<(&str, Value)>,
) -> Value {
    let mut point = json!({
        "attributes": attributes(attributes_of),
        "start_time_unix_nano": start.map(unix_nanos),
        "time_unix_nano": unix_nanos(time),
    });
    for (key, value) in values {
        point[key] = value;
    }
    point["exemplars"] = json!([]);
    point
}

fn resource_object(resource: &Resource) -> Value {
    let attributes: Map<String, Value> =
        resource.iter().map(|(key, value)| (key.to_string(), plain(value))).collect();
    json!({ "attributes": attributes, "schema_url": resource.schema_url().unwrap_or_default() })
}

fn attributes<'a>(attributes: impl IntoIterator<Item = &'a KeyValue>) -> Map<String, Value> {
    attributes.into_iter().map(|attribute| (attribute.key.to_string(), plain(&attribute.value))).collect()
}

fn plain(value: &opentelemetry::Value) -> Value {
    use opentelemetry::{Array, Value as Otel};
    match value {
        Otel::Bool(value) => json!(value),
        Otel::I64(value) => json!(value),
        Otel::F64(value) => json!(Double(*value)),
        Otel::String(value) => json!(value.as_str()),
        Otel::Array(Array::Bool(values)) => json!(values),
        Otel::Array(Array::I64(values)) => json!(values),
        Otel::Array(Array::F64(values)) => values.iter().map(|value| json!(Double(*value))).collect(),
        Otel::Array(Array::String(values)) => values.iter().map(|value| json!(value.as_str())).collect(),
        // Both enums may grow; a kind that is not known yet is shown by its text.
        other => json!(other.to_string()),
    }
}

fn any(value: &AnyValue) -> Value {
    match value {
        AnyValue::Int(value) => json!(value),
        AnyValue::Double(value) => json!(Double(*value)),
        AnyValue::String(value) => json!(value.as_str()),
        AnyValue::Boolean(value) => json!(value),
        AnyValue::Bytes(bytes) => json!(bytes),
        AnyValue::ListAny(values) => values.iter().map(any).collect(),
        AnyValue::Map(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.to_string(), any(value))).collect())
        }
        _ => Value::Null,
    }
}

fn iso(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|time| format!("{time:.6}")).unwrap_or_default()
}
