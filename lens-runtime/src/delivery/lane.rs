//! How do the records of one signal get to their place?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::counts::Tally;
use super::intake::Intake;
use super::patience::{LAST_ATTEMPTS, Patience};
use super::room::Room;
use super::source::Source;
use super::trouble::Trouble;
use crate::export::{Body, Exporter, Failure, Retry, Sink, Written};
use crate::signal::Signal;
use crate::summary::Phases;

/// What the program asks of a lane.
pub(super) enum Order {
    /// Write what there is, then answer.
    Flush(SyncSender<()>),
    /// Write what there is until the deadline, answer with the summary, and end.
    Close(Instant, SyncSender<Phases>),
}

/// The thread's end of a lane.
pub(super) struct Lane<S: Source> {
    intake: Intake<S>,
    orders: Orders,
    sink: Sink,
    tally: Arc<Tally>,
    trouble: Trouble,
    /// Attempts that reached nobody since the program wants to end.
    last_attempts: u32,
}

impl<S: Source> Lane<S> {
    pub(super) fn new(
        signal: Signal,
        records: S,
        orders: mpsc::UnboundedReceiver<Order>,
        exporter: Exporter,
        tally: Arc<Tally>,
        room: Arc<Room>,
    ) -> Self {
        let Exporter { encoder, sink } = exporter;
        Self {
            intake: Intake::new(records, encoder, sink.linger(), room),
            orders: Orders { queue: orders, flushes: Vec::new(), close: None },
            sink,
            tally,
            trouble: Trouble::new(signal),
            last_attempts: 0,
        }
    }

    pub(super) async fn run(mut self) {
        while self.orders.close.is_none() {
            tokio::select! {
                biased;
                () = self.orders.arrival() => self.flush().await,
                body = self.intake.body() => match body {
                    Some(body) => {
                        self.deliver(body).await;
                        self.flush().await;
                    }
                    // The program's end is gone without an order.
                    None => return,
                },
            }
        }
        self.intake.records.close();
        while !self.orders.is_over()
            && let Some(body) = self.intake.body().await
        {
            self.deliver(body).await;
        }
        self.intake.give_up();
        if let Some((_, answer)) = self.orders.close {
            // Whoever asked may have gone when the deadline passed.
            let _gone = answer.send(self.intake.phases);
        }
    }

    /// Writes what there is, if somebody waits for that.
    async fn flush(&mut self) {
        while !self.orders.flushes.is_empty() {
            let answers = std::mem::take(&mut self.orders.flushes);
            for _ in 0..self.intake.all() {
                if let Some(body) = self.intake.body().await {
                    self.deliver(body).await;
                }
            }
            for answer in answers {
                let _gone = answer.send(());
            }
        }
    }

    /// Brings a body to its place, trying again while there is hope, and counts what became of it.
    async fn deliver(&mut self, body: Body) {
        let mut patience = Patience::new(Instant::now());
        // What becomes of it if there is no attempt any more: it stays pending, as long as none was made.
        let mut otherwise: Option<Became> = None;
        let became = loop {
            match self.orders.unless_over(self.sink.write(&body), self.intake.go_on()).await {
                Attempt::NotMade => break otherwise,
                Attempt::CutOff => break Some(IN_DOUBT),
                Attempt::Made(Ok(written)) => {
                    self.arrived(&body, &written);
                    break None;
                }
                Attempt::Made(Err(Failure { cause, retry })) => {
                    self.trouble.begins(&cause);
                    otherwise = (retry == Retry::Unanswered).then_some(IN_DOUBT);
                    match self.next_pause(&mut patience, retry) {
                        Some(pause) => {
                            let is_asked_for = matches!(retry, Retry::After(_));
                            self.orders.pause(pause, is_asked_for, self.intake.go_on()).await;
                        }
                        None => break Some(given_up(retry)),
                    }
                }
            }
        };
        if let Some(became) = became {
            became(&self.tally).fetch_add(body.records, Ordering::AcqRel);
        }
        self.intake.room.give(body.bytes.len());
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

    /// How long to wait for the next attempt; `None` if there is to be none.
    fn next_pause(&mut self, patience: &mut Patience, retry: Retry) -> Option<Duration> {
        let is_closing = self.orders.close.is_some();
        if is_closing && retry == Retry::Unreachable {
            self.last_attempts += 1;
        }
        match self.last_attempts {
            LAST_ATTEMPTS.. => None,
            _ => patience.pause(Instant::now(), retry, is_closing),
        }
    }
}

/// What became of a body, as the count of it.
type Became = fn(&Tally) -> &AtomicU64;

const IN_DOUBT: Became = |tally| &tally.in_doubt;

/// What became of a body that is not tried again.
fn given_up(retry: Retry) -> Became {
    match retry {
        Retry::Refused => |tally| &tally.rejected,
        Retry::Unanswered => IN_DOUBT,
        Retry::Never | Retry::Unreachable | Retry::Later | Retry::After(_) => |tally| &tally.failed,
    }
}

/// An attempt to write a body.
enum Attempt<R> {
    Made(R),
    /// The deadline of a shutdown had passed.
    NotMade,
    /// The deadline passed before it was done.
    CutOff,
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
        self.deadline().is_some_and(|deadline| deadline <= Instant::now())
    }

    /// When a shutdown has to be done, if there is one.
    fn deadline(&self) -> Option<Instant> {
        self.close.as_ref().map(|(deadline, _)| *deadline)
    }

    /// Does `work`, unless the deadline of a shutdown passes before it is done; `meanwhile` goes on beside it.
    async fn unless_over<R>(
        &mut self,
        work: impl Future<Output = R>,
        meanwhile: impl Future<Output = ()>,
    ) -> Attempt<R> {
        tokio::pin!(work, meanwhile);
        let mut was_begun = false;
        loop {
            let deadline = self.deadline();
            // An attempt that would be cut off at once is not begun.
            if self.is_over() {
                return if was_begun { Attempt::CutOff } else { Attempt::NotMade };
            }
            was_begun = true;
            tokio::select! {
                biased;
                out = &mut work => return Attempt::Made(out),
                () = self.arrival(), if deadline.is_none() => {}
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
                () = &mut meanwhile => {}
            }
        }
    }

    /// Waits, but not longer than the program does. Whoever flushes or shuts down wants another attempt at
    /// once, and gets it unless the receiver asked for the pause.
    async fn pause(&mut self, pause: Duration, is_asked_for: bool, meanwhile: impl Future<Output = ()>) {
        let until = Instant::now() + pause;
        tokio::pin!(meanwhile);
        loop {
            let deadline = self.deadline();
            tokio::select! {
                () = sleep_until(deadline.map_or(until, |deadline| until.min(deadline))) => return,
                () = self.arrival(), if deadline.is_none() => if !is_asked_for {
                    return;
                },
                () = &mut meanwhile => {}
            }
        }
    }
}
