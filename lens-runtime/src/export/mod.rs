//! In what form do records leave the process, and to where?
//!
//! An exporter turns the batches of one signal into bodies and writes them. The console prints the
//! JSON objects that NeMo-RL's users know, the files hold OTLP-JSON, one request a line, and the wire
//! is OTLP by gRPC or HTTP.

mod console;
mod file;
mod otlp_json;
mod otlp_protobuf;
mod tls;
mod wire;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData, ResourceMetrics};
use opentelemetry_sdk::trace::SpanData;

pub(crate) use file::{Files, SignalFile};
pub(crate) use wire::Client;

use crate::config::OtlpProtocol;
use crate::delivery::Log;

/// Some records in the form in which they leave.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    /// How many records it holds; of metrics, data points.
    pub(crate) records: u64,
}

/// A body was written, or answered.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// How many of its records the receiver would not have.
    pub(crate) rejected: u64,
    /// What the receiver had to say, with where that was.
    pub(crate) complaint: Option<String>,
}

/// A body was not written.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Where, and why, in one line without secrets.
    pub(crate) cause: String,
    pub(crate) retry: Retry,
}

/// Whether the same body might be written later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// It cannot be written.
    Never,
    /// The receiver would not have it.
    Refused,
    /// Nobody listens there.
    Unreachable,
    /// There was no answer. The receiver may have it all the same.
    Unanswered,
    /// The answer gives hope.
    Later,
    /// The receiver asked for so long a pause.
    After(Duration),
}

/// In what form the records of one signal leave, and where they go.
pub(crate) struct Exporter {
    pub(crate) encoder: Encoder,
    pub(crate) sink: Sink,
}

/// What makes bodies of records.
pub(crate) struct Encoder {
    format: Format,
    resource: Resource,
}

/// Where bodies go.
pub(crate) struct Sink(Place);

#[derive(Clone, Copy)]
enum Format {
    Console,
    OtlpJson,
    OtlpProtobuf,
}

enum Place {
    /// Of a signal that is off.
    Nowhere,
    Stdout,
    File(SignalFile),
    Wire(Box<Client>),
}

impl Exporter {
    /// For a signal that is off, and of which nothing comes.
    pub(crate) fn to_nowhere(resource: Resource) -> Self {
        Self::new(Format::OtlpJson, resource, Place::Nowhere)
    }

    pub(crate) fn to_console(resource: Resource) -> Self {
        Self::new(Format::Console, resource, Place::Stdout)
    }

    pub(crate) fn to_file(resource: Resource, file: SignalFile) -> Self {
        Self::new(Format::OtlpJson, resource, Place::File(file))
    }

    pub(crate) fn to_wire(resource: Resource, client: Client) -> Self {
        let format = match client.protocol() {
            OtlpProtocol::Grpc | OtlpProtocol::HttpProtobuf => Format::OtlpProtobuf,
            OtlpProtocol::HttpJson => Format::OtlpJson,
        };
        Self::new(format, resource, Place::Wire(Box::new(client)))
    }

    fn new(format: Format, resource: Resource, place: Place) -> Self {
        Self { encoder: Encoder { format, resource }, sink: Sink(place) }
    }
}

impl Encoder {
    pub(crate) fn spans(&self, batch: &[SpanData]) -> Vec<Body> {
        match self.format {
            Format::Console => console::spans(batch, &self.resource),
            Format::OtlpJson => otlp_json::spans(batch, &self.resource),
            Format::OtlpProtobuf => otlp_protobuf::spans(batch, &self.resource),
        }
    }

    pub(crate) fn logs(&self, batch: &[Log]) -> Vec<Body> {
        match self.format {
            Format::Console => console::logs(batch, &self.resource),
            Format::OtlpJson => otlp_json::logs(batch, &self.resource),
            Format::OtlpProtobuf => otlp_protobuf::logs(batch, &self.resource),
        }
    }

    /// What turns a collection of metrics into bodies; the SDK lends collections, so that it has to be
    /// done before they are handed over.
    pub(crate) fn metrics(&self) -> fn(&ResourceMetrics) -> Vec<Body> {
        match self.format {
            Format::Console => console::metrics,
            Format::OtlpJson => otlp_json::metrics,
            Format::OtlpProtobuf => otlp_protobuf::metrics,
        }
    }
}

impl Sink {
    /// The longest that a record waits for company. A killed process loses no more than this.
    pub(crate) fn linger(&self) -> Duration {
        match self.0 {
            Place::Nowhere | Place::Stdout | Place::File(_) => Duration::from_millis(200),
            // Each batch is a request, and a receiver may have thousands of workers.
            Place::Wire(_) => Duration::from_secs(1),
        }
    }

    /// Writes a body, once.
    pub(crate) async fn write(&mut self, body: &Body) -> Result<Written, Failure> {
        match &mut self.0 {
            Place::Nowhere => Ok(Written::default()),
            Place::Stdout => written(console::print(&body.bytes), "standard output"),
            Place::File(file) => {
                let result = file.append(&body.bytes);
                written(result, &file.path().display().to_string())
            }
            Place::Wire(client) => client.send(body).await,
        }
    }
}

fn written(result: io::Result<()>, place: &str) -> Result<Written, Failure> {
    match result {
        Ok(()) => Ok(Written::default()),
        Err(error) => Err(Failure { cause: format!("{place}: {error}"), retry: Retry::Never }),
    }
}

/// One JSON line. Our own structs with string keys always serialize.
fn line(value: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

/// How many data points a metric holds.
fn points(metric: &Metric) -> u64 {
    fn count<T: Copy>(data: &MetricData<T>) -> usize {
        match data {
            MetricData::Gauge(gauge) => gauge.data_points().count(),
            MetricData::Sum(sum) => sum.data_points().count(),
            MetricData::Histogram(histogram) => histogram.data_points().count(),
            MetricData::ExponentialHistogram(histogram) => histogram.data_points().count(),
        }
    }
    let count = match metric.data() {
        AggregatedMetrics::F64(data) => count(data),
        AggregatedMetrics::I64(data) => count(data),
        AggregatedMetrics::U64(data) => count(data),
    };
    count as u64
}
