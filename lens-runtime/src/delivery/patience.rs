//! How long is a body offered to a receiver that does not take it?

use std::time::Duration;

use tokio::time::Instant;

use crate::export::Retry;

/// The longest that a batch is offered to a receiver that answers and does not take it. Its successors wait, and it
/// may be the batch that the receiver fails at. Where nobody answers at all, another batch would fare no better, and it
/// is offered for as long as the program runs: what finds no room behind it is refused.
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

impl Patience {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, next: FIRST_PAUSE, was_closing: false }
    }

    /// How long to wait after an attempt that failed just now; `None` if there is to be no other.
    pub(super) fn pause(&mut self, now: Instant, retry: Retry, is_closing: bool) -> Option<Duration> {
        let asked = match retry {
            Retry::Never | Retry::Refused => return None,
            Retry::Unreachable | Retry::Unanswered | Retry::Later => Duration::ZERO,
            Retry::After(pause) => pause,
        };
        if retry == Retry::Unreachable {
            self.since = now;
        }
        if now.duration_since(self.since) >= RETRY_FOR {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a receiver that fails in this way is offered one body, on a clock that only the pauses move.
    fn offered_for(retry: Retry, at_most: Duration) -> Duration {
        let began = Instant::now();
        let mut now = began;
        let mut patience = Patience::new(now);
        while let Some(pause) = patience.pause(now, retry, false).filter(|_| now - began < at_most) {
            now += pause;
        }
        now - began
    }

    #[test]
    fn a_body_is_offered_for_five_minutes_to_a_receiver_that_answers() {
        for retry in [Retry::Later, Retry::Unanswered, Retry::After(Duration::from_secs(20))] {
            let offered = offered_for(retry, RETRY_FOR * 10);
            assert!(offered >= RETRY_FOR && offered <= RETRY_FOR + Duration::from_secs(20), "{offered:?}");
        }
    }

    #[test]
    fn a_body_is_offered_for_as_long_as_the_program_runs_where_nobody_answers() {
        let month = Duration::from_secs(30 * 24 * 3600);
        assert!(offered_for(Retry::Unreachable, month) >= month);
    }

    #[test]
    fn what_a_receiver_will_never_take_is_offered_once() {
        for retry in [Retry::Never, Retry::Refused] {
            assert_eq!(offered_for(retry, RETRY_FOR), Duration::ZERO);
        }
    }

    #[test]
    fn pauses_double_up_to_ten_seconds_and_half_of_each_is_drawn() {
        let now = Instant::now();
        let mut patience = Patience::new(now);
        let mut longest = FIRST_PAUSE;
        for _ in 0..20 {
            let pause = patience.pause(now, Retry::Later, false).unwrap_or_default();
            assert!(longest / 2 <= pause && pause <= longest, "{pause:?} of {longest:?}");
            longest = (longest * 2).min(LONGEST_PAUSE);
        }
    }
}
