//! What is a value, and where did it come from?

use std::fmt;
use std::ops::RangeInclusive;

use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};

use crate::error::Error;

/// Where a value of the configuration came from.
///
/// ```
/// use lens_runtime::Origin;
///
/// let origin = Origin::File { name: "run.yaml".to_owned(), line: 3, column: 12 };
/// assert_eq!(origin.to_string(), "run.yaml:3:12");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A run configuration.
    File {
        /// The file, as the program named it.
        name: String,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// An argument of the command line, whole.
    Override(String),
    /// An environment variable.
    Variable(&'static str),
    /// A call of the program.
    Code,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { name, line, column } => write!(f, "{name}:{line}:{column}"),
            Origin::Override(argument) => write!(f, "override {argument}"),
            Origin::Variable(name) => write!(f, "variable {name}"),
            Origin::Code => f.write_str("set in code"),
        }
    }
}

/// A value with its origin.
#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Setting<T> {
    pub(crate) fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    pub(crate) fn in_code(value: T) -> Self {
        Self { value, origin: Origin::Code }
    }

    pub(crate) fn map<R>(self, convert: impl FnOnce(T) -> R) -> Setting<R> {
        Setting { value: convert(self.value), origin: self.origin }
    }
}

/// A value as it was written, before its type is known to be right.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    key: String,
    value: RawValue,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum RawValue {
    Boolean(bool),
    Text(String),
    Whole(i64),
    /// Anything else, as an error shows it.
    Other(String),
}

impl Raw {
    pub(super) fn of_node(key: &str, node: &MarkedYaml<'_>, origin: Origin) -> Self {
        let value = match &node.data {
            YamlData::Value(Scalar::Boolean(value)) => RawValue::Boolean(*value),
            YamlData::Value(Scalar::String(text)) => RawValue::Text(text.to_string()),
            YamlData::Value(Scalar::Integer(number)) => RawValue::Whole(*number),
            YamlData::Value(Scalar::FloatingPoint(number)) => RawValue::Other(format!("the number {number}")),
            YamlData::Value(Scalar::Null) => RawValue::Other("nothing".to_owned()),
            YamlData::Sequence(_) => RawValue::Other("a list".to_owned()),
            YamlData::Mapping(_) => RawValue::Other("a mapping".to_owned()),
            _ => RawValue::Other("something else".to_owned()),
        };
        Self { key: key.to_owned(), value, origin }
    }

    /// Reads a value of the command line as YAML reads one, so that `true` is a boolean and
    /// `'true'` a string. What is no YAML is text.
    pub(super) fn of_argument(key: &str, text: &str, origin: Origin) -> Self {
        match MarkedYaml::load_from_str(text).ok().and_then(|mut documents| documents.pop()) {
            Some(node) => Self::of_node(key, &node, origin),
            None if text.trim().is_empty() => {
                Self { key: key.to_owned(), value: RawValue::Other("nothing".to_owned()), origin }
            }
            None => Self { key: key.to_owned(), value: RawValue::Text(text.to_owned()), origin },
        }
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn boolean(&self) -> Result<Setting<bool>, Error> {
        match &self.value {
            RawValue::Boolean(value) => Ok(Setting { value: *value, origin: self.origin.clone() }),
            _ => Err(self.wrong("true or false")),
        }
    }

    pub(super) fn text(&self, expected: &str) -> Result<Setting<String>, Error> {
        match &self.value {
            RawValue::Text(text) if !text.trim().is_empty() => {
                Ok(Setting { value: text.trim().to_owned(), origin: self.origin.clone() })
            }
            _ => Err(self.wrong(&format!("{expected}, as a string"))),
        }
    }

    /// A text that may also be a number alone, which YAML does not take for a text.
    pub(super) fn text_or_number(&self, expected: &str) -> Result<Setting<String>, Error> {
        match &self.value {
            RawValue::Whole(number) => Ok(Setting { value: number.to_string(), origin: self.origin.clone() }),
            _ => self.text(expected),
        }
    }

    /// A whole number within a range, of which `expected` says what it is.
    pub(super) fn whole(
        &self,
        range: RangeInclusive<usize>,
        expected: &str,
    ) -> Result<Setting<usize>, Error> {
        match &self.value {
            RawValue::Whole(number) => usize::try_from(*number).ok().filter(|number| range.contains(number)),
            _ => None,
        }
        .map(|value| Setting { value, origin: self.origin.clone() })
        .ok_or_else(|| self.wrong(&format!("{expected}, {} to {}", range.start(), range.end())))
    }

    fn wrong(&self, expected: &str) -> Error {
        let found = match &self.value {
            RawValue::Boolean(value) => value.to_string(),
            RawValue::Text(text) => format!("the string {text:?}"),
            RawValue::Whole(number) => format!("the number {number}"),
            RawValue::Other(kind) => kind.clone(),
        };
        Error::invalid(&self.origin, format!("telemetry.{}: expected {expected}, got {found}", self.key))
    }
}

/// A string as YAML: JSON's strings are YAML's double-quoted ones.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
