//! What travels in a lane, and how much memory does it hold?

use opentelemetry::logs::AnyValue;
use opentelemetry::{Array, InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::logs::SdkLogRecord;
use opentelemetry_sdk::trace::SpanData;

use crate::export::{Body, Encoder};
use crate::span;
use crate::summary::Phases;

/// What travels in a lane.
pub(crate) trait Item: Sized + Send + 'static {
    /// How many records it is.
    fn records(&self) -> u64;
    /// The memory that it holds, about.
    fn bytes(&self) -> usize;
    /// Whether it gets the last of the room.
    const MAY_FILL: bool;
    /// The batch in the form in which it leaves.
    fn encode(batch: Vec<Self>, encoder: &Encoder) -> Vec<Body>;
    /// Adds it to the table of the run's phases.
    fn sum_up(&self, _phases: &mut Phases) {}
}

impl Item for SpanData {
    const MAY_FILL: bool = false;

    fn records(&self) -> u64 {
        1
    }

    fn bytes(&self) -> usize {
        let events = self.events.iter().map(|event| size_of_val(event) + attributes(&event.attributes));
        let links = self.links.iter().map(|link| size_of_val(link) + attributes(&link.attributes));
        size_of::<Self>()
            + self.name.len()
            + attributes(&self.attributes)
            + events.sum::<usize>()
            + links.sum::<usize>()
    }

    fn encode(mut batch: Vec<Self>, encoder: &Encoder) -> Vec<Body> {
        for span in &mut batch {
            span::keep_last(&mut span.attributes);
        }
        encoder.spans(&batch)
    }

    fn sum_up(&self, phases: &mut Phases) {
        phases.add(self);
    }
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

    fn encode(batch: Vec<Self>, encoder: &Encoder) -> Vec<Body> {
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

    fn encode(batch: Vec<Self>, _encoder: &Encoder) -> Vec<Body> {
        batch.into_iter().flatten().collect()
    }
}

fn attributes(attributes: &[KeyValue]) -> usize {
    size_of_val(attributes)
        + attributes
            .iter()
            .map(|attribute| attribute.key.as_str().len() + value(&attribute.value))
            .sum::<usize>()
}

/// What a value holds beside itself.
fn value(value: &Value) -> usize {
    match value {
        Value::String(text) => text.as_str().len(),
        Value::Array(Array::Bool(list)) => size_of_val(&**list),
        Value::Array(Array::I64(list)) => size_of_val(&**list),
        Value::Array(Array::F64(list)) => size_of_val(&**list),
        Value::Array(Array::String(list)) => {
            size_of_val(&**list) + list.iter().map(|text| text.as_str().len()).sum::<usize>()
        }
        _ => 0,
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
