//! In what form do records leave the process, and to where?
//!
//! An exporter turns batches into text and writes it: the console prints the JSON objects that
//! NeMo-RL's users know, the files hold OTLP-JSON, one request a line.

mod console;
mod file;
mod otlp_json;

use std::io;

use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLogRecord;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::trace::SpanData;

pub(crate) use file::Files;

use crate::delivery::Signal;

/// Where records go.
pub(crate) enum Exporter {
    Console { resource: Resource },
    File { resource: Resource, files: Files },
}

impl Exporter {
    pub(crate) fn spans(&mut self, batch: &[SpanData]) -> io::Result<()> {
        match self {
            Exporter::Console { resource } => console::print(&console::spans(batch, resource)),
            Exporter::File { resource, files } => {
                files.append(Signal::Traces, &otlp_json::spans(batch, resource))
            }
        }
    }

    pub(crate) fn logs(&mut self, batch: &[(SdkLogRecord, InstrumentationScope)]) -> io::Result<()> {
        match self {
            Exporter::Console { resource } => console::print(&console::logs(batch, resource)),
            Exporter::File { resource, files } => {
                files.append(Signal::Logs, &otlp_json::logs(batch, resource))
            }
        }
    }

    /// Writes a collection that [`Exporter::metrics_encoder`] encoded.
    pub(crate) fn metrics(&mut self, text: &str) -> io::Result<()> {
        match self {
            Exporter::Console { .. } => console::print(text),
            Exporter::File { files, .. } => files.append(Signal::Metrics, text),
        }
    }

    /// What turns a collection of metrics into this exporter's form; the SDK lends collections, so
    /// that it has to be done before they are handed over.
    pub(crate) fn metrics_encoder(&self) -> fn(&ResourceMetrics) -> String {
        match self {
            Exporter::Console { .. } => console::metrics,
            Exporter::File { .. } => otlp_json::metrics,
        }
    }
}

/// One JSON line. Our own structs with string keys always serialize.
fn line(value: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}
