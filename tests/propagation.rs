//! Does a trace cross threads, tasks and processes?

use std::collections::{BTreeMap, HashMap};
use std::future::Future as _;
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;

use lens_runtime::http::HeaderMap;
use lens_runtime::opentelemetry::Context;
use lens_runtime::opentelemetry::trace::{SpanId, TraceContextExt as _, TraceFlags};
use lens_runtime::propagation::{Carrier, InContext as _, extract, in_current_context, inject};
use lens_runtime::testing::Capture;
use lens_runtime::{SpanRef as _, current_step, rl_span};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[rl_span(group = Step, name = "step", step = number)]
fn step<R>(number: u64, body: impl FnOnce() -> R) -> R {
    body()
}

#[rl_span(group = Reward, name = "reward")]
fn reward() {}

fn there_and_back<C: Carrier>(mut carrier: C) {
    let capture = Capture::new("per_step");
    capture.run(|| {
        step(7, || inject(&mut carrier));
        let _attached = extract(&carrier).attach();
        assert_eq!(current_step(), Some(7));
        reward();
    });
    let (step, reward) = (capture.span("step"), capture.span("reward"));
    assert_eq!((reward.trace_id(), reward.parent_id()), (step.trace_id(), step.id()));
    assert_eq!(reward.attribute("rl.iteration"), step.attribute("rl.iteration"));
}

#[test]
fn every_carrier_brings_span_and_step_across() {
    there_and_back(HashMap::<String, String>::new());
    there_and_back(BTreeMap::new());
    there_and_back(HeaderMap::new());
}

#[test]
fn the_metadata_of_grpc_is_a_carrier_by_its_headers() {
    let mut metadata = tonic::metadata::MetadataMap::new();
    let capture = Capture::new("per_step");
    capture.run(|| step(1, || inject(AsMut::<HeaderMap>::as_mut(&mut metadata))));
    let context = extract(AsRef::<HeaderMap>::as_ref(&metadata));
    assert_eq!(context.span().span_context().span_id(), capture.span("step").id());
}

#[test]
fn headers_are_found_in_whatever_case_and_lists_are_put_together() {
    let map = HashMap::from([("TraceParent".to_owned(), TRACEPARENT.to_owned())]);
    assert_eq!(extract(&map).span().span_context().span_id().to_string(), "b7ad6b7169203331");
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", TRACEPARENT.parse().unwrap());
    headers.append("tracestate", "a=1".parse().unwrap());
    headers.append("tracestate", "b=2".parse().unwrap());
    assert_eq!(extract(&headers).span().span_context().trace_state().header(), "a=1,b=2");
}

#[test]
fn fault_70_the_decision_of_a_parent_elsewhere_is_kept() {
    let unsampled = TRACEPARENT.replace("-01", "-00");
    let map = HashMap::from([("traceparent".to_owned(), unsampled)]);
    let capture = Capture::new("per_step");
    let mut onwards = HashMap::new();
    capture.run(|| {
        let _attached = extract(&map).attach();
        step(1, || inject(&mut onwards));
    });
    assert!(capture.spans().is_empty());
    assert!(onwards["traceparent"].starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
    assert!(onwards["traceparent"].ends_with("-00"));
}

#[test]
fn what_is_no_context_changes_nothing() {
    for text in ["", "garbage", "00-0-0-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"] {
        let map = HashMap::from([("traceparent".to_owned(), text.to_owned())]);
        assert!(!extract(&map).span().span_context().is_valid(), "{text:?}");
    }
    let mut carrier = HashMap::new();
    inject(&mut carrier);
    assert!(carrier.is_empty(), "{carrier:?}");
}

#[test]
fn a_context_is_passed_on_without_telemetry_of_our_own() {
    let map = HashMap::from([
        ("traceparent".to_owned(), TRACEPARENT.to_owned()),
        ("baggage".to_owned(), "tenant=a".to_owned()),
    ]);
    let _attached = extract(&map).attach();
    let mut onwards = HashMap::new();
    inject(&mut onwards);
    assert_eq!(onwards, map);
}

#[test]
fn a_closure_takes_its_context_to_another_thread() {
    let capture = Capture::new("per_step");
    capture.run(|| {
        step(1, || {
            std::thread::spawn(in_current_context(reward)).join().unwrap();
            std::thread::spawn(|| assert!(!Context::current().has_active_span())).join().unwrap();
        });
    });
    assert_eq!(capture.tree(), "step (ok)\n  reward (ok)\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_has_its_context_wherever_it_is_polled() {
    let capture = Capture::new("per_step");
    let tasks: Vec<_> = capture.run(|| {
        (1..=50)
            .map(|number| {
                step(number, || {
                    tokio::spawn(
                        async move {
                            tokio::task::yield_now().await;
                            assert_eq!(current_step(), Some(number));
                            reward();
                        }
                        .in_current_context(),
                    )
                })
            })
            .collect()
    });
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(capture.tree(), "step (ok)\n  reward (ok)\n".repeat(50));
    assert!(!Context::current().has_active_span());
}

#[test]
fn a_future_that_is_dropped_has_its_context_until_the_end() {
    struct RewardsWhenDropped;
    impl Drop for RewardsWhenDropped {
        fn drop(&mut self) {
            reward();
        }
    }
    let capture = Capture::new("per_step");
    capture.run(|| {
        let context = step(1, Context::current);
        {
            let future = async {
                let _rewards = RewardsWhenDropped;
                std::future::pending::<()>().await;
            };
            let mut future = pin!(future.in_context(context));
            let waker = std::task::Waker::noop();
            assert_eq!(future.as_mut().poll(&mut std::task::Context::from_waker(waker)), Poll::Pending);
        }
        assert!(!Context::current().has_active_span());
    });
    assert_eq!(capture.tree(), "step (ok)\n  reward (ok)\n");
}

#[test]
fn extraction_keeps_what_was_there() {
    let capture = Capture::new("per_step");
    let inner = capture.run(|| step(3, || extract(&HashMap::<String, String>::new())));
    assert_eq!(inner.span().span_context().span_id(), capture.span("step").id());
    assert_eq!(inner.span().span_context().trace_flags(), TraceFlags::SAMPLED);
}

/// open-telemetry/opentelemetry-rust#858, fast/fastrace#172
#[test]
fn fault_69_a_message_brings_its_context_and_many_are_linked() {
    struct Rollout {
        step: u64,
        context: Context,
    }
    #[rl_span(group = PolicyUpdate, name = "train", links = rollouts.iter().map(|rollout| &rollout.context))]
    fn train(rollouts: &[Rollout]) {}
    let capture = Capture::new("per_step");
    let (sender, receiver) = mpsc::channel();
    capture.run(|| {
        for number in 1..=100 {
            step(number, || sender.send(Rollout { step: number, context: Context::current() }).unwrap());
        }
    });
    drop(sender);
    let context = capture.context();
    let rollouts = std::thread::spawn(move || {
        let rollouts: Vec<Rollout> = receiver.iter().collect();
        for rollout in &rollouts {
            let _attached = rollout.context.clone().attach();
            assert_eq!(current_step(), Some(rollout.step));
            reward();
        }
        let _attached = context.attach();
        train(&rollouts);
        rollouts
    })
    .join()
    .unwrap();
    assert_eq!(capture.tree(), "step (ok)\n  reward (ok)\n".repeat(100) + "train (ok)\n");
    let train = capture.span("train");
    let linked: Vec<_> = train.links().iter().map(|link| link.span_context.clone()).collect();
    let sent: Vec<_> = rollouts.iter().filter_map(|rollout| rollout.context.span_context()).collect();
    assert_eq!(linked, sent);
    assert_eq!(train.parent_id(), SpanId::INVALID);
}
