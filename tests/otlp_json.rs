//! Does a file hold what was put in?
//!
//! Whatever names, values and ids a program records, a line of a file is one line of JSON, and says the same to
//! whoever knows the protocol: what reads here is written after its rules, not after our writer.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use lens_runtime::files::{Line as Read, read_line};
use lens_runtime::opentelemetry::trace::{
    Event, Link, Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _,
};
use lens_runtime::opentelemetry::{Array, Context, InstrumentationScope, KeyValue, Value, global};
use lens_runtime::opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue as Pair, any_value};
use lens_runtime::opentelemetry_proto::tonic::{logs::v1::LogRecord, trace::v1 as proto};
use lens_runtime::{Environment, Telemetry, TelemetryConfig};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value as Json;
use tracing_subscriber::layer::SubscriberExt as _;

const CONFIG: &str = "\
telemetry: {enabled: true, exporter: file, metrics_enabled: false, logs_enabled: true}
";

/// A value in the words of neither side. Floats by their bits, of which all that are no number are one.
#[derive(Clone, Debug, PartialEq)]
enum Plain {
    Bool(bool),
    Int(i64),
    Double(u64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Plain>),
}

impl From<f64> for Plain {
    fn from(value: f64) -> Self {
        Self::Double(if value.is_nan() { f64::NAN } else { value }.to_bits())
    }
}

impl From<&Value> for Plain {
    fn from(value: &Value) -> Self {
        match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::I64(value) => Self::Int(*value),
            Value::F64(value) => Self::from(*value),
            Value::String(value) => Self::Text(value.to_string()),
            Value::Array(Array::Bool(values)) => Self::List(values.iter().map(|v| Self::Bool(*v)).collect()),
            Value::Array(Array::I64(values)) => Self::List(values.iter().map(|v| Self::Int(*v)).collect()),
            Value::Array(Array::F64(values)) => Self::List(values.iter().map(|v| Self::from(*v)).collect()),
            Value::Array(Array::String(values)) => {
                Self::List(values.iter().map(|v| Self::Text(v.to_string())).collect())
            }
            other => panic!("not one of ours: {other:?}"),
        }
    }
}

/// What the protocol means by a value.
fn read(value: &Json) -> Plain {
    let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        "boolValue" => Plain::Bool(value.as_bool().unwrap()),
        "intValue" => Plain::Int(value.as_str().unwrap().parse().unwrap()),
        "doubleValue" => Plain::from(match value.as_str() {
            Some("NaN") => f64::NAN,
            Some("Infinity") => f64::INFINITY,
            Some("-Infinity") => f64::NEG_INFINITY,
            _ => value.as_f64().unwrap(),
        }),
        "stringValue" => Plain::Text(value.as_str().unwrap().to_owned()),
        "bytesValue" => Plain::Bytes(BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap()),
        "arrayValue" => Plain::List(list(&value["values"]).map(read).collect()),
        other => panic!("not one of the protocol's: {other}"),
    }
}

/// Of what is left out there is none.
fn list(values: &Json) -> impl Iterator<Item = &Json> {
    values.as_array().into_iter().flatten()
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

type Attributes = Vec<(String, Plain)>;

fn attributes(item: &Json) -> Attributes {
    list(&item["attributes"]).map(|pair| (text(&pair["key"]).to_owned(), read(&pair["value"]))).collect()
}

fn plain(attributes: &[KeyValue]) -> Attributes {
    attributes.iter().map(|pair| (pair.key.to_string(), Plain::from(&pair.value))).collect()
}

/// What a program records.
#[derive(Clone, Debug)]
struct Recorded {
    scope: InstrumentationScope,
    parent: SpanContext,
    name: String,
    kind: SpanKind,
    times: (u64, u64),
    attributes: Vec<KeyValue>,
    events: Vec<Event>,
    links: Vec<Link>,
    error: Option<String>,
    line: Line,
}

/// A line of its log.
#[derive(Clone, Debug)]
struct Line {
    text: String,
    word: String,
    whole: i128,
    share: f64,
    bytes: Vec<u8>,
}

impl Recorded {
    fn record(&self) {
        let context = Context::new().with_remote_span_context(self.parent.clone());
        let tracer = global::tracer_with_scope(self.scope.clone());
        let mut builder = tracer.span_builder(self.name.clone()).with_kind(self.kind.clone());
        builder = builder.with_start_time(time(self.times.0)).with_links(self.links.clone());
        let mut span = tracer.build_with_context(builder.with_events(self.events.clone()), &context);
        self.attributes.iter().for_each(|attribute| span.set_attribute(attribute.clone()));
        if let Some(text) = &self.error {
            span.set_status(Status::error(text.clone()));
        }
        span.end_with_timestamp(time(self.times.1));
        let _attached = context.attach();
        let Line { text, word, whole, share, bytes } = &self.line;
        tracing::info!(word, whole, share, bytes = bytes.as_slice(), "{text}");
    }

    /// Whether a span is the one that was recorded.
    fn is_told(&self, scope: &Json, span: &Json) -> Result<(), TestCaseError> {
        prop_assert_eq!(text(&scope["name"]), self.scope.name());
        prop_assert_eq!(text(&scope["version"]), self.scope.version().unwrap_or_default());
        let of_scope: Vec<_> = self.scope.attributes().cloned().collect();
        prop_assert_eq!(attributes(scope), plain(&of_scope));
        prop_assert_eq!(text(&span["name"]), &self.name);
        let kind = match self.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
            SpanKind::Producer => 4,
            SpanKind::Consumer => 5,
        };
        prop_assert_eq!(&span["kind"], kind);
        prop_assert_eq!(ids(span, "traceId"), u128::from_be_bytes(self.parent.trace_id().to_bytes()));
        prop_assert_eq!(
            ids(span, "parentSpanId"),
            u64::from_be_bytes(self.parent.span_id().to_bytes()).into()
        );
        prop_assert_eq!(text(&span["traceState"]), self.parent.trace_state().header());
        prop_assert_eq!(text(&span["startTimeUnixNano"]), self.times.0.to_string());
        prop_assert_eq!(text(&span["endTimeUnixNano"]), self.times.1.to_string());
        // Of a key that was set twice the last value.
        let found = attributes(span);
        let last: BTreeMap<_, _> = plain(&self.attributes).into_iter().collect();
        prop_assert_eq!(found.len(), last.len());
        prop_assert!(found.iter().all(|(key, value)| last[key] == *value), "{:?}", found);
        let events: Vec<_> = list(&span["events"]).collect();
        prop_assert_eq!(events.len(), self.events.len());
        for (event, own) in events.into_iter().zip(&self.events) {
            prop_assert_eq!(text(&event["name"]), &*own.name);
            prop_assert_eq!(time(text(&event["timeUnixNano"]).parse().unwrap()), own.timestamp);
            prop_assert_eq!(attributes(event), plain(&own.attributes));
        }
        let links: Vec<_> = list(&span["links"]).collect();
        prop_assert_eq!(links.len(), self.links.len());
        for (link, own) in links.into_iter().zip(&self.links) {
            let context = &own.span_context;
            prop_assert_eq!(ids(link, "traceId"), u128::from_be_bytes(context.trace_id().to_bytes()));
            prop_assert_eq!(ids(link, "spanId"), u64::from_be_bytes(context.span_id().to_bytes()).into());
            prop_assert_eq!(text(&link["traceState"]), context.trace_state().header());
            prop_assert_eq!(link["flags"].as_u64().unwrap() & 0xff, u64::from(context.trace_flags().to_u8()));
            prop_assert_eq!(attributes(link), plain(&own.attributes));
        }
        let code = span["status"]["code"].as_u64().unwrap_or(0);
        prop_assert_eq!(code, if self.error.is_some() { 2 } else { 0 });
        prop_assert_eq!(text(&span["status"]["message"]), self.error.as_deref().unwrap_or_default());
        Ok(())
    }

    /// Whether our own reader reads the span that was recorded.
    fn is_read(&self, spans: &proto::ScopeSpans) -> Result<(), TestCaseError> {
        let (scope, span) = (spans.scope.as_ref().unwrap(), &spans.spans[0]);
        let of_scope: Vec<_> = self.scope.attributes().cloned().collect();
        prop_assert_eq!((&*scope.name, &scope.version), (self.scope.name(), &self.version()));
        prop_assert_eq!(plain_pairs(&scope.attributes), plain(&of_scope));
        prop_assert_eq!(&span.name, &self.name);
        prop_assert_eq!(&span.trace_id, &self.parent.trace_id().to_bytes());
        prop_assert_eq!(&span.parent_span_id, &self.parent.span_id().to_bytes());
        prop_assert_eq!(&span.trace_state, &self.parent.trace_state().header());
        prop_assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), self.times);
        let last: BTreeMap<_, _> = plain(&self.attributes).into_iter().collect();
        prop_assert_eq!(plain_pairs(&span.attributes).into_iter().collect::<BTreeMap<_, _>>(), last);
        prop_assert_eq!((span.events.len(), span.links.len()), (self.events.len(), self.links.len()));
        for (event, own) in span.events.iter().zip(&self.events) {
            prop_assert_eq!((&*event.name, time(event.time_unix_nano)), (&*own.name, own.timestamp));
            prop_assert_eq!(plain_pairs(&event.attributes), plain(&own.attributes));
        }
        for (link, own) in span.links.iter().zip(&self.links) {
            prop_assert_eq!(&link.span_id, &own.span_context.span_id().to_bytes());
            prop_assert_eq!(plain_pairs(&link.attributes), plain(&own.attributes));
        }
        let status = span.status.as_ref().unwrap();
        prop_assert_eq!(&status.message, self.error.as_deref().unwrap_or_default());
        Ok(())
    }

    fn version(&self) -> String {
        self.scope.version().unwrap_or_default().to_owned()
    }

    /// Whether our own reader reads the line that was written.
    fn is_read_in_line(&self, record: &LogRecord) -> Result<(), TestCaseError> {
        prop_assert_eq!(plain_value(record.body.as_ref().unwrap()), Plain::Text(self.line.text.clone()));
        prop_assert_eq!(&record.span_id, &self.parent.span_id().to_bytes());
        let attributes: BTreeMap<_, _> = plain_pairs(&record.attributes).into_iter().collect();
        prop_assert_eq!(&attributes["bytes"], &Plain::Bytes(self.line.bytes.clone()));
        prop_assert_eq!(&attributes["share"], &Plain::from(self.line.share));
        Ok(())
    }

    /// Whether a log record is the line that was written.
    fn is_told_in_line(&self, record: &Json) -> Result<(), TestCaseError> {
        let Line { text, word, whole, share, bytes } = &self.line;
        prop_assert_eq!(read(&record["body"]), Plain::Text(text.clone()));
        prop_assert_eq!(ids(record, "traceId"), u128::from_be_bytes(self.parent.trace_id().to_bytes()));
        let attributes: BTreeMap<_, _> = attributes(record).into_iter().collect();
        prop_assert_eq!(&attributes["word"], &Plain::Text(word.clone()));
        prop_assert_eq!(&attributes["share"], &Plain::from(*share));
        prop_assert_eq!(&attributes["bytes"], &Plain::Bytes(bytes.clone()));
        let whole = i64::try_from(*whole).map_or_else(|_| Plain::Text(whole.to_string()), Plain::Int);
        prop_assert_eq!(&attributes["whole"], &whole);
        Ok(())
    }
}

fn plain_value(value: &AnyValue) -> Plain {
    use any_value::Value;
    match value.value.as_ref().unwrap() {
        Value::BoolValue(value) => Plain::Bool(*value),
        Value::IntValue(value) => Plain::Int(*value),
        Value::DoubleValue(value) => Plain::from(*value),
        Value::StringValue(value) => Plain::Text(value.clone()),
        Value::BytesValue(value) => Plain::Bytes(value.clone()),
        Value::ArrayValue(list) => Plain::List(list.values.iter().map(plain_value).collect()),
        other => panic!("not one of ours: {other:?}"),
    }
}

fn plain_pairs(pairs: &[Pair]) -> Attributes {
    pairs.iter().map(|pair| (pair.key.clone(), plain_value(pair.value.as_ref().unwrap()))).collect()
}

/// An id, of which the protocol has hex digits.
fn ids(item: &Json, key: &str) -> u128 {
    u128::from_str_radix(text(&item[key]), 16).unwrap()
}

fn time(nanos: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanos)
}

/// The file of a signal, of which each time the lines are read that are new.
struct Tail {
    folder: PathBuf,
    signal: &'static str,
    file: Option<File>,
}

impl Tail {
    /// The only new line.
    fn line(&mut self) -> String {
        let file = self.file.get_or_insert_with(|| {
            let mut files = std::fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap());
            let is_ours = |name: &str| name.starts_with(self.signal);
            let file = files.find(|file| is_ours(file.file_name().to_str().unwrap())).unwrap();
            File::open(file.path()).unwrap()
        });
        let mut lines = String::new();
        file.read_to_string(&mut lines).unwrap();
        let line = lines.strip_suffix('\n').unwrap();
        assert!(!line.contains(['\n', '\r']), "{line}");
        line.to_owned()
    }
}

fn texts() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..12).prop_map(|chars| chars.into_iter().collect())
}

fn wholes() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

fn floats() -> impl Strategy<Value = f64> {
    prop_oneof![proptest::num::f64::ANY, Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(f64::NAN)]
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        wholes().prop_map(Value::I64),
        floats().prop_map(Value::F64),
        texts().prop_map(Value::from),
        vec(any::<bool>(), 0..4).prop_map(|list| Value::Array(Array::Bool(list))),
        vec(wholes(), 0..4).prop_map(|list| Value::Array(Array::I64(list))),
        vec(floats(), 0..4).prop_map(|list| Value::Array(Array::F64(list))),
        vec(texts().prop_map(Into::into), 0..4).prop_map(|list| Value::Array(Array::String(list))),
    ]
}

fn pairs() -> impl Strategy<Value = Vec<KeyValue>> {
    // Short keys, so that some are the same.
    let keys = prop_oneof![texts(), "[ab]".prop_map(String::from)];
    vec((keys, values()).prop_map(|(key, value)| KeyValue::new(key, value)), 0..6)
}

fn contexts() -> impl Strategy<Value = SpanContext> {
    let states = vec(("[a-z][a-z0-9]{0,5}", texts()), 0..3);
    (1_u128.., 1_u64.., any::<u8>(), states).prop_map(|(trace, span, flags, states)| {
        let states = states.into_iter().map(|(key, value)| (key, value.replace([',', '='], "")));
        let state = TraceState::from_key_value(states).unwrap_or_default();
        // Sampled, as far as it is a parent.
        let flags = TraceFlags::new(flags) | TraceFlags::SAMPLED;
        SpanContext::new(TraceId::from(trace), SpanId::from(span), flags, true, state)
    })
}

fn recorded() -> impl Strategy<Value = Recorded> {
    let kinds = prop_oneof![
        Just(SpanKind::Internal),
        Just(SpanKind::Server),
        Just(SpanKind::Client),
        Just(SpanKind::Producer),
        Just(SpanKind::Consumer)
    ];
    let scopes = (texts(), texts(), pairs()).prop_map(|(name, version, attributes)| {
        InstrumentationScope::builder(name).with_version(version).with_attributes(attributes).build()
    });
    let events = (texts(), any::<u64>(), pairs())
        .prop_map(|(name, nanos, attributes)| Event::new(name, time(nanos), attributes, 0));
    let links = (contexts(), pairs()).prop_map(|(context, attributes)| Link::new(context, attributes, 0));
    let said = (texts(), texts(), any::<i128>(), wholes(), any::<bool>(), floats(), vec(any::<u8>(), 0..9));
    let said = said.prop_map(|(text, word, large, whole, is_large, share, bytes)| {
        let whole = if is_large { large } else { whole.into() };
        Line { text, word, whole, share, bytes }
    });
    let all = (
        scopes,
        contexts(),
        texts(),
        kinds,
        any::<(u64, u64)>(),
        pairs(),
        vec(events, 0..3),
        vec(links, 0..3),
    );
    (all, proptest::option::of(texts()), said).prop_map(
        |((scope, parent, name, kind, times, attributes, events, links), error, line)| Recorded {
            scope,
            parent,
            name,
            kind,
            times,
            attributes,
            events,
            links,
            error,
            line,
        },
    )
}

/// Every kind of record, in the forms that writers give it.
const LINES: [&str; 3] = [
    r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"a","value":{"kvlistValue":{"values":[{"key":"b","value":{"arrayValue":{"values":[{"intValue":7},{"bytesValue":"AP8="},{}]}}}]}}}]},"scopeSpans":[{"scope":{"name":"s"},"spans":[{"traceId":"000102030405060708090a0b0c0d0e0f","spanId":"0001020304050607","name":"n","kind":3,"startTimeUnixNano":"18446744073709551615","endTimeUnixNano":5,"events":[{"name":"e","timeUnixNano":"1"}],"links":[{"traceId":"000102030405060708090A0B0C0D0E0F","spanId":"","flags":769}],"status":{"code":2,"message":"m"}}]}]}]}"#,
    r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":null,"severityNumber":9,"body":{"doubleValue":"-Infinity"},"attributes":[{"key":"k","value":{"doubleValue":"1.5"}}],"unknown":[1]}]}]}]}"#,
    r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"g","gauge":{"dataPoints":[{"asDouble":"NaN","exemplars":[{"asInt":"-3","filteredAttributes":[]}]},{"asInt":"-9223372036854775808"}]}},{"name":"s","sum":{"dataPoints":[{"asInt":3}],"aggregationTemporality":2,"isMonotonic":true}},{"name":"h","histogram":{"dataPoints":[{"count":"2","sum":1.5,"bucketCounts":["1","1"],"explicitBounds":[0.5],"min":-0.0}]}},{"name":"x","exponentialHistogram":{"dataPoints":[{"count":"1","scale":-2,"zeroCount":"1","positive":{"offset":1,"bucketCounts":[0,1]}}]}},{"name":"q","summary":{"dataPoints":[{"count":"1","sum":2,"quantileValues":[{"quantile":0.5,"value":2}]}]}}]}]}]}"#,
];

#[test]
fn whatever_is_in_a_line_it_is_read_or_an_error_that_names_the_place() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    for line in LINES {
        assert!(read_line(line).is_ok(), "{line}");
    }
    // A value somewhere in a good line that is another one.
    const OTHERS: [&str; 10] =
        ["null", "7", "-1", "1e400", "\"x\"", "[]", "[[7]]", "{}", "{\"a\":[{}]}", "true"];
    runner
        .run(
            &(0..LINES.len(), any::<prop::sample::Index>(), prop::sample::select(&OTHERS[..])),
            |(n, at, other)| {
                let mut json: Json = serde_json::from_str(LINES[n]).unwrap();
                let pointers = pointers(&json, String::new());
                *json.pointer_mut(&pointers[at.index(pointers.len())]).unwrap() =
                    serde_json::from_str(other).unwrap_or(Json::Null);
                if let Err(error) = read_line(&json.to_string()) {
                    prop_assert!(
                        error.to_string().starts_with("resource")
                            || error.to_string().contains("expected an object")
                    );
                }
                Ok(())
            },
        )
        .unwrap();
    // A line that is cut.
    for line in LINES {
        for end in 0..line.len() {
            assert!(read_line(&line[..end]).unwrap_err().to_string().starts_with("not JSON: "));
        }
    }
}

/// The places of all values in a line.
fn pointers(json: &Json, at: String) -> Vec<String> {
    let within: Vec<String> = match json {
        Json::Array(items) => {
            items.iter().enumerate().flat_map(|(n, item)| pointers(item, format!("{at}/{n}"))).collect()
        }
        Json::Object(fields) => {
            fields.iter().flat_map(|(key, field)| pointers(field, format!("{at}/{key}"))).collect()
        }
        _ => Vec::new(),
    };
    [at].into_iter().chain(within).collect()
}

#[test]
fn every_kind_of_value_is_read_in_every_form_that_the_protocol_has_for_it() {
    use lens_runtime::opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point::Value};
    let [Read::Traces(traces), Read::Logs(logs), Read::Metrics(metrics)] =
        LINES.map(|line| read_line(line).unwrap())
    else {
        panic!("not what they are");
    };
    let resource = traces.resource_spans[0].resource.as_ref().unwrap();
    let Some(any_value::Value::KvlistValue(map)) = &resource.attributes[0].value.as_ref().unwrap().value
    else {
        panic!("{resource:?}")
    };
    let Some(any_value::Value::ArrayValue(list)) = &map.values[0].value.as_ref().unwrap().value else {
        panic!("{map:?}")
    };
    assert_eq!(plain_value(&list.values[0]), Plain::Int(7));
    assert_eq!(plain_value(&list.values[1]), Plain::Bytes(vec![0, 255]));
    assert_eq!(list.values[2].value, None);
    let span = &traces.resource_spans[0].scope_spans[0].spans[0];
    assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (u64::MAX, 5));
    assert_eq!(span.links[0].trace_id, span.trace_id, "hex digits of either case");
    assert_eq!(span.links[0].span_id, [0_u8; 0]);
    let record = &logs.resource_logs[0].scope_logs[0].log_records[0];
    assert_eq!((record.time_unix_nano, record.severity_number), (0, 9));
    assert_eq!(plain_value(record.body.as_ref().unwrap()), Plain::from(f64::NEG_INFINITY));
    assert_eq!(plain_pairs(&record.attributes), [("k".to_owned(), Plain::from(1.5))]);
    let data = metrics.resource_metrics[0].scope_metrics[0]
        .metrics
        .iter()
        .map(|metric| metric.data.clone().unwrap());
    let [
        Data::Gauge(gauge),
        Data::Sum(sum),
        Data::Histogram(histogram),
        Data::ExponentialHistogram(exponential),
        Data::Summary(summary),
    ] = <[Data; 5]>::try_from(data.collect::<Vec<_>>()).unwrap()
    else {
        panic!("{metrics:?}")
    };
    assert!(matches!(gauge.data_points[0].value, Some(Value::AsDouble(value)) if value.is_nan()));
    assert_eq!(gauge.data_points[0].exemplars.len(), 1);
    assert_eq!(gauge.data_points[1].value, Some(Value::AsInt(i64::MIN)));
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
    assert_eq!(histogram.data_points[0].bucket_counts, [1, 1]);
    assert!(
        histogram.data_points[0].min.unwrap().is_sign_negative() && histogram.data_points[0].max.is_none()
    );
    assert_eq!((exponential.data_points[0].scale, exponential.data_points[0].zero_count), (-2, 1));
    assert_eq!(exponential.data_points[0].positive.as_ref().unwrap().bucket_counts, [0, 1]);
    assert_eq!(summary.data_points[0].quantile_values[0].value.to_bits(), 2.0_f64.to_bits());
}

/// The only test that has this process's telemetry.
#[test]
fn whatever_is_recorded_is_read_back_from_one_line_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let config = TelemetryConfig::from_yaml(CONFIG, "run.yaml").unwrap().with_directory(folder.path());
    let telemetry = Telemetry::init_driver_in(config, &Environment::of_pairs([("", "")])).unwrap();
    let _subscriber =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(telemetry.log_layer()));
    let tail =
        |signal| RefCell::new(Tail { folder: telemetry.folder().unwrap().to_owned(), signal, file: None });
    let (traces, logs) = (tail("traces-"), tail("logs-"));
    // The same values each time: a gate that fails is one that was changed.
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    runner
        .run(&recorded(), |recorded| {
            recorded.record();
            assert!(telemetry.flush(Duration::from_secs(5)));
            let lines = [&traces, &logs].map(|tail| tail.borrow_mut().line());
            let (Ok(Read::Traces(spans)), Ok(Read::Logs(records))) =
                (read_line(&lines[0]), read_line(&lines[1]))
            else {
                panic!("not read: {lines:?}");
            };
            recorded.is_read(&spans.resource_spans[0].scope_spans[0])?;
            recorded.is_read_in_line(&records.resource_logs[0].scope_logs[0].log_records[0])?;
            let [spans, records] = lines.each_ref().map(|line| serde_json::from_str::<Json>(line).unwrap());
            let scope = &spans["resourceSpans"][0]["scopeSpans"][0];
            recorded.is_told(&scope["scope"], &scope["spans"][0])?;
            recorded.is_told_in_line(&records["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0])
        })
        .unwrap();
}
