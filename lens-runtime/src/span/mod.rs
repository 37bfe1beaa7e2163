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

mod begin;
mod entry;
mod follow;
mod handle;
mod record;
mod settle;
mod table;

use std::cell::RefCell;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::SpanContext;
use opentelemetry::{Context, ContextGuard, KeyValue};

pub(crate) use begin::{Sampling, Spans};
use entry::CountsAs;
pub use entry::{Entry, SpanRef};
pub use follow::{followed, streamed, traced};
pub(crate) use handle::{Found, stranger_begins, stranger_ends};
pub(crate) use record::Attributes;
use record::{End, Record};
pub use settle::taken;
use table::{Closed, Ticket};
pub(crate) use table::{Ended, Made, Outlet, TableRef};

use crate::ambient;
use crate::group::SpanGroup;
use crate::metrics::ModelCall;
use crate::outcome::{Failure, Outcome};
use crate::pipeline::{self, Pipeline, Whose};
use crate::process;
use crate::sampling::{OwnedKey, Share};

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
    open: Box<Open>,
}

impl Scope {
    /// A call that is not recorded.
    pub const OFF: Self = Self(None);

    /// `unsettled` says what ends the call if its value is not looked at.
    fn new(mut open: Box<Open>, context: Option<Context>, unsettled: Unsettled) -> Self {
        open.unsettled = unsettled;
        Self(Some(Entered { attached: context.and_then(ambient::attach), open }))
    }

    /// The call, if it is recorded.
    #[inline]
    pub fn recorded(&mut self) -> Option<&mut Open> {
        self.0.as_mut().map(|entered| &mut *entered.open)
    }

    /// The scope ends, and the call goes on.
    fn leave(mut self) -> Call {
        Call(self.0.take().map(|Entered { attached, mut open }| {
            drop(attached);
            open.unsettled = Unsettled::Cancelled;
            open
        }))
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        if let Some(entered) = self.0.take() {
            end_scope(entered);
        }
    }
}

#[cold]
#[inline(never)]
fn end_scope(entered: Entered) {
    let Entered { attached, open } = entered;
    // Ends before the call does.
    drop(attached);
    end_call(open);
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
    open.retire();
}

/// A call is only looked at again to be ended, which is what a panic does to it.
impl UnwindSafe for Scope {}
impl RefUnwindSafe for Scope {}
impl UnwindSafe for Call {}
impl RefUnwindSafe for Call {}

/// A call that is recorded and has not ended.
pub struct Open {
    whose: Whose,
    /// The process. In one that is forked from it, the call is the other one's to end.
    process: u32,
    group: &'static SpanGroup,
    name: &'static str,
    wants_metrics: bool,
    began: Instant,
    began_at: Option<SystemTime>,
    /// How long it took, if that is not for the clock to say.
    took: Option<Duration>,
    /// What is known of it, as long as it is described. Afterwards memory for another one.
    record: Option<Box<Record>>,
    /// Its place in the table, once it has begun.
    ticket: Option<Ticket>,
    has_span: bool,
    /// The context of the body, if that goes from poll to poll.
    context: Option<Context>,
    model_call: Option<Box<ModelCall>>,
    settled: Option<Outcome>,
    told: Told,
    unsettled: Unsettled,
    is_discarded: bool,
    // What is said of it before it begins.
    share: Share,
    key: Option<Box<OwnedKey>>,
    step: Option<u64>,
    counts_as: CountsAs,
    parent: Option<Box<SpanContext>>,
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

thread_local! {
    /// Calls that ended on this thread, whose memory is used again.
    static RETIRED: RefCell<Vec<Box<Open>>> = const { RefCell::new(Vec::new()) };
}

/// So many calls are open at once in one another, rarely more.
const MOST_RETIRED: usize = 64;

impl Open {
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

    fn table(&self) -> TableRef {
        match &self.whose {
            Whose::Process(_) => TableRef::default(),
            Whose::Test(pipeline) => pipeline.table.clone(),
        }
    }

    fn set_attribute(&self, attribute: KeyValue) {
        if let Some(ticket) = self.ticket.as_ref().filter(|_| self.has_span) {
            let of_sdk = self.table().look(ticket, |record, limits| match &record.of_sdk {
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
    }

    /// Takes over the tokens that were counted from within.
    fn hear(&mut self) {
        let said = match &self.ticket {
            Some(ticket) => self.table().look(ticket, |record, _| record.said.take()).flatten(),
            None => None,
        };
        if let Some(said) = said {
            self.model_call.get_or_insert_default().add(*said);
        }
    }

    /// Ends the call: its span, if there is one, and its measurements. Once.
    fn end(&mut self) {
        if self.process != process::generation() {
            // Begun before a fork, and the other process's to end. A lock that another thread of that held stays
            // locked here.
            return;
        }
        let Some(ticket) = self.ticket.take() else { return };
        let table = self.table();
        if self.is_discarded {
            self.record = table.discard(&ticket);
            return;
        }
        let now = Instant::now();
        let outcome = self.settled.unwrap_or_else(|| self.unsettled.outcome());
        let end = self.took.map_or(End::At(now), End::After);
        let told = std::mem::take(&mut self.told);
        let is_counted = self.model_call.is_some();
        let closed = table.end(&ticket, |record| {
            record.close(outcome, told, end);
            is_counted || record.is_counted() || record.of_sdk.is_some()
        });
        match closed {
            Closed::Gone => self.record_metrics(outcome, now),
            Closed::Done(spare) => {
                self.record = spare;
                self.record_metrics(outcome, now);
            }
            Closed::Taken(mut record) => {
                record.add(self.model_call.take());
                record.hear();
                self.model_call = record.model_call.take();
                self.record_metrics(outcome, now);
                record.model_call = self.model_call.take();
                record.end_of_sdk();
                self.record = table.hand_in(&ticket, record);
            }
        }
    }

    fn record_metrics(&self, outcome: Outcome, now: Instant) {
        if !self.wants_metrics {
            return;
        }
        let elapsed = self.took.unwrap_or_else(|| now.saturating_duration_since(self.began));
        let record = |pipeline: &Pipeline| {
            if let Some(instruments) = &pipeline.instruments {
                let seconds = elapsed.as_secs_f64();
                instruments.record_phase(self.name, self.group.name(), outcome, seconds);
                if let Some(model_call) = self.model_call.as_ref().filter(|call| call.counted) {
                    model_call.record(instruments, seconds, outcome.error_type());
                }
            }
        };
        match &self.whose {
            Whose::Test(pipeline) => record(pipeline),
            // A call that began with a telemetry which has ended is not the next one's.
            Whose::Process(live) => {
                if let Some(pipeline) = pipeline::active().as_ref().filter(|active| live.is(active)) {
                    record(pipeline);
                }
            }
        }
    }

    /// Leaves its memory to another call.
    fn retire(mut self: Box<Self>) {
        self.context = None;
        self.model_call = None;
        if let Whose::Test(_) = self.whose {
            // It would keep the pipeline of the test.
            return;
        }
        let _thread_is_ending = RETIRED.try_with(|retired| {
            if let Ok(mut retired) = retired.try_borrow_mut()
                && retired.len() < MOST_RETIRED
            {
                retired.push(self);
            }
        });
    }
}

/// Leaves the last of the attributes with the same key, as a map would: the SDK keeps each that was set.
pub(crate) fn keep_last(attributes: &mut Vec<KeyValue>) {
    for index in (0..attributes.len()).rev() {
        if attributes[index + 1..].iter().any(|later| later.key == attributes[index].key) {
            attributes.remove(index);
        }
    }
}

/// A value that is never made; only its type is used, to tell the body what to coerce to.
pub fn never<T>() -> T {
    unreachable!("stands behind `if false`")
}
