//! What does a processor of spans see that a program brings along, and what may it do?
//!
//! A test whose name begins with `fault` shows that Lens does not have a fault that users of other libraries met, by its
//! number.

mod support;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lens_runtime::opentelemetry::trace::{
    Span as _, SpanId, SpanKind, Status, TraceContextExt as _, TraceId, Tracer as _,
};
use lens_runtime::opentelemetry::{Context, KeyValue};
use lens_runtime::opentelemetry_sdk::error::OTelSdkResult;
use lens_runtime::opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use lens_runtime::{TelemetryConfig, groups, record_tokens, rl_span, semconv, set, span};
use serde_json::Value;
use support::run::{Left, Run};
use support::{attribute_keys, attribute_text, named, names, tree};

/// A processor made of two closures.
struct Own<S, E> {
    on_start: S,
    on_end: E,
}

impl<S, E> fmt::Debug for Own<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Own")
    }
}

impl<S, E> SpanProcessor for Own<S, E>
where
    S: Fn(&mut Span, &Context) + Send + Sync,
    E: Fn(SpanData) + Send + Sync,
{
    fn on_start(&self, span: &mut Span, context: &Context) {
        (self.on_start)(span, context);
    }

    fn on_end(&self, span: SpanData) {
        (self.on_end)(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// With a processor of these two.
fn with<S, E>(on_start: S, on_end: E) -> impl FnOnce(TelemetryConfig) -> TelemetryConfig
where
    S: Fn(&mut Span, &Context) + Clone + Send + Sync + 'static,
    E: Fn(SpanData) + Clone + Send + Sync + 'static,
{
    move |config| {
        config.with_span_processor(move || Own { on_start: on_start.clone(), on_end: on_end.clone() })
    }
}

#[rl_span(group = Step, name = "step", step = number)]
fn step(number: u64) -> Result<(), &'static str> {
    for prompt in 0..2 {
        generate(prompt);
    }
    lens_runtime::tracer("library").in_span("raw", |context| {
        context.span().set_attribute(KeyValue::new("size", 1));
        score()
    })
}

#[rl_span(
    group = Generation,
    name = "generate",
    model = "tiny",
    kind = Client,
    key = prompt,
    attributes(prompt = prompt, doubled = |out| *out),
    tokens(input = 3_u32),
    links = [Context::current()]
)]
fn generate(prompt: u64) -> u64 {
    set("turns", 1);
    set("turns", 2);
    record_tokens(0_u32, 4_u32);
    let context = Context::current();
    context.span().add_event("token", vec![KeyValue::new("first", true)]);
    std::thread::spawn(move || context.span().set_attribute(KeyValue::new("elsewhere", 1))).join().unwrap();
    2 * prompt
}

#[rl_span(group = Reward, name = "score", err = message)]
fn score() -> Result<(), &'static str> {
    Err("too long")
}

/// What a span says, but for ids and times; its parent by name.
fn said(spans: &[Value]) -> Vec<String> {
    let name_of = |id: &Value| spans.iter().find(|span| span["spanId"] == *id).map(|span| &span["name"]);
    let mut said: Vec<_> = spans
        .iter()
        .map(|span| {
            let mut keys = attribute_keys(span);
            keys.sort_unstable();
            let attributes: Vec<_> =
                keys.iter().map(|key| format!("{key}={}", attribute_text(span, key).unwrap())).collect();
            let events = span["events"].as_array().map(|events| names(events).join(","));
            format!(
                "{} beneath {:?}, kind {}, {}, status {}, events {events:?}, {} links, state {}",
                span["name"],
                name_of(&span["parentSpanId"]),
                span["kind"],
                attributes.join(" "),
                span["status"],
                span["links"].as_array().map_or(0, Vec::len),
                span["traceState"],
            )
        })
        .collect();
    said.sort();
    said
}

/// Two steps, of which this is selected.
fn two_steps(span_groups: &str, in_code: impl FnOnce(TelemetryConfig) -> TelemetryConfig) -> Left {
    let run = Run::begin_as(&[&format!("span_groups: {span_groups:?}"), "steps: 1,2"], &[], in_code);
    for number in 1..=3 {
        assert!(step(number).is_err());
    }
    let now = std::time::SystemTime::now();
    span(&groups::Reward, "interval").interval(now - Duration::from_secs(3), now);
    run.end()
}

#[test]
fn what_is_recorded_is_the_same_with_a_processor_and_without() {
    for span_groups in ["all", "generation,reward", "step,reward", "step,generation@0.5,reward", "checkpoint"]
    {
        let without = two_steps(span_groups, |config| config);
        let with = two_steps(span_groups, with(|_, _| (), |_| ()));
        assert_eq!(said(&with.spans), said(&without.spans), "{span_groups}");
        assert_eq!(tree(&with.spans), tree(&without.spans), "{span_groups}");
        for phase in ["step", "generate", "score", "interval"] {
            assert_eq!(with.counted(phase), without.counted(phase), "{phase} with {span_groups}");
            assert_eq!(with.reported(phase), without.reported(phase), "{phase} with {span_groups}");
        }
        let [with, without] = [with.report.health.traces, without.report.health.traces];
        assert_eq!((with.made, with.left_out), (without.made, without.left_out), "{span_groups}");
    }
}

#[test]
fn a_processor_sees_each_span_whole_and_as_it_is_exported() {
    #[derive(Clone, Debug, PartialEq)]
    struct Started {
        name: String,
        trace: TraceId,
        parent: SpanId,
    }
    let started = Arc::new(Mutex::new(BTreeMap::new()));
    let ended = Arc::new(Mutex::new(Vec::new()));
    let (on_start, on_end) = (
        {
            let started = Arc::clone(&started);
            move |span: &mut Span, context: &Context| {
                assert!(span.is_recording());
                let data = span.exported_data().unwrap();
                let of_parent = context.span().span_context().clone();
                assert_eq!(data.parent_span_id, of_parent.span_id());
                let mut keys: Vec<_> = data.attributes.iter().map(|pair| pair.key.to_string()).collect();
                keys.sort();
                if data.name == "generate" {
                    let expected =
                        ["gen_ai.request.model", "prompt", "rl.bucket", "rl.group", "rl.iteration"];
                    assert_eq!(keys, expected);
                    assert_eq!((data.span_kind, data.links.links.len()), (SpanKind::Client, 1));
                }
                let known = Started {
                    name: data.name.to_string(),
                    trace: span.span_context().trace_id(),
                    parent: data.parent_span_id,
                };
                let id = span.span_context().span_id().to_string();
                assert_eq!(started.lock().unwrap().insert(id, known), None, "once");
            }
        },
        {
            let ended = Arc::clone(&ended);
            move |span: SpanData| ended.lock().unwrap().push(span)
        },
    );
    let left = two_steps("all", with(on_start, on_end));
    let (started, ended) = (started.lock().unwrap(), ended.lock().unwrap());
    assert_eq!((left.spans.len(), started.len(), ended.len()), (11, 11, 11));
    for span in ended.iter() {
        let id = span.span_context.span_id();
        let exported = left.spans.iter().find(|exported| exported["spanId"] == id.to_string()).unwrap();
        let known = &started[&id.to_string()];
        assert_eq!(exported["name"], known.name);
        assert_eq!(exported["traceId"], known.trace.to_string());
        match known.parent {
            SpanId::INVALID => assert_eq!(exported["parentSpanId"], Value::Null),
            parent => assert_eq!(exported["parentSpanId"], parent.to_string()),
        }
        // The SDK hands each value over that was set; the last one counts.
        for key in attribute_keys(exported) {
            let last = span.attributes.iter().rfind(|pair| pair.key.as_str() == key).unwrap();
            assert_eq!(attribute_text(exported, key).unwrap(), last.value.to_string(), "{key}");
        }
        let value = |key: &str| {
            span.attributes.iter().rfind(|pair| pair.key.as_str() == key).map(|pair| pair.value.to_string())
        };
        match &*span.name {
            "generate" => {
                assert_eq!(value(semconv::OUTCOME).unwrap(), "ok");
                assert_eq!(value(semconv::GEN_AI_USAGE_INPUT_TOKENS).unwrap(), "3");
                assert_eq!(value(semconv::GEN_AI_USAGE_OUTPUT_TOKENS).unwrap(), "4");
                assert_eq!([value("turns"), value("elsewhere")].map(Option::unwrap), ["2", "1"]);
                assert_eq!(span.events.events.len(), 1);
            }
            "score" | "step" => {
                assert_eq!(value(semconv::OUTCOME).unwrap(), "error");
                assert!(matches!(span.status, Status::Error { .. }), "{:?}", span.status);
            }
            "interval" => {
                assert_eq!(span.end_time.duration_since(span.start_time).unwrap(), Duration::from_secs(3));
            }
            other => assert_eq!(other, "raw"),
        }
    }
}

#[test]
fn what_a_processor_adds_when_a_span_begins_is_exported() {
    let left = two_steps("all", with(|span, _| span.set_attribute(KeyValue::new("host", "a")), |_| ()));
    assert_eq!(left.spans.len(), 11);
    assert!(left.spans.iter().all(|span| attribute_text(span, "host").as_deref() == Some("a")));
}

thread_local! {
    /// What a processor records is shown to it, too.
    static IS_BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Does all that code may do, and says what it found current.
fn use_everything(seen: &AtomicU64) {
    if IS_BUSY.replace(true) {
        return;
    }
    let context = Context::current();
    seen.fetch_add(1 + u64::from(context.has_active_span()), Ordering::Relaxed);
    set("from the processor", 1);
    record_tokens(0_u32, 1_u32);
    of_the_processor();
    span(&groups::DataProcessing, "of the processor").attribute("a", 1).run(|| set("b", 1));
    lens_runtime::tracer("processor").in_span("raw of the processor", |_| set("c", 1));
    let _attached = context.attach();
    IS_BUSY.set(false);
}

#[rl_span(group = DataProcessing, name = "of the processor", attributes(a = 1), tokens(output = 1_u32))]
fn of_the_processor() {
    let context = Context::current();
    std::thread::spawn(move || context.span().set_attribute(KeyValue::new("b", 1))).join().unwrap();
}

/// open-telemetry/opentelemetry-rust#2871, #3262, #3510
#[test]
fn fault_62_a_processor_may_use_all_of_telemetry_when_a_span_ends() {
    let seen = Arc::new(AtomicU64::new(0));
    let on_end = {
        let seen = Arc::clone(&seen);
        move |_: SpanData| use_everything(&seen)
    };
    let left = two_steps("all", with(|_, _| (), on_end));
    assert!(seen.load(Ordering::Relaxed) >= 11);
    check_what_a_busy_processor_leaves(&left);
}

/// open-telemetry/opentelemetry-rust#3510, #3511
#[test]
fn fault_63_a_processor_may_use_all_of_telemetry_when_a_call_begins() {
    let seen = Arc::new(AtomicU64::new(0));
    let on_start = {
        let seen = Arc::clone(&seen);
        // A raw span begins under OpenTelemetry's own lock of the context, in which nothing can be attached.
        move |span: &mut Span, _: &Context| {
            if span.exported_data().is_some_and(|data| data.name != "raw") {
                use_everything(&seen);
            }
        }
    };
    let left = two_steps("all", with(on_start, |_| ()));
    assert!(seen.load(Ordering::Relaxed) >= 9);
    check_what_a_busy_processor_leaves(&left);
}

fn check_what_a_busy_processor_leaves(left: &Left) {
    // Of the program's own spans nothing is missing, and each of the processor's is there.
    for (name, count) in [("step", 2), ("generate", 4), ("score", 2), ("raw", 2), ("interval", 1)] {
        assert_eq!(names(&left.spans).iter().filter(|known| **known == name).count(), count, "{name}");
    }
    let own: Vec<_> = left.spans.iter().filter(|span| span["name"] == "of the processor").collect();
    assert!(own.len() >= 2 * 9, "{}", own.len());
    for span in own {
        assert_eq!(["a", "b"].map(|key| attribute_text(span, key).unwrap()), ["1", "1"]);
        assert_eq!(attribute_text(span, semconv::OUTCOME).unwrap(), "ok");
    }
    assert!(!tree(&left.spans).contains('?'), "{}", tree(&left.spans));
    for (phase, calls) in [("step", 3), ("generate", 6), ("score", 3), ("interval", 1)] {
        assert_eq!((left.counted(phase), left.reported(phase)), (calls, calls), "{phase}");
    }
    let interval = named(&left.spans, "interval");
    assert_eq!(attribute_text(interval, semconv::OUTCOME).unwrap(), "ok");
}

#[test]
fn each_telemetry_has_a_processor_of_its_own_and_several_are_shown_the_same() {
    let made = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let config = || {
        let (made, seen) = (Arc::clone(&made), Arc::clone(&seen));
        move |config: TelemetryConfig| {
            (0..2).fold(config, |config, which| {
                let (made, seen) = (Arc::clone(&made), Arc::clone(&seen));
                config.with_span_processor(move || {
                    let number = made.fetch_add(1, Ordering::Relaxed);
                    let seen = Arc::clone(&seen);
                    Own {
                        on_start: |_: &mut Span, _: &Context| (),
                        on_end: move |span: SpanData| {
                            seen.lock().unwrap().push(format!("{} by {which} of {number}", span.name));
                        },
                    }
                })
            })
        }
    };
    for _ in 0..2 {
        let run = Run::begin_as(&["span_groups: reward"], &[], config());
        assert!(score().is_err());
        let left = run.end();
        assert_eq!(names(&left.spans), ["score"]);
    }
    assert_eq!(
        *seen.lock().unwrap(),
        ["score by 0 of 0", "score by 1 of 1", "score by 0 of 2", "score by 1 of 3"]
    );
}

#[test]
fn calls_that_are_open_at_the_end_are_shown_as_they_are_ended() {
    let ended = Arc::new(Mutex::new(Vec::new()));
    let on_end = {
        let ended = Arc::clone(&ended);
        move |span: SpanData| ended.lock().unwrap().push(span.name.to_string())
    };
    let run = Run::begin_as(&["span_groups: all"], &[], with(|_, _| (), on_end));
    let outer = span(&groups::Rollout, "outer").enter();
    let inner = span(&groups::Reward, "inner").enter();
    let left = run.end();
    drop((inner, outer));
    assert_eq!(*ended.lock().unwrap(), ["inner", "outer"]);
    assert_eq!(tree(&left.spans), "outer\n  inner\n");
    for span in &left.spans {
        assert_eq!(attribute_text(span, semconv::TRUNCATED).as_deref(), Some("true"));
    }
}

/// The choice of spans, which is made before the SDK's tracer makes one.
mod what_is_left_out {
    use lens_runtime::opentelemetry::trace::{Link, TraceState};
    use lens_runtime::opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};

    use super::*;

    #[rl_span(group = PerPrompt, name = "prompt", attributes(number = number))]
    fn prompt(number: u64) {
        answer(number);
        answer(number);
    }

    #[rl_span(group = Generation, name = "answer", attributes(number = number))]
    fn answer(number: u64) {
        let _fails = score();
        std::hint::black_box(number);
    }

    fn steps(
        span_groups: &str,
        variables: &[(&str, &str)],
        in_code: impl FnOnce(TelemetryConfig) -> TelemetryConfig,
    ) -> Left {
        let run = Run::begin_as(&[&format!("span_groups: {span_groups:?}")], variables, in_code);
        for number in 1..=2 {
            span(&groups::Step, "step").step(number).run(|| (0..20).for_each(prompt));
        }
        run.end()
    }

    fn nothing() -> impl FnOnce(TelemetryConfig) -> TelemetryConfig {
        with(|_, _| (), |_| ())
    }

    #[test]
    fn a_span_without_a_parent_says_how_likely_it_was() {
        let run = Run::begin_as(&["span_groups: reward@0.5"], &[], nothing());
        for _ in 0..50 {
            let _fails = score();
        }
        let left = run.end();
        assert!(!left.spans.is_empty());
        for span in &left.spans {
            assert!(span["traceState"].as_str().is_some_and(|state| state.contains("ot=th:8")), "{span}");
        }
    }

    #[test]
    fn nothing_is_there_beneath_it() {
        for sampler in ["parentbased_always_on", "always_on"] {
            let left = steps("all,per_prompt@0.5", &[("OTEL_TRACES_SAMPLER", sampler)], nothing());
            assert!(!tree(&left.spans).contains('?'), "{sampler}");
        }
    }

    #[test]
    fn calls_are_counted_as_they_are_without_a_processor() {
        let without = steps("all,per_prompt@0.5,generation@0.5", &[], |config| config);
        let with = steps("all,per_prompt@0.5,generation@0.5", &[], nothing());
        assert_eq!(said(&with.spans), said(&without.spans));
    }

    #[derive(Clone, Debug)]
    struct NoAnswers;

    impl ShouldSample for NoAnswers {
        fn should_sample(
            &self,
            _: Option<&Context>,
            _: TraceId,
            name: &str,
            _: &SpanKind,
            _: &[KeyValue],
            _: &[Link],
        ) -> SamplingResult {
            assert!(name != "panics");
            SamplingResult {
                decision: if name == "answer" {
                    SamplingDecision::Drop
                } else {
                    SamplingDecision::RecordAndSample
                },
                attributes: Vec::new(),
                trace_state: TraceState::NONE,
            }
        }
    }

    #[test]
    fn a_samplers_drop_is_final() {
        let left = steps("all", &[], |config| nothing()(config.with_sampler(NoAnswers)));
        assert!(!tree(&left.spans).contains('?'));
    }

    #[test]
    fn a_span_says_how_likely_it_was_whatever_a_sampler_says() {
        let left = steps("all,per_prompt@0.5", &[], |config| nothing()(config.with_sampler(NoAnswers)));
        for span in left.spans.iter().filter(|span| span["name"] == "prompt") {
            assert!(span["traceState"].as_str().is_some_and(|state| state.contains("ot=th:8")), "{span}");
        }
    }

    #[test]
    fn a_sampler_that_panics_ends_nothing() {
        let run =
            Run::begin_as(&["span_groups: all"], &[], |config| nothing()(config.with_sampler(NoAnswers)));
        let ran = std::panic::catch_unwind(|| span(&groups::Reward, "panics").run(|| 1));
        let left = run.end();
        assert_eq!(ran.ok(), Some(1));
        assert!(left.spans.is_empty());
    }

    #[test]
    fn a_processor_that_panics_at_the_start_ends_nothing() {
        let run = Run::begin_as(&["span_groups: all"], &[], with(|_, _| panic!("start"), |_| ()));
        let ran = std::panic::catch_unwind(|| span(&groups::Reward, "call").run(|| 1));
        let _left = run.end();
        assert_eq!(ran.ok(), Some(1));
    }

    #[test]
    fn a_processor_that_panics_at_the_end_ends_nothing() {
        let run = Run::begin_as(&["span_groups: all"], &[], with(|_, _| (), |_| panic!("end")));
        let ran = std::panic::catch_unwind(|| span(&groups::Reward, "call").run(|| 1));
        let left = run.end();
        assert_eq!(ran.ok(), Some(1));
        assert_eq!(left.counted("call"), 1);
    }
}
