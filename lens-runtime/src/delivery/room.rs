//! How much memory may records hold while they wait?

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the waiting records of all signals hold, and may hold.
#[derive(Debug)]
pub(super) struct Room {
    held: AtomicUsize,
    limit: usize,
}

impl Room {
    pub(super) fn new(limit: usize) -> Self {
        Self { held: AtomicUsize::new(0), limit }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Takes room for something new. Of the last quarter only what `may_fill` gets any, so that a burst of spans
    /// leaves some for the metrics and the log lines that tell of it.
    pub(super) fn take(&self, bytes: usize, may_fill: bool) -> bool {
        let limit = if may_fill { self.limit } else { self.limit / 4 * 3 };
        let fits = self.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= limit;
        if !fits {
            self.give(bytes);
        }
        fits
    }

    /// Takes room for what is there already in another form.
    pub(super) fn add(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}
