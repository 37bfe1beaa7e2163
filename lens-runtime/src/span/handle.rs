//! What does OpenTelemetry's API see of a call?
//!
//! A span in the context, on which everything works that works on one of the SDK's, from other threads too: what is
//! set on it goes into the call's record, as long as the call lasts. A call without a span of its own, because its
//! group is off, has its parent's ids there, and hands on to the parent what is set.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::time::SystemTime;

use opentelemetry::trace::{Event, Link, Span, SpanContext, SpanId, Status, TraceContextExt as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SpanLimits;

use super::ended::End;
use super::record::Record;
use super::table::{TableRef, Ticket};
use crate::metrics::ModelCall;
use crate::step::Around;

/// The span of a call, as it lies in the context.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) span: SpanContext,
    pub(super) call: Found,
}

/// A call without a span of its own, as it lies in the context.
#[derive(Debug)]
pub(super) struct Within {
    /// The parent's.
    pub(super) span: SpanContext,
    pub(super) call: Found,
    pub(super) around: Context,
}

/// A call that was found, on whatever thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(super) table: TableRef,
    pub(super) ticket: Ticket,
}

thread_local! {
    /// Whether a handle that is asked anything is to say what call it is.
    static IS_SOUGHT: Cell<bool> = const { Cell::new(false) };
    static FOUND: RefCell<Option<Found>> = const { RefCell::new(None) };
}

impl Found {
    /// The innermost annotated call of a context. OpenTelemetry's API does not show what lies in a context, but
    /// asks it whether it is recording, and our handle takes the opportunity. A span of somebody else's that began
    /// within a call is remembered in the table.
    pub(crate) fn within(context: &Context, table: &TableRef) -> Option<Self> {
        let otherwise = || context.get::<Around>().and_then(|around| around.call.clone());
        if !context.has_active_span() {
            return otherwise();
        }
        let span = context.span();
        IS_SOUGHT.try_with(|sought| sought.set(true)).ok()?;
        let _told_otherwise = span.is_recording();
        let _is_there = IS_SOUGHT.try_with(|sought| sought.set(false));
        let own = FOUND.try_with(|found| found.borrow_mut().take()).ok().flatten();
        own.or_else(|| table.stranger(span.span_context().span_id())).or_else(otherwise)
    }

    /// Counts tokens of the call, if it is still open.
    pub(crate) fn say(&self, tokens: impl FnOnce(&mut ModelCall)) {
        self.table.look(&self.ticket, |record, _| tokens(record.said.get_or_insert_default()));
    }

    /// Whether a call is sought, and this is it.
    fn is_sought(&self) -> bool {
        let is_sought = IS_SOUGHT.try_with(Cell::get) == Ok(true);
        if is_sought {
            let found = self.clone();
            let _is_there = FOUND.try_with(|place| place.replace(Some(found)));
        }
        is_sought
    }
}

/// A span of somebody else's begins: what is said within it is said of the call around it.
pub(crate) fn stranger_begins(id: SpanId, context: &Context, table: &TableRef) {
    if let Some(call) = Found::within(context, table) {
        table.add_stranger(id, call);
    }
}

impl Handle {
    /// Writes into the record of the span, if it is recording.
    fn write(&self, write: impl FnOnce(&mut Record, &SpanLimits)) {
        self.call.table.look(&self.call.ticket, |record, limits| {
            if record.is_recording() {
                write(record, limits);
            }
        });
    }
}

impl Span for Handle {
    fn add_event_with_timestamp<T>(&mut self, name: T, timestamp: SystemTime, attributes: Vec<KeyValue>)
    where
        T: Into<Cow<'static, str>>,
    {
        let event = Event::new(name, timestamp, attributes, 0);
        self.write(|record, limits| record.add_event(event, limits));
    }

    fn span_context(&self) -> &SpanContext {
        &self.span
    }

    fn is_recording(&self) -> bool {
        !self.call.is_sought()
            && self.call.table.look(&self.call.ticket, |record, _| record.is_recording()).unwrap_or(false)
    }

    fn set_attribute(&mut self, attribute: KeyValue) {
        self.write(|record, limits| record.attributes.set(attribute, limits.max_attributes_per_span));
    }

    fn set_status(&mut self, status: Status) {
        self.write(|record, _| record.set_status(status));
    }

    fn update_name<T>(&mut self, new_name: T)
    where
        T: Into<Cow<'static, str>>,
    {
        let name = new_name.into();
        self.write(|record, _| record.extras().renamed = Some(name));
    }

    fn add_link(&mut self, span_context: SpanContext, attributes: Vec<KeyValue>) {
        let link = Link::new(span_context, attributes, 0);
        self.write(|record, limits| record.add_link(link, limits));
    }

    /// It goes nowhere before the call has ended, too: what is counted until then is counted of it.
    fn end_with_timestamp(&mut self, timestamp: SystemTime) {
        self.write(|record, _| record.facts.end = End::On(timestamp));
    }
}

/// What is set on it is set on the span around it.
impl Span for Within {
    fn add_event_with_timestamp<T>(&mut self, name: T, timestamp: SystemTime, attributes: Vec<KeyValue>)
    where
        T: Into<Cow<'static, str>>,
    {
        self.around.span().add_event_with_timestamp(name, timestamp, attributes);
    }

    fn span_context(&self) -> &SpanContext {
        &self.span
    }

    fn is_recording(&self) -> bool {
        !self.call.is_sought() && self.around.span().is_recording()
    }

    fn set_attribute(&mut self, attribute: KeyValue) {
        self.around.span().set_attribute(attribute);
    }

    fn set_status(&mut self, status: Status) {
        self.around.span().set_status(status);
    }

    fn update_name<T>(&mut self, new_name: T)
    where
        T: Into<Cow<'static, str>>,
    {
        self.around.span().update_name(new_name);
    }

    fn add_link(&mut self, span_context: SpanContext, attributes: Vec<KeyValue>) {
        self.around.span().add_link(span_context, attributes);
    }

    fn end_with_timestamp(&mut self, timestamp: SystemTime) {
        self.around.span().end_with_timestamp(timestamp);
    }
}
