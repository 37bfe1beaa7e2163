//! Where are the calls that are open, and the spans that wait to be delivered?
//!
//! In one table, in shards, so that threads rarely wait for one another: a call's record is put into its shard when
//! the call begins, and is moved behind those that ended when it ends. Nobody else runs while a shard is locked, no
//! code of the program's above all.
//!
//! A span is exported when it ends, so that of one which lasts as long as the run nobody would know before, and of
//! a run that is killed never: its children would have no parent. So those that have been open for a while are
//! announced, and those that are open at a shutdown are ended by it.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::logs::{AnyValue, LogRecord as _, Logger, Severity};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _};
use opentelemetry_sdk::trace::{SpanData, SpanLimits};
use slab::Slab;

use super::ended::{Chunk, End, Ended, Fate, bytes, bytes_of_foreign};
use super::handle::Found;
use super::local;
use super::record::Record;
use crate::{process, semconv};

/// Threads that begin and end spans at once rarely wait for one another.
const SHARDS: usize = 16;

/// So many spans of a shard do not wait until it is time to look for them.
const MANY: usize = 512;

/// How many empty chunks a shard keeps, to be used again.
const SPARE: usize = 4;

/// Which table? That of the process, or a test's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableRef(Option<Arc<Table>>);

impl TableRef {
    /// A table of its own, of which everything that ends is kept until it is taken.
    pub(crate) fn of_test() -> Self {
        let table = Table::new();
        table.open(0, None, SpanLimits::default(), None);
        Self(Some(Arc::new(table)))
    }
}

impl Deref for TableRef {
    type Target = Table;

    fn deref(&self) -> &Table {
        match &self.0 {
            Some(table) => table,
            None => of_process(),
        }
    }
}

/// The table of this process: another one in a process that was forked, since a thread that is not in it may have
/// held a lock.
fn of_process() -> &'static Table {
    struct Link {
        table: Table,
        next: OnceLock<Box<Link>>,
    }
    impl Link {
        const fn new() -> Self {
            Self { table: Table::new(), next: OnceLock::new() }
        }
    }
    static FIRST: Link = Link::new();
    let mut link = &FIRST;
    for _ in 0..process::generation() {
        link = link.next.get_or_init(|| Box::new(Link::new()));
    }
    &link.table
}

pub(crate) struct Table {
    shards: [Mutex<Shard>; SHARDS],
    /// Whether whoever takes the spans does not look for any, and wants to be told of the next one.
    is_asleep: AtomicBool,
    longest_text: AtomicUsize,
    /// Within which call the open spans of others are.
    strangers: Mutex<Option<HashMap<SpanId, Found>>>,
}

struct Shard {
    /// Of which telemetry its spans are.
    era: u64,
    /// Where the spans go that end; before and after telemetry nowhere, and none begin.
    exit: Option<Arc<dyn Outlet>>,
    limits: Option<SpanLimits>,
    open: Slab<Box<Record>>,
    ended: VecDeque<Chunk>,
    waiting: usize,
    spare: Vec<Chunk>,
    made: u64,
    refused: u64,
    left_out: u64,
    /// Room that was taken and not used yet.
    room: usize,
}

/// Who takes spans that ended, and says for how many there is room.
pub(crate) trait Outlet: Send + Sync {
    /// Takes room for so many bytes, or more, and says how many that are; none if there is no room.
    fn room(&self, bytes: usize) -> usize;
    /// Gives room back.
    fn give_back(&self, bytes: usize);
    /// There is something to be taken.
    fn wake(&self);
}

/// A place in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    shard: u32,
    key: u32,
    /// Which of the calls that had this place.
    id: SpanId,
}

impl Default for Ticket {
    /// That of nobody.
    fn default() -> Self {
        Self { shard: 0, key: 0, id: SpanId::INVALID }
    }
}

/// What became of a call that ended.
pub(super) enum Closed {
    /// It was ended already.
    Gone,
    /// It is where it belongs. Its record is empty.
    Done(Box<Record>),
    /// There is more to say about it: it has to be handed in.
    Taken(Box<Record>),
}

/// How many spans there were.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandedIn {
    pub(crate) made: u64,
    pub(crate) refused: u64,
    pub(crate) left_out: u64,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Table")
    }
}

impl Table {
    const fn new() -> Self {
        Self {
            shards: [const { Mutex::new(Shard::new()) }; SHARDS],
            is_asleep: AtomicBool::new(true),
            longest_text: AtomicUsize::new(usize::MAX),
            strangers: Mutex::new(None),
        }
    }

    /// Spans may begin from here on. What another telemetry left behind is gone.
    pub(crate) fn open(
        &self,
        era: u64,
        exit: Option<&Arc<dyn Outlet>>,
        limits: SpanLimits,
        longest_text: Option<usize>,
    ) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let spare = std::mem::take(&mut shard.spare);
            let new = Shard { era, exit: exit.cloned(), limits: Some(limits), spare, ..Shard::new() };
            let before = std::mem::replace(&mut *shard, new);
            drop(shard);
            // What lies in contexts may be the program's, and make spans.
            drop(before);
        }
        self.is_asleep.store(true, Ordering::Release);
        self.longest_text.store(longest_text.unwrap_or(usize::MAX), Ordering::Release);
        *lock(&self.strangers) = None;
    }

    /// How many characters of a text are kept.
    pub(crate) fn longest_text(&self) -> usize {
        self.longest_text.load(Ordering::Acquire)
    }

    /// No span begins any more.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            lock(shard).limits = None;
        }
    }

    /// Puts the record of a call that begins into its place; `None` if telemetry is at its end.
    #[inline]
    pub(super) fn begin(&self, mut record: Box<Record>) -> Option<Ticket> {
        let number = usize::from(record.home) % SHARDS;
        let mut shard = lock(&self.shards[number]);
        let limits = shard.limits.as_ref()?;
        record.limit(limits);
        let id = record.facts.id;
        // There are few shards, and no memory for more calls than the numbers are for.
        #[expect(clippy::cast_possible_truncation, reason = "see above")]
        {
            let key = shard.open.insert(record);
            Some(Ticket { shard: number as u32, key: key as u32, id })
        }
    }

    /// Looks at an open call.
    pub(super) fn look<R>(
        &self,
        ticket: &Ticket,
        look: impl FnOnce(&mut Record, &SpanLimits) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(ticket);
        let limits = shard.limits.unwrap_or_default();
        shard.find(ticket).map(|record| look(record, &limits))
    }

    /// Ends a call; `finish` says whether it is taken out instead, because there is more to say.
    pub(super) fn end(&self, ticket: &Ticket, finish: impl FnOnce(&mut Record) -> bool) -> Closed {
        let mut shard = self.shard(ticket);
        if shard.find(ticket).is_none() {
            return Closed::Gone;
        }
        let mut record = shard.open.remove(ticket.key as usize);
        if finish(&mut record) {
            return Closed::Taken(record);
        }
        shard.hand_in(&mut record);
        self.tell(shard);
        record.clear();
        Closed::Done(record)
    }

    /// Hands in what is known of a call that was taken out.
    pub(super) fn hand_in(&self, ticket: &Ticket, record: &mut Record) {
        let mut shard = self.shard(ticket);
        shard.hand_in(record);
        self.tell(shard);
    }

    /// Takes a call back, as if it had not begun.
    pub(super) fn discard(&self, ticket: &Ticket) -> Option<Box<Record>> {
        let mut shard = self.shard(ticket);
        shard.find(ticket)?;
        let mut record = shard.open.remove(ticket.key as usize);
        drop(shard);
        record.clear();
        Some(record)
    }

    /// Takes a span in that others made, and that has ended.
    pub(crate) fn hand_in_foreign(&self, span: SpanData) {
        let step = self.remove_stranger(span.span_context.span_id());
        let mut shard = lock(&self.shards[local::shard() % SHARDS]);
        match span.span_context.is_sampled() {
            true => {
                shard.made += 1;
                let bytes = bytes_of_foreign(&span);
                if let Some(chunk) = shard.chunk(bytes) {
                    chunk.push_foreign(span, step);
                } else {
                    shard.refused += 1;
                }
            }
            false => shard.left_out += 1,
        }
        self.tell(shard);
    }

    /// Tells whoever takes the spans, where that is necessary.
    fn tell(&self, shard: MutexGuard<'_, Shard>) {
        let waiting = shard.waiting;
        if waiting > 0 && (waiting.is_multiple_of(MANY) || self.is_asleep.load(Ordering::Acquire)) {
            let exit = shard.exit.clone();
            drop(shard);
            if let Some(exit) = exit
                && (self.is_asleep.swap(false, Ordering::AcqRel) || waiting.is_multiple_of(MANY))
            {
                exit.wake();
            }
        }
    }

    /// Takes some of the spans of a telemetry that ended, about `most`, and says how many.
    pub(crate) fn take(&self, era: u64, into: &mut Vec<Ended>, most: usize) -> usize {
        let before = into.len();
        for shard in &self.shards {
            while into.len() - before < most {
                // The lock is not held while spans are made of it.
                let taken = lock(shard).take(era);
                let Some(mut chunk) = taken else { break };
                chunk.take(into);
                lock(shard).keep(chunk);
            }
        }
        into.len() - before
    }

    /// How many spans wait to be taken.
    pub(crate) fn waiting(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).waiting).sum()
    }

    /// Whoever takes the spans goes to sleep, and is told of the next one; not if there are some, of which it says so.
    pub(crate) fn sleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::Release);
        // Who hands one in from here on sees it, for both hold the lock of the shard.
        let may_sleep = self.waiting() == 0;
        if !may_sleep {
            self.is_asleep.store(false, Ordering::Release);
        }
        may_sleep
    }

    /// How many spans of a telemetry there were.
    pub(crate) fn made(&self, era: u64) -> HandedIn {
        self.shards.iter().map(lock).filter(|shard| shard.era == era).fold(
            HandedIn::default(),
            |sum, shard| HandedIn {
                made: sum.made + shard.made,
                refused: sum.refused + shard.refused,
                left_out: sum.left_out + shard.left_out,
            },
        )
    }

    /// Ends the calls that are open, those that began last first.
    pub(crate) fn end_all(&self, reason: &'static str) {
        let mut open: Vec<_> =
            self.shards.iter().flat_map(|shard| lock(shard).open.drain().collect::<Vec<_>>()).collect();
        open.sort_by_key(|record| Reverse(record.facts.began));
        let now = Instant::now();
        for mut record in open {
            if record.facts.end == End::Open {
                record.facts.end = End::At(now);
                record.extras().truncated = Some(reason);
            }
            // What was counted of a model that is still at work.
            record.hear();
            record.end_of_sdk();
            lock(&self.shards[0]).hand_in(&mut record);
        }
        self.tell(lock(&self.shards[0]));
    }

    /// Announces, once each, the spans that have been open for as long as this, parents first.
    pub(crate) fn announce(&self, for_at_least: Duration, logger: &impl Logger) {
        let due = |record: &mut Record| {
            let is_due =
                !record.is_announced && record.is_span() && record.facts.began.elapsed() >= for_at_least;
            record.is_announced |= is_due;
            is_due.then(|| LongOpen::of(record))
        };
        let mut long: Vec<_> = self
            .shards
            .iter()
            .flat_map(|shard| {
                lock(shard).open.iter_mut().filter_map(|(_, record)| due(record)).collect::<Vec<_>>()
            })
            .collect();
        long.sort_by_key(|span| span.began);
        for span in long {
            span.tell(logger);
        }
    }

    /// A span of somebody else's begins within a call.
    pub(super) fn add_stranger(&self, id: SpanId, within: Found) {
        lock(&self.strangers).get_or_insert_default().insert(id, within);
    }

    pub(super) fn stranger(&self, id: SpanId) -> Option<Found> {
        lock(&self.strangers).as_ref()?.get(&id).cloned()
    }

    /// It ends. The step of the call, if that is open.
    fn remove_stranger(&self, id: SpanId) -> Option<u64> {
        let within = lock(&self.strangers).as_mut().and_then(|strangers| strangers.remove(&id))?;
        within.table.look(&within.ticket, |record, _| record.facts.step).flatten()
    }

    fn shard(&self, ticket: &Ticket) -> MutexGuard<'_, Shard> {
        lock(&self.shards[ticket.shard as usize % SHARDS])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    const fn new() -> Self {
        Self {
            era: 0,
            exit: None,
            limits: None,
            open: Slab::new(),
            ended: VecDeque::new(),
            waiting: 0,
            spare: Vec::new(),
            made: 0,
            refused: 0,
            left_out: 0,
            room: 0,
        }
    }

    fn find(&mut self, ticket: &Ticket) -> Option<&mut Record> {
        self.open
            .get_mut(ticket.key as usize)
            .filter(|record| record.facts.id == ticket.id)
            .map(|record| &mut **record)
    }

    /// Keeps what is known of a call that ended for whoever takes it, if that is a matter of anybody's.
    fn hand_in(&mut self, record: &mut Record) {
        let is_exported = record.facts.is_exported();
        match (is_exported, record.facts.fate) {
            (true, _) => self.made += 1,
            (false, Fate::Kept | Fate::LeftOut) => self.left_out += 1,
            (false, Fate::None) => return,
        }
        let bytes = bytes(&record.attributes, record.extras.as_deref());
        match self.chunk(bytes) {
            Some(chunk) => {
                let extras = record.extras.take();
                chunk.push(&record.facts, &mut record.attributes, extras, bytes);
            }
            None => self.refused += u64::from(is_exported),
        }
    }

    /// Where there is place for another call, if there is room for what it holds.
    fn chunk(&mut self, bytes: usize) -> Option<&mut Chunk> {
        if let Some(exit) = &self.exit {
            if self.room < bytes {
                self.room += exit.room(bytes);
            }
            self.room = self.room.checked_sub(bytes)?;
        }
        if self.ended.back().is_none_or(Chunk::is_full) {
            self.ended.push_back(self.spare.pop().unwrap_or_default());
        }
        self.waiting += 1;
        self.ended.back_mut()
    }

    /// Takes the oldest of what ended, if it is of this telemetry.
    fn take(&mut self, era: u64) -> Option<Chunk> {
        if self.era != era {
            return None;
        }
        let chunk = self.ended.pop_front()?;
        self.waiting -= chunk.len();
        if let (0, Some(exit)) = (self.waiting, &self.exit) {
            exit.give_back(std::mem::take(&mut self.room));
        }
        Some(chunk)
    }

    /// Keeps an empty chunk.
    fn keep(&mut self, chunk: Chunk) {
        if self.spare.len() < SPARE {
            self.spare.push(chunk);
        }
    }
}

/// What is announced of a span that has been open for long.
struct LongOpen {
    span: SpanContext,
    parent: SpanId,
    name: String,
    group: &'static str,
    began: Instant,
    began_at: SystemTime,
    step: Option<u64>,
}

impl LongOpen {
    fn of(record: &Record) -> Self {
        Self {
            span: match &record.of_sdk {
                Some(context) => context.span().span_context().clone(),
                None => record.span(),
            },
            parent: record.facts.parent,
            name: record.name().to_owned(),
            group: record.facts.group.name(),
            began: record.facts.began,
            began_at: record.facts.started_at(record.extras.as_deref()),
            step: record.facts.step,
        }
    }

    fn tell(self, logger: &impl Logger) {
        let mut record = logger.create_log_record();
        record.set_event_name(semconv::SPAN_OPEN_EVENT);
        record.set_timestamp(SystemTime::now());
        record.set_severity_number(Severity::Info);
        record.set_severity_text("INFO");
        record.set_trace_context(self.span.trace_id(), self.span.span_id(), Some(self.span.trace_flags()));
        record.add_attribute(semconv::PHASE, self.name);
        record.add_attribute(semconv::GROUP, self.group);
        let began_at = self.began_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let nanos = i64::try_from(began_at.as_nanos()).unwrap_or(i64::MAX);
        record.add_attribute(semconv::SPAN_START, nanos);
        if self.parent != SpanId::INVALID {
            record.add_attribute(semconv::SPAN_PARENT, self.parent.to_string());
        }
        if let Some(number) = self.step {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            record.add_attribute(semconv::ITERATION, AnyValue::Int(number));
        }
        logger.emit(record);
    }
}
