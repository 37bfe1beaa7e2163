//! How do records get from the program to the exporter?
//!
//! Each signal has a lane: a queue, bodies, one exporter. The lanes run on one thread of our own, which
//! has its own runtime, so that it makes no difference from where the program records, flushes or shuts
//! down. The program never waits for it: a record that finds no room left is refused, where room is
//! counted in bytes, over all signals. What was made and what became of it is counted per signal.

mod counts;
mod intake;
mod item;
mod lane;
mod meter;
mod patience;
mod room;
mod source;
mod tail;
mod trouble;

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use opentelemetry::trace::Span as _;
use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;
use tokio::time::Instant;

pub use counts::Counts;
pub(crate) use item::Log;
pub(crate) use meter::observe;

use crate::export::{Body, Exporter};
use crate::late;
use crate::process;
use crate::sampling::Steps;
use crate::signal::Signal;
use crate::span::{self, HandedIn, Outlet, TableRef};
use crate::summary::Phases;
use counts::{OpenCount, Tally};
use item::{Collection, Item};
use lane::{Lane, Order};
use room::Room;
use source::{Desk, SpanSource};

thread_local! {
    /// Whether this is a thread of the delivery. Its context suppresses telemetry, but whoever makes a context of
    /// their own is not held by that, as a bridge from `tracing` for the spans of HTTP/2, which have no parent.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether what is recorded here comes of the delivery itself.
fn is_ours() -> bool {
    IS_OURS.try_with(Cell::get).unwrap_or(false)
}

/// The program's end of the delivery.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// The process that has the thread.
    process: u32,
    open: Arc<OpenCount>,
    spans: SpanEntrance,
    logs: Entrance<Log>,
    metrics: Entrance<Collection>,
}

/// The program's end of a lane.
#[derive(Debug)]
struct Entrance<T> {
    queue: mpsc::UnboundedSender<T>,
    orders: mpsc::UnboundedSender<Order>,
    tally: Arc<Tally>,
    room: Arc<Room>,
}

/// The same for spans, which wait in the table in which they were made.
#[derive(Clone, Debug)]
struct SpanEntrance {
    era: u64,
    orders: mpsc::UnboundedSender<Order>,
    tally: Arc<Tally>,
    desk: Arc<Desk>,
    /// The lane ends with it.
    _program: mpsc::UnboundedSender<Infallible>,
}

impl<T> Clone for Entrance<T> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            orders: self.orders.clone(),
            tally: Arc::clone(&self.tally),
            room: Arc::clone(&self.room),
        }
    }
}

impl<T: Item> Entrance<T> {
    fn offer(&self, item: T) {
        let (records, bytes) = (item.records(), item.bytes());
        self.tally.made.fetch_add(records, Ordering::AcqRel);
        if !self.room.take(bytes, T::MAY_FILL) {
            self.tally.refused.fetch_add(records, Ordering::AcqRel);
        } else if self.queue.send(item).is_err() {
            self.room.give(bytes);
            self.tally.refused.fetch_add(records, Ordering::AcqRel);
        }
    }
}

impl Delivery {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives no thread, or no runtime.
    pub(crate) fn start(
        exporters: [Exporter; 3],
        queue_bytes: usize,
        era: u64,
        steps: &Steps,
    ) -> std::io::Result<Self> {
        let [traces, metrics, logs] = exporters;
        let room = Arc::new(Room::new(queue_bytes));
        let (spans, span_lane) = span_lane(traces, &room, era, steps);
        let (metrics, metric_lane) = lane(Signal::Metrics, metrics, &room);
        let (logs, log_lane) = lane(Signal::Logs, logs, &room);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Those in which names are looked up.
            .on_thread_start(|| IS_OURS.set(true))
            .build()?;
        thread::Builder::new().name("lens-delivery".to_owned()).spawn(move || {
            // Whatever the exporters call makes no telemetry of its own.
            IS_OURS.set(true);
            let _suppressed = Context::enter_telemetry_suppressed_scope();
            runtime.block_on(async { tokio::join!(span_lane.run(), metric_lane.run(), log_lane.run()) });
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { process: process::generation(), open: Arc::default(), spans, logs, metrics })
    }

    /// Where spans go that end.
    pub(crate) fn outlet(&self) -> Arc<dyn Outlet> {
        Arc::clone(&self.spans.desk) as _
    }

    pub(crate) fn counts(&self, signal: Signal) -> Counts {
        match signal {
            Signal::Traces => {
                let counts = self.spans.tally.read();
                let HandedIn { made, refused, left_out } = TableRef::default().made(self.spans.era);
                let fast = self.spans.desk.left_out();
                Counts {
                    made: (counts.made + made).saturating_sub(fast),
                    refused: counts.refused + refused,
                    left_out: left_out + fast,
                    ..counts
                }
            }
            Signal::Metrics => self.metrics.tally.read(),
            Signal::Logs => self.logs.tally.read(),
        }
    }

    /// Whether there is nobody who would deliver: this process was forked from the one that has the thread.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.process != process::generation()
    }

    /// No span will end any more. Those that are open were made and are left behind.
    pub(crate) fn leave_open_spans(&self) {
        self.spans.tally.made.fetch_add(self.open.close(), Ordering::AcqRel);
    }

    /// Waits until all that was made before is written, at the longest until `deadline`. Whether it
    /// was, with nothing lost meanwhile.
    pub(crate) fn flush(&self, deadline: std::time::Instant) -> bool {
        let lost = || Signal::ALL.map(|signal| self.counts(signal).lost());
        let before = lost();
        let answers = self.ask(Order::Flush);
        answers.into_iter().all(|answer| answer.recv_timeout(left_until(deadline)).is_ok())
            && lost() == before
    }

    /// Writes what is left and ends the thread; the summary, if the thread answers by `deadline`.
    pub(crate) fn close(&self, deadline: std::time::Instant) -> Option<Phases> {
        // The lanes stop a little earlier, so that their answers come in time.
        let left = left_until(deadline);
        let stop = Instant::now() + left.saturating_sub((left / 10).min(Duration::from_millis(100)));
        let answers = self.ask(|answer| Order::Close(stop, answer));
        let [spans, ..] = answers.map(|answer| answer.recv_timeout(left_until(deadline)).ok());
        spans
    }

    fn ask<A>(&self, order: impl Fn(SyncSender<A>) -> Order) -> [std::sync::mpsc::Receiver<A>; 3] {
        [&self.spans.orders, &self.metrics.orders, &self.logs.orders].map(|orders| {
            let (answer, answered) = std::sync::mpsc::sync_channel(1);
            // If the thread has ended, so has `answer`, and whoever waits for it does not.
            let _ended = orders.send(order(answer));
            answered
        })
    }
}

fn left_until(deadline: std::time::Instant) -> Duration {
    deadline.saturating_duration_since(std::time::Instant::now())
}

impl SpanProcessor for Delivery {
    fn on_start(&self, span: &mut Span, context: &Context) {
        if !is_ours() {
            self.open.begins();
            span::stranger_begins(span.span_context().span_id(), context, &TableRef::default());
        }
    }

    fn on_end(&self, span: SpanData) {
        if is_ours() {
            return;
        }
        if self.open.ends() && !self.is_elsewhere() {
            TableRef::default().hand_in_foreign(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl LogProcessor for Delivery {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        if !self.is_elsewhere() && !is_ours() {
            self.logs.offer((record.clone(), scope.clone()));
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Takes what the SDK collects from the instruments, in its own thread, and puts it into the queue.
pub(crate) struct MetricCourier {
    pub(crate) delivery: Delivery,
    pub(crate) encode: fn(&ResourceMetrics) -> Vec<Body>,
    pub(crate) temporality: Temporality,
    pub(crate) closed: AtomicBool,
}

impl PushMetricExporter for MetricCourier {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        match self.closed.load(Ordering::Acquire) {
            true => Err(OTelSdkError::AlreadyShutdown),
            false => {
                self.delivery.metrics.offer((self.encode)(metrics));
                late::catch_up();
                Ok(())
            }
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        self.temporality
    }
}

fn lane<T: Item>(
    signal: Signal,
    exporter: Exporter,
    room: &Arc<Room>,
) -> (Entrance<T>, Lane<mpsc::UnboundedReceiver<T>>) {
    let (queue, records) = mpsc::unbounded_channel();
    let (orders, ordered) = mpsc::unbounded_channel();
    let tally = Arc::new(Tally::default());
    let lane = Lane::new(signal, records, ordered, exporter, Arc::clone(&tally), Arc::clone(room));
    (Entrance { queue, orders, tally, room: Arc::clone(room) }, lane)
}

fn span_lane(
    exporter: Exporter,
    room: &Arc<Room>,
    era: u64,
    steps: &Steps,
) -> (SpanEntrance, Lane<SpanSource>) {
    let (program, end_of_program) = mpsc::unbounded_channel();
    let (orders, ordered) = mpsc::unbounded_channel();
    let tally = Arc::new(Tally::default());
    let desk = Arc::new(Desk::new(Arc::clone(room)));
    let records = SpanSource::new(era, Arc::clone(&desk), end_of_program, steps);
    let lane = Lane::new(Signal::Traces, records, ordered, exporter, Arc::clone(&tally), Arc::clone(room));
    (SpanEntrance { era, orders, tally, desk, _program: program }, lane)
}
