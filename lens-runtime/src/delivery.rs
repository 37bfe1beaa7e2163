//! How do records get from the program to the exporter?
//!
//! One thread of our own takes spans, log records and collected metrics from one bounded queue and
//! hands them to the exporter in batches. The program never waits for it: a record that finds the
//! queue full is refused and counted. What was made and what became of it is counted per signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};

use crate::export::Exporter;
use crate::summary::Phases;

/// Records that may wait: twice a step with a span for each of 30,000 rollouts. It bounds the number
/// of records, and so only in effect their memory.
const QUEUE: usize = 65_536;

/// Records handed to the exporter at once.
const BATCH: usize = 512;

/// The longest that a record waits for company. A killed process loses no more than this.
const LINGER: Duration = Duration::from_millis(200);

/// The three kinds of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    pub(crate) const ALL: [Signal; 3] = [Signal::Traces, Signal::Metrics, Signal::Logs];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
        }
    }
}

/// What became of the records of one signal. For metrics a record is one collection of all series.
///
/// Every number counts from init; `made` is the sum of the others and of what is
/// [`pending`](Self::pending).
///
/// ```
/// let counts = lens_runtime::Counts { made: 10, exported: 7, failed: 1, refused: 1 };
/// assert_eq!((counts.pending(), counts.lost()), (1, 2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that the program made.
    pub made: u64,
    /// Records that the exporter wrote.
    pub exported: u64,
    /// Records that the exporter could not write.
    pub failed: u64,
    /// Records that found the queue full, or closed.
    pub refused: u64,
}

impl Counts {
    /// Records that are still on their way; after a shutdown, those that were left behind.
    pub const fn pending(&self) -> u64 {
        self.made.saturating_sub(self.exported + self.failed + self.refused)
    }

    /// Records that will not arrive.
    pub const fn lost(&self) -> u64 {
        self.failed + self.refused
    }
}

#[derive(Debug, Default)]
struct Tally {
    made: AtomicU64,
    exported: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Tallies([Tally; 3]);

impl Tallies {
    fn of(&self, signal: Signal) -> &Tally {
        &self.0[signal as usize]
    }

    fn read(&self, signal: Signal) -> Counts {
        let tally = self.of(signal);
        // What became of records is read before how many there were, so that a record in between
        // is pending and never negative.
        let exported = tally.exported.load(Ordering::Acquire);
        let failed = tally.failed.load(Ordering::Acquire);
        let refused = tally.refused.load(Ordering::Acquire);
        Counts { made: tally.made.load(Ordering::Acquire), exported, failed, refused }
    }
}

enum Item {
    Span(Box<SpanData>),
    Log(Box<(SdkLogRecord, InstrumentationScope)>),
    /// A collection, already in the exporter's form.
    Metrics(String),
    /// Write what there is, then answer.
    Flush(SyncSender<()>),
    /// Write what there is, answer with the summary and end.
    Close(SyncSender<Phases>),
}

/// The program's end of the delivery.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    queue: SyncSender<Item>,
    tallies: Arc<Tallies>,
}

impl Delivery {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(exporter: Exporter) -> std::io::Result<Self> {
        let (queue, items) = mpsc::sync_channel(QUEUE);
        let tallies = Arc::new(Tallies::default());
        let worker = Worker {
            exporter,
            tallies: Arc::clone(&tallies),
            phases: Phases::default(),
            spans: Vec::new(),
            logs: Vec::new(),
            metrics: Vec::new(),
        };
        thread::Builder::new().name("lens-delivery".to_owned()).spawn(move || {
            // Whatever the exporter calls makes no telemetry of its own.
            let _suppressed = Context::enter_telemetry_suppressed_scope();
            worker.work(&items);
        })?;
        Ok(Self { queue, tallies })
    }

    pub(crate) fn counts(&self, signal: Signal) -> Counts {
        self.tallies.read(signal)
    }

    /// Waits until all that was made before is written, at the longest until `deadline`. Whether it
    /// was.
    pub(crate) fn flush(&self, deadline: Instant) -> bool {
        self.ask(Item::Flush, deadline).is_some()
    }

    /// Writes what is left and ends the thread; the summary, if it was done by `deadline`.
    pub(crate) fn close(&self, deadline: Instant) -> Option<Phases> {
        self.ask(Item::Close, deadline)
    }

    fn ask<T>(&self, question: impl FnOnce(SyncSender<T>) -> Item, deadline: Instant) -> Option<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        let mut question = question(answer);
        // The queue may be full of records behind a slow exporter, and a blocking send has no
        // deadline.
        while let Err(error) = self.queue.try_send(question) {
            match error {
                TrySendError::Full(back) if Instant::now() < deadline => {
                    question = back;
                    thread::sleep(Duration::from_millis(1));
                }
                TrySendError::Full(_) | TrySendError::Disconnected(_) => return None,
            }
        }
        answered.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }

    fn offer(&self, signal: Signal, item: Item) {
        let tally = self.tallies.of(signal);
        tally.made.fetch_add(1, Ordering::AcqRel);
        if self.queue.try_send(item).is_err() {
            tally.refused.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl SpanProcessor for Delivery {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.offer(Signal::Traces, Item::Span(Box::new(span)));
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
        self.offer(Signal::Logs, Item::Log(Box::new((record.clone(), scope.clone()))));
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
    pub(crate) encode: fn(&ResourceMetrics) -> String,
    pub(crate) closed: AtomicBool,
}

impl PushMetricExporter for MetricCourier {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        match self.closed.load(Ordering::Acquire) {
            true => Err(OTelSdkError::AlreadyShutdown),
            false => {
                self.delivery.offer(Signal::Metrics, Item::Metrics((self.encode)(metrics)));
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
        Temporality::Cumulative
    }
}

/// The thread's end of the delivery.
struct Worker {
    exporter: Exporter,
    tallies: Arc<Tallies>,
    phases: Phases,
    spans: Vec<SpanData>,
    logs: Vec<(SdkLogRecord, InstrumentationScope)>,
    metrics: Vec<String>,
}

impl Worker {
    fn work(mut self, items: &Receiver<Item>) {
        let mut write_at: Option<Instant> = None;
        loop {
            let item = match write_at {
                None => items.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => items.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match item {
                Ok(Item::Span(span)) => {
                    self.phases.add(&span);
                    self.spans.push(*span);
                }
                Ok(Item::Log(log)) => self.logs.push(*log),
                Ok(Item::Metrics(text)) => self.metrics.push(text),
                Ok(Item::Flush(answer)) => {
                    self.write();
                    // Whoever asked may have gone when the deadline passed.
                    let _gone = answer.send(());
                }
                Ok(Item::Close(answer)) => {
                    self.write();
                    let _gone = answer.send(self.phases);
                    return;
                }
                Err(RecvTimeoutError::Timeout) => self.write(),
                Err(RecvTimeoutError::Disconnected) => return self.write(),
            }
            match self.waiting() {
                0 => write_at = None,
                BATCH.. => {
                    self.write();
                    write_at = None;
                }
                _ => write_at = write_at.or_else(|| Some(Instant::now() + LINGER)),
            }
        }
    }

    fn waiting(&self) -> usize {
        self.spans.len() + self.logs.len() + self.metrics.len()
    }

    fn write(&mut self) {
        let spans = std::mem::take(&mut self.spans);
        let logs = std::mem::take(&mut self.logs);
        let metrics = std::mem::take(&mut self.metrics);
        self.count(Signal::Traces, spans.len(), |exporter| exporter.spans(&spans));
        self.count(Signal::Logs, logs.len(), |exporter| exporter.logs(&logs));
        for text in metrics {
            self.count(Signal::Metrics, 1, |exporter| exporter.metrics(&text));
        }
    }

    fn count(
        &mut self,
        signal: Signal,
        records: usize,
        write: impl FnOnce(&mut Exporter) -> std::io::Result<()>,
    ) {
        if records == 0 {
            return;
        }
        let tally = self.tallies.of(signal);
        let records = records as u64;
        match write(&mut self.exporter) {
            Ok(()) => {
                tally.exported.fetch_add(records, Ordering::AcqRel);
            }
            Err(error) => {
                // Once: what follows is in the counts.
                if tally.failed.fetch_add(records, Ordering::AcqRel) == 0 {
                    tracing::warn!(signal = signal.as_str(), %error, "telemetry is being lost");
                }
            }
        }
    }
}
