//! Which spans are open?
//!
//! A span is exported when it ends, so that of one which lasts as long as the run nobody would know before, and of
//! a run that is killed never: its children would have no parent. So those that have been open for a while are
//! announced, and those that are open at a shutdown are ended by it.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::logs::{AnyValue, LogRecord as _, Logger, Severity};
use opentelemetry::trace::{SpanId, TraceContextExt as _};
use opentelemetry::{Context, KeyValue};
use slab::Slab;

use crate::{semconv, step};

/// Threads that begin and end spans at once rarely wait for one another.
const SHARDS: usize = 16;

/// The open spans of a pipeline.
#[derive(Default)]
pub(crate) struct OpenSpans([Mutex<Slab<OpenSpan>>; SHARDS]);

/// A place in the table.
pub(super) struct Ticket {
    shard: usize,
    key: usize,
}

/// A span that has begun and not ended.
#[derive(Clone)]
pub(super) struct OpenSpan {
    /// In which it is the current span.
    pub(super) context: Context,
    pub(super) parent: SpanId,
    pub(super) name: &'static str,
    pub(super) group: &'static str,
    pub(super) began: Instant,
    pub(super) began_at: SystemTime,
    pub(super) is_announced: bool,
}

impl OpenSpans {
    pub(super) fn add(&self, span: OpenSpan) -> Ticket {
        let shard = own_shard();
        Ticket { shard, key: self.shard(shard).insert(span) }
    }

    pub(super) fn remove(&self, ticket: &Ticket) {
        let span = self.shard(ticket.shard).try_remove(ticket.key);
        // The user's values in its context may be dropped here, so that the lock must not be held any more.
        drop(span);
    }

    /// Ends the spans that are open, those that began last first.
    pub(crate) fn end_all(&self, reason: &'static str) {
        // Whoever is within one of them takes it out of the table, so that it is only looked at here.
        let mut open = self.take_notes(|span| Some(span.clone()));
        open.sort_by_key(|span| Reverse(span.began));
        for OpenSpan { context, began, began_at, .. } in open {
            let span = context.span();
            let why = KeyValue::new(semconv::TRUNCATED_REASON, reason);
            span.add_event(semconv::TRUNCATED, vec![why]);
            span.set_attribute(KeyValue::new(semconv::TRUNCATED, true));
            span.end_with_timestamp(began_at + began.elapsed());
        }
    }

    /// Announces, once each, the spans that have been open for as long as this, parents first.
    pub(crate) fn announce(&self, for_at_least: Duration, logger: &impl Logger) {
        let mut long = self.take_notes(|span| {
            let is_due = !span.is_announced && span.began.elapsed() >= for_at_least;
            span.is_announced |= is_due;
            is_due.then(|| span.clone())
        });
        long.sort_by_key(|span| span.began);
        for span in long {
            span.tell(logger);
        }
    }

    /// Looks at every span, and brings away what is to be done without the lock.
    fn take_notes(&self, note: impl Fn(&mut OpenSpan) -> Option<OpenSpan>) -> Vec<OpenSpan> {
        (0..SHARDS)
            .flat_map(|shard| {
                self.shard(shard).iter_mut().filter_map(|(_, span)| note(span)).collect::<Vec<_>>()
            })
            .collect()
    }

    fn shard(&self, shard: usize) -> MutexGuard<'_, Slab<OpenSpan>> {
        self.0[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenSpan {
    fn tell(&self, logger: &impl Logger) {
        let span = self.context.span();
        let ids = span.span_context();
        let mut record = logger.create_log_record();
        record.set_event_name(semconv::SPAN_OPEN_EVENT);
        record.set_timestamp(SystemTime::now());
        record.set_severity_number(Severity::Info);
        record.set_severity_text("INFO");
        record.set_trace_context(ids.trace_id(), ids.span_id(), Some(ids.trace_flags()));
        record.add_attribute(semconv::PHASE, self.name);
        record.add_attribute(semconv::GROUP, self.group);
        let began_at = self.began_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let nanos = i64::try_from(began_at.as_nanos()).unwrap_or(i64::MAX);
        record.add_attribute(semconv::SPAN_START, nanos);
        if self.parent != SpanId::INVALID {
            record.add_attribute(semconv::SPAN_PARENT, self.parent.to_string());
        }
        if let Some(number) = step::of(&self.context) {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            record.add_attribute(semconv::ITERATION, AnyValue::Int(number));
        }
        logger.emit(record);
    }
}

/// The shard of this thread.
fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    OWN.try_with(|own| *own).unwrap_or_default()
}
