//! What is a request of OTLP in protobuf?
//!
//! Metrics and log records are the messages of `opentelemetry-proto`, by its own conversion; spans, of which
//! there may be a burst, are written as they are. Here they are packed into requests that a receiver takes,
//! each with the number of its records.

mod span;

use std::borrow::Cow;

use opentelemetry::InstrumentationScope as OtelScope;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_sdk::Resource as OtelResource;
use opentelemetry_sdk::metrics::data as sdk;
use opentelemetry_sdk::trace::SpanData;
use prost::encoding::message::encode;

use super::{Body, points};
use crate::delivery::Log;
use span::{message, text};

/// Records of one request, in bytes. Receivers take 4 MiB by default; what is left is for the resource
/// and the scopes.
const REQUEST_LIMIT: usize = 3 << 20;

/// The field of a record in the message of its scope, whatever the signal.
const RECORD: u32 = 2;

pub(super) fn spans(batch: &[SpanData], resource: &OtelResource) -> Vec<Body> {
    let records = batch.iter().map(|span| ((&span.instrumentation_scope, None), span, 1));
    packed(records, resource, |span, to| message(RECORD, to, |to| span::write(span, to)))
}

pub(super) fn logs(batch: &[Log], resource: &OtelResource) -> Vec<Body> {
    // The target of a log line is the name of its scope, as in the protocol's own conversion.
    let records = batch.iter().map(|(record, scope)| ((scope, record.target()), record, 1));
    packed(records, resource, |record, to| encode(RECORD, &LogRecord::from(record), to))
}

pub(super) fn metrics(collection: &sdk::ResourceMetrics) -> Vec<Body> {
    let records = collection
        .scope_metrics()
        .flat_map(|scope| scope.metrics().map(move |metric| ((scope.scope(), None), metric, points(metric))));
    packed(records, collection.resource(), |metric, to| encode(RECORD, &converted(metric), to))
}

/// Who made a record, and the name that stands for it if it is another.
type Scope<'a> = (&'a OtelScope, Option<&'a Cow<'static, str>>);

/// Records by their scope, in order of appearance.
type Groups<'a> = Vec<(Scope<'a>, Vec<u8>)>;

/// As few requests as the limit allows. A record that is too large by itself is a request of its own.
fn packed<'a, R>(
    records: impl Iterator<Item = (Scope<'a>, R, u64)>,
    resource: &OtelResource,
    write: impl Fn(R, &mut Vec<u8>),
) -> Vec<Body> {
    let mut bodies = Vec::new();
    let mut groups: Groups<'a> = Vec::new();
    let (mut size, mut count) = (0, 0);
    for (scope, record, weight) in records {
        let known = groups.iter().position(|(known, _)| *known == scope);
        let index = known.unwrap_or_else(|| {
            groups.push((scope, Vec::new()));
            groups.len() - 1
        });
        let group = &mut groups[index].1;
        let before = group.len();
        write(record, group);
        let length = group.len() - before;
        if size > 0 && size + length > REQUEST_LIMIT {
            let record = group.split_off(before);
            bodies.push(body(&groups, resource, count));
            groups = vec![(scope, record)];
            (size, count) = (0, 0);
        }
        (size, count) = (size + length, count + weight);
    }
    if !groups.is_empty() {
        bodies.push(body(&groups, resource, count));
    }
    bodies
}

/// A request. But for its records it has the same fields whatever the signal.
fn body(groups: &Groups<'_>, resource: &OtelResource, records: u64) -> Body {
    let mut bytes = Vec::new();
    message(1, &mut bytes, |to| {
        encode(1, &sorted(resource), to);
        for ((scope, target), records) in groups.iter().filter(|(_, records)| !records.is_empty()) {
            message(2, to, |to| {
                // With what goes before and behind the records, so that the whole is not moved as it grows.
                to.reserve(records.len() + 1024);
                encode(1, &InstrumentationScope::from((*scope, target.cloned())), to);
                to.extend_from_slice(records);
                text(3, scope.schema_url().unwrap_or_default(), to);
            });
        }
        text(3, resource.schema_url().unwrap_or_default(), to);
    });
    // It may wait for long.
    bytes.shrink_to_fit();
    Body { bytes: bytes.into(), records }
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
