//! What does a thread keep for the calls that it makes? Memory that is used again, and which shard of the table is its
//! own.

use std::cell::RefCell;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU8, Ordering};

use opentelemetry::{Context, ContextGuard};

use super::{NOWHERE, Open};
use crate::ids::Ids;

/// So many calls of a thread are open at once, rarely more.
const MOST: usize = 64;

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local::new());
}

struct Local {
    shard: u8,
    ids: Ids,
    #[expect(clippy::vec_box, reason = "what is kept is the memory of the boxes")]
    calls: Vec<Box<Open>>,
    /// Of the scopes of this thread, so that a scope is no more than a pointer: what is off has less to look at.
    attached: Vec<Option<ContextGuard>>,
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
            calls: Vec::new(),
            attached: Vec::new(),
        }
    }
}

/// Looks at what this thread keeps; `None` if it is ending. As long as it is not, there is a current context.
#[inline]
fn local<R>(look: impl FnOnce(&mut Local) -> R) -> Option<R> {
    LOCAL.try_with(|local| local.try_borrow_mut().ok().map(|mut local| look(&mut local))).ok().flatten()
}

/// A call, of which nothing is known but an id and the shard that it is put into; `None` if the thread is ending.
#[inline]
pub(super) fn call() -> Option<Box<Open>> {
    local(|local| {
        let mut call = local.calls.pop().unwrap_or_else(Open::new);
        let record = call.record();
        record.home = local.shard;
        record.facts.id = local.ids.span();
        call
    })
}

/// Keeps a call of which nothing is known any more.
#[inline]
pub(super) fn keep(call: Box<Open>) {
    local(|local| {
        if local.calls.len() < MOST {
            local.calls.push(call);
        }
    });
}

/// Makes a context the current one of this thread; with the place by which it is detached.
#[inline]
pub(super) fn attach(context: Context) -> usize {
    let attached = context.attach();
    let place = local(|local| {
        local.attached.push(Some(attached));
        local.attached.len() - 1
    });
    place.unwrap_or(NOWHERE)
}

#[inline]
pub(super) fn detach(place: usize) {
    let attached = local(|local| {
        let attached = local.attached.get_mut(place).and_then(Option::take);
        // Scopes may be dropped in any order: a place is given up when all that were made after it are.
        while let Some(None) = local.attached.last() {
            local.attached.pop();
        }
        attached
    });
    // What lies in the context may be the program's, and make spans when it is dropped.
    drop(attached);
}

/// The shard of this thread.
pub(super) fn shard() -> usize {
    local(|local| local.shard).unwrap_or_default().into()
}
