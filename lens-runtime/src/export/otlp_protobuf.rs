//! What is a request of OTLP in protobuf?
//!
//! The messages and their conversion are those of `opentelemetry-proto`. Here they are packed into
//! requests that a receiver takes, each with the number of its records.

use bytes::Bytes;
use opentelemetry::InstrumentationScope as OtelScope;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, ResourceMetrics, ScopeMetrics, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use opentelemetry_sdk::Resource as OtelResource;
use opentelemetry_sdk::metrics::data as sdk;
use opentelemetry_sdk::trace::SpanData;
use prost::Message;

use super::{Body, points};
use crate::delivery::Log;

/// Records of one request, in bytes. Receivers take 4 MiB by default; what is left is for the resource
/// and the scopes.
const REQUEST_LIMIT: usize = 3 << 20;

pub(super) fn spans(batch: Vec<SpanData>, resource: &OtelResource) -> Vec<Body> {
    let records = batch.into_iter().map(|span| (span.instrumentation_scope.clone(), Span::from(span), 1));
    packed(records, |groups| ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(sorted(resource)),
            scope_spans: groups
                .into_iter()
                .map(|(scope, spans)| ScopeSpans {
                    schema_url: schema_url(&scope),
                    scope: Some(InstrumentationScope::from((&scope, None))),
                    spans,
                })
                .collect(),
            schema_url: resource.schema_url().unwrap_or_default().to_owned(),
        }],
    })
}

pub(super) fn logs(batch: &[Log], resource: &OtelResource) -> Vec<Body> {
    // The target of a log line is the name of its scope, as in the protocol's own conversion.
    let records = batch
        .iter()
        .map(|(record, scope)| ((scope.clone(), record.target().cloned()), LogRecord::from(record), 1));
    packed(records, |groups| ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(sorted(resource)),
            scope_logs: groups
                .into_iter()
                .map(|((scope, target), log_records)| ScopeLogs {
                    schema_url: schema_url(&scope),
                    scope: Some(InstrumentationScope::from((&scope, target))),
                    log_records,
                })
                .collect(),
            schema_url: resource.schema_url().unwrap_or_default().to_owned(),
        }],
    })
}

pub(super) fn metrics(collection: &sdk::ResourceMetrics) -> Vec<Body> {
    let records = collection.scope_metrics().flat_map(|scope| {
        scope.metrics().map(move |metric| (scope.scope().clone(), converted(metric), points(metric)))
    });
    let resource = collection.resource();
    packed(records, |groups| ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(sorted(resource)),
            scope_metrics: groups
                .into_iter()
                .map(|(scope, metrics)| ScopeMetrics {
                    schema_url: schema_url(&scope),
                    scope: Some(InstrumentationScope::from((&scope, None))),
                    metrics,
                })
                .collect(),
            schema_url: resource.schema_url().unwrap_or_default().to_owned(),
        }],
    })
}

/// Records by their scope, in order of appearance.
type Groups<K, R> = Vec<(K, Vec<R>)>;

/// As few requests as the limit allows. A record that is too large by itself is a request of its own.
fn packed<K: PartialEq, R: Message, Q: Message>(
    records: impl Iterator<Item = (K, R, u64)>,
    request: impl Fn(Groups<K, R>) -> Q,
) -> Vec<Body> {
    let mut bodies = Vec::new();
    let mut groups: Groups<K, R> = Vec::new();
    let (mut size, mut count) = (0, 0);
    let body = |groups: &mut Groups<K, R>, count: u64| Body {
        bytes: Bytes::from(request(std::mem::take(groups)).encode_to_vec()),
        records: count,
    };
    for (key, record, weight) in records {
        let length = record.encoded_len();
        if size + length > REQUEST_LIMIT && !groups.is_empty() {
            bodies.push(body(&mut groups, count));
            (size, count) = (0, 0);
        }
        (size, count) = (size + length, count + weight);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, records)) => records.push(record),
            None => groups.push((key, vec![record])),
        }
    }
    if !groups.is_empty() {
        bodies.push(body(&mut groups, count));
    }
    bodies
}

/// The SDK's resource is a hash map; sorted, the same resource is the same bytes.
fn sorted(resource: &OtelResource) -> Resource {
    let mut resource = Resource::from(resource);
    resource.attributes.sort_by(|a, b| a.key.cmp(&b.key));
    resource
}

/// The protocol's integers are signed. The conversion makes a zero of a number beyond them, which is kept
/// as a float instead.
fn converted(metric: &sdk::Metric) -> Metric {
    let mut converted = Metric::from(metric);
    let sdk::AggregatedMetrics::U64(data) = metric.data() else {
        return converted;
    };
    let values: Vec<u64> = match data {
        sdk::MetricData::Gauge(gauge) => gauge.data_points().map(sdk::GaugeDataPoint::value).collect(),
        sdk::MetricData::Sum(sum) => sum.data_points().map(sdk::SumDataPoint::value).collect(),
        sdk::MetricData::Histogram(_) | sdk::MetricData::ExponentialHistogram(_) => Vec::new(),
    };
    let points = match &mut converted.data {
        Some(metric::Data::Gauge(gauge)) => &mut gauge.data_points[..],
        Some(metric::Data::Sum(sum)) => &mut sum.data_points[..],
        _ => &mut [],
    };
    for (point, value) in points.iter_mut().zip(values).filter(|(_, value)| i64::try_from(*value).is_err()) {
        point.value = Some(number_data_point::Value::AsDouble(value as f64));
    }
    converted
}

fn schema_url(scope: &OtelScope) -> String {
    scope.schema_url().unwrap_or_default().to_owned()
}
