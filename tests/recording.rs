//! What becomes of what is said of a call while it runs, and afterwards?
//!
//! These are calls of a process whose telemetry is on, read from its files. A test whose name begins with `fault` shows
//! that Lens does not have a fault that users of other libraries met, by its number.

mod support;

use std::future::Future;
use std::pin::pin;
use std::task::{self, Waker};
use std::time::{Duration, SystemTime};

use lens_runtime::opentelemetry::trace::{
    FutureExt as _, SpanContext, SpanId, SpanRef, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _,
};
use lens_runtime::opentelemetry::{Context, KeyValue};
use lens_runtime::{record_tokens, rl_span, semconv, set};
use serde_json::{Value, json};
use support::run::{Left, Run};
use support::{attribute, attribute_keys, attribute_text, named, names};
use tracing_subscriber::layer::SubscriberExt as _;

/// Runs a future that waits for nothing.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut task::Context::from_waker(Waker::noop())) {
        task::Poll::Ready(out) => out,
        task::Poll::Pending => panic!("it waits"),
    }
}

fn elsewhere() -> SpanContext {
    SpanContext::new(TraceId::from(7), SpanId::from(9), TraceFlags::SAMPLED, true, TraceState::NONE)
}

/// Says all that can be said to a span.
fn say_everything(span: &SpanRef<'_>) {
    span.set_attribute(KeyValue::new("judge", "tiny"));
    span.add_event("judged", vec![KeyValue::new("score", 0.5)]);
    span.add_link(elsewhere(), vec![KeyValue::new("why", "same prompt")]);
    span.update_name("renamed");
    span.set_status(Status::error("doubtful"));
}

/// Asserts that all of it was recorded, once.
fn assert_everything(span: &Value) {
    assert_eq!(attribute(span, "judge").unwrap()["stringValue"], "tiny");
    let [event] = span["events"].as_array().unwrap().as_slice() else { panic!("{span}") };
    assert_eq!(event["name"], "judged");
    assert_eq!(attribute(event, "score").unwrap()["doubleValue"], 0.5);
    let [link] = span["links"].as_array().unwrap().as_slice() else { panic!("{span}") };
    assert_eq!(link["spanId"], elsewhere().span_id().to_string());
    assert_eq!(attribute(link, "why").unwrap()["stringValue"], "same prompt");
    assert_eq!(span["status"], json!({"code": 2, "message": "doubtful"}));
    assert_eq!(attribute(span, semconv::OUTCOME).unwrap()["stringValue"], "ok");
}

#[rl_span(group = Reward, name = "call")]
fn call(say: impl FnOnce()) {
    say();
}

#[test]
fn what_is_said_to_the_current_span_is_recorded_of_the_call() {
    let run = Run::begin(&["span_groups: reward"]);
    call(|| say_everything(&Context::current().span()));
    let left = run.end();
    assert_everything(named(&left.spans, "renamed"));
    assert_eq!(left.spans.len(), 1);
    // Its measurements have the name that the annotation gave it.
    assert_eq!((left.counted("call"), left.counted("renamed")), (1, 0));
}

#[test]
fn what_another_thread_says_that_was_handed_the_context_is_recorded_too() {
    let run = Run::begin(&["span_groups: reward"]);
    call(|| {
        let context = Context::current();
        std::thread::spawn(move || say_everything(&context.span())).join().unwrap();
    });
    assert_everything(named(&run.end().spans, "renamed"));
}

#[test]
fn what_is_said_once_the_call_has_ended_is_not_heard() {
    let run = Run::begin(&["span_groups: reward"]);
    let mut kept = None;
    call(|| kept = Some(Context::current()));
    let context = kept.unwrap();
    assert!(!context.span().is_recording());
    let say = |context: &Context| {
        say_everything(&context.span());
        context.span().end();
        let _attached = context.clone().attach();
        set("late", 1);
        record_tokens(1_u32, 1_u32);
    };
    say(&context);
    // Its place is another call's now, of which it is not said either.
    call(|| {
        say(&context);
        std::thread::scope(|scope| scope.spawn(|| say(&context)).join().unwrap());
    });
    let left = run.end();
    assert_eq!(names(&left.spans), ["call", "call"]);
    for span in &left.spans {
        assert_eq!(attribute_keys(span), [semconv::GROUP, semconv::BUCKET, semconv::OUTCOME], "{span}");
        assert!(["events", "links"].iter().all(|key| span[key].is_null()), "{span}");
        assert_eq!(span["status"].get("code"), None);
    }
    assert!(left.points(semconv::GEN_AI_CLIENT_TOKEN_USAGE).is_empty());
}

#[test]
fn what_the_program_called_well_stays_so() {
    #[rl_span(group = Reward, name = "fails", err = message)]
    fn fails(statuses: &[Status]) -> Result<(), &'static str> {
        for status in statuses {
            Context::current().span().set_status(status.clone());
        }
        Err("too long")
    }
    let run = Run::begin(&["span_groups: reward"]);
    let failed = Status::error("doubtful");
    for statuses in
        [&[Status::Ok][..], &[Status::Ok, failed.clone()], &[failed, Status::Ok], &[Status::Unset], &[]]
    {
        fails(statuses).unwrap_err();
    }
    let left = run.end();
    let statuses: Vec<_> = left.spans.iter().map(|span| span["status"].clone()).collect();
    let [ok, error] = [json!({"code": 1}), json!({"code": 2, "message": "too long"})];
    assert_eq!(statuses, [&ok, &ok, &ok, &error, &error].map(Value::clone));
    // It has failed nevertheless.
    for span in &left.spans {
        assert_eq!(attribute(span, semconv::OUTCOME).unwrap()["stringValue"], "error");
    }
}

/// open-telemetry/opentelemetry-rust#920, pydantic/logfire#704
#[test]
fn fault_114_what_is_measured_after_the_program_ended_the_span_is_counted_and_the_rest_is_not_heard() {
    #[rl_span(group = Reward, name = "ended", model = "tiny", attributes(size = |out| *out))]
    fn ended(at: SystemTime) -> u32 {
        let context = Context::current();
        context.span().end_with_timestamp(at);
        assert!(!context.span().is_recording());
        say_everything(&context.span());
        set("late", 1);
        // Not another time.
        context.span().end();
        record_tokens(3_u32, 4_u32);
        call(|| ());
        1
    }
    let run = Run::begin(&["span_groups: reward"]);
    let at = SystemTime::now() + Duration::from_secs(5);
    ended(at);
    let left = run.end();
    assert_eq!(names(&left.spans), ["call", "ended"]);
    let (ended, call) = (named(&left.spans, "ended"), named(&left.spans, "call"));
    assert_eq!(call["parentSpanId"], ended["spanId"]);
    let nanos = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    assert_eq!(ended["endTimeUnixNano"], nanos.to_string());
    for key in ["judge", "late", "size"] {
        assert_eq!(attribute(ended, key), None, "{ended}");
    }
    assert!(["events", "links"].iter().all(|key| ended[key].is_null()), "{ended}");
    assert_eq!(left.counted("ended"), 1);
    assert_eq!(output_tokens(&left, "tiny"), 4);
}

/// How many output tokens of a model the metrics counted.
fn output_tokens(left: &Left, model: &str) -> u64 {
    let of = |point: &support::Point, key: &str| point.attributes.get(key).cloned().unwrap_or_default();
    let points = left.points(semconv::GEN_AI_CLIENT_TOKEN_USAGE);
    let meant = points.iter().filter(|point| {
        of(point, semconv::GEN_AI_REQUEST_MODEL) == model && of(point, semconv::GEN_AI_TOKEN_TYPE) == "output"
    });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few tokens")]
    let sum = meant.map(|point| point.sum).sum::<f64>() as u64;
    sum
}

mod tokens_from_within {
    use super::*;

    const TOKENS: u64 = 7;

    fn count() {
        record_tokens(0_u32, 7_u32);
    }

    #[rl_span(group = Rollout, name = "outer", model = "outer")]
    fn outer(way: fn()) {
        inner(way);
    }

    #[rl_span(group = Generation, name = "inner", model = "inner")]
    fn inner(way: fn()) {
        way();
    }

    fn on_another_thread() {
        let context = Context::current();
        std::thread::spawn(move || {
            let _attached = context.attach();
            count();
        })
        .join()
        .unwrap();
    }

    fn in_a_future_on_another_thread() {
        let counts = async { count() }.with_context(Context::current());
        std::thread::spawn(|| at_once(counts)).join().unwrap();
    }

    fn beneath_a_raw_span() {
        lens_runtime::tracer("library").in_span("raw", |_| count());
    }

    fn beneath_two_raw_spans_on_another_thread() {
        lens_runtime::tracer("library").in_span("raw", |_| {
            let context = Context::current();
            std::thread::spawn(move || {
                let _attached = context.attach();
                lens_runtime::tracer("library").in_span("raw", |_| count());
            })
            .join()
            .unwrap();
        });
    }

    fn with_a_bridge(within: fn()) {
        let layer = tracing_opentelemetry::layer().with_tracer(lens_runtime::tracer("bridge"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::info_span!("bridged").in_scope(within);
        });
    }

    fn beneath_a_bridged_span() {
        with_a_bridge(count);
    }

    fn beneath_a_bridged_span_on_another_thread() {
        with_a_bridge(on_another_thread);
    }

    const WAYS: [(&str, fn()); 7] = [
        ("directly", count),
        ("on another thread", on_another_thread),
        ("in a future on another thread", in_a_future_on_another_thread),
        ("beneath a raw span", beneath_a_raw_span),
        ("beneath two raw spans on another thread", beneath_two_raw_spans_on_another_thread),
        ("beneath a bridged span", beneath_a_bridged_span),
        ("beneath a bridged span on another thread", beneath_a_bridged_span_on_another_thread),
    ];

    /// Counts in each way, within calls of these groups.
    fn check(span_groups: &str, calls: fn(fn())) {
        for (way, count) in WAYS {
            let run = Run::begin(&[&format!("span_groups: {span_groups}")]);
            calls(count);
            let left = run.end();
            assert_eq!(output_tokens(&left, "inner"), TOKENS, "{way} with {span_groups}");
            assert_eq!(output_tokens(&left, "outer"), 0, "{way} with {span_groups}");
            let on_spans: Vec<_> = left
                .spans
                .iter()
                .filter_map(|span| {
                    let tokens = attribute_text(span, semconv::GEN_AI_USAGE_OUTPUT_TOKENS)?;
                    Some((span["name"].as_str().unwrap(), tokens))
                })
                .collect();
            match span_groups.contains("generation") {
                true => assert_eq!(on_spans, [("inner", TOKENS.to_string())], "{way} with {span_groups}"),
                false => assert_eq!(on_spans, [], "{way} with {span_groups}"),
            }
        }
    }

    #[test]
    fn are_counted_of_the_innermost_call() {
        check("generation,rollout", outer);
    }

    #[test]
    fn are_counted_of_a_call_without_a_parent() {
        check("generation", inner);
        check("generation", outer);
    }

    #[test]
    fn are_counted_of_a_call_whose_group_is_off_and_not_of_the_one_around_it() {
        check("rollout", outer);
    }

    #[test]
    fn are_counted_where_both_groups_are_off() {
        check("reward", inner);
        check("reward", outer);
    }

    #[test]
    fn are_counted_of_whichever_call_is_the_innermost_when_they_are_said() {
        #[rl_span(group = Rollout, name = "outer", model = "outer")]
        fn before_and_after() {
            count();
            inner(count);
            count();
        }
        for (span_groups, expected) in [
            ("generation,rollout", ["14", "7"]),
            ("rollout", ["14", ""]),
            ("generation", ["", "7"]),
            ("reward", ["", ""]),
        ] {
            let run = Run::begin(&[&format!("span_groups: {span_groups}")]);
            before_and_after();
            let left = run.end();
            assert_eq!(
                [output_tokens(&left, "outer"), output_tokens(&left, "inner")],
                [14, 7],
                "{span_groups}"
            );
            let told = ["outer", "inner"].map(|name| {
                let span = left.spans.iter().find(|span| span["name"] == name);
                span.and_then(|span| attribute_text(span, semconv::GEN_AI_USAGE_OUTPUT_TOKENS))
                    .unwrap_or_default()
            });
            assert_eq!(told, expected, "{span_groups}");
        }
    }

    #[test]
    fn are_nobodys_outside_of_a_call() {
        let run = Run::begin(&["span_groups: all"]);
        count();
        beneath_a_raw_span();
        beneath_a_bridged_span();
        assert!(run.end().points(semconv::GEN_AI_CLIENT_TOKEN_USAGE).is_empty());
    }
}

/// open-telemetry/opentelemetry-rust#1300, #1293, #3497
#[test]
fn fault_109_whoever_sets_a_key_again_and_however_it_is_exported_once() {
    const A: &str = "a";
    #[rl_span(group = Reward, name = "call", attributes(a = 1, b = 1, c = 1, rl.group = "mine", A = 2))]
    fn call() {
        set("b", 2);
        Context::current().span().set_attribute(KeyValue::new("c", 2));
        Context::current().span().set_attribute(KeyValue::new("d", 1));
        set("d", 2);
        set("e", 1);
        Context::current().span().set_attribute(KeyValue::new("e", 2));
        Context::current().span().set_attributes([KeyValue::new("f", 1), KeyValue::new("f", 2)]);
        set(semconv::OUTCOME, "won");
        set(semconv::BUCKET, "mine");
        set(semconv::ERROR_TYPE, "mine");
    }
    let run = Run::begin(&["span_groups: reward"]);
    call();
    let left = run.end();
    let span = named(&left.spans, "call");
    let mut keys = attribute_keys(span);
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c", "d", "e", "error.type", "f", "rl.bucket", "rl.group", "rl.outcome"]);
    for key in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(attribute(span, key).unwrap()["intValue"], "2", "{key}");
    }
    // What Lens knew at the beginning the program may say otherwise, but not how it went.
    let texts = ["rl.group", "rl.bucket", "rl.outcome"].map(|key| attribute_text(span, key).unwrap());
    assert_eq!(texts, ["mine", "mine", "ok"]);
    // What groups and times are counted by is not for a span's attribute to say.
    assert_eq!(left.points(semconv::PHASE_DURATION)[0].attributes["rl.group"], "reward");
}
