//! What travels in a lane, and how much memory does it hold?

use opentelemetry::InstrumentationScope;
use opentelemetry::logs::AnyValue;
use opentelemetry_sdk::logs::SdkLogRecord;
use opentelemetry_sdk::trace::SpanData;

use crate::export::{Body, Encoder};
use crate::span::{Ended, TableRef};
use crate::summary::Phases;
use crate::value::shorten;

/// What travels in a lane.
pub(crate) trait Item: Sized + Send + 'static {
    /// How many records it is.
    fn records(&self) -> u64;
    /// The memory that it holds, about.
    fn bytes(&self) -> usize;
    /// Whether it gets the last of the room.
    const MAY_FILL: bool;
    /// The batch in the form in which it leaves. What it tells of the run's phases is added to their table.
    fn encode(batch: Vec<Self>, encoder: &Encoder, phases: &mut Phases) -> Vec<Body>;
    /// Adds it to the table of the run's phases, and nothing else.
    fn sum_up(self, _phases: &mut Phases) {}
}

impl Item for Ended {
    const MAY_FILL: bool = false;

    fn records(&self) -> u64 {
        u64::from(self.is_span)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn encode(batch: Vec<Self>, encoder: &Encoder, phases: &mut Phases) -> Vec<Body> {
        let longest_text = TableRef::default().longest_text();
        let spans = batch.into_iter().filter_map(|Ended { span, phase, is_span, .. }| {
            phases.add(&span, phase);
            is_span.then(|| shortened(span, longest_text))
        });
        encoder.spans(&spans.collect::<Vec<_>>())
    }

    fn sum_up(self, phases: &mut Phases) {
        phases.add(&self.span, self.phase);
    }
}

/// The span with texts of no more characters than that.
fn shortened(mut span: SpanData, longest_text: usize) -> SpanData {
    if longest_text < usize::MAX {
        for attribute in &mut span.attributes {
            shorten(&mut attribute.value, longest_text);
        }
    }
    span
}

/// A log record and who made it.
pub(crate) type Log = (SdkLogRecord, InstrumentationScope);

impl Item for Log {
    const MAY_FILL: bool = true;

    fn records(&self) -> u64 {
        1
    }

    fn bytes(&self) -> usize {
        let (record, _) = self;
        let attributes = record.attributes_iter().map(|(key, value)| key.as_str().len() + any_value(value));
        size_of::<Self>() + record.body().map_or(0, any_value) + attributes.sum::<usize>()
    }

    fn encode(batch: Vec<Self>, encoder: &Encoder, _phases: &mut Phases) -> Vec<Body> {
        encoder.logs(&batch)
    }
}

/// A collection of metrics, already in the form in which it leaves: the SDK only lends it.
pub(crate) type Collection = Vec<Body>;

impl Item for Collection {
    const MAY_FILL: bool = true;

    fn records(&self) -> u64 {
        self.iter().map(|body| body.records).sum()
    }

    fn bytes(&self) -> usize {
        self.iter().map(|body| body.bytes.len()).sum()
    }

    fn encode(batch: Vec<Self>, _encoder: &Encoder, _phases: &mut Phases) -> Vec<Body> {
        batch.into_iter().flatten().collect()
    }
}

/// What a value of a log record holds, itself included.
fn any_value(value: &AnyValue) -> usize {
    size_of::<AnyValue>()
        + match value {
            AnyValue::String(text) => text.as_str().len(),
            AnyValue::Bytes(bytes) => bytes.len(),
            AnyValue::ListAny(list) => list.iter().map(any_value).sum(),
            AnyValue::Map(map) => map.iter().map(|(key, value)| key.as_str().len() + any_value(value)).sum(),
            _ => 0,
        }
}
