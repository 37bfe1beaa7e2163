//! What became of what the program made?

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What became of the records of one signal. For metrics a record is one data point.
///
/// Every number counts from init; `made` is the sum of the others and of what is
/// [`pending`](Self::pending).
///
/// ```
/// use lens_runtime::Counts;
///
/// let counts =
///     Counts { made: 10, exported: 5, rejected: 1, failed: 1, refused: 1, in_doubt: 1, left_out: 90 };
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
    /// Records that found no room (`queue_mib`), or the delivery closed.
    pub refused: u64,
    /// Records that were sent and not answered, in time or at all. The receiver may have them.
    pub in_doubt: u64,
    /// Spans of annotated calls that were asked for and left out, by a sampler, by a share (`group@0.1`) or because
    /// of their step. They are none of those that were made.
    pub left_out: u64,
}

impl Counts {
    /// Records that are still waiting or on their way. After a shutdown, those that were left behind.
    pub const fn pending(&self) -> u64 {
        self.made.saturating_sub(self.exported + self.lost() + self.in_doubt)
    }

    /// Records that will not arrive.
    pub const fn lost(&self) -> u64 {
        self.rejected + self.failed + self.refused
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) made: AtomicU64,
    pub(super) exported: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) in_doubt: AtomicU64,
}

impl Tally {
    pub(super) fn read(&self) -> Counts {
        // What became of records is read before how many there were, so that a record in between
        // is pending and never negative.
        let exported = self.exported.load(Ordering::Acquire);
        let rejected = self.rejected.load(Ordering::Acquire);
        let failed = self.failed.load(Ordering::Acquire);
        let refused = self.refused.load(Ordering::Acquire);
        let in_doubt = self.in_doubt.load(Ordering::Acquire);
        Counts {
            made: self.made.load(Ordering::Acquire),
            exported,
            rejected,
            failed,
            refused,
            in_doubt,
            left_out: 0,
        }
    }
}

/// How many spans have begun and not ended, whoever began them, until that is asked for; negative from then on.
#[derive(Debug, Default)]
pub(super) struct OpenCount(AtomicI64);

impl OpenCount {
    pub(super) fn begins(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the span still counts as one that ended.
    pub(super) fn ends(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) > 0
    }

    /// Those that are open. Whatever ends later is one of them.
    pub(super) fn close(&self) -> u64 {
        u64::try_from(self.0.swap(i64::MIN / 2, Ordering::AcqRel)).unwrap_or_default()
    }
}
