//! Is what is no function recorded like one, and what is said from within a call heard?

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{self, Poll, Waker};
use std::time::{Duration, SystemTime};

use futures_core::Stream;
use lens_runtime::opentelemetry::Context;
use lens_runtime::opentelemetry::trace::SpanKind;
use lens_runtime::propagation::{InContext as _, in_current_context};
use lens_runtime::testing::Capture;
use lens_runtime::{Bucket, groups, record_tokens, rl_span, set, span};
use tokio::task::yield_now;

#[rl_span(group = Reward, name = "inner")]
fn inner() {}

#[test]
fn a_block_has_the_outcomes_of_a_function() {
    let capture = Capture::new("per_step");
    capture.run(|| {
        span(&groups::Rollout, "ok").run(inner);
        let failed = span(&groups::Rollout, "error").try_run(|| "x".parse::<u32>());
        assert!(failed.is_err());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            span(&groups::Rollout, "panic").run(|| std::panic::resume_unwind(Box::new(1)));
        }));
        assert!(panicked.is_err());
        {
            let _scope = span(&groups::Rollout, "scope").enter();
            inner();
        }
        inner();
    });
    assert_eq!(
        capture.tree(),
        "ok (ok)\n  inner (ok)\nerror (error)\npanic (panic)\nscope (ok)\n  inner (ok)\ninner (ok)\n"
    );
    assert_eq!(
        capture.span("error").attribute("error.type").unwrap().to_string(),
        std::any::type_name::<std::num::ParseIntError>()
    );
    let points = capture.points("rl.phase.duration");
    assert_eq!(points.len(), 5, "{points:?}");
}

#[test]
fn a_block_says_what_an_annotation_can_say() {
    let capture = Capture::new("per_step");
    capture.run(|| {
        let call = span(&groups::Generation, "generate")
            .step(4)
            .model("tiny")
            .provider(String::from("vllm"))
            .operation("chat")
            .attribute("size", 3)
            .attribute("note", None::<&str>)
            .attribute_with("list", || [1, 2])
            .tokens([3_u32, 5], 7_u64);
        call.run(|| assert_eq!(lens_runtime::current_step(), Some(4)));
    });
    let span = capture.span("generate");
    let text = |key: &str| span.attribute(key).map(ToString::to_string);
    for (key, value) in [
        ("rl.iteration", "4"),
        ("gen_ai.request.model", "tiny"),
        ("gen_ai.provider.name", "vllm"),
        ("gen_ai.operation.name", "chat"),
        ("size", "3"),
        ("list", "[1,2]"),
        ("gen_ai.usage.input_tokens", "8"),
        ("gen_ai.usage.output_tokens", "7"),
    ] {
        assert_eq!(text(key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(text("note"), None);
    let usage = capture.points("gen_ai.client.token.usage");
    let of = |kind: &str| usage.iter().find(|point| point.attributes["gen_ai.token.type"] == kind).unwrap();
    assert_eq!((of("input").count, of("output").count), (2, 1));
}

#[test]
fn a_block_stands_where_it_is_told_to_stand() {
    let capture = Capture::new("per_step");
    capture.run(|| {
        let first = span(&groups::Rollout, "first").run(Context::current);
        let call =
            span(&groups::Reward, "second").kind(SpanKind::Client).bucket(Bucket::Wasted).parent(&first);
        call.links([&first, &first]).latencies([Duration::from_secs(2); 3]).run(|| ());
        span(&groups::Reward, "third").umbrella().run(|| ());
    });
    assert_eq!(capture.tree(), "first (ok)\n  second (ok)\nthird (ok)\n");
    let second = capture.span("second");
    assert_eq!(second.kind(), &SpanKind::Client);
    assert_eq!(second.links().len(), 2);
    assert_eq!(second.attribute("rl.bucket").unwrap().to_string(), "wasted");
    assert_eq!(capture.span("third").attribute("rl.bucket"), None);
    assert_eq!(capture.points("gen_ai.client.operation.duration")[0].count, 3);
}

/// Items that are there already, each of which is a token.
struct Items(std::vec::IntoIter<Result<u32, &'static str>>);

impl Stream for Items {
    type Item = Result<u32, &'static str>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        record_tokens(0_u32, 1_u32);
        Poll::Ready(self.0.next())
    }
}

#[test]
fn a_stream_is_recorded_until_its_end_or_its_drop() {
    fn take(stream: impl Stream, most: usize) -> usize {
        let (mut stream, cx) = (pin!(stream), &mut task::Context::from_waker(Waker::noop()));
        (0..most).take_while(|_| matches!(stream.as_mut().poll_next(cx), Poll::Ready(Some(_)))).count()
    }
    let items = |items: &[Result<u32, &'static str>]| Items(Vec::from(items).into_iter());
    let capture = Capture::new("per_step");
    capture.run(|| {
        let stream = |name| span(&groups::Generation, name);
        assert_eq!(take(stream("whole").streamed(items(&[Ok(1), Err("no")])), 9), 2);
        assert_eq!(take(stream("failed").try_streamed(items(&[Ok(1), Err("no"), Ok(2)])), 9), 3);
        assert_eq!(take(stream("dropped").try_streamed(items(&[Ok(1), Ok(2)])), 1), 1);
        assert_eq!(take(stream("never polled").streamed(items(&[Ok(1)])), 0), 0);
        inner();
    });
    assert_eq!(capture.tree(), "whole (ok)\nfailed (error)\ndropped (cancelled)\ninner (ok)\n");
    let whole = capture.span("whole");
    let text = |key| whole.attribute(key).unwrap().to_string();
    assert_eq!((text("rl.stream.items"), text("gen_ai.usage.output_tokens")), ("2".into(), "3".into()));
    // One request each, whatever the number of items.
    let points = capture.points("gen_ai.client.token.usage");
    let requests: u64 = points
        .iter()
        .filter(|point| point.attributes["gen_ai.token.type"] == "output")
        .map(|point| point.count)
        .sum();
    assert_eq!(requests, 3);
}

#[test]
fn a_block_that_is_off_runs_and_evaluates_nothing() {
    let capture = Capture::new("reward");
    let out = span(&groups::PerPrompt, "off").attribute_with("key", || -> u32 { unreachable!() }).run(|| 5);
    assert_eq!(out, 5);
    capture.run(|| {
        // Metrics are on, and there is no span to hold an attribute.
        span(&groups::PerPrompt, "metrics").attribute_with("key", || -> u32 { unreachable!() }).run(|| ());
    });
    assert_eq!(capture.tree(), "");
    assert_eq!(capture.points("rl.phase.duration").len(), 1);
}

#[tokio::test]
async fn a_future_is_recorded_through_its_suspensions() {
    let capture = Capture::new("per_step");
    let work = async {
        let sum = span(&groups::Rollout, "future")
            .traced(async {
                yield_now().await;
                inner();
                1
            })
            .await;
        let failed = span(&groups::Rollout, "failed").try_traced(async { Err::<u32, _>("no") }).await;
        (sum, failed)
    };
    assert_eq!(capture.run_async(work).await, (1, Err("no")));
    assert_eq!(capture.tree(), "future (ok)\n  inner (ok)\nfailed (error)\n");
}

#[test]
fn a_future_that_is_dropped_is_cancelled_and_one_that_is_never_polled_is_nothing() {
    let capture = Capture::new("per_step");
    capture.run(|| {
        drop(span(&groups::Rollout, "never").traced(async {}));
        let mut future = pin!(span(&groups::Rollout, "dropped").traced(std::future::pending::<()>()));
        assert!(future.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_pending());
    });
    assert_eq!(capture.tree(), "dropped (cancelled)\n");
}

#[test]
fn an_interval_has_the_times_that_were_given() {
    let capture = Capture::new("per_step,setup");
    let now = SystemTime::now();
    capture.run(|| {
        span(&groups::Setup, "startup").interval(now - Duration::from_secs(90), now);
        span(&groups::Setup, "backwards").interval(now, now - Duration::from_secs(1));
    });
    assert_eq!(capture.span("startup").duration(), Duration::from_secs(90));
    assert_eq!(capture.span("backwards").duration(), Duration::ZERO);
    let points = capture.points("rl.phase.duration");
    let startup = points.iter().find(|point| point.attributes["rl.phase"] == "startup").unwrap();
    assert_eq!((startup.count, startup.sum.to_bits()), (1, 90.0_f64.to_bits()));
}

#[rl_span(group = Generation, name = "generate", model = "tiny", tokens(input = 10_u32))]
async fn generate() {
    record_tokens(0_u32, 1_u32);
    yield_now().await;
    helper();
    let task = tokio::spawn(async { record_tokens([2_u32], [4_u32, 8]) }.in_current_context());
    task.await.unwrap();
    std::thread::spawn(in_current_context(|| record_tokens(0_u32, 16_u32))).join().unwrap();
    judge();
    set("rl.turns", 3);
}

fn helper() {
    record_tokens(0_u32, 32_u32);
}

/// Has its own tokens.
#[rl_span(group = Reward, name = "judge", provider = "vllm")]
fn judge() {
    record_tokens(100_u32, 1000_u32);
}

#[tokio::test]
async fn fault_112_tokens_are_counted_from_wherever_the_work_is_done() {
    let capture = Capture::new("per_step");
    capture.run_async(generate()).await;
    let sums = |name: &str| {
        let span = capture.span(name);
        let sum = |side: &str| span.attribute(&format!("gen_ai.usage.{side}_tokens")).unwrap().to_string();
        (sum("input"), sum("output"))
    };
    assert_eq!(sums("generate"), ("12".to_owned(), (1 + 4 + 8 + 16 + 32).to_string()));
    assert_eq!(sums("judge"), ("100".to_owned(), "1000".to_owned()));
    assert_eq!(capture.span("generate").attribute("rl.turns").unwrap().to_string(), "3");
    let usage = capture.points("gen_ai.client.token.usage");
    let of_tiny: f64 = usage
        .iter()
        .filter(|point| point.attributes.get("gen_ai.request.model").is_some_and(|model| model == "tiny"))
        .map(|point| point.sum)
        .sum();
    assert_eq!(of_tiny.to_bits(), f64::from(12 + 61).to_bits());
}

#[test]
fn what_is_said_outside_of_a_call_is_not_heard_and_harms_nothing() {
    record_tokens(1_u32, 1_u32);
    set("key", 1);
    let capture = Capture::new("per_step");
    capture.run(|| {
        record_tokens(1_u32, 1_u32);
        set("key", 1);
        inner();
    });
    assert_eq!(capture.span("inner").attribute("key"), None);
    assert!(capture.points("gen_ai.client.token.usage").is_empty());
}

#[test]
fn code_that_counts_tokens_may_itself_be_recorded() {
    /// Counts while it is counted.
    struct Counting;
    impl Iterator for Counting {
        type Item = u32;
        fn next(&mut self) -> Option<u32> {
            inner();
            record_tokens(0_u32, 1_u32);
            None
        }
    }
    let capture = Capture::new("per_step");
    capture.run(|| span(&groups::Generation, "outer").run(|| record_tokens(Counting, Counting)));
    assert_eq!(capture.span("outer").attribute("gen_ai.usage.output_tokens").unwrap().to_string(), "2");
}
