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
use lens_runtime::{groups, record_tokens, rl_span, semconv, set, span};
use serde_json::{Value, json};
use support::run::{Left, Run};
use support::{attribute, attribute_keys, attribute_text, named, names, tree};
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

mod limits {
    use super::*;

    fn with_limits(variables: &[(&str, &str)]) -> Run {
        Run::begin_as(&["span_groups: generation"], variables, |config| config)
    }

    /// `k000` to `k199`.
    fn many_keys() -> Vec<&'static str> {
        (0..200).map(|number| &*format!("k{number:03}").leak()).collect()
    }

    #[rl_span(
        group = Generation,
        name = "call",
        model = "tiny",
        attributes(given = 1, asked = |()| 1),
        tokens(input = 3_u32),
        err = message
    )]
    fn call(say: impl FnOnce()) -> Result<(), &'static str> {
        say();
        record_tokens(0_u32, 4_u32);
        Err("too long")
    }

    /// What Lens says itself, whatever a program says.
    const OWN: [&str; 8] = [
        semconv::GROUP,
        semconv::BUCKET,
        semconv::GEN_AI_OPERATION_NAME,
        semconv::GEN_AI_REQUEST_MODEL,
        semconv::OUTCOME,
        semconv::ERROR_TYPE,
        semconv::GEN_AI_USAGE_INPUT_TOKENS,
        semconv::GEN_AI_USAGE_OUTPUT_TOKENS,
    ];

    /// The keys of the program's, and how many were dropped; all of Lens's own have to be there.
    fn kept(span: &Value) -> (Vec<&str>, u64) {
        let mut keys = attribute_keys(span);
        for own in OWN.iter().filter(|own| **own != semconv::GEN_AI_OPERATION_NAME) {
            assert!(keys.contains(own), "{own} in {keys:?}");
        }
        keys.retain(|key| !OWN.contains(key));
        (keys, span["droppedAttributesCount"].as_u64().unwrap_or_default())
    }

    /// OpenTelemetry's SDK drops whatever comes behind the 128th, and so what is known last.
    #[test]
    fn fault_104_many_attributes_cost_none_of_those_that_matter() {
        let keys = many_keys();
        let run = with_limits(&[]);
        call(|| keys.iter().for_each(|key| set(key, 1))).unwrap_err();
        call(|| {
            let span = Context::current();
            for key in &keys {
                span.span().set_attribute(KeyValue::new(*key, 1));
            }
            // There is room for another value.
            set(keys[0], 2);
        })
        .unwrap_err();
        let left = run.end();
        for (span, first) in left.spans.iter().zip(["1", "2"]) {
            let (kept, dropped) = kept(span);
            assert_eq!((kept.len(), kept[0], kept[127]), (128, "given", keys[126]));
            assert_eq!(attribute(span, keys[0]).unwrap()["intValue"], first);
            assert_eq!(dropped, 200 - 127);
            assert_eq!(attribute_text(span, semconv::OUTCOME).unwrap(), "error");
            assert_eq!(attribute_text(span, semconv::GEN_AI_USAGE_OUTPUT_TOKENS).unwrap(), "4");
            assert_eq!(span["status"]["message"], "too long");
        }
        assert_eq!(left.spans.len(), 2);
    }

    #[test]
    fn fault_104_a_limit_is_one_of_what_the_program_says() {
        for (limit, expected, dropped) in [
            ("3", &["given", "a", "b"][..], 1),
            ("1", &["given"], 3),
            ("0", &[], 4),
            ("4", &["given", "a", "b", "c"], 0),
        ] {
            for variable in ["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"] {
                let run = with_limits(&[(variable, limit)]);
                call(|| {
                    for key in ["a", "b"] {
                        set(key, 1);
                    }
                    Context::current().span().set_attribute(KeyValue::new("c", 1));
                })
                .unwrap_err();
                let left = run.end();
                assert_eq!(kept(&left.spans[0]), (expected.to_vec(), dropped), "{limit}");
            }
        }
    }

    #[test]
    fn what_an_annotation_says_is_limited_too() {
        #[rl_span(group = Generation, name = "call", attributes(a = 1, b = 2, c = 3, d = |()| 4))]
        fn call() {
            set("a", 5);
            set("e", 6);
        }
        let run = with_limits(&[("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "2")]);
        call();
        let left = run.end();
        let span = &left.spans[0];
        assert_eq!(["a", "b"].map(|key| attribute_text(span, key).unwrap()), ["5", "2"]);
        assert_eq!(["c", "d", "e"].map(|key| attribute(span, key)), [None; 3]);
        assert_eq!(span["droppedAttributesCount"], 3);
        assert_eq!(attribute_text(span, semconv::OUTCOME).unwrap(), "ok");
    }

    #[test]
    fn events_and_links_beyond_the_limits_are_dropped_and_counted() {
        let run = with_limits(&[
            ("OTEL_SPAN_EVENT_COUNT_LIMIT", "2"),
            ("OTEL_SPAN_LINK_COUNT_LIMIT", "3"),
            ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "1"),
            ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "0"),
        ]);
        let pair = || vec![KeyValue::new("a", 1), KeyValue::new("b", 2)];
        let say = || {
            let context = Context::current();
            for name in ["first", "second", "third", "fourth", "fifth"] {
                context.span().add_event(name, pair());
                context.span().add_link(elsewhere(), pair());
            }
        };
        call(say).unwrap_err();
        lens_runtime::tracer("library").in_span("raw", |_| say());
        // A call begins with more than it may have.
        span(&groups::Generation, "linked").links(vec![elsewhere(); 5]).run(say);
        let left = run.end();
        assert_eq!(names(&left.spans), ["call", "linked", "raw"]);
        for span in &left.spans {
            let events = span["events"].as_array().unwrap();
            assert_eq!(names(events), ["first", "second"]);
            assert_eq!(span["droppedEventsCount"], 3);
            for event in events {
                assert_eq!((attribute_keys(event), &event["droppedAttributesCount"]), (vec!["a"], &json!(1)));
            }
            let links = span["links"].as_array().unwrap();
            assert_eq!(links.len(), 3);
            assert_eq!(span["droppedLinksCount"], if span["name"] == "linked" { 7 } else { 2 });
            if span["name"] != "linked" {
                for link in links {
                    assert_eq!((attribute_keys(link), &link["droppedAttributesCount"]), (vec![], &json!(2)));
                }
            }
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        const TEXT: &str = "größer";
        #[rl_span(group = Generation, name = "call", attributes(given = TEXT, list = [TEXT, "ab"], out = |()| TEXT))]
        fn call() {
            set("set", TEXT);
            Context::current().span().set_attribute(KeyValue::new("said", TEXT));
            lens_runtime::tracer("library").in_span("raw", |context| {
                context.span().set_attribute(KeyValue::new("said", TEXT));
            });
        }
        for (limit, expected, list) in [
            ("4", "größ", ["größ", "ab"]),
            ("1", "g", ["g", "a"]),
            ("0", "", ["", ""]),
            ("6", TEXT, [TEXT, "ab"]),
        ] {
            let run = with_limits(&[("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", limit)]);
            call();
            let left = run.end();
            let (span, raw) = (named(&left.spans, "call"), named(&left.spans, "raw"));
            for key in ["given", "out", "set", "said"] {
                assert_eq!(attribute_text(span, key).unwrap(), expected, "{key} {limit}");
            }
            assert_eq!(attribute_text(raw, "said").unwrap(), expected);
            let values = list.map(|text| json!({"stringValue": text}));
            assert_eq!(attribute(span, "list").unwrap()["arrayValue"]["values"], json!(values));
        }
    }
}

/// tokio-rs/tracing#1458, open-telemetry/opentelemetry-rust#2420, tokio-rs/tracing-opentelemetry#202
#[test]
fn fault_66_calls_bridged_spans_and_raw_ones_are_one_chain() {
    #[rl_span(group = Rollout, name = "outer")]
    fn outer() {
        tracing::info_span!("bridged").in_scope(|| {
            call(|| lens_runtime::tracer("library").in_span("raw", |_| call(|| ())));
        });
    }
    // The groups that are off lie in between.
    for (span_groups, chain) in [
        ("rollout,reward", "outer\n  bridged\n    call\n      raw\n        call\n"),
        ("rollout", "outer\n  bridged\n    raw\n"),
        ("reward", "bridged\n  call\n    raw\n      call\n"),
        ("checkpoint", "bridged\n  raw\n"),
    ] {
        let run = Run::begin(&[&format!("span_groups: {span_groups}")]);
        let layer = tracing_opentelemetry::layer().with_tracer(lens_runtime::tracer("bridge"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), outer);
        let left = run.end();
        assert_eq!(tree(&left.spans), chain, "{span_groups}");
        assert!(left.spans.iter().all(|span| span["traceId"] == left.spans[0]["traceId"]));
        assert_eq!((left.counted("outer"), left.counted("call")), (1, 2));
    }
}

/// databendlabs/databend#5533, fast/fastrace#166, tokio-rs/tracing#2144
#[test]
fn fault_89_a_call_ends_as_it_began_whoever_switches_meanwhile_and_wherever() {
    #[rl_span(group = Rollout, name = "blocks")]
    fn blocks(switch: &dyn Fn(&str)) {
        switch("reward");
        call(|| set("is", "within"));
        set("still", 1);
    }
    #[rl_span(group = Rollout, name = "waits", model = "tiny")]
    async fn waits(switch: &dyn Fn(&str)) {
        switch("reward");
        tokio::task::yield_now().await;
        set("still", 1);
        record_tokens(0_u32, 7_u32);
        call(|| ());
        switch("rollout");
        tokio::task::yield_now().await;
        call(|| ());
    }
    #[rl_span(group = Rollout, name = "began_off", model = "tiny")]
    async fn began_off(switch: &dyn Fn(&str)) {
        switch("all");
        tokio::task::yield_now().await;
        // It has no span, so that nobody hears this.
        set("still", 1);
        record_tokens(0_u32, 7_u32);
        call(|| ());
    }
    let run = Run::begin(&["span_groups: rollout"]);
    let here = |span_groups: &str| run.telemetry().set_span_groups(span_groups).unwrap();
    let on_another_thread =
        |span_groups: &str| std::thread::scope(|scope| scope.spawn(|| here(span_groups)).join().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for switch in [&here as &dyn Fn(&str), &on_another_thread] {
        here("rollout");
        blocks(switch);
        here("rollout");
        runtime.block_on(waits(switch));
        here("checkpoint");
        runtime.block_on(began_off(switch));
    }
    let left = run.end();
    let once = ["call", "blocks", "call", "waits", "call"];
    assert_eq!(names(&left.spans), [once, once].concat());
    let parents: Vec<_> = left.spans.iter().map(|span| &span["parentSpanId"]).collect();
    for (round, spans) in left.spans.chunks(5).enumerate() {
        let [blocks, waits] = [1, 3].map(|index| &spans[index]);
        assert_eq!(parents[5 * round], &blocks["spanId"]);
        assert_eq!(parents[5 * round + 2], &waits["spanId"]);
        assert_eq!(parents[5 * round + 4], &Value::Null);
        for span in [blocks, waits] {
            assert_eq!(attribute_text(span, "still").unwrap(), "1");
            assert_eq!(attribute_text(span, semconv::OUTCOME).unwrap(), "ok");
        }
        assert_eq!(attribute_text(waits, semconv::GEN_AI_USAGE_OUTPUT_TOKENS).unwrap(), "7");
    }
    // On or off, each is measured.
    let counted = ["blocks", "waits", "began_off", "call"].map(|phase| left.counted(phase));
    assert_eq!(counted, [2, 2, 2, 8]);
    assert_eq!(output_tokens(&left, "tiny"), 28);
}

/// restatedev/restate#633, openobserve/openobserve#14367
#[test]
fn fault_110_an_interval_that_ends_before_it_begins_lasts_for_no_time() {
    let run = Run::begin(&["span_groups: reward"]);
    let now = SystemTime::now();
    span(&groups::Reward, "set back").interval(now, now - Duration::from_secs(3600));
    let left = run.end();
    let nanos = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos().to_string();
    let span = named(&left.spans, "set back");
    assert_eq!([&span["startTimeUnixNano"], &span["endTimeUnixNano"]], [&nanos, &nanos]);
    assert_eq!(attribute_text(span, semconv::OUTCOME).unwrap(), "ok");
    let points = left.points(semconv::PHASE_DURATION);
    assert_eq!((points.len(), points[0].count, points[0].sum.to_bits()), (1, 1, 0.0_f64.to_bits()));
    assert_eq!(left.report.phases.get("set back").unwrap().total, Duration::ZERO);
}

/// Calls of a tree whose groups are switched all the time.
mod switching {
    use std::collections::{HashMap, HashSet};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const THREADS: u64 = 8;
    const CALLS: u64 = 500;

    /// The branches within a call that is left out.
    static LEFT_OUT: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

    #[rl_span(group = Rollout, name = "outer", attributes(id = id, out = |out| *out))]
    fn outer(id: u64) -> u64 {
        let mut out = 0;
        for branch in 0..2 {
            out += middle(id, branch);
        }
        set("said", id);
        out
    }

    #[rl_span(
        group = Generation,
        name = "middle",
        key = branch,
        attributes(id = id, branch = branch, out = |out| *out),
        tokens(output = 1_u32)
    )]
    fn middle(id: u64, branch: u64) -> u64 {
        set("said", id);
        let context = Context::current();
        if context.has_active_span() && !context.span().span_context().is_sampled() {
            LEFT_OUT.lock().unwrap().push((id.to_string(), branch.to_string()));
        }
        at_once(inner(id, branch))
    }

    #[rl_span(group = Reward, name = "inner", attributes(id = id, branch = branch, out = |out| *out))]
    async fn inner(id: u64, branch: u64) -> u64 {
        set("said", id);
        1
    }

    /// What has to be above a span, if anything is.
    fn above(name: &str) -> &'static [&'static str] {
        match name {
            "outer" => &[],
            "middle" => &["outer"],
            "inner" => &["middle", "outer"],
            other => panic!("{other}"),
        }
    }

    /// Eight threads call, one switches until they are done. With the branches that were left out.
    fn run(selections: &[&str]) -> (Left, HashSet<(String, String)>) {
        let run = Run::begin(&[&format!("span_groups: {:?}", selections[0])]);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for selection in selections.iter().cycle() {
                    run.telemetry().set_span_groups(selection).unwrap();
                    if is_done.load(Ordering::Acquire) {
                        break;
                    }
                }
            });
            let callers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || {
                        for call in 0..CALLS {
                            assert_eq!(outer(thread * CALLS + call), 2);
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.join().unwrap();
            }
            is_done.store(true, Ordering::Release);
        });
        let left_out = LEFT_OUT.lock().unwrap().drain(..).collect();
        (run.end(), left_out)
    }

    /// Each span is there once, whole, and beneath the next call around it that is there.
    fn check(left: &Left) {
        let by_id: HashMap<_, _> = left.spans.iter().map(|span| (&span["spanId"], span)).collect();
        assert_eq!(by_id.len(), left.spans.len(), "no span is there twice");
        let mut calls = HashSet::new();
        for span in &left.spans {
            let name = span["name"].as_str().unwrap();
            let of = |span: &Value, key: &str| attribute_text(span, key);
            assert!(calls.insert((name, of(span, "id"), of(span, "branch"))), "no call is there twice");
            assert_eq!(of(span, "said"), of(span, "id"), "{span}");
            assert_eq!(of(span, "out").unwrap(), if name == "outer" { "2" } else { "1" }, "{span}");
            assert_eq!(of(span, semconv::OUTCOME).unwrap(), "ok");
            assert_eq!(of(span, semconv::GEN_AI_USAGE_OUTPUT_TOKENS).is_some(), name == "middle", "{span}");
            if span["parentSpanId"].is_null() {
                continue;
            }
            let parent =
                by_id.get(&span["parentSpanId"]).unwrap_or_else(|| panic!("whose is the parent of {span}"));
            assert!(above(name).contains(&parent["name"].as_str().unwrap()), "{span} {parent}");
            assert_eq!((&parent["traceId"], of(parent, "id")), (&span["traceId"], of(span, "id")));
            assert!(parent["name"] == "outer" || of(parent, "branch") == of(span, "branch"));
        }
        // Whatever was on, all were measured.
        let counted = ["outer", "middle", "inner"].map(|phase| left.counted(phase));
        assert_eq!(counted, [1, 2, 2].map(|each| each * THREADS * CALLS));
        let traces = left.report.health.traces;
        assert_eq!(traces.made, left.spans.len() as u64);
        let reported: u64 = ["outer", "middle", "inner"].map(|phase| left.reported(phase)).iter().sum();
        assert_eq!(reported, traces.made + traces.left_out);
    }

    #[test]
    fn of_groups_that_are_switched_all_the_time_each_call_is_there_whole_or_not_at_all() {
        let (left, left_out) =
            run(&["all", "reward", "rollout,reward", "generation", "checkpoint", "all,-reward"]);
        check(&left);
        assert_eq!(left.report.health.traces.left_out, 0);
        assert!(left_out.is_empty());
    }

    #[test]
    fn of_shares_that_are_switched_all_the_time_nothing_is_there_beneath_what_was_left_out() {
        let (left, left_out) = run(&[
            "all",
            "generation@0.5,reward",
            "all@0.5",
            "rollout@0.1,all,-checkpoint",
            "reward",
            "setup",
        ]);
        check(&left);
        assert!(left.report.health.traces.left_out > 0);
        assert!(!left_out.is_empty());
        for span in left.spans.iter().filter(|span| span["name"] == "inner") {
            let call = ["id", "branch"].map(|key| attribute_text(span, key).unwrap());
            assert!(!left_out.contains(&call.into()), "beneath a call that was left out: {span}");
        }
    }
}

/// The memory of a call is used again by others.
mod memory_that_is_used_again {
    use super::*;

    #[rl_span(group = Generation, name = "rich", model = "tiny", provider = "vllm", kind = Client, tokens(input = 1_u32), attributes(text = "rich", given = 1), links = [elsewhere()], err = message)]
    fn rich() -> Result<(), &'static str> {
        say_everything(&Context::current().span());
        for _ in 0..200 {
            Context::current().span().add_event("many", Vec::new());
        }
        record_tokens(1_u32, 1_u32);
        Err("too long")
    }

    #[rl_span(group = Reward, name = "bare")]
    fn bare() {}

    #[rl_span(group = Logprob, name = "off", model = "tiny", links = [elsewhere()], attributes(text = "off"))]
    fn off() {
        set("said", "of the call around");
        record_tokens(1_u32, 1_u32);
    }

    /// Asserts that a span has what every span has, and nothing else.
    fn assert_bare(span: &Value) {
        assert_eq!(attribute_keys(span), [semconv::GROUP, semconv::BUCKET, semconv::OUTCOME], "{span}");
        assert_eq!(attribute_text(span, semconv::GROUP).unwrap(), "reward");
        assert_eq!((&span["kind"], &span["status"]), (&json!(1), &json!({})), "{span}");
        let others = ["events", "links", "parentSpanId", "traceState"];
        let dropped = ["droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"];
        for key in others.iter().chain(&dropped) {
            assert!(span[*key].is_null(), "{key} of {span}");
        }
        let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"));
        assert!(
            time("endTimeUnixNano") - time("startTimeUnixNano") < 3_600_000_000_000,
            "it was no interval"
        );
    }

    #[test]
    fn remembers_nothing_of_the_call_that_had_it_before() {
        let run = Run::begin(&["span_groups: generation,reward,rollout@1e-12"]);
        let hours_ago = SystemTime::now() - Duration::from_secs(36_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..300 {
                        match round % 5 {
                            0 => rich().unwrap_err(),
                            1 => {
                                off();
                                "off"
                            }
                            2 => {
                                span(&groups::Generation, "interval").interval(hours_ago, SystemTime::now());
                                "interval"
                            }
                            3 => {
                                let context = span(&groups::Rollout, "left out").run(Context::current);
                                say_everything(&context.span());
                                "left out"
                            }
                            _ => {
                                drop(
                                    span(&groups::Generation, "never begun")
                                        .attribute("text", "x")
                                        .kind(lens_runtime::opentelemetry::trace::SpanKind::Server),
                                );
                                "never begun"
                            }
                        };
                        bare();
                    }
                    // So that what was delivered is used again, too.
                    assert!(run.telemetry().flush(Duration::from_secs(60)));
                    (0..100).for_each(|_| bare());
                });
            }
        });
        let left = run.end();
        let count = |name: &str| left.spans.iter().filter(|span| span["name"] == name).count();
        assert_eq!(["bare", "renamed", "interval"].map(count), [1600, 240, 240]);
        assert_eq!(left.spans.len(), 1600 + 240 + 240);
        for span in left.spans.iter().filter(|span| span["name"] == "bare") {
            assert_bare(span);
        }
        for span in left.spans.iter().filter(|span| span["name"] == "renamed") {
            assert_eq!(span["events"].as_array().unwrap().len(), 128);
            assert_eq!(span["droppedEventsCount"], 73);
            assert_eq!(span["links"].as_array().unwrap().len(), 2);
        }
    }

    /// Threads that were handed the context go on while the call ends.
    #[test]
    fn is_no_other_calls_while_somebody_still_writes_to_it() {
        const THREADS: usize = 4;
        const ROUNDS: usize = 300;
        let run = Run::begin(&["span_groups: generation,reward"]);
        for round in 0..ROUNDS {
            let barrier = std::sync::Barrier::new(THREADS + 1);
            std::thread::scope(|scope| {
                span(&groups::Generation, "shared").attribute("round", round).run(|| {
                    for _ in 0..THREADS {
                        let (context, barrier) = (Context::current(), &barrier);
                        scope.spawn(move || {
                            barrier.wait();
                            for _ in 0..50 {
                                context.span().set_attribute(KeyValue::new("writer", "of the shared one"));
                                context.span().add_event("written", Vec::new());
                                context.span().update_name("written to");
                            }
                        });
                    }
                    barrier.wait();
                });
                (0..20).for_each(|_| bare());
            });
        }
        let left = run.end();
        let (bare, shared): (Vec<_>, Vec<_>) = left.spans.iter().partition(|span| span["name"] == "bare");
        assert_eq!((bare.len(), shared.len()), (20 * ROUNDS, ROUNDS));
        bare.into_iter().for_each(assert_bare);
        let mut rounds: Vec<_> = shared
            .iter()
            .map(|span| attribute_text(span, "round").unwrap().parse::<usize>().unwrap())
            .collect();
        rounds.sort_unstable();
        assert_eq!(rounds, (0..ROUNDS).collect::<Vec<_>>());
    }
}

#[test]
fn of_two_attributes_with_one_key_one_counts_towards_the_limit() {
    const A: &str = "a";
    #[rl_span(group = Reward, name = "call", attributes(a = 1, b = 1, A = 2))]
    fn call() {}
    let limit = [("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "2")];
    let run = Run::begin_as(&["span_groups: reward"], &limit, |config| config);
    call();
    let left = run.end();
    let span = named(&left.spans, "call");
    assert_eq!(["a", "b"].map(|key| attribute_text(span, key).unwrap()), ["2", "1"]);
    assert_eq!(span["droppedAttributesCount"].as_u64().unwrap_or_default(), 0);
}

#[test]
fn of_three_attributes_with_one_key_the_last_counts_where_a_limit_is_near() {
    const A: &str = "a";
    const ALSO_A: &str = "a";
    #[rl_span(group = Reward, name = "call", attributes(a = 1, A = 2, ALSO_A = 3))]
    fn call() {}
    let limit = [("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "2")];
    let run = Run::begin_as(&["span_groups: reward"], &limit, |config| config);
    call();
    let left = run.end();
    assert_eq!(attribute_text(named(&left.spans, "call"), "a").unwrap(), "3");
}

/// OpenTelemetry's specification: of two statuses that are set the last one counts, unless the first is `Ok`.
#[test]
fn of_two_errors_that_the_program_tells_the_last_is_told() {
    let run = Run::begin(&["span_groups: reward"]);
    for texts in [["a", "b"], ["b", "a"]] {
        call(|| texts.into_iter().for_each(|text| Context::current().span().set_status(Status::error(text))));
    }
    let left = run.end();
    let told: Vec<_> = left.spans.iter().map(|span| span["status"]["message"].as_str().unwrap()).collect();
    assert_eq!(told, ["b", "a"]);
}
