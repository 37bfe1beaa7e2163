//! What is a span in protobuf?
//!
//! Written straight from the SDK's span. The messages of `opentelemetry-proto` are made and thrown away for
//! each span, and while they are made a burst waits in the SDK's form, which takes several times the room.
//!
//! The numbers are those of the fields in OTLP's `trace.proto` and `common.proto`. What has its default is
//! left out, but for a value, of which that would leave out the type.

use std::time::SystemTime;

use bytes::BufMut as _;
use opentelemetry::trace::{SpanContext, SpanId, Status};
use opentelemetry::{Array, KeyValue, StringValue, Value};
use opentelemetry_proto::tonic::trace::v1::{SpanFlags, span::SpanKind, status::StatusCode};
use opentelemetry_sdk::trace::SpanData;
use prost::encoding::{WireType, encode_varint, encoded_len_varint};

use crate::export::otlp_json::unix_nanos;

pub(super) fn write(span: &SpanData, to: &mut Vec<u8>) {
    ids(&span.span_context, to);
    if span.parent_span_id != SpanId::INVALID {
        bytes(4, &span.parent_span_id.to_bytes(), to);
    }
    text(5, &span.name, to);
    count(6, SpanKind::from(span.span_kind.clone()) as u32, to);
    time(7, span.start_time, to);
    time(8, span.end_time, to);
    attributes(9, &span.attributes, to);
    count(10, span.dropped_attributes_count, to);
    for event in span.events.iter() {
        message(11, to, |to| {
            time(1, event.timestamp, to);
            text(2, &event.name, to);
            attributes(3, &event.attributes, to);
            count(4, event.dropped_attributes_count, to);
        });
    }
    count(12, span.events.dropped_count, to);
    for link in span.links.iter() {
        message(13, to, |to| {
            ids(&link.span_context, to);
            attributes(4, &link.attributes, to);
            count(5, link.dropped_attributes_count, to);
            flags(6, &link.span_context, link.span_context.is_remote(), to);
        });
    }
    count(14, span.links.dropped_count, to);
    message(15, to, |to| {
        if let Status::Error { description } = &span.status {
            text(2, description, to);
        }
        count(3, StatusCode::from(&span.status) as u32, to);
    });
    flags(16, &span.span_context, span.parent_span_is_remote, to);
}

/// Spans and links begin alike.
fn ids(context: &SpanContext, to: &mut Vec<u8>) {
    bytes(1, &context.trace_id().to_bytes(), to);
    bytes(2, &context.span_id().to_bytes(), to);
    text(3, &context.trace_state().header(), to);
}

fn flags(field: u32, context: &SpanContext, is_remote: bool, to: &mut Vec<u8>) {
    let remote = if is_remote { SpanFlags::ContextIsRemoteMask as u32 } else { 0 };
    key(field, WireType::ThirtyTwoBit, to);
    to.put_u32_le(
        u32::from(context.trace_flags().to_u8()) | SpanFlags::ContextHasIsRemoteMask as u32 | remote,
    );
}

fn attributes(field: u32, attributes: &[KeyValue], to: &mut Vec<u8>) {
    for attribute in attributes {
        message(field, to, |to| {
            text(1, attribute.key.as_str(), to);
            message(2, to, |to| value(&attribute.value, to));
        });
    }
}

fn value(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Bool(value) => bool(*value, to),
        Value::I64(value) => i64(*value, to),
        Value::F64(value) => f64(*value, to),
        Value::String(value) => str(value.as_str(), to),
        Value::Array(array) => message(5, to, |to| match array {
            Array::Bool(list) => each(list.iter().copied(), bool, to),
            Array::I64(list) => each(list.iter().copied(), i64, to),
            Array::F64(list) => each(list.iter().copied(), f64, to),
            Array::String(list) => each(list.iter().map(StringValue::as_str), str, to),
            // Of a kind that there is not yet.
            _ => {}
        }),
        _ => {}
    }
}

fn each<T>(list: impl Iterator<Item = T>, write: impl Fn(T, &mut Vec<u8>), to: &mut Vec<u8>) {
    for value in list {
        message(1, to, |to| write(value, to));
    }
}

fn str(value: &str, to: &mut Vec<u8>) {
    bytes(1, value.as_bytes(), to);
}

fn bool(value: bool, to: &mut Vec<u8>) {
    varint(2, u64::from(value), to);
}

fn i64(value: i64, to: &mut Vec<u8>) {
    varint(3, value.cast_unsigned(), to);
}

fn f64(value: f64, to: &mut Vec<u8>) {
    key(4, WireType::SixtyFourBit, to);
    to.put_f64_le(value);
}

fn time(field: u32, time: SystemTime, to: &mut Vec<u8>) {
    let nanos = unix_nanos(time);
    if nanos > 0 {
        key(field, WireType::SixtyFourBit, to);
        to.put_u64_le(nanos);
    }
}

fn count(field: u32, count: u32, to: &mut Vec<u8>) {
    if count > 0 {
        varint(field, u64::from(count), to);
    }
}

fn varint(field: u32, value: u64, to: &mut Vec<u8>) {
    key(field, WireType::Varint, to);
    encode_varint(value, to);
}

fn key(field: u32, kind: WireType, to: &mut Vec<u8>) {
    short(u64::from(field << 3 | kind as u32), to);
}

/// A number that is nearly always of one byte.
fn short(value: u64, to: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(byte @ ..0x80) => to.push(byte),
        _ => encode_varint(value, to),
    }
}

pub(super) fn text(field: u32, text: &str, to: &mut Vec<u8>) {
    if !text.is_empty() {
        bytes(field, text.as_bytes(), to);
    }
}

fn bytes(field: u32, bytes: &[u8], to: &mut Vec<u8>) {
    key(field, WireType::LengthDelimited, to);
    short(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

/// A message within another. Its length stands before it and is known behind it: most take one byte for it.
pub(super) fn message(field: u32, to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    key(field, WireType::LengthDelimited, to);
    let place = to.len();
    to.push(0);
    write(to);
    let length = to.len() - place - 1;
    let more = encoded_len_varint(length as u64) - 1;
    if more > 0 {
        to.resize(to.len() + more, 0);
        to.copy_within(place + 1..place + 1 + length, place + 1 + more);
    }
    encode_varint(length as u64, &mut &mut to[place..]);
}
