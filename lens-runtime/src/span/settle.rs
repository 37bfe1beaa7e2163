//! What does an annotation take from the result of a call?

use std::error::Error;
use std::fmt;

use opentelemetry::KeyValue;

use super::{Open, Told};
use crate::metrics::ModelCall;
use crate::outcome::{Failure, Outcome};
use crate::semconv;
use crate::value::AttributeValue;

/// What the closure of an annotation takes from the successful value. The lifetime is named so that the
/// closure may return something that borrows from the value.
pub fn taken<'a, T, V>(value: &'a T, take: impl FnOnce(&'a T) -> V) -> V {
    take(value)
}

impl Open {
    /// Sets an attribute of the span.
    #[cold]
    #[inline(never)]
    pub fn attribute(&mut self, key: &'static str, value: &(impl AttributeValue + ?Sized)) {
        if let Some(value) = value.to_value() {
            self.set_attribute(KeyValue::new(key, value));
        }
    }

    /// The model that was called.
    pub fn model_call(&mut self) -> &mut ModelCall {
        self.model_call.get_or_insert_default()
    }

    /// The error is the function's way of answering: it makes no failure of the span.
    pub fn hide_error(&mut self) {
        self.told = Told::Nothing;
    }

    /// The error is told with its text.
    pub fn error_message(&mut self, error: &(impl fmt::Display + ?Sized)) {
        self.told = Told::Text(error.to_string());
    }

    /// The error is told with its text and those of its causes.
    pub fn error_chain(&mut self, error: &(impl Error + 'static)) {
        let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |&error| error.source());
        self.told = Told::Text(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
    }

    /// An item of a stream came; if it is an error, that is how the call went.
    pub fn settle_item(&mut self, failure: Option<Failure>) {
        if failure.is_some() {
            self.settle(failure);
        }
    }

    /// A stream is at its end: well, unless an item was an error.
    pub(super) fn settle_end(&mut self) {
        self.settled.get_or_insert(Outcome::Ok);
    }

    /// The first item of a stream came.
    pub(super) fn first_item(&mut self) {
        if let Some(since) = self.call.table.look(&self.call.ticket, |record, _| record.facts.began.elapsed())
        {
            self.set_attribute(KeyValue::new(semconv::STREAM_TIME_TO_FIRST_ITEM, since.as_secs_f64()));
        }
    }

    /// For how many requests each side has tokens.
    pub(super) fn counts(&self) -> [usize; 2] {
        self.model_call.as_ref().map_or([0, 0], |call| [call.input.len(), call.output.len()])
    }

    /// No item will come any more. What was counted of each item since `counted` is one request's.
    pub(super) fn end_stream(&mut self, items: u64, counted: [usize; 2]) {
        self.hear();
        self.set_attribute(KeyValue::new(semconv::STREAM_ITEMS, i64::try_from(items).unwrap_or(i64::MAX)));
        if let Some(call) = &mut self.model_call {
            for (side, before) in [&mut call.input, &mut call.output].into_iter().zip(counted) {
                let of_items = side.split_off(before);
                if !of_items.is_empty() {
                    side.push(of_items.iter().fold(0, |sum, count| sum.saturating_add(*count)));
                }
            }
        }
    }
}
