//! What does a thread keep for the calls that it makes? Memory that is used again, and which shard of the table is its
//! own.

use std::cell::RefCell;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU8, Ordering};

use opentelemetry::Context;

use super::Open;
use super::record::Record;
use crate::ids::Ids;

/// So many calls of a thread are open at once, rarely more.
const MOST: usize = 64;

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local::new());
}

#[expect(clippy::vec_box, reason = "what is kept is the memory of the boxes")]
struct Local {
    shard: u8,
    ids: Ids,
    records: Vec<Box<Record>>,
    calls: Vec<Box<Open>>,
}

impl Local {
    fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        // Of the variables of a thread the one that was used first is the last to be dropped. So as long as this one is
        // there, the current context is, too.
        let _is_there = catch_unwind(|| Context::map_current(|_| ()));
        Self {
            shard: NEXT.fetch_add(1, Ordering::Relaxed),
            ids: Ids::new(),
            records: Vec::new(),
            calls: Vec::new(),
        }
    }
}

/// Looks at what this thread keeps; `None` if it is ending. As long as it is not, there is a current context.
#[inline]
fn local<R>(look: impl FnOnce(&mut Local) -> R) -> Option<R> {
    LOCAL.try_with(|local| local.try_borrow_mut().ok().map(|mut local| look(&mut local))).ok().flatten()
}

/// An empty record with an id, and a shard to be put into; `None` if the thread is ending.
pub(super) fn record() -> Option<Box<Record>> {
    local(|local| {
        let mut record = local.records.pop().unwrap_or_else(Record::new);
        record.home = local.shard;
        record.facts.id = local.ids.span();
        record
    })
}

/// Keeps an empty record.
pub(super) fn keep(record: Box<Record>) {
    local(|local| {
        if local.records.len() < MOST {
            local.records.push(record);
        }
    });
}

/// A place for a call that goes from poll to poll.
pub(super) fn boxed(open: Open) -> Box<Open> {
    match local(|local| local.calls.pop()).flatten() {
        Some(mut place) => {
            *place = open;
            place
        }
        None => Box::new(open),
    }
}

/// Keeps the place of a call that has ended.
pub(super) fn keep_call(mut open: Box<Open>) {
    open.forget();
    local(|local| {
        if local.calls.len() < MOST {
            local.calls.push(open);
        }
    });
}

/// The shard of this thread.
pub(super) fn shard() -> usize {
    local(|local| local.shard).unwrap_or_default().into()
}
