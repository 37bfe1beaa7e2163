//! What may stand on the right-hand side in an annotation? Attribute values and token counts.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use opentelemetry::{Array, KeyValue, StringValue, Value};

use crate::span::{Attributes, Held};

/// A value that a span attribute can hold.
///
/// Implemented for booleans, integers, floats and strings, references to them, slices and vectors
/// of them, and `Option`, of which `None` records nothing. Integers beyond `i64`, which is all
/// that OpenTelemetry has, saturate. Of a string the first 64 KiB are kept, with an ellipsis (`…`) in the place
/// of the rest: receivers refuse requests of more than a few MiB whole.
///
/// ```
/// use lens_runtime::{groups, rl_span, testing};
///
/// #[rl_span(group = Rollout, name = "rollout", attributes(size = sizes, note = note))]
/// fn rollout(sizes: &[u32], note: Option<&str>) {}
///
/// let capture = testing::Capture::new("all");
/// capture.run(|| rollout(&[1, 2], None));
/// assert_eq!(capture.spans()[0].attribute("size").unwrap().to_string(), "[1,2]");
/// assert_eq!(capture.spans()[0].attribute("note"), None);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a span attribute",
    label = "expected a boolean, a number, a string, a list of them, or an `Option`",
    note = "take what you want to see of it, for example `shape.len()` or `config.name.as_str()`"
)]
pub trait AttributeValue {
    /// The value, copied; `None` records nothing.
    fn to_value(&self) -> Option<Value>;

    /// Puts the value among those of a span that is being described. A text is copied into memory that is there.
    #[doc(hidden)]
    fn describe(&self, key: &'static str, attributes: &mut Attributes) {
        if let Some(value) = self.to_value() {
            attributes.push(key, value);
        }
    }
}

impl<T: AttributeValue + ?Sized> AttributeValue for &T {
    fn to_value(&self) -> Option<Value> {
        (**self).to_value()
    }

    #[inline]
    fn describe(&self, key: &'static str, attributes: &mut Attributes) {
        (**self).describe(key, attributes);
    }
}

impl<T: AttributeValue> AttributeValue for Option<T> {
    fn to_value(&self) -> Option<Value> {
        self.as_ref().and_then(AttributeValue::to_value)
    }

    fn describe(&self, key: &'static str, attributes: &mut Attributes) {
        if let Some(value) = self {
            value.describe(key, attributes);
        }
    }
}

impl AttributeValue for str {
    fn to_value(&self) -> Option<Value> {
        Some(Value::String(StringValue::from(kept(self).into_owned())))
    }

    #[inline]
    fn describe(&self, key: &'static str, attributes: &mut Attributes) {
        attributes.push_text(key, self);
    }
}

/// The most of a text that is recorded, in bytes.
const LONGEST_TEXT: usize = 64 << 10;

/// What is recorded of a text.
#[inline]
pub(crate) fn kept<'a>(text: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
    let text = text.into();
    match text.len() <= LONGEST_TEXT {
        true => text,
        false => Cow::Owned(beginning(&text)),
    }
}

#[cold]
fn beginning(text: &str) -> String {
    const REST: &str = "…";
    let mut end = LONGEST_TEXT - REST.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    [&text[..end], REST].concat()
}

/// Leaves so many characters of a text, or of each text of a list.
pub(crate) fn shorten(value: &mut Value, most: usize) {
    let short = |text: &StringValue| {
        text.as_str()
            .char_indices()
            .nth(most)
            .map(|(end, _)| StringValue::from(text.as_str()[..end].to_owned()))
    };
    match value {
        Value::String(text) => {
            if let Some(short) = short(text) {
                *text = short;
            }
        }
        Value::Array(Array::String(list)) => {
            for text in list {
                if let Some(short) = short(text) {
                    *text = short;
                }
            }
        }
        _ => {}
    }
}

/// The memory that attributes hold, about.
pub(crate) fn held(attributes: &[KeyValue]) -> usize {
    size_of_val(attributes)
        + attributes
            .iter()
            .map(|attribute| attribute.key.as_str().len() + held_by(&attribute.value))
            .sum::<usize>()
}

/// What a value holds beside itself.
pub(crate) fn held_by(value: &Value) -> usize {
    match value {
        Value::String(text) => text.as_str().len(),
        Value::Array(Array::Bool(list)) => size_of_val(&**list),
        Value::Array(Array::I64(list)) => size_of_val(&**list),
        Value::Array(Array::F64(list)) => size_of_val(&**list),
        Value::Array(Array::String(list)) => {
            size_of_val(&**list) + list.iter().map(|text| text.as_str().len()).sum::<usize>()
        }
        _ => 0,
    }
}

impl AttributeValue for String {
    fn to_value(&self) -> Option<Value> {
        self.as_str().to_value()
    }

    fn describe(&self, key: &'static str, attributes: &mut Attributes) {
        attributes.push_text(key, self);
    }
}

/// Strings by other owners.
macro_rules! pointers {
    ($($ty:ty),+) => {
        $(
            impl AttributeValue for $ty {
                fn to_value(&self) -> Option<Value> {
                    (**self).to_value()
                }

                fn describe(&self, key: &'static str, attributes: &mut Attributes) {
                    attributes.push_text(key, self);
                }
            }
        )+
    };
}

pointers!(Box<str>, Arc<str>, Rc<str>, Cow<'_, str>);

impl<T: ListItem> AttributeValue for [T] {
    fn to_value(&self) -> Option<Value> {
        Some(Value::Array(T::list(self)))
    }
}

impl<T: ListItem, const N: usize> AttributeValue for [T; N] {
    fn to_value(&self) -> Option<Value> {
        self.as_slice().to_value()
    }
}

impl<T: ListItem> AttributeValue for Vec<T> {
    fn to_value(&self) -> Option<Value> {
        self.as_slice().to_value()
    }
}

/// A value that may stand in a list.
#[doc(hidden)]
pub trait ListItem: Sized {
    fn list(items: &[Self]) -> Array;
}

impl ListItem for String {
    fn list(items: &[Self]) -> Array {
        Array::String(items.iter().map(|item| StringValue::from(kept(item).into_owned())).collect())
    }
}

impl ListItem for &str {
    fn list(items: &[Self]) -> Array {
        Array::String(items.iter().map(|item| StringValue::from(kept(*item).into_owned())).collect())
    }
}

macro_rules! scalars {
    ($($ty:ty => $variant:ident, |$value:ident| $convert:expr;)+) => {
        $(
            impl AttributeValue for $ty {
                fn to_value(&self) -> Option<Value> {
                    let $value = *self;
                    Some(Value::$variant($convert))
                }

                #[inline]
                fn describe(&self, key: &'static str, attributes: &mut Attributes) {
                    let $value = *self;
                    attributes.push_held(key, Held::$variant($convert));
                }
            }

            impl ListItem for $ty {
                fn list(items: &[Self]) -> Array {
                    Array::$variant(items.iter().map(|item| { let $value = *item; $convert }).collect())
                }
            }
        )+
    };
}

scalars! {
    bool => Bool, |value| value;
    f32 => F64, |value| f64::from(value);
    f64 => F64, |value| value;
    i8 => I64, |value| i64::from(value);
    i16 => I64, |value| i64::from(value);
    i32 => I64, |value| i64::from(value);
    i64 => I64, |value| value;
    isize => I64, |value| i64::try_from(value).unwrap_or(i64::MAX);
    u8 => I64, |value| i64::from(value);
    u16 => I64, |value| i64::from(value);
    u32 => I64, |value| i64::from(value);
    u64 => I64, |value| i64::try_from(value).unwrap_or(i64::MAX);
    usize => I64, |value| i64::try_from(value).unwrap_or(i64::MAX);
}

/// Token counts: one number for one request, or an iterable of numbers, one for each request. A number that
/// no request can have, as a subtraction below zero leaves, is none.
///
/// `Shape` only tells the two kinds apart for the compiler, which finds it by itself.
///
/// ```
/// use lens_runtime::{rl_span, semconv, testing};
///
/// #[rl_span(group = Generation, name = "one", tokens(input = prompt.len()))]
/// fn one(prompt: &[u32]) {}
///
/// #[rl_span(group = Generation, name = "batch", tokens(output = |answers| answers.iter().map(Vec::len)))]
/// fn batch() -> Vec<Vec<u32>> {
///     vec![vec![1, 2], vec![3]]
/// }
///
/// let capture = testing::Capture::new("all");
/// capture.run(|| (one(&[1, 2, 3]), batch()));
/// let requests: u64 =
///     capture.points(semconv::GEN_AI_CLIENT_TOKEN_USAGE).iter().map(|point| point.count).sum();
/// assert_eq!(requests, 3);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a token count",
    label = "expected an unsigned number, or an iterable of them with one for each request",
    note = "for example `prompt.len()`, or `prompts.iter().map(|prompt| prompt.len())`"
)]
pub trait TokenCounts<Shape> {
    /// Appends the counts, one for each request.
    fn append_to(self, counts: &mut Vec<u64>);
}

/// One number of tokens.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a token count",
    label = "expected an unsigned number of tokens"
)]
pub trait TokenCount {
    fn count(self) -> u64;
}

impl<T: TokenCount + Copy> TokenCount for &T {
    fn count(self) -> u64 {
        (*self).count()
    }
}

/// The most tokens that a request may have. No model comes near, and 2³² such requests fit into a sum.
const MOST_TOKENS: u64 = u32::MAX as u64;

/// A count that can be one. A subtraction that went below zero leaves a number that cannot, and that would
/// be seen in a sum for as long as the process lives.
fn possible(count: u64) -> Option<u64> {
    (count <= MOST_TOKENS).then_some(count)
}

/// The shape of a single number.
#[doc(hidden)]
pub enum One {}

/// The shape of an iterable of numbers.
#[doc(hidden)]
pub enum Each {}

impl<I> TokenCounts<Each> for I
where
    I: IntoIterator,
    I::Item: TokenCount,
{
    fn append_to(self, counts: &mut Vec<u64>) {
        counts.extend(self.into_iter().filter_map(|count| possible(count.count())));
    }
}

macro_rules! token_counts {
    ($($ty:ty),+) => {
        $(
            impl TokenCount for $ty {
                fn count(self) -> u64 {
                    // Every unsigned number of a supported platform fits in 64 bits.
                    u64::try_from(self).unwrap_or(u64::MAX)
                }
            }

            impl TokenCounts<One> for $ty {
                fn append_to(self, counts: &mut Vec<u64>) {
                    counts.extend(possible(self.count()));
                }
            }

            impl TokenCounts<One> for &$ty {
                fn append_to(self, counts: &mut Vec<u64>) {
                    counts.extend(possible((*self).count()));
                }
            }
        )+
    };
}

token_counts!(u8, u16, u32, u64, usize);

/// The tokens of both sides: what `tokens = …` may stand for. A pair of what each side may be, one number
/// or an iterable of one number per request, or [`Usage`].
///
/// ```
/// use lens_runtime::{rl_span, testing::Capture};
///
/// #[rl_span(group = Generation, name = "generate", tokens = |answers| answers.iter().copied().unzip::<_, _, Vec<_>, Vec<_>>())]
/// fn generate() -> Vec<(u32, u32)> {
///     vec![(3, 5), (3, 7)]
/// }
///
/// let capture = Capture::new("generation");
/// capture.run(generate);
/// assert_eq!(capture.spans()[0].attribute("gen_ai.usage.output_tokens").unwrap().to_string(), "12");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the token usage of a call",
    label = "expected a pair of input and output tokens, or `lens_runtime::Usage`"
)]
pub trait TokenUsage<Shape> {
    /// Appends the counts of both sides, one for each request.
    fn append_to(self, input: &mut Vec<u64>, output: &mut Vec<u64>);
}

impl<I: TokenCounts<A>, O: TokenCounts<B>, A, B> TokenUsage<(A, B)> for (I, O) {
    fn append_to(self, input: &mut Vec<u64>, output: &mut Vec<u64>) {
        self.0.append_to(input);
        self.1.append_to(output);
    }
}

/// The tokens of one request.
///
/// ```
/// let usage = lens_runtime::Usage { input: 12, output: 30 };
/// # assert_eq!(usage.input + usage.output, 42);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
}

impl TokenUsage<One> for Usage {
    fn append_to(self, input: &mut Vec<u64>, output: &mut Vec<u64>) {
        self.input.append_to(input);
        self.output.append_to(output);
    }
}
