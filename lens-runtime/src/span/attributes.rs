//! What has the program said of a span, and where is it kept?

use opentelemetry::{Key, KeyValue, StringValue, Value};

use crate::value::{held_by, kept};

/// For how much a record that is used again has memory.
const MOST_ATTRIBUTES: usize = 32;
const MOST_TEXTS: usize = 1024;

/// The attributes that the program gives a span.
#[derive(Default)]
pub struct Attributes {
    list: Vec<(Key, Held)>,
    /// The texts of those that were given once, one behind the other.
    texts: String,
    dropped: u32,
    /// The memory that they hold, about.
    bytes: usize,
}

/// The value of an attribute, as small as most are.
#[derive(Clone)]
pub(crate) enum Held {
    Bool(bool),
    I64(i64),
    F64(f64),
    /// A part of the texts that belong to it.
    Text {
        from: u32,
        to: u32,
    },
    Other(Box<Value>),
}

impl Held {
    pub(super) fn value(self, texts: &str) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(value),
            Self::I64(value) => Value::I64(value),
            Self::F64(value) => Value::F64(value),
            Self::Text { from, to } => {
                Value::String(StringValue::from(texts[from as usize..to as usize].to_owned()))
            }
            Self::Other(value) => *value,
        }
    }
}

impl From<Value> for Held {
    fn from(value: Value) -> Self {
        match value {
            Value::Bool(value) => Self::Bool(value),
            Value::I64(value) => Self::I64(value),
            Value::F64(value) => Self::F64(value),
            value => Self::Other(Box::new(value)),
        }
    }
}

/// The memory of an attribute, beside what its value holds.
const ONE: usize = size_of::<(Key, Held)>() + 16;

impl Attributes {
    /// Sets an attribute while the span is described, where no two have the same key.
    pub(crate) fn push(&mut self, key: &'static str, value: Value) {
        self.bytes += held_by(&value);
        self.push_held(key, Held::from(value));
    }

    #[inline]
    pub(crate) fn push_held(&mut self, key: &'static str, held: Held) {
        self.bytes += ONE;
        self.list.push((Key::from_static_str(key), held));
    }

    /// The same for a text, which is copied without a place of its own.
    pub(crate) fn push_text(&mut self, key: &'static str, text: &str) {
        let from = self.texts.len();
        self.texts.push_str(&kept(text));
        let to = self.texts.len();
        self.bytes += to - from;
        let held = match u32::try_from(to) {
            #[expect(clippy::cast_possible_truncation, reason = "it is less than where the text ends")]
            Ok(to) => Held::Text { from: from as u32, to },
            Err(_) => Held::from(Value::from(self.texts[from..].to_owned())),
        };
        self.push_held(key, held);
    }

    /// Sets an attribute at any time: it takes the place of one with its key.
    pub(super) fn set(&mut self, attribute: KeyValue, limit: u32) {
        let KeyValue { key, value, .. } = attribute;
        let bytes = held_by(&value);
        let held = Held::from(value);
        match self.list.iter().position(|(own, _)| *own == key) {
            Some(index) => {
                self.bytes += bytes;
                self.list[index].1 = held;
            }
            None if self.list.len() < limit as usize => {
                self.bytes += bytes + ONE;
                self.list.push((key, held));
            }
            None => {
                self.bytes = self.bytes.max(1);
                self.dropped += 1;
            }
        }
    }

    /// Drops what is too much.
    #[inline]
    pub(super) fn limit(&mut self, limit: u32) {
        let limit = limit as usize;
        if self.list.len() > limit {
            self.leave_last();
        }
        if self.list.len() > limit {
            self.dropped += u32::try_from(self.list.len() - limit).unwrap_or(u32::MAX);
            self.list.truncate(limit);
        }
    }

    /// Of those with the same key only the last, in the place of the first.
    fn leave_last(&mut self) {
        let mut index = 0;
        while index < self.list.len() {
            match self.list[..index].iter().position(|(key, _)| *key == self.list[index].0) {
                Some(first) => self.list[first].1 = self.list.remove(index).1,
                None => index += 1,
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of them, as they were given.
    pub(super) fn iter(&self) -> impl Iterator<Item = KeyValue> {
        self.list.iter().map(|(key, held)| KeyValue::new(key.clone(), held.clone().value(&self.texts)))
    }

    /// Moves them behind others. How many attributes, how much text, and how many were dropped before.
    pub(super) fn move_to(&mut self, list: &mut Vec<(Key, Held)>, texts: &mut String) -> (u32, u32, u32) {
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let counts = (short(self.list.len()), short(self.texts.len()), self.dropped);
        if self.bytes > 0 {
            list.append(&mut self.list);
            texts.push_str(&self.texts);
            self.clear();
        }
        counts
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.texts.clear();
        self.dropped = 0;
        self.bytes = 0;
        // A span that was much larger than others leaves its memory.
        if self.list.capacity() > MOST_ATTRIBUTES {
            self.list.shrink_to(MOST_ATTRIBUTES);
        }
        if self.texts.capacity() > MOST_TEXTS {
            self.texts.shrink_to(MOST_TEXTS);
        }
    }
}

/// Leaves the last of the attributes with the same key, as a map would: the SDK keeps each that was set.
pub(super) fn without_doubles(mut attributes: Vec<KeyValue>) -> Vec<KeyValue> {
    for index in (0..attributes.len()).rev() {
        if attributes[index + 1..].iter().any(|later| later.key == attributes[index].key) {
            attributes.remove(index);
        }
    }
    attributes
}
