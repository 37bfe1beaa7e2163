//! What happens when a call is recorded?
//!
//! The way of a call: [`enter`] passes the gate, or leaves; an [`Entry`] is described by the annotation
//! and becomes [`Open`], a call that is recorded, held by a [`Scope`] on one thread or by a [`Call`] that
//! may move between threads; the body runs in the span's context; `settle` learns from the result how it
//! went. Whatever ends a call, it ends in one place, [`Open::end`], with exactly one outcome.
//!
//! What is known of a call is written into a [`Record`](record::Record): while it is described, of which nobody else
//! knows, then in the table of open calls, where the span in the context finds it.
//!
//! What an expansion calls is either a few instructions that are inlined, or out of line and not generic:
//! a crate may have a thousand annotated functions, and each has all of it once more that is not.
//!
//! Nothing here knows of configuration, exporters or OTLP.

mod attributes;
mod begin;
mod ended;
mod entry;
mod follow;
mod handle;
mod local;
mod record;
mod settle;
mod table;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

use opentelemetry::{Context, ContextGuard, KeyValue};

pub(crate) use attributes::{Attributes, Held};
use begin::Begun;
pub(crate) use begin::{Sampling, Spans};
use ended::End;
pub(crate) use ended::Ended;
pub use entry::{Entry, SpanRef};
pub use follow::{followed, streamed, traced};
pub(crate) use handle::{Found, stranger_begins, stranger_ends};
pub use settle::taken;
use table::{Closed, Ticket};
pub(crate) use table::{Made, Outlet, TableRef};

use crate::ambient;
use crate::group::SpanGroup;
use crate::metrics::ModelCall;
use crate::outcome::{Failure, Outcome};
use crate::process;

/// The gate: a call that is about to begin, if its group is wanted.
#[inline]
pub fn enter(group: &'static SpanGroup) -> Option<Entry> {
    match group.is_off() {
        true => None,
        false => Entry::begin(group),
    }
}

/// Runs the body of a function with its arguments. Both come as parameters so that their types are known
/// where the body is checked, and so that the arguments are dropped as a function drops them.
#[inline]
pub fn run<A, R>(arguments: A, body: impl FnOnce(A) -> R) -> R {
    body(arguments)
}

/// A call that lasts as long as a scope, whose span is the current one there; off, or open until this is
/// dropped.
pub struct Scope(Option<Entered>);

struct Entered {
    attached: Option<ContextGuard>,
    open: Open,
}

impl Scope {
    /// A call that is not recorded.
    pub const OFF: Self = Self(None);

    /// `unsettled` says what ends the call if its value is not looked at.
    #[inline]
    fn new(begun: Option<Begun>, unsettled: Unsettled) -> Self {
        Self(begun.map(|Begun { call, has_span, context }| Entered {
            attached: Some(context.attach()),
            open: Open::new(call, has_span, unsettled),
        }))
    }

    /// The call, if it is recorded.
    #[inline]
    pub fn recorded(&mut self) -> Option<&mut Open> {
        self.0.as_mut().map(|entered| &mut entered.open)
    }

    /// The scope ends, and the call goes on.
    fn leave(mut self) -> Call {
        Call(self.0.take().map(|Entered { attached, mut open }| {
            drop(attached);
            open.unsettled = Unsettled::Cancelled;
            local::boxed(open)
        }))
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        if let Some(entered) = &mut self.0 {
            end_scope(entered);
        }
    }
}

#[cold]
#[inline(never)]
fn end_scope(entered: &mut Entered) {
    // Ends before the call does.
    entered.attached = None;
    entered.open.end();
}

/// A call that goes from poll to poll, on whatever thread; off, or open until this is dropped.
pub struct Call(Option<Box<Open>>);

impl Call {
    /// A call that is not recorded.
    pub const OFF: Self = Self(None);

    /// The call, if it is recorded.
    #[inline]
    pub fn recorded(&mut self) -> Option<&mut Open> {
        self.0.as_deref_mut()
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            end_call(open);
        }
    }
}

#[cold]
#[inline(never)]
fn end_call(mut open: Box<Open>) {
    open.end();
    local::keep_call(open);
}

/// A call is only looked at again to be ended, which is what a panic does to it.
impl UnwindSafe for Scope {}
impl RefUnwindSafe for Scope {}
impl UnwindSafe for Call {}
impl RefUnwindSafe for Call {}

/// A call that is recorded and has not ended.
pub struct Open {
    /// Its place in the table.
    ticket: Ticket,
    table: TableRef,
    /// The process. In one that is forked from it, the call is the other one's to end.
    process: u32,
    has_span: bool,
    has_ended: bool,
    is_discarded: bool,
    unsettled: Unsettled,
    told: Told,
    settled: Option<Outcome>,
    /// How long it took, if that is not for the clock to say.
    took: Option<Duration>,
    /// The context of the body, if that goes from poll to poll.
    context: Option<Context>,
    /// What its result told of the model.
    model_call: Option<Box<ModelCall>>,
}

/// What is told of an error.
#[derive(Default)]
enum Told {
    /// Its type.
    #[default]
    Type,
    /// Nothing: the span has not failed.
    Nothing,
    /// Its type and this.
    Text(String),
}

/// What ended a call of which no value was seen.
#[derive(Clone, Copy)]
enum Unsettled {
    /// Nobody polls it any more.
    Cancelled,
    /// A panic, for there would be a value otherwise.
    Panic,
    /// Perhaps a panic: the value is not looked at. Where the call began within a destructor that a panic
    /// runs, another panic cannot be told from that one.
    PerhapsPanic { was_panicking: bool },
}

impl Unsettled {
    fn outcome(self) -> Outcome {
        match self {
            Self::Cancelled => Outcome::Cancelled,
            Self::Panic => Outcome::Panic,
            Self::PerhapsPanic { was_panicking: false } if std::thread::panicking() => Outcome::Panic,
            Self::PerhapsPanic { .. } => Outcome::Ok,
        }
    }
}

impl Open {
    #[inline]
    fn new(call: Found, has_span: bool, unsettled: Unsettled) -> Self {
        let Found { ticket, table } = call;
        Self {
            ticket,
            table,
            process: process::generation(),
            has_span,
            has_ended: false,
            is_discarded: false,
            unsettled,
            told: Told::Type,
            settled: None,
            took: None,
            context: None,
            model_call: None,
        }
    }

    /// The body returned; this is how it went.
    #[cold]
    #[inline(never)]
    pub fn settle(&mut self, failure: Option<Failure>) {
        self.settled = Some(failure.map_or(Outcome::Ok, Outcome::Error));
    }

    /// Whether there is a span to hold attributes.
    pub fn has_span(&self) -> bool {
        self.has_span
    }

    /// Makes the span the current one.
    fn attach(&self) -> Option<ContextGuard> {
        self.context.clone().and_then(ambient::attach)
    }

    fn set_attribute(&self, attribute: KeyValue) {
        if !self.has_span {
            return;
        }
        let of_sdk = self.table.look(&self.ticket, |record, limits| match &record.of_sdk {
            Some(context) => Some((context.clone(), attribute)),
            None => {
                if record.is_recording() {
                    record.attributes.set(attribute, limits.max_attributes_per_span);
                }
                None
            }
        });
        if let Some((context, attribute)) = of_sdk.flatten() {
            record::set_attribute_of_sdk(&context, attribute);
        }
    }

    /// Takes over the tokens that were counted from within.
    fn hear(&mut self) {
        if let Some(said) = self.table.look(&self.ticket, |record, _| record.said.take()).flatten() {
            self.model_call.get_or_insert_default().add(*said);
        }
    }

    /// Ends the call: its span, if there is one, and its measurements. Once.
    fn end(&mut self) {
        // Begun before a fork, it is the other process's to end. A lock that another thread of that held stays locked
        // here.
        if self.has_ended || self.process != process::generation() {
            return;
        }
        self.has_ended = true;
        if self.is_discarded {
            if let Some(record) = self.table.discard(&self.ticket) {
                local::keep(record);
            }
            return;
        }
        let now = Instant::now();
        let end = self.took.map_or(End::At(now), End::After);
        let outcome = self.settled.unwrap_or_else(|| self.unsettled.outcome());
        let told = std::mem::take(&mut self.told);
        let has_more = self.model_call.is_some();
        let closed = self.table.end(&self.ticket, |record| {
            record.close(outcome, told, end);
            has_more || record.wants_more_at_its_end()
        });
        match closed {
            Closed::Gone => {}
            Closed::Done(spare) => local::keep(spare),
            Closed::Taken(mut record) => {
                record.add(self.model_call.take());
                record.hear();
                record.measure(outcome, self.took.unwrap_or_else(|| now.saturating_duration_since(record.facts.began)));
                record.end_of_sdk();
                if !record.goes_nowhere() {
                    self.table.hand_in(&self.ticket, &mut record);
                }
                record.clear();
                local::keep(record);
            }
        }
    }

    /// Lets go of what others may need.
    fn forget(&mut self) {
        self.context = None;
        self.table = TableRef::default();
    }
}

/// A value that is never made; only its type is used, to tell the body what to coerce to.
pub fn never<T>() -> T {
    unreachable!("stands behind `if false`")
}
