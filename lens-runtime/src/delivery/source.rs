//! From where does a lane get its records?

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Notify, mpsc};

use super::item::Item;
use super::room::Room;
use super::tail::Tail;
use crate::clock;
use crate::sampling::Steps;
use crate::span::{Ended, Outlet, TableRef};

/// Where the records of a lane come from.
pub(super) trait Source {
    type Item: Item;

    /// Waits for records, and takes some. How many; none if there will be none any more.
    async fn take(&mut self, into: &mut Vec<Self::Item>, most: usize) -> usize;

    /// Takes some of those that are there.
    fn take_ready(&mut self, into: &mut Vec<Self::Item>, most: usize) -> usize;

    /// How many are there.
    fn waiting(&self) -> usize;

    /// No more are let in.
    fn close(&mut self);
}

/// A queue.
impl<T: Item> Source for mpsc::UnboundedReceiver<T> {
    type Item = T;

    async fn take(&mut self, into: &mut Vec<T>, most: usize) -> usize {
        self.recv_many(into, most).await
    }

    fn take_ready(&mut self, into: &mut Vec<T>, most: usize) -> usize {
        let before = into.len();
        into.extend(std::iter::from_fn(|| self.try_recv().ok()).take(most));
        into.len() - before
    }

    fn waiting(&self) -> usize {
        self.len()
    }

    fn close(&mut self) {
        self.close();
    }
}

/// The process's table of spans, of which those that ended are looked for now and then: to tell of each would cost the
/// program more than the span.
pub(super) struct SpanSource {
    era: u64,
    desk: Arc<Desk>,
    /// Ends with the program's end of the delivery.
    program: mpsc::UnboundedReceiver<Infallible>,
    is_closed: bool,
    /// If only some of the steps are kept, which is decided later.
    tail: Option<Tail>,
}

impl SpanSource {
    pub(super) fn new(
        era: u64,
        desk: Arc<Desk>,
        program: mpsc::UnboundedReceiver<Infallible>,
        steps: &Steps,
    ) -> Self {
        let tail = match steps {
            Steps::Slowest { keep, of } => Some(Tail::new(*keep, *of)),
            Steps::All | Steps::Every(_) | Steps::Listed(_) => None,
        };
        Self { era, desk, program, is_closed: false, tail }
    }
}

/// Where the table asks for room, and tells that there are spans.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) room: Arc<Room>,
    is_closed: AtomicBool,
    arrival: Notify,
    /// Spans of steps that were not among the slowest.
    left_out: AtomicU64,
}

/// A shard of the table takes so much room at once, or a part of a small room, and asks less often.
const AT_ONCE: usize = 32 << 10;
const PARTS: usize = 256;

impl Desk {
    pub(super) fn new(room: Arc<Room>) -> Self {
        Self { room, is_closed: AtomicBool::new(false), arrival: Notify::new(), left_out: AtomicU64::new(0) }
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Acquire)
    }
}

impl Outlet for Desk {
    fn room(&self, bytes: usize) -> usize {
        if self.is_closed.load(Ordering::Acquire) {
            return 0;
        }
        let more = bytes.max(AT_ONCE.min(self.room.limit() / PARTS));
        [more, bytes].into_iter().find(|bytes| self.room.take(*bytes, Ended::MAY_FILL)).unwrap_or_default()
    }

    fn give_back(&self, bytes: usize) {
        self.room.give(bytes);
    }

    fn wake(&self) {
        self.arrival.notify_one();
    }
}

impl Source for SpanSource {
    type Item = Ended;

    async fn take(&mut self, into: &mut Vec<Ended>, most: usize) -> usize {
        loop {
            let taken = self.take_ready(into, most);
            if taken > 0 || self.is_closed {
                return taken;
            }
            // As long as some wait for company, it is known when to look for more.
            if into.is_empty() && !TableRef::default().sleep() {
                continue;
            }
            tokio::select! {
                () = self.desk.arrival.notified() => {}
                gone = self.program.recv() => if gone.is_none() {
                    self.close();
                },
            }
        }
    }

    fn take_ready(&mut self, into: &mut Vec<Ended>, most: usize) -> usize {
        clock::follow();
        let Some(tail) = &mut self.tail else {
            return TableRef::default().take(self.era, into, most);
        };
        let before = into.len();
        let mut ended = Vec::new();
        while into.len() == before {
            if TableRef::default().take(self.era, &mut ended, most) == 0 {
                if self.is_closed {
                    tail.give_up(into);
                }
                break;
            }
            tail.pass(&mut ended, into);
        }
        self.desk.left_out.fetch_add(tail.take_left_out(), Ordering::AcqRel);
        into.len() - before
    }

    fn waiting(&self) -> usize {
        TableRef::default().waiting()
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.desk.is_closed.store(true, Ordering::Release);
    }
}
