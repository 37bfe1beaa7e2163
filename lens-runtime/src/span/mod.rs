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
mod sampler;
mod settle;
mod table;

use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Instant;

use opentelemetry::{Context, ContextGuard, KeyValue};

pub(crate) use attributes::{Attributes, Held};
pub(crate) use begin::Spans;
use ended::End;
pub(crate) use ended::Ended;
pub use entry::{Entry, SpanRef};
pub use follow::{followed, streamed, traced};
pub(crate) use handle::{Found, stranger_begins};
use record::Record;
pub(crate) use sampler::{SamplerOfSdk, Sampling};
pub use settle::taken;
use table::Closed;
pub(crate) use table::{HandedIn, Outlet, TableRef};

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
pub struct Scope {
    open: Option<Box<Open>>,
    /// What it attached is this thread's.
    _of_thread: PhantomData<*const ()>,
}

impl Scope {
    /// A call that is not recorded.
    pub const OFF: Self = Self { open: None, _of_thread: PhantomData };

    /// `unsettled` says what ends the call if its value is not looked at.
    #[inline]
    fn new(mut open: Box<Open>, context: Option<Context>, unsettled: Unsettled) -> Self {
        match context {
            None => Self::OFF,
            Some(context) => {
                open.unsettled = unsettled;
                open.attached = local::attach(context);
                Self { open: Some(open), _of_thread: PhantomData }
            }
        }
    }

    /// The call, if it is recorded.
    #[inline]
    pub fn recorded(&mut self) -> Option<&mut Open> {
        self.open.as_deref_mut()
    }

    /// The scope ends, and the call goes on.
    fn leave(mut self) -> Call {
        Call(self.open.take().map(|mut open| {
            open.detach();
            open.unsettled = Unsettled::Cancelled;
            open
        }))
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            end_call(open);
        }
    }
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
    // Before the call ends: what lies in the context may make spans when it is dropped.
    open.detach();
    open.end();
    open.forget();
    local::keep(open);
}

/// A call is only looked at again to be ended, which is what a panic does to it.
impl UnwindSafe for Scope {}
impl RefUnwindSafe for Scope {}
impl UnwindSafe for Call {}
impl RefUnwindSafe for Call {}

/// A call that is recorded and has not ended.
pub struct Open {
    /// What is known of it, before it begins; afterwards that is in the table.
    record: Option<Box<Record>>,
    /// Where it is, once it has begun.
    call: Found,
    /// The process. In one that is forked from it, the call is the other one's to end.
    process: u32,
    has_begun: bool,
    has_span: bool,
    is_discarded: bool,
    unsettled: Unsettled,
    told: Told,
    settled: Option<Outcome>,
    /// By which its context is detached, if it is attached.
    attached: usize,
    /// The context of the body, if that goes from poll to poll.
    context: Option<Context>,
    /// What its result told of the model.
    model_call: Option<Box<ModelCall>>,
}

/// Where a context is attached that is not.
const NOWHERE: usize = usize::MAX;

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
    #[expect(
        clippy::unnecessary_box_returns,
        reason = "it is only ever held by its box, whose memory is used again"
    )]
    fn new() -> Box<Self> {
        Box::new(Self {
            record: None,
            call: Found::default(),
            process: 0,
            has_begun: false,
            has_span: false,
            is_discarded: false,
            unsettled: Unsettled::Cancelled,
            told: Told::Type,
            settled: None,
            attached: NOWHERE,
            context: None,
            model_call: None,
        })
    }

    /// What is known of it before it begins.
    #[inline]
    fn record(&mut self) -> &mut Record {
        self.record.get_or_insert_with(Record::new)
    }

    #[inline]
    fn detach(&mut self) {
        if self.attached != NOWHERE {
            local::detach(std::mem::replace(&mut self.attached, NOWHERE));
        }
    }

    /// Makes the span the current one.
    fn attach(&self) -> Option<ContextGuard> {
        self.context.clone().and_then(ambient::attach)
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

    fn set_attribute(&self, attribute: KeyValue) {
        if !self.has_span {
            return;
        }
        let of_sdk = self.call.table.look(&self.call.ticket, |record, limits| match &record.of_sdk {
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
        if let Some(said) = self.call.table.look(&self.call.ticket, |record, _| record.said.take()).flatten()
        {
            self.model_call.get_or_insert_default().add(*said);
        }
    }

    /// Nothing is known of it any more.
    #[inline]
    fn forget(&mut self) {
        self.call.table = TableRef::default();
        self.has_begun = false;
        self.is_discarded = false;
        self.told = Told::Type;
        self.settled = None;
        self.context = None;
        self.model_call = None;
    }

    /// Ends the call: its span, if there is one, and its measurements. Once.
    fn end(&mut self) {
        // Begun before a fork, it is the other process's to end. A lock that another thread of that held stays locked
        // here.
        if self.process != process::generation() || !std::mem::take(&mut self.has_begun) {
            return;
        }
        if self.is_discarded {
            self.record = self.call.table.discard(&self.call.ticket);
            return;
        }
        let now = Instant::now();
        let outcome = self.settled.unwrap_or_else(|| self.unsettled.outcome());
        let told = std::mem::take(&mut self.told);
        let has_more = self.model_call.is_some();
        let closed = self.call.table.end(&self.call.ticket, |record| {
            record.close(outcome, told, End::At(now));
            has_more || record.wants_more_at_its_end()
        });
        match closed {
            Closed::Gone => {}
            Closed::Done(record) => self.record = Some(record),
            Closed::Taken(mut record) => {
                record.add(self.model_call.take());
                record.hear();
                record.measure(outcome, now);
                record.end_of_sdk();
                if !record.goes_nowhere() {
                    self.call.table.hand_in(&self.call.ticket, &mut record);
                }
                record.clear();
                self.record = Some(record);
            }
        }
    }
}

/// A value that is never made; only its type is used, to tell the body what to coerce to.
pub fn never<T>() -> T {
    unreachable!("stands behind `if false`")
}
