//! The how-manieth of its step is a call?

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// So many steps may be under way at once, in one process.
const STEPS: usize = 64;

/// How many calls of a group each step has had.
#[derive(Debug, Default)]
pub(crate) struct Ordinals(Mutex<BTreeMap<u64, HashMap<&'static str, u64>>>);

impl Ordinals {
    /// The number of the next call of a group in a step, counted from 0.
    pub(crate) fn next(&self, group: &'static str, step: u64) -> u64 {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ordinal = steps.entry(step).or_default().entry(group).or_default();
        let next = *ordinal;
        *ordinal += 1;
        if steps.len() > STEPS {
            // The oldest one; unless that is the one that just began, as after a run went back to a checkpoint.
            match steps.first_key_value() {
                Some((first, _)) if *first == step => steps.pop_last(),
                _ => steps.pop_first(),
            };
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_counts_for_itself_in_each_step() {
        let ordinals = Ordinals::default();
        let next = |group, step| ordinals.next(group, step);
        assert_eq!([next("a", 1), next("a", 1), next("b", 1), next("a", 2), next("a", 1)], [0, 1, 0, 0, 2]);
    }

    #[test]
    fn what_it_remembers_is_bounded_and_a_run_may_go_back() {
        let ordinals = Ordinals::default();
        for step in 0..1000 {
            assert_eq!(ordinals.next("a", step), 0);
        }
        assert_eq!([ordinals.next("a", 3), ordinals.next("a", 3)], [0, 1]);
        assert!(ordinals.0.lock().is_ok_and(|steps| steps.len() <= STEPS));
    }
}
