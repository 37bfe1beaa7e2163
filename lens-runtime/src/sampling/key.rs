//! What is drawn for a call? 56 bits, out of what the call is about.
//!
//! They are the same in every process, on every machine and with every version of Rust and of Lens, for otherwise a
//! rollout would be kept in one process and dropped in another. This is all that goes into them:
//!
//! | bytes | what |
//! |---|---|
//! | 8 + n | the run's id: its length, little-endian as all numbers here, and its UTF-8 |
//! | 8 + n | the group's name, likewise |
//! | 8 | the step |
//! | 1 | the kind of key: 0 for the call's ordinal, 1 for a number, 2 for a text |
//! | 8, 16 or 8 + n | the ordinal; the number, in two's complement; the text with its length |
//!
//! over which goes SipHash-2-4 with the key `lens/sampling/v1`; the uppermost 56 bits of its 64 are taken.

use std::borrow::Cow;
use std::hash::Hasher as _;
use std::rc::Rc;
use std::sync::Arc;

use siphasher::sip::SipHasher24;

/// The hash's key. What is drawn never changes under one name.
const HASH: &[u8; 16] = b"lens/sampling/v1";

/// What tells the calls of a group within a step apart.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// The how-manieth it is.
    Ordinal(u64),
    /// A number of the program's.
    Number(i128),
    /// A text of the program's.
    Text(&'a str),
}

/// A key that is kept until the call begins.
#[derive(Clone, Debug)]
pub(crate) enum OwnedKey {
    Number(i128),
    Text(String),
}

impl Key<'_> {
    pub(crate) fn to_owned(self) -> OwnedKey {
        match self {
            // Nobody gives an ordinal as a key.
            Key::Ordinal(ordinal) => OwnedKey::Number(ordinal.into()),
            Key::Number(number) => OwnedKey::Number(number),
            Key::Text(text) => OwnedKey::Text(text.to_owned()),
        }
    }
}

impl OwnedKey {
    pub(crate) fn as_key(&self) -> Key<'_> {
        match self {
            Self::Number(number) => Key::Number(*number),
            Self::Text(text) => Key::Text(text),
        }
    }
}

/// Draws 56 bits for a call: evenly distributed over whatever keys there are.
pub(crate) fn randomness(run_id: &str, group: &str, step: u64, key: Key<'_>) -> u64 {
    // The hasher's own `write_u64` and the like are left alone: what they hash depends on the machine.
    let mut hasher = SipHasher24::new_with_key(HASH);
    let mut text = |text: &str| {
        hasher.write(&(text.len() as u64).to_le_bytes());
        hasher.write(text.as_bytes());
    };
    text(run_id);
    text(group);
    hasher.write(&step.to_le_bytes());
    match key {
        Key::Ordinal(ordinal) => {
            hasher.write(&[0]);
            hasher.write(&ordinal.to_le_bytes());
        }
        Key::Number(number) => {
            hasher.write(&[1]);
            hasher.write(&number.to_le_bytes());
        }
        Key::Text(text) => {
            hasher.write(&[2]);
            hasher.write(&(text.len() as u64).to_le_bytes());
            hasher.write(text.as_bytes());
        }
    }
    hasher.finish() >> 8
}

/// What a call is about, for a group of which a share is kept: all calls with the same key are kept, or none is, in
/// every process of the run.
///
/// Implemented for integers and strings, and references to them. The same number is the same key whatever its type;
/// a number and its digits are two.
///
/// ```
/// use lens_runtime::SampleKey;
///
/// struct Rollout {
///     prompt: u32,
///     request: String,
/// }
///
/// /// Takes whatever can be a key.
/// fn is_same(a: impl SampleKey, b: impl SampleKey) -> bool {
///     a.key() == b.key()
/// }
///
/// let rollout = Rollout { prompt: 17, request: "r-17".to_owned() };
/// assert!(is_same(rollout.prompt, 17_i64));
/// assert!(is_same(&rollout.request, "r-17"));
/// assert!(!is_same("17", 17));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of a call",
    label = "expected an integer or a string",
    note = "take what is the same in every process that sees the request, for example `request.id` or \
            `prompt.index`"
)]
pub trait SampleKey {
    /// What is hashed.
    fn key(&self) -> Key<'_>;
}

impl<T: SampleKey + ?Sized> SampleKey for &T {
    fn key(&self) -> Key<'_> {
        (**self).key()
    }
}

impl SampleKey for str {
    fn key(&self) -> Key<'_> {
        Key::Text(self)
    }
}

macro_rules! texts {
    ($($ty:ty),+) => {
        $(
            impl SampleKey for $ty {
                fn key(&self) -> Key<'_> {
                    Key::Text(self)
                }
            }
        )+
    };
}

texts!(String, Box<str>, Arc<str>, Rc<str>, Cow<'_, str>);

macro_rules! integers {
    ($($ty:ty),+) => {
        $(
            impl SampleKey for $ty {
                fn key(&self) -> Key<'_> {
                    Key::Number(i128::from(*self))
                }
            }
        )+
    };
}

integers!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

/// Integers of which the standard library does not say that they fit. On every machine that there is they do.
macro_rules! sizes {
    ($($ty:ty),+) => {
        $(
            impl SampleKey for $ty {
                fn key(&self) -> Key<'_> {
                    Key::Number(i128::try_from(*self).unwrap_or(i128::MAX))
                }
            }
        )+
    };
}

sizes!(isize, usize);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Computed with another implementation of `SipHash`, written from its paper.
    #[test]
    fn what_is_drawn_is_written_down() {
        for (run_id, group, step, key, expected) in [
            ("", "", 0, Key::Ordinal(0), 0x90_b78e_ee66_e9b8),
            ("run-7", "generation", 3, Key::Ordinal(0), 0xd9_45e0_2844_eb8b),
            ("run-7", "generation", 3, Key::Ordinal(1), 0x25_e28a_7c0e_cbc4),
            ("run-7", "generation", 4, Key::Ordinal(1), 0xa9_a197_dd35_0df8),
            ("run-7", "reward", 3, Key::Number(1), 0xf2_b327_ce25_e3c8),
            ("run-7", "reward", 3, Key::Number(-1), 0x13_c9c0_30bb_ecad),
            ("run-7", "reward", 3, Key::Number(u64::MAX.into()), 0x82_fc7e_f332_6b9b),
            ("run-7", "reward", u64::MAX, Key::Text(""), 0xdb_1d8b_049e_904a),
            ("läufe", "per_prompt", 12, Key::Text("Wie spät ist es?"), 0xef_3aed_75b6_dea3),
        ] {
            let drawn = randomness(run_id, group, step, key);
            assert_eq!(drawn, expected, "{run_id} {group} {step} {key:?}: {drawn:#016x}");
        }
    }

    #[test]
    fn no_two_inputs_run_together() {
        let same_bytes = [
            ("ab", "c", 0, Key::Text("d")),
            ("a", "bc", 0, Key::Text("d")),
            ("abc", "", 0, Key::Text("d")),
            ("ab", "c", 0, Key::Text("")),
            ("ab", "c", 0, Key::Text("\0\0\0\0\0\0\0\0")),
            ("ab", "c", 0, Key::Ordinal(0)),
            ("ab", "c", 0, Key::Number(0)),
            ("ab", "c", 1, Key::Ordinal(0)),
            ("ab", "c", 0, Key::Ordinal(1)),
            ("ab", "c", 0, Key::Number(1)),
            ("ab", "c", 0, Key::Text("0")),
        ];
        let drawn: HashSet<_> = same_bytes
            .into_iter()
            .map(|(run_id, group, step, key)| randomness(run_id, group, step, key))
            .collect();
        assert_eq!(drawn.len(), same_bytes.len());
    }

    #[test]
    fn a_number_is_one_key_whatever_its_type_and_a_text_whatever_its_owner() {
        let numbers =
            [7_i8.key(), 7_u16.key(), 7_i32.key(), 7_u64.key(), 7_usize.key(), 7_isize.key(), 7_i128.key()];
        assert!(numbers.iter().all(|key| *key == Key::Number(7)), "{numbers:?}");
        assert_eq!(u64::MAX.key(), Key::Number(u64::MAX.into()));
        assert_eq!((-1_i64).key(), Key::Number(-1));
        let owned = "r-17".to_owned();
        for key in [owned.key(), (&&owned).key(), "r-17".key(), Arc::<str>::from("r-17").key()] {
            assert_eq!(key, Key::Text("r-17"));
        }
    }
}
