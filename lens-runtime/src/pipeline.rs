//! Into what is a call recorded?
//!
//! A pipeline is what a recorded call needs to know: a tracer, the instruments, a logger. The
//! process has one between init and shutdown; a test has its own, which lies in the OpenTelemetry
//! context and so reaches exactly what the test calls, on whatever thread.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use arc_swap::{ArcSwapOption, Guard};
use opentelemetry::Context;
use opentelemetry::global::ObjectSafeTracerProvider;
use opentelemetry::metrics::MeterProvider;

use crate::group::{Selection, SpanGroup, Wanted};
use crate::metrics::{Instruments, StepEvents};
use crate::sampling::Share;
use crate::span::{Spans, TableRef};
use crate::{ambient, process};

/// Where the calls of a process, or of a test, are recorded. What is `None` is off.
///
/// The SDK stands behind pointers, so that a program which is annotated and sets nothing up, as the tests of a
/// library are, links none of it.
pub(crate) struct Pipeline {
    pub(crate) spans: Option<Spans>,
    pub(crate) instruments: Option<Instruments>,
    pub(crate) step_events: Option<StepEvents>,
    /// Where open calls and spans that ended are.
    pub(crate) table: TableRef,
    /// Tells the pipelines of a process apart, which are one after the other.
    pub(crate) era: u64,
    /// The process that it belongs to. In one that is forked from it nothing is recorded: who delivers is not in it.
    pub(crate) process: u32,
    /// For code that knows nothing of Lens.
    pub(crate) tracers: Option<Box<dyn ObjectSafeTracerProvider + Send + Sync>>,
    pub(crate) meters: Option<Box<dyn MeterProvider + Send + Sync>>,
}

/// A number for another pipeline.
pub(crate) fn next_era() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A pipeline of a test, as it lies in the context.
#[derive(Clone)]
pub(crate) struct Captured {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) selection: Arc<Selection>,
}

static ACTIVE: LazyLock<ArcSwapOption<Pipeline>> = LazyLock::new(ArcSwapOption::empty);

/// What most calls need to know of the active pipeline, in one word: its era, and whether its spans are made without
/// asking anybody. Zero where there is none.
static LIVE: AtomicU64 = AtomicU64::new(0);

/// The process in which that is so. Another one was forked from it.
static LIVE_IN: AtomicU32 = AtomicU32::new(0);

/// Makes `pipeline` the one of the process; `None` ends recording.
pub(crate) fn activate(pipeline: Option<Arc<Pipeline>>) {
    let live = pipeline.as_ref().map_or(Live(0), |pipeline| {
        LIVE_IN.store(pipeline.process, Ordering::Relaxed);
        Live::of(pipeline)
    });
    ACTIVE.store(pipeline);
    LIVE.store(live.0, Ordering::Release);
}

/// The pipeline of the process; none in one that was forked.
pub(crate) fn active() -> Guard<Option<Arc<Pipeline>>> {
    let active = ACTIVE.load();
    match active.as_ref().is_none_or(|pipeline| pipeline.process == process::generation()) {
        true => active,
        false => Guard::from_inner(None),
    }
}

/// A pipeline of the process, in a word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Live(u64);

impl Live {
    fn of(pipeline: &Pipeline) -> Self {
        let is_plain = pipeline.spans.as_ref().is_some_and(Spans::are_plain);
        Self(pipeline.era << 1 | u64::from(is_plain))
    }

    /// The one that is active.
    #[inline]
    fn now() -> Option<Self> {
        let live = LIVE.load(Ordering::Acquire);
        (live != 0 && LIVE_IN.load(Ordering::Relaxed) == process::generation()).then_some(Self(live))
    }

    /// Whether its spans are made without asking anybody: each that has no parent, or one that is recorded.
    pub(crate) fn is_plain(self) -> bool {
        self.0 & 1 == 1
    }

    /// Whether it is this pipeline.
    pub(crate) fn is(self, pipeline: &Pipeline) -> bool {
        self.0 >> 1 == pipeline.era
    }
}

/// The pipeline of the caller, whatever its groups.
pub(crate) fn current() -> Option<Arc<Pipeline>> {
    captured().map(|captured| captured.pipeline).or_else(|| Guard::into_inner(active()))
}

/// The place of a context: that of its test, or of the process.
pub(crate) fn table_of(context: &Context) -> TableRef {
    context.get::<Captured>().map(|captured| captured.pipeline.table.clone()).unwrap_or_default()
}

/// The pipeline of a call.
#[derive(Clone)]
pub(crate) enum Whose {
    /// It is not one yet.
    Nobody,
    Process(Live),
    Test(Arc<Pipeline>),
}

/// For what a call is made that passed the gate.
pub(crate) struct For {
    pub(crate) whose: Whose,
    pub(crate) spans: bool,
    pub(crate) metrics: bool,
    /// What is kept of the group's spans.
    pub(crate) share: Share,
}

/// For what a call of `group` is made; `None` if it is not recorded after all.
#[inline]
pub(crate) fn for_call(group: &SpanGroup, wanted: Wanted) -> Option<For> {
    if let Some(captured) = wanted.captured.then(captured).flatten() {
        let share = captured.selection.of(group);
        let spans = share.is_some();
        let share = share.unwrap_or(Share::ALL);
        return Some(For { whose: Whose::Test(captured.pipeline), spans, metrics: true, share });
    }
    let Wanted { spans, metrics, share, captured: _ } = wanted;
    let live = (spans || metrics).then(Live::now).flatten()?;
    Some(For { whose: Whose::Process(live), spans, metrics, share })
}

/// The test in whose context this runs.
pub(crate) fn captured() -> Option<Captured> {
    ambient::with(captured_in).flatten()
}

/// The test of a context.
pub(crate) fn captured_in(context: &Context) -> Option<Captured> {
    context.get::<Captured>().cloned()
}
