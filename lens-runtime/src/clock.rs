//! When was that? One scale of time for all spans of the process.
//!
//! A call notes readings of the steady clock, which cost little and never run backwards. What the calendar says to
//! them is for the delivery to find out, on a scale that is the same for all: were each span, or each batch, to ask
//! the wall clock for itself, then a clock that is set meanwhile would put children outside of their parents.
//!
//! The scale begins where the wall clock was and follows it from then on, slowly, so that the order of things stays
//! what it was. If the clock is ahead by more than a second, as after a suspended machine woke up, it jumps there;
//! it never jumps back.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How often it is looked where the wall clock is.
const FOLLOW_EVERY: Duration = Duration::from_secs(10);

/// A difference that is not worth following.
const SMALL: Duration = Duration::from_millis(1);

/// A lead of the wall clock beyond which the scale jumps.
const LARGE: Duration = Duration::from_secs(1);

/// How much faster or slower the scale may run to follow: 500 millionths, as a clock that is slewed by `adjtime`.
const FASTEST: f64 = 500e-6;

/// The most pieces of the scale that are remembered; one is made every ten seconds while the clocks differ.
const MOST_PIECES: usize = 4096;

/// What the wall clock says, or would say if it had not been set, to a reading of the steady clock.
pub(crate) fn wall(at: Instant) -> SystemTime {
    scale(|scale| scale.wall(at))
}

/// Follows the wall clock, if it is time for that.
pub(crate) fn follow() {
    scale(|scale| {
        let now = Instant::now();
        if now.saturating_duration_since(scale.followed) >= FOLLOW_EVERY {
            scale.follow(now, SystemTime::now());
        }
    });
}

fn scale<R>(look: impl FnOnce(&mut Scale) -> R) -> R {
    static SCALE: Mutex<Option<Scale>> = Mutex::new(None);
    let mut scale = SCALE.lock().unwrap_or_else(PoisonError::into_inner);
    look(scale.get_or_insert_with(|| Scale::new(Instant::now(), SystemTime::now())))
}

/// Pieces of a line that never falls, from the oldest to the newest.
struct Scale {
    pieces: Vec<Piece>,
    followed: Instant,
}

#[derive(Clone, Copy)]
struct Piece {
    from: Instant,
    wall: SystemTime,
    /// By how much it is faster than the steady clock.
    ahead: f64,
}

impl Piece {
    fn wall(&self, at: Instant) -> SystemTime {
        match at.checked_duration_since(self.from) {
            Some(since) => self.wall + since.mul_f64(1.0 + self.ahead),
            None => self.wall - self.from.duration_since(at),
        }
    }
}

impl Scale {
    fn new(now: Instant, wall: SystemTime) -> Self {
        Self { pieces: vec![Piece { from: now, wall, ahead: 0.0 }], followed: now }
    }

    fn wall(&self, at: Instant) -> SystemTime {
        let later = self.pieces.partition_point(|piece| piece.from <= at);
        self.pieces[later.saturating_sub(1)].wall(at)
    }

    fn follow(&mut self, now: Instant, wall: SystemTime) {
        self.followed = now;
        let own = self.wall(now);
        let piece = match wall.duration_since(own) {
            Ok(lead) if lead > LARGE => Piece { from: now, wall, ahead: 0.0 },
            Ok(lead) => Piece { from: now, wall: own, ahead: share(lead) },
            Err(lag) => Piece { from: now, wall: own, ahead: -share(lag.duration()) },
        };
        let last = self.pieces[self.pieces.len() - 1];
        let is_another = piece.ahead.to_bits() != last.ahead.to_bits() || piece.wall != own;
        if is_another {
            self.pieces.push(piece);
            if self.pieces.len() > MOST_PIECES {
                // Spans that began so long ago are put on the line that the next piece continues backwards.
                self.pieces.remove(0);
            }
        }
    }
}

/// How fast a difference is made up for: within one look, if that is not too fast.
fn share(difference: Duration) -> f64 {
    match difference <= SMALL {
        true => 0.0,
        false => (difference.as_secs_f64() / FOLLOW_EVERY.as_secs_f64()).min(FASTEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn scale() -> (Scale, Instant, SystemTime) {
        let (now, wall) = (Instant::now(), SystemTime::UNIX_EPOCH + HOUR * 1000);
        (Scale::new(now, wall), now, wall)
    }

    #[test]
    fn the_scale_is_the_wall_clock_as_long_as_nobody_sets_it() {
        let (mut scale, now, wall) = scale();
        for second in 1..100_000 {
            scale.follow(now + SECOND * second, wall + SECOND * second);
        }
        assert_eq!(scale.wall(now + HOUR), wall + HOUR);
        assert_eq!(scale.pieces.len(), 1);
    }

    #[test]
    fn fault_110_a_clock_that_is_set_back_turns_no_span_around() {
        let (mut scale, now, wall) = scale();
        scale.follow(now + SECOND * 10, wall + SECOND * 10 - HOUR);
        let (began, ended) = (scale.wall(now + SECOND * 10), scale.wall(now + SECOND * 20));
        let took = ended.duration_since(began);
        assert!(took.as_ref().is_ok_and(|took| *took > SECOND * 9 && *took < SECOND * 11), "{took:?}");
    }

    #[test]
    fn a_clock_that_was_set_a_little_is_followed_slowly_and_reached() {
        let (mut scale, now, wall) = scale();
        let set = Duration::from_millis(20);
        let mut before = scale.wall(now);
        for second in (10..200).step_by(10) {
            scale.follow(now + SECOND * second, wall + SECOND * second - set);
            let after = scale.wall(now + SECOND * second);
            assert!(after > before, "it never runs backwards");
            before = after;
        }
        let lag = scale.wall(now + SECOND * 200).duration_since(wall + SECOND * 200 - set);
        assert!(lag.as_ref().is_ok_and(|lag| *lag <= SMALL), "{lag:?}");
    }

    #[test]
    fn after_a_machine_slept_the_scale_is_where_the_wall_clock_is() {
        let (mut scale, now, wall) = scale();
        scale.follow(now + SECOND, wall + HOUR);
        assert_eq!(scale.wall(now + SECOND * 2), wall + HOUR + SECOND);
        assert_eq!(scale.wall(now), wall, "what was before stays where it was");
    }

    #[test]
    fn what_it_remembers_is_bounded() {
        let (mut scale, now, wall) = scale();
        for second in 0..20_000_u32 {
            let set = Duration::from_millis(if second % 2 == 0 { 0 } else { 5 });
            scale.follow(now + SECOND * second * 10, wall + SECOND * second * 10 + set);
        }
        assert!(scale.pieces.len() <= MOST_PIECES);
    }
}
