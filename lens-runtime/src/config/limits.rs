//! How much may a span hold? OpenTelemetry's variables for limits.

use std::fmt;

use opentelemetry_sdk::trace::SpanLimits;

use super::{Environment, Origin};
use crate::error::Error;

/// How much a span may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    attributes: Limit,
    value_length: Option<Limit>,
    events: Limit,
    links: Limit,
    attributes_of_event: Limit,
    attributes_of_link: Limit,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    value: u32,
    /// Who says so; nobody says the default.
    variable: Option<&'static str>,
}

/// The default of OpenTelemetry's specification, for whatever is counted.
const COUNT: Limit = Limit { value: 128, variable: None };

impl Default for Limits {
    fn default() -> Self {
        Self {
            attributes: COUNT,
            value_length: None,
            events: COUNT,
            links: COUNT,
            attributes_of_event: COUNT,
            attributes_of_link: COUNT,
        }
    }
}

impl Limits {
    /// What the variables say.
    ///
    /// # Errors
    /// If one is no number.
    pub(super) fn resolve(environment: &Environment) -> Result<Self, Error> {
        let look = |names: &[&'static str]| first(environment, names);
        let count = |names: &[&'static str]| look(names).map(|limit| limit.unwrap_or(COUNT));
        Ok(Self {
            attributes: count(&["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"])?,
            value_length: look(&[
                "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
                "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            ])?,
            events: count(&["OTEL_SPAN_EVENT_COUNT_LIMIT"])?,
            links: count(&["OTEL_SPAN_LINK_COUNT_LIMIT"])?,
            attributes_of_event: count(&["OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT"])?,
            attributes_of_link: count(&["OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"])?,
        })
    }

    /// How many characters of a text are kept; `None` for as many as are kept in any case.
    pub(crate) fn value_length(&self) -> Option<usize> {
        self.value_length.map(|limit| limit.value as usize)
    }

    /// What the SDK can see to: all but the length of texts.
    pub(crate) fn of_spans(&self) -> SpanLimits {
        SpanLimits {
            max_attributes_per_span: self.attributes.value,
            max_events_per_span: self.events.value,
            max_links_per_span: self.links.value,
            max_attributes_per_event: self.attributes_of_event.value,
            max_attributes_per_link: self.attributes_of_link.value,
        }
    }

    pub(super) fn are_default(&self) -> bool {
        self.rows().all(|(_, limit)| limit.variable.is_none())
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, Limit)> {
        [
            ("attributes", Some(self.attributes)),
            ("characters of a text", self.value_length),
            ("events", Some(self.events)),
            ("links", Some(self.links)),
            ("attributes of an event", Some(self.attributes_of_event)),
            ("attributes of a link", Some(self.attributes_of_link)),
        ]
        .into_iter()
        .filter_map(|(what, limit)| limit.map(|limit| (what, limit)))
    }
}

impl fmt::Display for Limits {
    /// One line, with those of which a variable speaks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said: Vec<_> = self
            .rows()
            .filter_map(|(what, Limit { value, variable })| {
                variable.map(|name| format!("{value} {what} ({})", Origin::Variable(name)))
            })
            .collect();
        write!(f, "a span holds at most {}", said.join(", "))
    }
}

/// The number in the first of these variables that is set.
fn first(environment: &Environment, names: &[&'static str]) -> Result<Option<Limit>, Error> {
    let found = names.iter().find_map(|name| environment.get(name).map(|text| (*name, text)));
    let Some((name, text)) = found else {
        return Ok(None);
    };
    // No sign: `+5` is a number to the standard library.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse().ok().filter(|_| is_number) {
        Some(value) => Ok(Some(Limit { value, variable: Some(name) })),
        None => Err(Error::invalid(
            &Origin::Variable(name),
            format!("expected a whole number, 0 to {}, got {text:?}", u32::MAX),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the variables say, in numbers and in words.
    fn limits(variables: &[(&str, &str)]) -> (Vec<u32>, Option<usize>, String) {
        let limits = Limits::resolve(&Environment::of_pairs(variables.iter().copied())).unwrap_or_default();
        let of_spans = limits.of_spans();
        let counts = vec![
            of_spans.max_attributes_per_span,
            of_spans.max_events_per_span,
            of_spans.max_links_per_span,
            of_spans.max_attributes_per_event,
            of_spans.max_attributes_per_link,
        ];
        let told = if limits.are_default() { String::new() } else { limits.to_string() };
        (counts, limits.value_length(), told)
    }

    #[test]
    fn limits_are_those_of_the_specification_unless_a_variable_says_otherwise() {
        assert_eq!(limits(&[("OTEL_SPAN_LINK_COUNT_LIMIT", " ")]), (vec![128; 5], None, String::new()));
        let all = [
            ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1"),
            ("OTEL_ATTRIBUTE_COUNT_LIMIT", "7"),
            ("OTEL_SPAN_EVENT_COUNT_LIMIT", "2"),
            ("OTEL_SPAN_LINK_COUNT_LIMIT", "0"),
            ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "4"),
            ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "5"),
            ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "6"),
            ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "7"),
        ];
        let (counts, value_length, told) = limits(&all);
        assert_eq!((counts, value_length), (vec![1, 2, 0, 4, 5], Some(6)));
        assert_eq!(
            told,
            "a span holds at most 1 attributes (variable OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT), 6 characters of a text \
             (variable OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT), 2 events (variable OTEL_SPAN_EVENT_COUNT_LIMIT), 0 links \
             (variable OTEL_SPAN_LINK_COUNT_LIMIT), 4 attributes of an event (variable OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT), \
             5 attributes of a link (variable OTEL_LINK_ATTRIBUTE_COUNT_LIMIT)"
        );
    }

    #[test]
    fn the_general_variable_counts_where_a_spans_own_is_not_set() {
        let general = [("OTEL_ATTRIBUTE_COUNT_LIMIT", "7"), ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "0")];
        let (counts, value_length, told) = limits(&general);
        assert_eq!((counts, value_length), (vec![7, 128, 128, 128, 128], Some(0)));
        assert_eq!(
            told,
            "a span holds at most 7 attributes (variable OTEL_ATTRIBUTE_COUNT_LIMIT), 0 characters of a text (variable \
             OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT)"
        );
    }
}
