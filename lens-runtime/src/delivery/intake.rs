//! How do records become bodies?
//!
//! As they come, also while a body is on its way: what is encoded takes less room than what is not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::item::Item;
use super::room::Room;
use super::source::Source;
use crate::export::{Body, Encoder};
use crate::summary::Phases;

/// Records of a body, about. A large record may be one by itself.
const BATCH: usize = 1024;

/// The records of a lane, until they are bodies that wait to be delivered.
pub(super) struct Intake<S: Source> {
    pub(super) records: S,
    pub(super) encoder: Encoder,
    pub(super) room: Arc<Room>,
    pub(super) phases: Phases,
    batch: Vec<S::Item>,
    /// When the batch becomes a body though it is not full: none is waiting for company for long.
    encode_at: Instant,
    linger: Duration,
    bodies: VecDeque<Body>,
}

impl<S: Source> Intake<S> {
    pub(super) fn new(records: S, encoder: Encoder, linger: Duration, room: Arc<Room>) -> Self {
        Self {
            records,
            encoder,
            room,
            phases: Phases::default(),
            batch: Vec::new(),
            encode_at: Instant::now(),
            linger,
            bodies: VecDeque::new(),
        }
    }

    /// Waits until there is a body; `None` if there will be none any more.
    pub(super) async fn body(&mut self) -> Option<Body> {
        loop {
            if let Some(body) = self.bodies.pop_front() {
                return Some(body);
            }
            tokio::select! {
                biased;
                () = sleep_until(self.encode_at), if !self.batch.is_empty() => {
                    let room = BATCH.saturating_sub(self.batch.len());
                    self.records.take_ready(&mut self.batch, room);
                    self.encode();
                }
                taken = self.take() => if taken == 0 {
                    self.encode();
                    return self.bodies.pop_front();
                },
            }
        }
    }

    /// Takes records as they come, and never ends. For the time in which no other body can leave, so that only
    /// batches that are full become one.
    pub(super) async fn go_on(&mut self) {
        while self.take().await > 0 {}
        std::future::pending::<()>().await;
    }

    /// Takes what there is now. The number of bodies that wait.
    pub(super) fn all(&mut self) -> usize {
        // What others add meanwhile is not part of it, or it might never end.
        let mut waiting = self.records.waiting();
        while waiting > 0 {
            let room = BATCH.saturating_sub(self.batch.len());
            match self.records.take_ready(&mut self.batch, room) {
                0 => break,
                taken => waiting = waiting.saturating_sub(taken),
            }
            if self.batch.len() >= BATCH {
                self.encode();
            }
        }
        self.encode();
        self.bodies.len()
    }

    /// No records will come; those that are there are looked at and not made bodies of.
    pub(super) fn give_up(&mut self) {
        loop {
            for item in std::mem::take(&mut self.batch) {
                item.sum_up(&mut self.phases);
            }
            if self.records.take_ready(&mut self.batch, BATCH) == 0 {
                break;
            }
        }
        self.bodies.clear();
    }

    /// Takes some records, and says how many; none if there will be none any more.
    async fn take(&mut self) -> usize {
        let before = self.batch.len();
        let taken = self.records.take(&mut self.batch, BATCH - before).await;
        if before == 0 {
            self.encode_at = Instant::now() + self.linger;
        }
        if self.batch.len() >= BATCH {
            self.encode();
        }
        taken
    }

    fn encode(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        let held = batch.iter().map(Item::bytes).sum();
        for body in S::Item::encode(batch, &self.encoder, &mut self.phases) {
            self.room.add(body.bytes.len());
            self.bodies.push_back(body);
        }
        self.room.give(held);
    }
}
