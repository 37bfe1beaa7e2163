//! What does an annotation take from the result of a call?

use std::error::Error;
use std::fmt;
use std::time::Duration;

use opentelemetry::KeyValue;

use super::{Call, Told};
use crate::metrics::ModelCall;
use crate::outcome::Failure;
use crate::semconv;
use crate::value::{AttributeValue, TokenCounts, TokenUsage};

impl Call {
    /// Sets an attribute of the span, from the successful value.
    ///
    /// Here and below the lifetime is named so that the closure may return something that borrows
    /// from the value.
    pub fn attribute<'a, T, V: AttributeValue>(
        &mut self,
        key: &'static str,
        value: &'a T,
        attribute: impl FnOnce(&'a T) -> V,
    ) {
        let Some(open) = &self.0 else { return };
        if let Some(value) = attribute(value).to_value() {
            open.set_attribute(KeyValue::new(key, value));
        }
    }

    /// Input tokens, from the successful value.
    pub fn input_tokens<'a, T, C: TokenCounts<Shape>, Shape>(
        &mut self,
        value: &'a T,
        tokens: impl FnOnce(&'a T) -> C,
    ) {
        if let Some(model_call) = self.counted() {
            tokens(value).append_to(&mut model_call.input);
        }
    }

    /// Output tokens, from the successful value.
    pub fn output_tokens<'a, T, C: TokenCounts<Shape>, Shape>(
        &mut self,
        value: &'a T,
        tokens: impl FnOnce(&'a T) -> C,
    ) {
        if let Some(model_call) = self.counted() {
            tokens(value).append_to(&mut model_call.output);
        }
    }

    /// Tokens of both sides, from the successful value.
    pub fn usage<'a, T, U: TokenUsage<Shape>, Shape>(
        &mut self,
        value: &'a T,
        usage: impl FnOnce(&'a T) -> U,
    ) {
        if let Some(model_call) = self.counted() {
            usage(value).append_to(&mut model_call.input, &mut model_call.output);
        }
    }

    /// How long each request took, from the successful value.
    pub fn latencies<'a, T, I: IntoIterator<Item = Duration>>(
        &mut self,
        value: &'a T,
        latencies: impl FnOnce(&'a T) -> I,
    ) {
        if let Some(model_call) = self.counted() {
            model_call.latencies.extend(latencies(value));
        }
    }

    /// The error is the function's way of answering: it makes no failure of the span.
    pub fn hide_error(&mut self) {
        if let Some(open) = &mut self.0 {
            open.told = Told::Nothing;
        }
    }

    /// The error is told with its text.
    pub fn error_message(&mut self, error: &(impl fmt::Display + ?Sized)) {
        if let Some(open) = &mut self.0 {
            open.told = Told::Text(error.to_string());
        }
    }

    /// The error is told with its text and those of its causes.
    pub fn error_chain(&mut self, error: &(impl Error + 'static)) {
        let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |&error| error.source());
        if let Some(open) = &mut self.0 {
            open.told = Told::Text(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
        }
    }

    /// An item of a stream came; if it is an error, that is how the call went.
    pub fn settle_item(&mut self, failure: Option<Failure>) {
        if failure.is_some() {
            self.settle(failure);
        }
    }

    /// A stream is at its end.
    pub(super) fn settle_end(&mut self) {
        if self.0.as_ref().is_some_and(|open| open.settled.is_none()) {
            self.settle(None);
        }
    }

    /// The first item of a stream came.
    pub(super) fn first_item(&mut self) {
        if let Some(open) = &self.0 {
            let seconds = open.began.elapsed().as_secs_f64();
            open.set_attribute(KeyValue::new(semconv::STREAM_TIME_TO_FIRST_ITEM, seconds));
        }
    }

    /// For how many requests each side has tokens.
    pub(super) fn counts(&self) -> [usize; 2] {
        let call = self.0.as_ref().and_then(|open| open.model_call.as_ref());
        call.map_or([0, 0], |call| [call.input.len(), call.output.len()])
    }

    /// No item will come any more. What was counted of each item since `counted` is one request's.
    pub(super) fn end_stream(&mut self, items: u64, counted: [usize; 2]) {
        let Some(open) = &mut self.0 else { return };
        open.set_attribute(KeyValue::new(semconv::STREAM_ITEMS, i64::try_from(items).unwrap_or(i64::MAX)));
        if let Some(call) = &mut open.model_call {
            for (side, before) in [&mut call.input, &mut call.output].into_iter().zip(counted) {
                let of_items = side.split_off(before);
                if !of_items.is_empty() {
                    side.push(of_items.iter().fold(0, |sum, count| sum.saturating_add(*count)));
                }
            }
        }
    }

    fn counted(&mut self) -> Option<&mut ModelCall> {
        let model_call = self.0.as_mut()?.model_call.get_or_insert_default();
        model_call.counted = true;
        Some(model_call)
    }
}
