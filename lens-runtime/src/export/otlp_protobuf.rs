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
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
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
            resource: Some(Resource::from(resource)),
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
            resource: Some(Resource::from(resource)),
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
        scope.metrics().map(move |metric| (scope.scope().clone(), Metric::from(metric), points(metric)))
    });
    let resource = collection.resource();
    packed(records, |groups| ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource::from(resource)),
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

fn schema_url(scope: &OtelScope) -> String {
    scope.schema_url().unwrap_or_default().to_owned()
}
