//! Which steps were the slowest of their window?
//!
//! That shows when they are over, so that what is within a step waits for the end of its window (`steps: slowest 3 of
//! 100`). Then the slowest ones are kept in full; of the others the step's own span is. What waits has taken its room,
//! and a step that can no longer be among the slowest gives it back at once.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use crate::span::Ended;

/// So many steps of which it was decided are remembered, for what of them is still to come.
const REMEMBERED: usize = 256;

/// The spans of steps of which it is not decided whether they are kept.
pub(super) struct Tail {
    keep: usize,
    of: usize,
    /// Steps that are over, of this window.
    over: usize,
    /// What is within steps that are not over.
    open: BTreeMap<u64, Vec<Ended>>,
    /// The slowest steps so far.
    slowest: Vec<Slow>,
    /// Whether steps before them were kept.
    decided: BTreeMap<u64, bool>,
    left_out: u64,
}

struct Slow {
    step: u64,
    took: Duration,
    within: Vec<Ended>,
}

impl Tail {
    pub(super) fn new(keep: u32, of: u32) -> Self {
        Self {
            keep: keep as usize,
            of: of as usize,
            over: 0,
            open: BTreeMap::new(),
            slowest: Vec::new(),
            decided: BTreeMap::new(),
            left_out: 0,
        }
    }

    /// Takes what has ended, and gives what can leave. What is left out is no span any more.
    pub(super) fn pass(&mut self, ended: &mut Vec<Ended>, out: &mut Vec<Ended>) {
        for ended in ended.drain(..) {
            match ended.step {
                Some(step) if ended.is_span => match ended.is_step {
                    true => {
                        let took =
                            ended.span.end_time.duration_since(ended.span.start_time).unwrap_or_default();
                        out.push(ended);
                        self.step_ends(step, took, out);
                    }
                    false => self.within_step(step, ended, out),
                },
                _ => out.push(ended),
            }
        }
    }

    /// Gives all that waits: nobody will decide any more.
    pub(super) fn give_up(&mut self, out: &mut Vec<Ended>) {
        out.extend(mem::take(&mut self.open).into_values().flatten());
        self.window_ends(out);
    }

    fn within_step(&mut self, step: u64, ended: Ended, out: &mut Vec<Ended>) {
        if let Some(slow) = self.slowest.iter_mut().find(|slow| slow.step == step) {
            slow.within.push(ended);
        } else if let Some(is_kept) = self.decided.get(&step).copied() {
            // A step that begins anew, as after a run went back to a checkpoint, is not told from a late span.
            self.leave(ended, is_kept, out);
        } else {
            self.open.entry(step).or_default().push(ended);
        }
    }

    fn step_ends(&mut self, step: u64, took: Duration, out: &mut Vec<Ended>) {
        let within = self.open.remove(&step).unwrap_or_default();
        self.slowest.push(Slow { step, took, within });
        self.over += 1;
        if self.slowest.len() > self.keep {
            self.slowest.sort_by_key(|slow| Reverse(slow.took));
            if let Some(fastest) = self.slowest.pop() {
                self.decide(fastest, false, out);
            }
        }
        if self.over == self.of {
            self.window_ends(out);
        }
    }

    fn window_ends(&mut self, out: &mut Vec<Ended>) {
        self.over = 0;
        for slow in mem::take(&mut self.slowest) {
            self.decide(slow, true, out);
        }
    }

    fn decide(&mut self, step: Slow, is_kept: bool, out: &mut Vec<Ended>) {
        step.within.into_iter().for_each(|ended| self.leave(ended, is_kept, out));
        self.decided.insert(step.step, is_kept);
        if self.decided.len() > REMEMBERED {
            self.decided.pop_first();
        }
    }

    fn leave(&mut self, mut ended: Ended, is_kept: bool, out: &mut Vec<Ended>) {
        ended.is_span = is_kept;
        self.left_out += u64::from(!is_kept);
        out.push(ended);
    }

    /// How many were left out since this was asked.
    pub(super) fn take_left_out(&mut self) -> u64 {
        mem::take(&mut self.left_out)
    }
}
