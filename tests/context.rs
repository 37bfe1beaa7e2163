//! Is the current context what it should be, whatever a program does with it?
//!
//! A test whose name begins with `fault` shows that Lens does not have a fault that users of other
//! instrumentation libraries reported, by its number.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::{self, Waker};

use lens_runtime::opentelemetry::trace::{Span as _, SpanId, TraceContextExt as _, Tracer as _};
use lens_runtime::opentelemetry::{Context, Value};
use lens_runtime::propagation::{extract, in_current_context};
use lens_runtime::testing::Capture;
use lens_runtime::{AttributeValue, groups, record_tokens, rl_span, set, span};
use tokio::task::yield_now;

#[rl_span(group = Reward, name = "called")]
fn called() {}

fn is_within_a_span() -> bool {
    Context::current().span().span_context().is_valid()
}

/// open-telemetry/opentelemetry-rust#1887, #2378
#[test]
fn fault_61_guards_may_be_dropped_in_any_order() {
    struct Kept(#[expect(dead_code, reason = "it is there to be dropped late")] lens_runtime::Scope);
    let capture = Capture::new("per_step");
    capture.run(|| {
        let first = span(&groups::Rollout, "first").enter();
        let second = span(&groups::Rollout, "second").enter();
        drop(first);
        called();
        drop(second);
        assert!(!is_within_a_span());
        let kept = {
            let kept = Kept(span(&groups::Rollout, "kept").enter());
            let _other = span(&groups::Rollout, "other").enter();
            kept
        };
        drop(kept);
        assert!(!is_within_a_span());
        called();
    });
    assert_eq!(
        capture.tree(),
        "first (ok)\n  second (ok)\n    called (ok)\nkept (ok)\n  other (ok)\ncalled (ok)\n"
    );
}

/// open-telemetry/opentelemetry-rust#2871, #3262, #3738
#[test]
fn fault_62_what_lies_in_a_context_may_make_spans_when_it_is_dropped() {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            called();
        }
    }
    #[rl_span(group = Rollout, name = "outer")]
    fn outer() {
        let attached = Context::current_with_value(Loud).attach();
        called();
        drop(attached);
    }
    let capture = Capture::new("per_step");
    capture.run(outer);
    assert_eq!(capture.tree(), "outer (ok)\n  called (ok)\n  called (ok)\n");
}

/// A value whose making is recorded itself.
struct Recorded;

impl AttributeValue for Recorded {
    fn to_value(&self) -> Option<Value> {
        called();
        Some(Value::I64(1))
    }
}

/// open-telemetry/opentelemetry-rust#3510, #3511
#[test]
fn fault_63_a_value_that_is_given_to_the_current_span_may_make_spans() {
    #[rl_span(group = Rollout, name = "outer")]
    fn outer() {
        set("recorded", Recorded);
        record_tokens((0..2_u32).inspect(|_| called()), 0_u32);
    }
    let capture = Capture::new("per_step");
    capture.run(outer);
    assert_eq!(capture.tree(), "outer (ok)\n  called (ok)\n  called (ok)\n  called (ok)\n");
    assert_eq!(capture.span("outer").attribute("recorded").unwrap().to_string(), "1");
}

/// open-telemetry/opentelemetry-rust#3657, fast/fastrace#101, #110
#[test]
fn fault_64_a_parent_that_is_none_leaves_a_root_with_a_trace_of_its_own() {
    let zeros = "00-00000000000000000000000000000000-0000000000000000-01";
    for text in [zeros, "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "garbage"] {
        let capture = Capture::new("per_step");
        let headers = HashMap::from([("traceparent".to_owned(), text.to_owned())]);
        capture.run(|| {
            let _attached = extract(&headers).attach();
            span(&groups::Rollout, "outer").run(called);
        });
        assert_eq!(capture.tree(), "outer (ok)\n  called (ok)\n", "{text}");
        let (outer, called) = (capture.span("outer"), capture.span("called"));
        assert_eq!(outer.parent_id(), SpanId::INVALID, "{text}");
        assert_eq!(outer.trace_id(), called.trace_id());
        assert!(!text.contains(&outer.trace_id().to_string()), "{text}");
    }
}

/// tokio-rs/tracing-opentelemetry#251, davidbarsky/tracing-tree#93
#[test]
fn fault_68_the_expressions_of_an_annotation_may_make_spans() {
    fn size() -> u32 {
        called();
        1
    }
    #[rl_span(
        group = Rollout,
        name = "outer",
        attributes(size = size(), recorded = Recorded, result = |out| out + size()),
        tokens(input = size(), output = |_| size())
    )]
    fn outer() -> u32 {
        2
    }
    let capture = Capture::new("per_step");
    assert_eq!(capture.run(outer), 2);
    assert_eq!(capture.spans().iter().filter(|span| span.name() == "called").count(), 5);
    assert_eq!(capture.span("outer").attribute("result").unwrap().to_string(), "3");
}

/// NVIDIA/OpenShell#2579, 0xMiden/node#725, iii-hq/iii#1246
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_85_tests_that_run_at_once_see_their_own_spans_alone() {
    #[rl_span(group = Rollout, name = "work", attributes(number = number))]
    async fn work(number: u64) {
        yield_now().await;
        tokio::task::spawn_blocking(in_current_context(called)).await.unwrap();
    }
    let runs = (0..32).map(|number| {
        tokio::spawn(async move {
            let capture = Capture::new("per_step");
            capture.run_async(work(number)).await;
            (number, capture)
        })
    });
    for run in runs.collect::<Vec<_>>() {
        let (number, capture) = run.await.unwrap();
        assert_eq!(capture.tree(), "work (ok)\n  called (ok)\n");
        assert_eq!(capture.span("work").attribute("number").unwrap().to_string(), number.to_string());
    }
}

/// cmu-sei/Polar#226
#[test]
fn fault_88_a_context_that_outlives_its_call_is_still_a_parent() {
    #[rl_span(group = Rollout, name = "outer")]
    async fn outer() -> Context {
        Context::current()
    }
    let capture = Capture::new("per_step");
    capture.run(|| {
        let task::Poll::Ready(context) = pin!(outer()).poll(&mut task::Context::from_waker(Waker::noop()))
        else {
            panic!("it waits for nothing")
        };
        // The span has ended; what is said to it is not heard, and what begins in it is its child.
        let attached = context.clone().attach();
        set("late", 1);
        context.span().end();
        called();
        drop(context);
        called();
        drop(attached);
    });
    assert_eq!(capture.tree(), "outer (ok)\n  called (ok)\n  called (ok)\n");
    assert_eq!(capture.span("outer").attribute("late"), None);
}

#[test]
fn spans_of_a_tracer_taken_outside_of_a_test_lie_between_those_of_the_test() {
    let tracer = lens_runtime::tracer("library");
    let capture = Capture::new("per_step");
    capture.run(|| {
        let _outer = span(&groups::Rollout, "outer").enter();
        tracer.in_span("library", |_| called());
    });
    let [outer, library, called] = ["outer", "library", "called"].map(|name| capture.span(name));
    assert_eq!((library.parent_id(), called.parent_id()), (outer.id(), library.id()));
    capture.run(|| {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        assert!(!tracer.start("suppressed").is_recording());
        let context = capture.context();
        assert!(tracer.start_with_context("of the given context", &context).is_recording());
    });
}

#[test]
fn a_span_of_a_tracer_while_telemetry_is_off_hands_on_its_parents_ids() {
    let tracer = lens_runtime::tracer("library");
    let headers = HashMap::from([(
        "traceparent".to_owned(),
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
    )]);
    let _attached = extract(&headers).attach();
    let mut off = tracer.start("off");
    assert!(!off.is_recording());
    assert_eq!(off.span_context().span_id(), SpanId::from(0xb7ad_6b71_6920_3331));
    assert!(off.span_context().is_sampled());
    off.end();
}
