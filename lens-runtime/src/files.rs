//! What does a line of a run's files say?
//!
//! A run's files hold OTLP-JSON: each line is one export request of the OpenTelemetry protocol, as a Collector's
//! file exporter writes it. [`read_line`] gives back the protocol's own messages, which can be looked at or sent on.
//!
//! It reads what any writer of OTLP-JSON may write, not only ours: what is absent is default, 64-bit integers are
//! strings or numbers, numbers that are not finite are strings, and what it does not know it passes over.

use std::fmt;
use std::str::FromStr;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine as _};
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, LogsData, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint,
    Metric, MetricsData, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary, SummaryDataPoint,
    exemplar, exponential_histogram_data_point::Buckets, metric, number_data_point,
    summary_data_point::ValueAtQuantile,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, TracesData, span};
use serde_json::Value as Json;

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// Spans.
    Traces(TracesData),
    /// Data points of metrics.
    Metrics(MetricsData),
    /// Log records.
    Logs(LogsData),
}

/// Reads a line of OTLP-JSON.
///
/// # Errors
/// If it is not JSON, as the last line of a process that was killed may be; if it is not a request of the protocol;
/// or if a value in it is not what the protocol has in that place, which the error then names.
///
/// # Example
/// ```
/// use lens_runtime::files::{Line, read_line};
///
/// let line = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"rl.grpo.step","kind":1}]}]}]}"#;
/// let Line::Traces(traces) = read_line(line)? else { panic!("not spans") };
/// assert_eq!(traces.resource_spans[0].scope_spans[0].spans[0].name, "rl.grpo.step");
///
/// let error = read_line(&line.replace("1", "\"one\"")).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "resourceSpans[0].scopeSpans[0].spans[0].kind: expected a whole number, got \"one\""
/// );
/// # Ok::<(), lens_runtime::files::Unreadable>(())
/// ```
pub fn read_line(line: &str) -> Result<Line, Unreadable> {
    let json = serde_json::from_str(line).map_err(|error| Unreadable(format!("not JSON: {error}")))?;
    let line = At { json: &json, within: None, step: Step::Key("") };
    if line.has("resourceSpans") {
        Ok(Line::Traces(TracesData { resource_spans: line.each("resourceSpans", resource_spans)? }))
    } else if line.has("resourceMetrics") {
        Ok(Line::Metrics(MetricsData { resource_metrics: line.each("resourceMetrics", resource_metrics)? }))
    } else if line.has("resourceLogs") {
        Ok(Line::Logs(LogsData { resource_logs: line.each("resourceLogs", resource_logs)? }))
    } else {
        Err(Unreadable("expected an object with resourceSpans, resourceMetrics or resourceLogs".to_owned()))
    }
}

/// Why a line cannot be read. Its text names the place in the line, what was expected and what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

type Read<T> = Result<T, Unreadable>;

fn resource_spans(at: &At<'_>) -> Read<ResourceSpans> {
    Ok(ResourceSpans {
        resource: at.optional("resource", resource)?,
        scope_spans: at.each("scopeSpans", scope_spans)?,
        schema_url: at.text("schemaUrl")?,
    })
}

fn scope_spans(at: &At<'_>) -> Read<ScopeSpans> {
    Ok(ScopeSpans {
        scope: at.optional("scope", scope)?,
        spans: at.each("spans", span)?,
        schema_url: at.text("schemaUrl")?,
    })
}

fn span(at: &At<'_>) -> Read<Span> {
    Ok(Span {
        trace_id: at.id("traceId", 16)?,
        span_id: at.id("spanId", 8)?,
        trace_state: at.text("traceState")?,
        parent_span_id: at.id("parentSpanId", 8)?,
        flags: at.whole("flags")?,
        name: at.text("name")?,
        kind: at.whole("kind")?,
        start_time_unix_nano: at.whole("startTimeUnixNano")?,
        end_time_unix_nano: at.whole("endTimeUnixNano")?,
        attributes: at.each("attributes", key_value)?,
        dropped_attributes_count: at.whole("droppedAttributesCount")?,
        events: at.each("events", event)?,
        dropped_events_count: at.whole("droppedEventsCount")?,
        links: at.each("links", link)?,
        dropped_links_count: at.whole("droppedLinksCount")?,
        status: at
            .optional("status", |at| Ok(Status { message: at.text("message")?, code: at.whole("code")? }))?,
    })
}

fn event(at: &At<'_>) -> Read<span::Event> {
    Ok(span::Event {
        time_unix_nano: at.whole("timeUnixNano")?,
        name: at.text("name")?,
        attributes: at.each("attributes", key_value)?,
        dropped_attributes_count: at.whole("droppedAttributesCount")?,
    })
}

fn link(at: &At<'_>) -> Read<span::Link> {
    Ok(span::Link {
        trace_id: at.id("traceId", 16)?,
        span_id: at.id("spanId", 8)?,
        trace_state: at.text("traceState")?,
        attributes: at.each("attributes", key_value)?,
        dropped_attributes_count: at.whole("droppedAttributesCount")?,
        flags: at.whole("flags")?,
    })
}

fn resource_logs(at: &At<'_>) -> Read<ResourceLogs> {
    Ok(ResourceLogs {
        resource: at.optional("resource", resource)?,
        scope_logs: at.each("scopeLogs", scope_logs)?,
        schema_url: at.text("schemaUrl")?,
    })
}

fn scope_logs(at: &At<'_>) -> Read<ScopeLogs> {
    Ok(ScopeLogs {
        scope: at.optional("scope", scope)?,
        log_records: at.each("logRecords", log_record)?,
        schema_url: at.text("schemaUrl")?,
    })
}

fn log_record(at: &At<'_>) -> Read<LogRecord> {
    Ok(LogRecord {
        time_unix_nano: at.whole("timeUnixNano")?,
        observed_time_unix_nano: at.whole("observedTimeUnixNano")?,
        severity_number: at.whole("severityNumber")?,
        severity_text: at.text("severityText")?,
        body: at.optional("body", any_value)?,
        attributes: at.each("attributes", key_value)?,
        dropped_attributes_count: at.whole("droppedAttributesCount")?,
        flags: at.whole("flags")?,
        trace_id: at.id("traceId", 16)?,
        span_id: at.id("spanId", 8)?,
        event_name: at.text("eventName")?,
    })
}

fn resource_metrics(at: &At<'_>) -> Read<ResourceMetrics> {
    Ok(ResourceMetrics {
        resource: at.optional("resource", resource)?,
        scope_metrics: at.each("scopeMetrics", scope_metrics)?,
        schema_url: at.text("schemaUrl")?,
    })
}

fn scope_metrics(at: &At<'_>) -> Read<ScopeMetrics> {
    Ok(ScopeMetrics {
        scope: at.optional("scope", scope)?,
        metrics: at.each("metrics", metric)?,
        schema_url: at.text("schemaUrl")?,
    })
}

fn metric(at: &At<'_>) -> Read<Metric> {
    let data = if let Some(gauge) = at.present("gauge") {
        Some(metric::Data::Gauge(Gauge { data_points: gauge.each("dataPoints", number_point)? }))
    } else if let Some(sum) = at.present("sum") {
        Some(metric::Data::Sum(Sum {
            data_points: sum.each("dataPoints", number_point)?,
            aggregation_temporality: sum.whole("aggregationTemporality")?,
            is_monotonic: sum.boolean("isMonotonic")?,
        }))
    } else if let Some(histogram) = at.present("histogram") {
        Some(metric::Data::Histogram(Histogram {
            data_points: histogram.each("dataPoints", histogram_point)?,
            aggregation_temporality: histogram.whole("aggregationTemporality")?,
        }))
    } else if let Some(histogram) = at.present("exponentialHistogram") {
        Some(metric::Data::ExponentialHistogram(ExponentialHistogram {
            data_points: histogram.each("dataPoints", exponential_point)?,
            aggregation_temporality: histogram.whole("aggregationTemporality")?,
        }))
    } else if let Some(summary) = at.present("summary") {
        Some(metric::Data::Summary(Summary { data_points: summary.each("dataPoints", summary_point)? }))
    } else {
        None
    };
    Ok(Metric {
        name: at.text("name")?,
        description: at.text("description")?,
        unit: at.text("unit")?,
        metadata: at.each("metadata", key_value)?,
        data,
    })
}

fn number_point(at: &At<'_>) -> Read<NumberDataPoint> {
    let value = if at.has("asInt") {
        Some(number_data_point::Value::AsInt(at.whole("asInt")?))
    } else {
        at.optional("asDouble", double)?.map(number_data_point::Value::AsDouble)
    };
    Ok(NumberDataPoint {
        attributes: at.each("attributes", key_value)?,
        start_time_unix_nano: at.whole("startTimeUnixNano")?,
        time_unix_nano: at.whole("timeUnixNano")?,
        exemplars: at.each("exemplars", exemplar)?,
        flags: at.whole("flags")?,
        value,
    })
}

fn histogram_point(at: &At<'_>) -> Read<HistogramDataPoint> {
    Ok(HistogramDataPoint {
        attributes: at.each("attributes", key_value)?,
        start_time_unix_nano: at.whole("startTimeUnixNano")?,
        time_unix_nano: at.whole("timeUnixNano")?,
        count: at.whole("count")?,
        sum: at.optional("sum", double)?,
        bucket_counts: at.each("bucketCounts", number)?,
        explicit_bounds: at.each("explicitBounds", double)?,
        exemplars: at.each("exemplars", exemplar)?,
        flags: at.whole("flags")?,
        min: at.optional("min", double)?,
        max: at.optional("max", double)?,
    })
}

fn exponential_point(at: &At<'_>) -> Read<ExponentialHistogramDataPoint> {
    let buckets = |at: &At<'_>| {
        Ok(Buckets { offset: at.whole("offset")?, bucket_counts: at.each("bucketCounts", number)? })
    };
    Ok(ExponentialHistogramDataPoint {
        attributes: at.each("attributes", key_value)?,
        start_time_unix_nano: at.whole("startTimeUnixNano")?,
        time_unix_nano: at.whole("timeUnixNano")?,
        count: at.whole("count")?,
        sum: at.optional("sum", double)?,
        scale: at.whole("scale")?,
        zero_count: at.whole("zeroCount")?,
        positive: at.optional("positive", buckets)?,
        negative: at.optional("negative", buckets)?,
        flags: at.whole("flags")?,
        exemplars: at.each("exemplars", exemplar)?,
        min: at.optional("min", double)?,
        max: at.optional("max", double)?,
        zero_threshold: at.optional("zeroThreshold", double)?.unwrap_or_default(),
    })
}

fn summary_point(at: &At<'_>) -> Read<SummaryDataPoint> {
    Ok(SummaryDataPoint {
        attributes: at.each("attributes", key_value)?,
        start_time_unix_nano: at.whole("startTimeUnixNano")?,
        time_unix_nano: at.whole("timeUnixNano")?,
        count: at.whole("count")?,
        sum: at.optional("sum", double)?.unwrap_or_default(),
        quantile_values: at.each("quantileValues", |at| {
            Ok(ValueAtQuantile {
                quantile: at.optional("quantile", double)?.unwrap_or_default(),
                value: at.optional("value", double)?.unwrap_or_default(),
            })
        })?,
        flags: at.whole("flags")?,
    })
}

fn exemplar(at: &At<'_>) -> Read<Exemplar> {
    let value = if at.has("asInt") {
        Some(exemplar::Value::AsInt(at.whole("asInt")?))
    } else {
        at.optional("asDouble", double)?.map(exemplar::Value::AsDouble)
    };
    Ok(Exemplar {
        filtered_attributes: at.each("filteredAttributes", key_value)?,
        time_unix_nano: at.whole("timeUnixNano")?,
        span_id: at.id("spanId", 8)?,
        trace_id: at.id("traceId", 16)?,
        value,
    })
}

fn resource(at: &At<'_>) -> Read<Resource> {
    Ok(Resource {
        attributes: at.each("attributes", key_value)?,
        dropped_attributes_count: at.whole("droppedAttributesCount")?,
        entity_refs: Vec::new(),
    })
}

fn scope(at: &At<'_>) -> Read<InstrumentationScope> {
    Ok(InstrumentationScope {
        name: at.text("name")?,
        version: at.text("version")?,
        attributes: at.each("attributes", key_value)?,
        dropped_attributes_count: at.whole("droppedAttributesCount")?,
    })
}

fn key_value(at: &At<'_>) -> Read<KeyValue> {
    Ok(KeyValue { key: at.text("key")?, value: at.optional("value", any_value)?, key_strindex: 0 })
}

fn any_value(at: &At<'_>) -> Read<AnyValue> {
    use any_value::Value;
    let value = if at.has("stringValue") {
        Some(Value::StringValue(at.text("stringValue")?))
    } else if at.has("intValue") {
        Some(Value::IntValue(at.whole("intValue")?))
    } else if at.has("boolValue") {
        Some(Value::BoolValue(at.boolean("boolValue")?))
    } else if let Some(array) = at.present("arrayValue") {
        Some(Value::ArrayValue(ArrayValue { values: array.each("values", any_value)? }))
    } else if let Some(list) = at.present("kvlistValue") {
        Some(Value::KvlistValue(KeyValueList { values: list.each("values", key_value)? }))
    } else if at.has("bytesValue") {
        Some(Value::BytesValue(at.bytes("bytesValue")?))
    } else {
        at.optional("doubleValue", double)?.map(Value::DoubleValue)
    };
    Ok(AnyValue { value })
}

fn number<T: FromStr>(at: &At<'_>) -> Read<T> {
    let read = match at.json {
        Json::String(digits) => digits.parse().ok(),
        Json::Number(number) => number.to_string().parse().ok(),
        _ => None,
    };
    read.ok_or_else(|| at.is_not("a whole number"))
}

fn double(at: &At<'_>) -> Read<f64> {
    let read = match at.json {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            text => text.parse().ok().filter(|number: &f64| number.is_finite()),
        },
        _ => None,
    };
    read.ok_or_else(|| at.is_not("a number"))
}

/// A value and its place in the line.
struct At<'a> {
    json: &'a Json,
    within: Option<&'a At<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Where a value is not what it should be, an error names its place. Null is as good as absent.
impl At<'_> {
    fn present<'a>(&'a self, key: &'a str) -> Option<At<'a>> {
        let json = self.json.get(key).filter(|json| !json.is_null())?;
        Some(At { json, within: Some(self), step: Step::Key(key) })
    }

    fn has(&self, key: &str) -> bool {
        self.present(key).is_some()
    }

    fn optional<T>(&self, key: &str, read: impl Fn(&At<'_>) -> Read<T>) -> Read<Option<T>> {
        self.present(key).map(|at| read(&at)).transpose()
    }

    fn or_default<T: Default>(&self, key: &str, read: impl Fn(&At<'_>) -> Read<T>) -> Read<T> {
        self.optional(key, read).map(Option::unwrap_or_default)
    }

    fn each<T>(&self, key: &str, read: impl Fn(&At<'_>) -> Read<T>) -> Read<Vec<T>> {
        self.or_default(key, |list| {
            let items = list.json.as_array().ok_or_else(|| list.is_not("a list"))?.iter().enumerate();
            items.map(|(n, json)| read(&At { json, within: Some(list), step: Step::Index(n) })).collect()
        })
    }

    fn text(&self, key: &str) -> Read<String> {
        self.or_default(key, |at| at.json.as_str().map(str::to_owned).ok_or_else(|| at.is_not("a text")))
    }

    fn boolean(&self, key: &str) -> Read<bool> {
        self.or_default(key, |at| at.json.as_bool().ok_or_else(|| at.is_not("true or false")))
    }

    fn whole<T: FromStr + Default>(&self, key: &str) -> Read<T> {
        self.or_default(key, number)
    }

    /// An id of this many bytes, or none.
    fn id(&self, key: &str, length: usize) -> Read<Vec<u8>> {
        self.or_default(key, |at| {
            let digits = at.json.as_str().map(str::as_bytes).unwrap_or_default();
            let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
            let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
            let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
            bytes
                .filter(|_| is_hex && at.json.is_string() && [0, 2 * length].contains(&digits.len()))
                .ok_or_else(|| at.is_not(&format!("{} hex digits", 2 * length)))
        })
    }

    fn bytes(&self, key: &str) -> Read<Vec<u8>> {
        self.or_default(key, |at| {
            let text = at.json.as_str().unwrap_or("?");
            let decoded = BASE64_STANDARD.decode(text).or_else(|_| BASE64_URL_SAFE.decode(text));
            decoded.map_err(|_| at.is_not("bytes in base64"))
        })
    }

    fn is_not(&self, expected: &str) -> Unreadable {
        let mut found = self.json.to_string();
        if let Some((end, _)) = found.char_indices().nth(80) {
            found.truncate(end);
            found.push('…');
        }
        Unreadable(format!("{self}: expected {expected}, got {found}"))
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(within) = self.within else { return Ok(()) };
        within.fmt(f)?;
        match self.step {
            Step::Key(key) if within.within.is_none() => f.write_str(key),
            Step::Key(key) => write!(f, ".{key}"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}
