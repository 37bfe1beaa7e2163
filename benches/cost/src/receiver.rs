//! Where Lens sends to: a receiver that accepts everything, and reads it only where somebody wants to know.
//!
//! The peers have exporters that do nothing. That of Lens cannot be replaced, so that it does its whole work, on its
//! own thread; what it is spared is a receiver that is slow.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use lens_runtime::opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use lens_runtime::opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use lens_runtime::opentelemetry_proto::tonic::common::v1::any_value::Value;
use lens_runtime::opentelemetry_proto::tonic::metrics::v1::metric::Data;
use lens_runtime::opentelemetry_proto::tonic::trace::v1::Span;
use lens_runtime::semconv;
use prost::Message as _;

use crate::found::{Kept, Seen};

/// Starts it, on a thread that ends with the process; its URL.
pub fn start(kept: Kept) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (connection, kept) = (connection.expect("a connection"), kept.clone());
            std::thread::spawn(move || answer(&connection, &kept));
        }
    });
    url
}

/// Answers one request after the other, until the connection is closed.
fn answer(connection: &TcpStream, kept: &Kept) {
    let (mut reader, mut writer) = (BufReader::new(connection), connection);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let path = line.split(' ').nth(1).expect("a path").to_owned();
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).expect("a header");
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        keep(&path, &body, kept);
        writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("a connection");
        line.clear();
    }
}

fn keep(path: &str, body: &[u8], kept: &Kept) {
    let Some(mut place) = kept.place() else {
        return;
    };
    match path {
        "/v1/traces" => {
            let request = ExportTraceServiceRequest::decode(body).expect("spans");
            let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            place.spans.extend(scopes.flat_map(|scope| scope.spans).map(seen));
        }
        "/v1/metrics" => {
            let request = ExportMetricsServiceRequest::decode(body).expect("metrics");
            let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
            let points = scopes.flat_map(|scope| scope.metrics).map(|metric| match metric.data {
                Some(Data::Histogram(histogram)) => histogram.data_points,
                _ => Vec::new(),
            });
            // They are cumulative: the last request says it all.
            place.measurements = points.flatten().map(|point| point.count).sum();
        }
        other => panic!("expected spans or metrics, got a request for {other}"),
    }
}

fn seen(span: Span) -> Seen {
    let id = |bytes: &[u8]| bytes.iter().fold(0, |id, byte| id << 8 | u64::from(*byte));
    let text = |value: Value| match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        other => panic!("expected a text or a number, got {other:?}"),
    };
    let attributes = span.attributes.into_iter().filter_map(|attribute| {
        let value = attribute.value.and_then(|value| value.value);
        value.map(|value| (attribute.key, text(value)))
    });
    let seen = Seen {
        id: id(&span.span_id),
        parent: id(&span.parent_span_id),
        name: span.name,
        attributes: attributes.collect(),
    };
    assert_eq!(seen.attributes.get(semconv::OUTCOME).map(String::as_str), Some("ok"), "of {seen:?}");
    seen
}
