//! What did the program make, as the program itself knows it?
//!
//! Makes spans, metrics and log records of every kind, and prints each of them as it has to arrive at a
//! receiver: a line `ledger {…}` in OTLP-JSON, with "*" for what only the clock knows. Nothing of this
//! goes through the export: ids come from the context, everything else stands here twice.

use std::collections::HashMap;

use lens_runtime::opentelemetry::trace::{
    Event, Link, Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _, TracerProvider as _,
};
use lens_runtime::opentelemetry::{
    Array, Context, InstrumentationScope, KeyValue, StringValue, Value, global,
};
use lens_runtime::{Telemetry, propagation, record_step, rl_span, scalars, semconv};
use serde_json::{Value as Json, json};
use tracing_subscriber::layer::SubscriberExt as _;

/// Makes them all; of numbers that are not finite only if `of_any_kind`, because not every receiver takes
/// them.
pub(crate) fn run(telemetry: &Telemetry, of_any_kind: bool) {
    tell(&json!({"resource": {"attributes": [
        text("service.name", "rl-trainer"),
        text("nemo.run.id", telemetry.run_id().unwrap()),
        text("telemetry.distro.name", "lens"),
        text("telemetry.sdk.language", "rust"),
        {"key": "process.pid", "value": {"intValue": std::process::id().to_string()}},
    ]}}));
    spans(of_any_kind);
    metrics();
    let subscriber = tracing_subscriber::registry().with(telemetry.log_layer());
    tracing::subscriber::with_default(subscriber, || logs(telemetry));
}

fn tell(entry: &Json) {
    println!("ledger {entry}");
}

fn text(key: &str, value: &str) -> Json {
    json!({"key": key, "value": {"stringValue": value}})
}

fn int(key: &str, value: i64) -> Json {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

/// Not a number, and an infinite one; or others in their place.
fn not_finite(of_any_kind: bool) -> [f64; 2] {
    match of_any_kind {
        true => [f64::NAN, f64::NEG_INFINITY],
        false => [1e300, -0.0],
    }
}

/// A float as OTLP-JSON has it.
fn double(value: f64) -> Json {
    match value {
        f64::NEG_INFINITY => json!("-Infinity"),
        value if value.is_nan() => json!("NaN"),
        value => json!(value),
    }
}

fn lens() -> Json {
    json!({"name": "lens", "version": env!("CARGO_PKG_VERSION")})
}

/// Of a trace and a span.
type Ids = (String, String);

/// The ids of the span that is current.
fn ids() -> Ids {
    Context::map_current(|context| {
        let span = context.span();
        let ids = span.span_context();
        (ids.trace_id().to_string(), ids.span_id().to_string())
    })
}

/// A span of Lens.
fn tell_annotated(name: &str, (trace, span): &Ids, parent: &str, attributes: &[Json], status: &Json) {
    tell(&json!({"scope": lens(), "span": {
        "traceId": trace, "spanId": span, "parentSpanId": parent, "flags": 0x101, "name": name, "kind": 1,
        "startTimeUnixNano": "*", "endTimeUnixNano": "*", "attributes": attributes, "status": status,
    }}));
}

fn spans(of_any_kind: bool) {
    // From elsewhere, with a trace state.
    let headers = HashMap::from([
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "vendor=1,other=2"),
    ]);
    let headers: HashMap<String, String> =
        headers.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let attached = propagation::extract(&headers).attach();
    others(of_any_kind);
    drop(attached);
    let [nan, _] = not_finite(of_any_kind);
    step(7, nan);
}

/// A library that knows OpenTelemetry and nothing of Lens.
fn others(of_any_kind: bool) {
    let scope = InstrumentationScope::builder("another.library")
        .with_version("1.2.3")
        .with_schema_url("https://example.com/schema")
        .with_attributes([KeyValue::new("flavour", "vanilla")])
        .build();
    let scope_json = json!({"name": "another.library", "version": "1.2.3",
        "attributes": [text("flavour", "vanilla")]});
    let tracer = global::tracer_provider().tracer_with_scope(scope);
    let linked = SpanContext::new(
        TraceId::from(0x1234),
        SpanId::from(0x5678),
        TraceFlags::SAMPLED,
        true,
        TraceState::from_key_value([("linked", "yes")]).unwrap(),
    );
    let [nan, infinite] = not_finite(of_any_kind);
    let every_type = [
        ("bool", Value::Bool(true), json!({"boolValue": true})),
        ("least", Value::I64(i64::MIN), json!({"intValue": i64::MIN.to_string()})),
        ("greatest", Value::I64(i64::MAX), json!({"intValue": i64::MAX.to_string()})),
        ("float", Value::F64(0.1 + 0.2), json!({"doubleValue": 0.1 + 0.2})),
        ("nan", Value::F64(nan), json!({"doubleValue": double(nan)})),
        ("infinite", Value::F64(infinite), json!({"doubleValue": double(infinite)})),
        (
            "text",
            Value::from("ünïcödé \"quoted\"\n\u{1F600}"),
            json!({"stringValue": "ünïcödé \"quoted\"\n\u{1F600}"}),
        ),
        ("nothing", Value::from(""), json!({"stringValue": ""})),
        (
            "bools",
            Value::Array(Array::Bool(vec![true, false])),
            json!({"arrayValue": {"values": [{"boolValue": true}, {"boolValue": false}]}}),
        ),
        (
            "ints",
            Value::Array(Array::I64(vec![1, -1])),
            json!({"arrayValue": {"values": [{"intValue": "1"}, {"intValue": "-1"}]}}),
        ),
        (
            "floats",
            Value::Array(Array::F64(vec![0.5])),
            json!({"arrayValue": {"values": [{"doubleValue": 0.5}]}}),
        ),
        (
            "texts",
            Value::Array(Array::String(vec![StringValue::from("a"), StringValue::from("")])),
            json!({"arrayValue": {"values": [{"stringValue": "a"}, {"stringValue": ""}]}}),
        ),
    ];
    let kinds =
        [SpanKind::Internal, SpanKind::Server, SpanKind::Client, SpanKind::Producer, SpanKind::Consumer];
    let endings = [
        (Status::Unset, json!({})),
        (Status::Ok, json!({"code": 1})),
        (Status::error("out of memory"), json!({"code": 2, "message": "out of memory"})),
    ];
    for (index, kind) in kinds.into_iter().enumerate() {
        let (status, status_json) = &endings[index % endings.len()];
        let now = std::time::SystemTime::now();
        let mut span = tracer
            .span_builder(format!("other.{index}"))
            .with_start_time(now)
            .with_kind(kind)
            .with_attributes(every_type.iter().map(|(key, value, _)| KeyValue::new(*key, value.clone())))
            .with_links(vec![Link::new(linked.clone(), vec![KeyValue::new("why", "because")], 0)])
            .with_events(vec![Event::new("first", now, vec![KeyValue::new("attempt", 1)], 0)])
            .start(&tracer);
        span.set_status(status.clone());
        span.add_event("second", Vec::new());
        let ids = span.span_context().clone();
        span.end();
        tell(&json!({"scope": scope_json, "schemaUrl": "https://example.com/schema", "span": {
            "traceId": ids.trace_id().to_string(), "spanId": ids.span_id().to_string(),
            "parentSpanId": "b7ad6b7169203331", "traceState": "vendor=1,other=2",
            // The parent is remote.
            "flags": 0x301, "name": format!("other.{index}"), "kind": index + 1,
            "startTimeUnixNano": "*", "endTimeUnixNano": "*",
            "attributes": every_type.iter()
                .map(|(key, _, value)| json!({"key": key, "value": value})).collect::<Vec<_>>(),
            "events": [
                {"timeUnixNano": "*", "name": "first", "attributes": [int("attempt", 1)]},
                {"timeUnixNano": "*", "name": "second"},
            ],
            "links": [{
                "traceId": linked.trace_id().to_string(), "spanId": linked.span_id().to_string(),
                "traceState": "linked=yes", "flags": 0x301, "attributes": [text("why", "because")],
            }],
            "status": status_json,
        }}));
    }
}

#[rl_span(group = Step, name = "rl.test.step", step = number)]
fn step(number: u64, divergence: f64) {
    let own = ids();
    let step = int("rl.iteration", 7);
    let generated = generate();
    tell_annotated(
        "rl.test.generate",
        &generated,
        &own.1,
        &[
            text("rl.group", "generation"),
            text("rl.bucket", "productive"),
            step.clone(),
            text("gen_ai.provider.name", "vllm"),
            text("gen_ai.request.model", "tiny"),
            int("rl.num_generations_per_prompt", 2),
            json!({"key": "temperature", "value": {"doubleValue": 0.7}}),
            text("rl.outcome", "ok"),
            int("gen_ai.usage.input_tokens", 8),
            int("gen_ai.usage.output_tokens", 11),
        ],
        &json!({}),
    );
    let Failed(failed) = reward().unwrap_err();
    tell_annotated(
        "rl.test.reward",
        &failed,
        &own.1,
        &[
            text("rl.group", "reward"),
            text("rl.bucket", "productive"),
            step.clone(),
            text("rl.outcome", "error"),
            text("error.type", std::any::type_name::<Failed>()),
        ],
        &json!({"code": 2}),
    );
    let panicked = std::panic::catch_unwind(panics).unwrap_err().downcast::<Ids>().unwrap();
    tell_annotated(
        "rl.test.panics",
        &panicked,
        &own.1,
        &[
            text("rl.group", "advantage"),
            text("rl.bucket", "overhead"),
            step.clone(),
            text("rl.outcome", "panic"),
            text("error.type", "panic"),
        ],
        &json!({"code": 2, "message": "panic"}),
    );
    let attributes = [text("rl.group", "step"), step, text("rl.outcome", "ok")];
    tell_annotated("rl.test.step", &own, "", &attributes, &json!({}));
    record_step(number, &[(scalars::REWARD_MEAN, 0.1 + 0.2), (scalars::KL_DIVERGENCE, divergence)]);
    tell(&json!({"scope": lens(), "log": {
        "timeUnixNano": "*", "observedTimeUnixNano": "*",
        "severityNumber": if divergence.is_finite() { 9 } else { 13 },
        "severityText": if divergence.is_finite() { "INFO" } else { "WARN" },
        "eventName": "rl.step.metrics", "traceId": own.0, "spanId": own.1, "flags": 1,
        "attributes": [
            int("rl.iteration", 7),
            {"key": "rl.reward.mean", "value": {"doubleValue": 0.1 + 0.2}},
            {"key": "rl.kl.divergence", "value": {"doubleValue": double(divergence)}},
        ],
    }}));
    of_scalars(divergence);
}

/// What is no number is none for a gauge.
fn of_scalars(divergence: f64) {
    for (name, description, value) in [
        ("rl.reward.mean", "Mean reward", 0.1 + 0.2),
        ("rl.kl.divergence", "KL divergence from the reference policy", divergence),
    ] {
        if value.is_finite() {
            tell(&json!({
                "scope": lens(),
                "metric": {"name": name, "description": description, "gauge": {}},
                "point": {"startTimeUnixNano": "*", "timeUnixNano": "*", "asDouble": value},
            }));
        }
    }
}

struct Failed(Ids);

#[rl_span(
    group = Generation,
    name = "rl.test.generate",
    attributes(semconv::NUM_GENERATIONS_PER_PROMPT = 2, temperature = 0.7),
    tokens(input = [3_u32, 5], output = |_| [11_u32]),
    model = "tiny",
    provider = "vllm",
)]
fn generate() -> Ids {
    ids()
}

#[rl_span(group = Reward, name = "rl.test.reward")]
fn reward() -> Result<(), Failed> {
    Err(Failed(ids()))
}

#[rl_span(group = Advantage, name = "rl.test.panics")]
fn panics() {
    std::panic::resume_unwind(Box::new(ids()));
}

fn metrics() {
    const CUMULATIVE: u32 = 2;
    // What the calls above recorded.
    for (phase, group, outcome) in [
        ("rl.test.step", "step", "ok"),
        ("rl.test.generate", "generation", "ok"),
        ("rl.test.reward", "reward", "error"),
        ("rl.test.panics", "advantage", "panic"),
    ] {
        tell(&json!({
            "scope": lens(),
            "metric": {"name": "rl.phase.duration", "unit": "s", "description": "Duration of annotated calls",
                "histogram": {"aggregationTemporality": CUMULATIVE}},
            "point": {"startTimeUnixNano": "*", "timeUnixNano": "*", "count": "1", "sum": "*", "min": "*", "max": "*",
                "bucketCounts": "*", "explicitBounds": semconv_bounds(),
                "attributes": [text("rl.phase", phase), text("rl.group", group), text("rl.outcome", outcome)]},
        }));
    }
    let of_model = [
        text("gen_ai.operation.name", "text_completion"),
        text("gen_ai.provider.name", "vllm"),
        text("gen_ai.request.model", "tiny"),
    ];
    for (kind, count, [sum, min, max], buckets) in [
        ("input", 2, [8.0, 3.0, 5.0], [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("output", 1, [11.0, 11.0, 11.0], [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        let mut attributes = of_model.to_vec();
        attributes.push(text("gen_ai.token.type", kind));
        tell(&json!({
            "scope": lens(),
            "metric": {"name": "gen_ai.client.token.usage", "unit": "{token}",
                "description": "Number of input and output tokens used",
                "histogram": {"aggregationTemporality": CUMULATIVE}},
            "point": {"startTimeUnixNano": "*", "timeUnixNano": "*", "count": count.to_string(), "sum": sum,
                "min": min, "max": max, "bucketCounts": buckets.map(|count| count.to_string()),
                "explicitBounds": (0..14).map(|power| 4_f64.powi(power)).collect::<Vec<_>>(),
                "attributes": attributes},
        }));
    }
    tell(&json!({
        "scope": lens(),
        "metric": {"name": "gen_ai.client.operation.duration", "unit": "s",
            "description": "GenAI operation duration", "histogram": {"aggregationTemporality": CUMULATIVE}},
        "point": {"startTimeUnixNano": "*", "timeUnixNano": "*", "count": "1", "sum": "*", "min": "*", "max": "*",
            "bucketCounts": "*", "explicitBounds": (0..14).map(|power| 0.01 * 2_f64.powi(power)).collect::<Vec<_>>(),
            "attributes": of_model},
    }));
    of_others(CUMULATIVE);
}

/// Instruments of a library that knows OpenTelemetry and nothing of Lens.
fn of_others(cumulative: u32) {
    let meter = global::meter("another.meter");
    let tell_point = |metric: Json, mut point: Json| {
        point["startTimeUnixNano"] = json!("*");
        point["timeUnixNano"] = json!("*");
        tell(&json!({"scope": {"name": "another.meter"}, "metric": metric, "point": point}));
    };
    let requests = meter.u64_counter("requests").with_unit("{request}").with_description("Served").build();
    requests.add(2, &[KeyValue::new("code", 200)]);
    requests.add(1, &[KeyValue::new("code", 500)]);
    for (code, count) in [(200, "2"), (500, "1")] {
        tell_point(
            json!({"name": "requests", "unit": "{request}", "description": "Served",
                "sum": {"aggregationTemporality": cumulative, "isMonotonic": true}}),
            json!({"asInt": count, "attributes": [int("code", code)]}),
        );
    }
    meter.u64_counter("beyond").build().add(u64::MAX, &[]);
    tell_point(
        json!({"name": "beyond", "sum": {"aggregationTemporality": cumulative, "isMonotonic": true}}),
        json!({"asDouble": u64::MAX as f64}),
    );
    meter.i64_up_down_counter("queue").build().add(-3, &[]);
    tell_point(
        json!({"name": "queue", "sum": {"aggregationTemporality": cumulative}}),
        json!({"asInt": "-3"}),
    );
    meter.f64_gauge("temperature").with_unit("Cel").build().record(36.6, &[]);
    tell_point(json!({"name": "temperature", "unit": "Cel", "gauge": {}}), json!({"asDouble": 36.6}));
    let sizes = meter.f64_histogram("sizes").with_boundaries(vec![1.0, 2.5]).build();
    for size in [0.5, 1.0, 2.0, 9.0] {
        sizes.record(size, &[]);
    }
    tell_point(
        json!({"name": "sizes", "histogram": {"aggregationTemporality": cumulative}}),
        json!({"count": "4", "sum": 12.5, "min": 0.5, "max": 9.0, "bucketCounts": ["2", "1", "1"],
            "explicitBounds": [1.0, 2.5]}),
    );
}

fn semconv_bounds() -> [f64; 21] {
    [
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0,
        500.0, 1000.0, 2000.0, 3600.0,
    ]
}

/// The place of the macro's call, as the records of a line have it.
macro_rules! here {
    () => {
        [text("code.file.path", file!()), int("code.line.number", i64::from(line!()))]
    };
}

fn logs(telemetry: &Telemetry) {
    let tell_line = |target: &str,
                     level: (u32, &str),
                     body: &str,
                     attributes: Vec<Json>,
                     ids: Option<&Ids>| {
        let mut log = json!({
            "timeUnixNano": "*", "observedTimeUnixNano": "*", "severityNumber": level.0, "severityText": level.1,
            "body": {"stringValue": body}, "attributes": attributes,
        });
        if let Some((trace, span)) = ids {
            log["traceId"] = json!(trace);
            log["spanId"] = json!(span);
            log["flags"] = json!(1);
        }
        tell(&json!({"scope": {"name": target}, "log": log}));
    };
    #[rustfmt::skip]
    let place = { tracing::info!(target: "trainer", epochs = 3, share = 0.5, dry = false, name = "run", "begins"); here!() };
    let mut attributes = vec![
        int("epochs", 3),
        json!({"key": "share", "value": {"doubleValue": 0.5}}),
        json!({"key": "dry", "value": {"boolValue": false}}),
        text("name", "run"),
    ];
    attributes.extend(place);
    tell_line("trainer", (9, "INFO"), "begins", attributes, None);

    let (own, place) = checkpoint();
    tell_line("driver::ledger", (17, "ERROR"), "a step", place.to_vec(), Some(&own));

    // The `log` crate, by itself and through `tracing`.
    let logger = telemetry.tee_log(Everything);
    let line = log::Record::builder()
        .level(log::Level::Debug)
        .target("old.library")
        .file(Some("src/old.rs"))
        .line(Some(12))
        .key_values(&[("attempt", 2)])
        .args(format_args!("tries again"))
        .build();
    log::Log::log(&logger, &line);
    let place = [text("code.file.path", "src/old.rs"), int("code.line.number", 12)];
    let mut attributes = vec![int("attempt", 2)];
    attributes.extend(place.clone());
    tell_line("old.library", (5, "DEBUG"), "tries again", attributes, None);
    tracing_log::format_trace(&line).unwrap();
    tell_line("old.library", (5, "DEBUG"), "tries again", place.to_vec(), None);

    // What the export says is not recorded.
    tracing::error!(target: "opentelemetry_sdk", "BatchSpanProcessor.ExportError");
}

#[rl_span(group = Checkpoint, name = "rl.test.checkpoint")]
fn checkpoint() -> (Ids, [Json; 2]) {
    #[rustfmt::skip]
    let place = { tracing::error!("a step"); here!() };
    let own = ids();
    tell_annotated(
        "rl.test.checkpoint",
        &own,
        "",
        &[text("rl.group", "checkpoint"), text("rl.bucket", "overhead"), text("rl.outcome", "ok")],
        &json!({}),
    );
    tell(&json!({
        "scope": lens(),
        "metric": {"name": "rl.phase.duration", "unit": "s", "description": "Duration of annotated calls",
            "histogram": {"aggregationTemporality": 2}},
        "point": {"startTimeUnixNano": "*", "timeUnixNano": "*", "count": "1", "sum": "*", "min": "*", "max": "*",
            "bucketCounts": "*", "explicitBounds": semconv_bounds(),
            "attributes": [text("rl.phase", "rl.test.checkpoint"), text("rl.group", "checkpoint"),
                text("rl.outcome", "ok")]},
    }));
    (own, place)
}

/// A logger that has everything enabled and writes nothing.
struct Everything;

impl log::Log for Everything {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _record: &log::Record<'_>) {}

    fn flush(&self) {}
}
