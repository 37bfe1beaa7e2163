//! How long is a body offered to a receiver that does not take it?

use std::time::Duration;

use tokio::time::Instant;

use crate::export::Retry;

/// The longest that a batch is offered to a receiver that might take it later. Its successors wait.
const RETRY_FOR: Duration = Duration::from_secs(300);

/// The pause after the first failed attempt. It doubles with each, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Attempts to reach a receiver at which nobody listens, once the program wants to end; afterwards one for
/// each body.
pub(super) const LAST_ATTEMPTS: u32 = 3;

/// How long a body is tried.
pub(super) struct Patience {
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
    pub(super) fn pause(&mut self, retry: Retry, is_closing: bool) -> Option<Duration> {
        let asked = match retry {
            Retry::Never | Retry::Refused => return None,
            Retry::Unreachable | Retry::Unanswered | Retry::Later => Duration::ZERO,
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
