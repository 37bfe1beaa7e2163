//! How do records get from the program to the exporter?
//!
//! Each signal has a lane: a bounded queue, batches, one exporter. The lanes run on one thread of our
//! own, which has its own runtime, so that it makes no difference from where the program records,
//! flushes or shuts down. The program never waits for it: a record that finds the queue full is
//! refused. What was made and what became of it is counted per signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::export::{Body, Exporter, Failure, Retry, Written};
use crate::notice;
use crate::signal::Signal;
use crate::span;
use crate::summary::Phases;

/// Spans, or log records, that may wait: twice a step with a span for each of 30,000 rollouts. It
/// bounds the number of records, and so only in effect their memory.
const QUEUE: usize = 65_536;

/// Collections of metrics that may wait: three quarters of an hour of them. Each holds every series.
const COLLECTIONS: usize = 256;

/// Records handed to the exporter at once.
const BATCH: usize = 1024;

/// The longest that a batch is offered to a receiver that might take it later. Its successors wait.
const RETRY_FOR: Duration = Duration::from_secs(300);

/// The pause after the first failed attempt. It doubles with each, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Attempts to reach a receiver at which nobody listens, once the program wants to end; afterwards one for
/// each body.
const LAST_ATTEMPTS: u32 = 3;

/// At most one warning per signal in this time.
const QUIET_FOR: Duration = Duration::from_secs(60);

/// What became of the records of one signal. For metrics a record is one data point.
///
/// Every number counts from init; `made` is the sum of the others and of what is
/// [`pending`](Self::pending).
///
/// ```
/// let counts = lens_runtime::Counts { made: 10, exported: 6, rejected: 1, failed: 1, refused: 1 };
/// assert_eq!((counts.pending(), counts.lost()), (1, 3));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that the program made.
    pub made: u64,
    /// Records that the exporter wrote, or the receiver accepted.
    pub exported: u64,
    /// Records that the receiver would not have.
    pub rejected: u64,
    /// Records that could not be written or brought to the receiver.
    pub failed: u64,
    /// Records that found the queue full, or closed.
    pub refused: u64,
}

impl Counts {
    /// Records that are still on their way. After a shutdown, those that were left behind: never sent,
    /// or sent and not answered in time, in which case the receiver may have them.
    pub const fn pending(&self) -> u64 {
        self.made.saturating_sub(self.exported + self.lost())
    }

    /// Records that will not arrive.
    pub const fn lost(&self) -> u64 {
        self.rejected + self.failed + self.refused
    }
}

#[derive(Debug, Default)]
struct Tally {
    made: AtomicU64,
    exported: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

impl Tally {
    fn read(&self) -> Counts {
        // What became of records is read before how many there were, so that a record in between
        // is pending and never negative.
        let exported = self.exported.load(Ordering::Acquire);
        let rejected = self.rejected.load(Ordering::Acquire);
        let failed = self.failed.load(Ordering::Acquire);
        let refused = self.refused.load(Ordering::Acquire);
        Counts { made: self.made.load(Ordering::Acquire), exported, rejected, failed, refused }
    }
}

/// What travels in a lane.
pub(crate) trait Item: Sized + Send + 'static {
    /// How many records it is.
    fn records(&self) -> u64;
    /// The batch in the form in which it leaves.
    fn encode(batch: Vec<Self>, exporter: &Exporter) -> Vec<Body>;
    /// Adds it to the table of the run's phases.
    fn sum_up(&self, _phases: &mut Phases) {}
}

impl Item for SpanData {
    fn records(&self) -> u64 {
        1
    }

    fn encode(batch: Vec<Self>, exporter: &Exporter) -> Vec<Body> {
        exporter.spans(batch)
    }

    fn sum_up(&self, phases: &mut Phases) {
        phases.add(self);
    }
}

/// A log record and who made it.
pub(crate) type Log = (SdkLogRecord, InstrumentationScope);

impl Item for Log {
    fn records(&self) -> u64 {
        1
    }

    fn encode(batch: Vec<Self>, exporter: &Exporter) -> Vec<Body> {
        exporter.logs(&batch)
    }
}

/// A collection of metrics, already in the form in which it leaves: the SDK only lends it.
type Collection = Vec<Body>;

impl Item for Collection {
    fn records(&self) -> u64 {
        self.iter().map(|body| body.records).sum()
    }

    fn encode(batch: Vec<Self>, _exporter: &Exporter) -> Vec<Body> {
        batch.into_iter().flatten().collect()
    }
}

/// What the program asks of a lane.
enum Order {
    /// Write what there is, then answer.
    Flush(SyncSender<()>),
    /// Write what there is until the deadline, answer with the summary, and end.
    Close(Instant, SyncSender<Phases>),
}

/// The program's end of the delivery.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    spans: Entrance<SpanData>,
    logs: Entrance<Log>,
    metrics: Entrance<Collection>,
}

/// The program's end of a lane.
#[derive(Debug)]
struct Entrance<T> {
    queue: mpsc::Sender<T>,
    orders: mpsc::UnboundedSender<Order>,
    tally: Arc<Tally>,
}

impl<T> Clone for Entrance<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), orders: self.orders.clone(), tally: Arc::clone(&self.tally) }
    }
}

impl<T: Item> Entrance<T> {
    fn offer(&self, item: T) {
        let records = item.records();
        self.tally.made.fetch_add(records, Ordering::AcqRel);
        if self.queue.try_send(item).is_err() {
            self.tally.refused.fetch_add(records, Ordering::AcqRel);
        }
    }
}

impl Delivery {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives no thread, or no runtime.
    pub(crate) fn start(exporters: [Exporter; 3]) -> std::io::Result<Self> {
        let [traces, metrics, logs] = exporters;
        let (spans, span_lane) = lane(Signal::Traces, QUEUE, traces);
        let (metrics, metric_lane) = lane(Signal::Metrics, COLLECTIONS, metrics);
        let (logs, log_lane) = lane(Signal::Logs, QUEUE, logs);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("lens-delivery".to_owned()).spawn(move || {
            // Whatever the exporters call makes no telemetry of its own.
            let _suppressed = Context::enter_telemetry_suppressed_scope();
            runtime.block_on(async { tokio::join!(span_lane.run(), metric_lane.run(), log_lane.run()) });
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { spans, logs, metrics })
    }

    pub(crate) fn counts(&self, signal: Signal) -> Counts {
        match signal {
            Signal::Traces => self.spans.tally.read(),
            Signal::Metrics => self.metrics.tally.read(),
            Signal::Logs => self.logs.tally.read(),
        }
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
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if !span::is_discarded(&span) {
            self.spans.offer(span);
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
        self.logs.offer((record.clone(), scope.clone()));
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

/// The thread's end of a lane.
struct Lane<T> {
    records: mpsc::Receiver<T>,
    orders: Orders,
    exporter: Exporter,
    tally: Arc<Tally>,
    phases: Phases,
    trouble: Trouble,
    /// Attempts that reached nobody since the program wants to end.
    last_attempts: u32,
}

fn lane<T: Item>(signal: Signal, capacity: usize, exporter: Exporter) -> (Entrance<T>, Lane<T>) {
    let (queue, records) = mpsc::channel(capacity);
    let (orders, ordered) = mpsc::unbounded_channel();
    let tally = Arc::new(Tally::default());
    let lane = Lane {
        records,
        orders: Orders { queue: ordered, flushes: Vec::new(), close: None },
        exporter,
        tally: Arc::clone(&tally),
        phases: Phases::default(),
        trouble: Trouble { signal, is_on: false, told: None, is_told: false },
        last_attempts: 0,
    };
    (Entrance { queue, orders, tally }, lane)
}

impl<T: Item> Lane<T> {
    async fn run(mut self) {
        let mut batch = Vec::new();
        // When the batch is written though it is not full: none is empty for long.
        let mut write_at = Instant::now();
        while self.orders.close.is_none() {
            let room = BATCH - batch.len();
            tokio::select! {
                biased;
                () = self.orders.arrival() => {}
                () = sleep_until(write_at), if !batch.is_empty() => self.write(&mut batch).await,
                taken = self.records.recv_many(&mut batch, room) => match taken {
                    // The program's end is gone without an order.
                    0 => return self.write(&mut batch).await,
                    _ if batch.len() == BATCH => self.write(&mut batch).await,
                    _ if batch.len() == taken => write_at = Instant::now() + self.exporter.linger(),
                    _ => {}
                },
            }
            self.flush(&mut batch).await;
        }
        self.records.close();
        while self.records.recv_many(&mut batch, BATCH).await > 0 {
            self.write(&mut batch).await;
        }
        self.write(&mut batch).await;
        if let Some((_, answer)) = self.orders.close {
            // Whoever asked may have gone when the deadline passed.
            let _gone = answer.send(self.phases);
        }
    }

    /// Writes what there is, if somebody waits for that.
    async fn flush(&mut self, batch: &mut Vec<T>) {
        while !self.orders.flushes.is_empty() {
            let answers = std::mem::take(&mut self.orders.flushes);
            // What others add meanwhile is not part of it, or it might never end.
            let mut queued = self.records.len();
            while queued > 0 {
                let taken = self.records.recv_many(batch, queued.min(BATCH)).await;
                queued = if taken == 0 { 0 } else { queued - taken };
                self.write(batch).await;
            }
            self.write(batch).await;
            for answer in answers {
                let _gone = answer.send(());
            }
        }
    }

    async fn write(&mut self, batch: &mut Vec<T>) {
        if batch.is_empty() {
            return;
        }
        let batch = std::mem::take(batch);
        for item in &batch {
            item.sum_up(&mut self.phases);
        }
        if self.orders.is_over() {
            return;
        }
        for body in T::encode(batch, &self.exporter) {
            self.deliver(&body).await;
        }
    }

    /// Hands a body to the exporter, again and again while there is hope, and counts what became of
    /// it. What the deadline of a shutdown cuts off stays pending.
    async fn deliver(&mut self, body: &Body) {
        let mut patience = Patience::default();
        loop {
            match self.orders.unless_over(self.exporter.write(body)).await {
                None => return,
                Some(Ok(written)) => return self.arrived(body, &written),
                Some(Err(Failure { cause, retry })) => {
                    self.trouble.begins(&cause);
                    match self.next_pause(&mut patience, retry) {
                        Some(pause) => self.orders.pause(pause, matches!(retry, Retry::After(_))).await,
                        None => return self.lost(body, retry),
                    }
                }
            }
        }
    }

    fn arrived(&mut self, body: &Body, written: &Written) {
        let rejected = written.rejected.min(body.records);
        self.tally.exported.fetch_add(body.records - rejected, Ordering::AcqRel);
        self.tally.rejected.fetch_add(rejected, Ordering::AcqRel);
        match &written.complaint {
            Some(complaint) => self.trouble.complaint(complaint),
            None => self.trouble.is_over(),
        }
    }

    fn lost(&self, body: &Body, retry: Retry) {
        let what_became = match retry {
            Retry::Refused => &self.tally.rejected,
            Retry::Never | Retry::Unreachable | Retry::Later | Retry::After(_) => &self.tally.failed,
        };
        what_became.fetch_add(body.records, Ordering::AcqRel);
    }

    /// How long to wait for the next attempt; `None` if there is to be none.
    fn next_pause(&mut self, patience: &mut Patience, retry: Retry) -> Option<Duration> {
        let is_closing = self.orders.close.is_some();
        if is_closing && retry == Retry::Unreachable {
            self.last_attempts += 1;
        }
        match self.last_attempts {
            LAST_ATTEMPTS.. => None,
            _ => patience.pause(retry, is_closing),
        }
    }
}

/// What the program asked of a lane and has not got yet.
struct Orders {
    queue: mpsc::UnboundedReceiver<Order>,
    flushes: Vec<SyncSender<()>>,
    close: Option<(Instant, SyncSender<Phases>)>,
}

impl Orders {
    /// Waits for an order and notes it.
    async fn arrival(&mut self) {
        match self.queue.recv().await {
            Some(Order::Flush(answer)) => self.flushes.push(answer),
            Some(Order::Close(deadline, answer)) => self.close = Some((deadline, answer)),
            // The program's end is gone; the lane finds out by its records.
            None => std::future::pending().await,
        }
    }

    /// Whether the deadline of a shutdown has passed.
    fn is_over(&self) -> bool {
        self.close.as_ref().is_some_and(|(deadline, _)| Instant::now() >= *deadline)
    }

    /// Does `work`, unless the deadline of a shutdown passes before it is done.
    async fn unless_over<R>(&mut self, work: impl Future<Output = R>) -> Option<R> {
        tokio::pin!(work);
        loop {
            match self.close.as_ref().map(|(deadline, _)| *deadline) {
                // An attempt that would be cut off at once is not begun.
                Some(deadline) if deadline <= Instant::now() => return None,
                Some(deadline) => return tokio::time::timeout_at(deadline, work).await.ok(),
                None => tokio::select! {
                    biased;
                    out = &mut work => return Some(out),
                    () = self.arrival() => {}
                },
            }
        }
    }

    /// Waits, but not longer than the program does. Whoever flushes or shuts down wants another attempt at
    /// once, and gets it unless the receiver asked for the pause.
    async fn pause(&mut self, pause: Duration, is_asked_for: bool) {
        let until = Instant::now() + pause;
        loop {
            match self.close.as_ref().map(|(deadline, _)| *deadline) {
                Some(deadline) => return sleep_until(until.min(deadline)).await,
                None => tokio::select! {
                    () = sleep_until(until) => return,
                    () = self.arrival() => if !is_asked_for {
                        return;
                    },
                },
            }
        }
    }
}

/// How long a body is tried.
struct Patience {
    since: Instant,
    next: Duration,
    was_closing: bool,
}

impl Default for Patience {
    fn default() -> Self {
        Self { since: Instant::now(), next: FIRST_PAUSE, was_closing: false }
    }
}

impl Patience {
    /// How long to wait after a failed attempt; `None` if there is to be no other.
    fn pause(&mut self, retry: Retry, is_closing: bool) -> Option<Duration> {
        let asked = match retry {
            Retry::Never | Retry::Refused => return None,
            Retry::Unreachable | Retry::Later => Duration::ZERO,
            Retry::After(pause) => pause,
        };
        if self.since.elapsed() >= RETRY_FOR {
            return None;
        }
        if is_closing && !std::mem::replace(&mut self.was_closing, true) {
            // The pauses have grown to what suits a program that goes on.
            self.next = FIRST_PAUSE;
        }
        // Many workers lose a receiver at once and must not come back at once: half of the pause is drawn.
        let own = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        Some(asked.min(RETRY_FOR).max(own))
    }
}

/// What is said while the program runs: one line when delivery begins to fail, one when it works again.
struct Trouble {
    signal: Signal,
    is_on: bool,
    /// When something was said last.
    told: Option<Instant>,
    /// Whether it was said that trouble began.
    is_told: bool,
}

impl Trouble {
    fn begins(&mut self, cause: &str) {
        let is_news = !std::mem::replace(&mut self.is_on, true);
        if is_news && self.may_speak() {
            self.is_told = true;
            notice::warn(self.signal.as_str(), "telemetry does not get through", cause);
        }
    }

    fn is_over(&mut self) {
        self.is_on = false;
        if std::mem::take(&mut self.is_told) {
            notice::info(self.signal.as_str(), "telemetry gets through again");
        }
    }

    /// A receiver took a body, or part of it, and had something to say.
    fn complaint(&mut self, text: &str) {
        self.is_over();
        if self.may_speak() {
            notice::warn(self.signal.as_str(), "the receiver of telemetry complains", text);
        }
    }

    fn may_speak(&mut self) -> bool {
        let may = self.told.is_none_or(|told| told.elapsed() >= QUIET_FOR);
        if may {
            self.told = Some(Instant::now());
        }
        may
    }
}
