//! What does an annotated function record, and is it still the same function?

use std::cell::Cell;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use lens_runtime::opentelemetry::trace::{SpanId, Status, TraceContextExt as _};
use lens_runtime::testing::Capture;
use lens_runtime::{Bucket, SpanGroup, current_step, opentelemetry, rl_span, semconv, set};

#[derive(Debug)]
struct EngineError;

struct Rollouts(Vec<Vec<u32>>);

impl Rollouts {
    fn lengths(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(Vec::len)
    }
}

#[rl_span(group = Generation, name = "generate")]
fn generate(fail: bool) -> Result<u32, EngineError> {
    if fail {
        return Err(EngineError);
    }
    Ok(7)
}

#[rl_span(group = Generation, name = "generate_async")]
async fn generate_async(fail: bool) -> Result<u32, EngineError> {
    tokio::task::yield_now().await;
    if fail {
        Err(EngineError)?;
    }
    Ok(7)
}

#[rl_span(group = Reward, name = "panics")]
fn panics() -> u32 {
    panic!("a reward model fell over")
}

#[rl_span(group = Reward, name = "never_returns")]
fn never_returns() {
    std::panic::resume_unwind(Box::new("on purpose"));
}

#[rl_span(group = Reward, name = "panics_async")]
async fn panics_async() {
    tokio::task::yield_now().await;
    panic!("a reward model fell over")
}

#[rl_span(group = Rollout, name = "never_done")]
async fn never_done() {
    let _guard = OpensSpanOnDrop;
    pending::<()>().await;
}

struct OpensSpanOnDrop;

impl Drop for OpensSpanOnDrop {
    fn drop(&mut self) {
        cleanup();
    }
}

#[rl_span(group = Rollout, name = "cleanup")]
fn cleanup() {}

/// Runs a future on a runtime with one thread.
fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Polls a future once and drops it.
fn poll_once_and_drop(future: impl Future) {
    let mut future = pin!(future);
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn a_call_that_returns_is_ok() {
    let capture = Capture::new("all");
    assert_eq!(capture.run(|| generate(false)).unwrap(), 7);
    let span = capture.span("generate");
    assert_eq!(span.outcome().as_deref(), Some("ok"));
    assert_eq!(*span.status(), Status::Unset);
    assert_eq!(span.attribute(semconv::ERROR_TYPE), None);
}

#[test]
fn an_error_is_told_by_its_type_and_not_by_its_text() {
    let capture = Capture::new("all");
    assert!(capture.run(|| generate(true)).is_err());
    let span = capture.span("generate");
    assert_eq!(span.outcome().as_deref(), Some("error"));
    assert_eq!(*span.status(), Status::error(""));
    assert_eq!(span.attribute(semconv::ERROR_TYPE).unwrap().as_str(), "annotation::EngineError");
}

#[test]
fn an_alias_of_result_is_a_result() {
    type Outcome<T> = Result<T, EngineError>;
    #[rl_span(group = Reward, name = "aliased")]
    fn aliased() -> Outcome<()> {
        Err(EngineError)
    }
    let capture = Capture::new("all");
    assert!(capture.run(aliased).is_err());
    assert_eq!(capture.span("aliased").outcome().as_deref(), Some("error"));
}

#[test]
fn a_type_of_the_users_own_that_is_called_result_is_no_error() {
    #[derive(Debug, PartialEq)]
    enum Result {
        Err,
    }
    #[rl_span(group = Reward, name = "own_result")]
    fn own_result() -> Result {
        Result::Err
    }
    let capture = Capture::new("all");
    assert_eq!(capture.run(own_result), Result::Err);
    assert_eq!(capture.span("own_result").outcome().as_deref(), Some("ok"));
}

#[test]
fn a_panic_goes_on_and_leaves_its_mark() {
    let capture = Capture::new("all");
    let caught = catch_unwind(AssertUnwindSafe(|| capture.run(panics)));
    let _without_a_value = catch_unwind(AssertUnwindSafe(|| capture.run(never_returns)));
    assert_eq!(capture.span("never_returns").outcome().as_deref(), Some("panic"));
    assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "a reward model fell over");
    let span = capture.span("panics");
    assert_eq!(span.outcome().as_deref(), Some("panic"));
    assert_eq!(*span.status(), Status::error("panic"));
    assert_eq!(span.attribute(semconv::ERROR_TYPE).unwrap().as_str(), "panic");
}

#[test]
fn after_a_panic_the_callers_context_is_back() {
    let capture = Capture::new("all");
    capture.run(|| {
        assert!(catch_unwind(panics).is_err());
        assert!(!opentelemetry::Context::current().has_active_span());
    });
}

#[test]
fn async_calls_have_the_same_outcomes() {
    let capture = Capture::new("all");
    assert_eq!(block_on(capture.run_async(generate_async(false))).unwrap(), 7);
    assert!(block_on(capture.run_async(generate_async(true))).is_err());
    let panicked = AssertUnwindSafe(|| block_on(capture.run_async(panics_async())));
    assert!(catch_unwind(panicked).is_err());
    assert_eq!(capture.tree(), "generate_async (ok)\ngenerate_async (error)\npanics_async (panic)\n");
}

#[test]
fn fault_11_a_dropped_future_is_cancelled_and_cleans_up_within_its_span() {
    let capture = Capture::new("all");
    poll_once_and_drop(capture.run_async(never_done()));
    assert_eq!(capture.tree(), "never_done (cancelled)\n  cleanup (ok)\n");
    assert_eq!(*capture.span("never_done").status(), Status::Unset);
}

#[test]
fn a_future_that_is_never_polled_is_no_call() {
    let capture = Capture::new("all");
    capture.run(|| drop(generate_async(false)));
    assert_eq!(capture.tree(), "");
}

#[test]
fn fault_8_calls_nest_across_awaits_whatever_runs_beside_them() {
    #[rl_span(group = Rollout, name = "outer", attributes(request = id))]
    async fn outer(id: usize) -> SpanId {
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        inner(id).await;
        opentelemetry::Context::current().span().span_context().span_id()
    }
    #[rl_span(group = Generation, name = "inner", attributes(request = id))]
    async fn inner(id: usize) {
        tokio::task::yield_now().await;
    }

    let capture = Capture::new("all");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..200).map(|id| tokio::spawn(capture.run_async(outer(id)))).collect();
        for task in tasks {
            let seen = task.await.unwrap();
            assert!(capture.spans().iter().any(|span| span.id() == seen && span.name() == "outer"));
        }
    });
    let spans = capture.spans();
    assert_eq!(spans.len(), 400);
    for inner in spans.iter().filter(|span| span.name() == "inner") {
        let parent = spans.iter().find(|span| span.id() == inner.parent_id()).unwrap();
        assert_eq!(parent.attribute("request"), inner.attribute("request"));
    }
}

#[test]
fn fault_32_nothing_is_recorded_that_was_not_named() {
    #[rl_span(group = Reward, name = "login")]
    fn login(_password: &str) -> Result<String, String> {
        Err("wrong password: hunter2".to_owned())
    }
    let capture = Capture::new("all");
    assert!(capture.run(|| login("hunter2")).is_err());
    let span = capture.span("login");
    assert_eq!(
        span.keys(),
        [semconv::GROUP, semconv::BUCKET, semconv::OUTCOME, semconv::ERROR_TYPE],
        "only what Lens itself says of every call"
    );
    assert!(!format!("{span:?}").contains("hunter2"));
}

#[test]
fn attributes_keep_their_types() {
    const SHAPE: &str = "batch.shape";
    #[rl_span(
        group = Rollout,
        name = "typed",
        attributes(
            flag = true,
            a.count = 3_usize,
            a.share = 0.5_f32,
            "Quoted-Key" = name,
            type = name.as_str(),
            SHAPE = shape,
            absent = None::<u32>,
            semconv::NUM_GENERATIONS_PER_PROMPT = 16,
            answer.length = |answer| answer.len(),
        )
    )]
    fn typed(name: String, shape: [u32; 2]) -> String {
        name + "!"
    }
    let capture = Capture::new("all");
    assert_eq!(capture.run(|| typed("llama".to_owned(), [2, 3])), "llama!");
    let span = capture.span("typed");
    let value = |key: &str| format!("{:?}", span.attribute(key).unwrap());
    assert_eq!(value("flag"), "Bool(true)");
    assert_eq!(value("a.count"), "I64(3)");
    assert_eq!(value("a.share"), "F64(0.5)");
    assert_eq!(span.attribute("Quoted-Key").unwrap().as_str(), "llama");
    assert_eq!(span.attribute("type").unwrap().as_str(), "llama");
    assert_eq!(value("batch.shape"), "Array(I64([2, 3]))");
    assert_eq!(value("rl.num_generations_per_prompt"), "I64(16)");
    assert_eq!(value("answer.length"), "I64(6)");
    assert_eq!(span.attribute("absent"), None);
}

#[test]
fn fault_35_a_closure_sees_the_successful_value_only() {
    #[rl_span(group = Rollout, name = "maybe", attributes(size = |out| out.0.len()))]
    fn maybe(rollouts: Result<Rollouts, EngineError>) -> Result<Rollouts, EngineError> {
        rollouts
    }
    let capture = Capture::new("all");
    capture.run(|| {
        assert!(maybe(Ok(Rollouts(vec![vec![1], vec![2]]))).is_ok());
        assert!(maybe(Err(EngineError)).is_err());
    });
    let spans = capture.spans();
    assert_eq!(spans[0].attribute("size").unwrap().to_string(), "2");
    assert_eq!(spans[1].attribute("size"), None);
}

#[test]
fn the_users_value_wins_over_ours_and_stands_once() {
    #[rl_span(group = Reward, name = "own_bucket", attributes(semconv::BUCKET = "wasted"))]
    fn own_bucket() {}
    let capture = Capture::new("all");
    capture.run(own_bucket);
    let span = capture.span("own_bucket");
    assert_eq!(span.keys().iter().filter(|key| **key == semconv::BUCKET).count(), 1);
    assert_eq!(span.attribute(semconv::BUCKET).unwrap().as_str(), "wasted");
}

#[test]
fn off_means_that_no_expression_is_evaluated() {
    static EVALUATED: AtomicUsize = AtomicUsize::new(0);
    fn expensive() -> usize {
        EVALUATED.fetch_add(1, Ordering::Relaxed)
    }
    fn name() -> &'static str {
        expensive();
        "off"
    }
    #[rl_span(group = Generation, name = name(), attributes(a = expensive()), tokens(input = expensive()))]
    fn off() -> u32 {
        1
    }
    assert_eq!(off(), 1);
    assert_eq!(block_on(async { off() }), 1);
    assert_eq!(EVALUATED.load(Ordering::Relaxed), 0);
}

#[test]
fn with_metrics_alone_attributes_are_not_evaluated() {
    static EVALUATED: AtomicUsize = AtomicUsize::new(0);
    #[rl_span(
        group = Generation,
        name = "metrics_only",
        attributes(a = EVALUATED.fetch_add(1, Ordering::Relaxed), b = |_out| EVALUATED.fetch_add(1, Ordering::Relaxed)),
    )]
    fn metrics_only() {}
    let capture = Capture::new("job");
    capture.run(metrics_only);
    assert_eq!(capture.tree(), "");
    assert_eq!(capture.points(semconv::PHASE_DURATION).len(), 1);
    assert_eq!(EVALUATED.load(Ordering::Relaxed), 0);
}

#[test]
fn a_name_may_come_from_a_type_parameter() {
    trait Algorithm {
        const STEP: &'static str;
    }
    struct Grpo;
    struct Ppo;
    impl Algorithm for Grpo {
        const STEP: &'static str = "rl.grpo.step";
    }
    impl Algorithm for Ppo {
        const STEP: &'static str = "rl.ppo.step";
    }
    #[rl_span(group = Step, name = A::STEP, step = number)]
    fn step<A: Algorithm>(number: u32) {}

    let capture = Capture::new("all");
    capture.run(|| {
        step::<Grpo>(1);
        step::<Ppo>(2);
    });
    assert_eq!(capture.tree(), "rl.grpo.step (ok)\nrl.ppo.step (ok)\n");
}

#[test]
fn methods_keep_their_receivers_and_borrows() {
    struct Buffer {
        items: Vec<u32>,
        tag: String,
    }
    impl Buffer {
        #[rl_span(group = DataProcessing, name = "push", attributes(size = self.items.len()))]
        fn push(&mut self, item: u32) -> &mut u32 {
            self.items.push(item);
            self.items.last_mut().unwrap()
        }

        #[rl_span(group = DataProcessing, name = "longest", attributes(tag = self.tag))]
        fn longest<'a>(&'a self, other: &'a str) -> &'a str {
            if self.tag.len() > other.len() { &self.tag } else { other }
        }

        #[rl_span(group = DataProcessing, name = "into_items")]
        fn into_items(mut self) -> Vec<u32> {
            self.items.reverse();
            self.items
        }

        #[rl_span(group = DataProcessing, name = "load")]
        async fn load(&mut self, mut items: Vec<u32>, (first, _): (u32, u32)) -> usize {
            tokio::task::yield_now().await;
            items.push(first);
            self.items.append(&mut items);
            self.items.len()
        }
    }
    let capture = Capture::new("all");
    let mut buffer = Buffer { items: Vec::new(), tag: "replay".to_owned() };
    capture.run(|| *buffer.push(1) += 1);
    assert_eq!(capture.run(|| buffer.longest("x")), "replay");
    assert_eq!(block_on(capture.run_async(buffer.load(vec![5], (6, 7)))), 3);
    assert_eq!(capture.run(|| buffer.into_items()), [6, 5, 2]);
    assert_eq!(capture.tree(), "push (ok)\nlongest (ok)\nload (ok)\ninto_items (ok)\n");
}

#[test]
fn arguments_are_dropped_in_the_order_of_the_bare_function() {
    struct Noisy<'a>(&'static str, &'a Cell<Vec<&'static str>>);
    impl Drop for Noisy<'_> {
        fn drop(&mut self) {
            let mut log = self.1.take();
            log.push(self.0);
            self.1.set(log);
        }
    }
    #[expect(clippy::needless_pass_by_value, reason = "it is about how they are dropped")]
    fn bare(a: Noisy<'_>, b: Noisy<'_>, _c: Noisy<'_>) {
        let _local = Noisy("local", a.1);
        drop(b);
    }
    #[rl_span(group = Reward, name = "annotated", attributes(name = c.0))]
    fn annotated(a: Noisy<'_>, b: Noisy<'_>, c: Noisy<'_>) {
        let _local = Noisy("local", a.1);
        drop(b);
    }
    let order = |function: fn(Noisy<'_>, Noisy<'_>, Noisy<'_>)| {
        let log = Cell::default();
        function(Noisy("a", &log), Noisy("b", &log), Noisy("c", &log));
        log.take()
    };
    let expected = ["b", "local", "c", "a"];
    assert_eq!(order(bare), expected);
    assert_eq!(order(annotated), expected);
    assert_eq!(Capture::new("all").run(|| order(annotated)), expected);
}

#[test]
fn an_annotated_future_is_send() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let capture = Capture::new("all");
    block_on(is_send(capture.run_async(generate_async(false)))).unwrap();
}

#[test]
fn the_body_is_coerced_to_the_return_type() {
    #[rl_span(group = Reward, name = "boxed")]
    fn boxed() -> Box<dyn Fn() -> u32> {
        Box::new(|| 3)
    }
    #[rl_span(group = Reward, name = "boxed_async")]
    async fn boxed_async() -> Result<Box<dyn std::fmt::Debug>, Box<dyn std::error::Error>> {
        let number: u32 = "5".parse()?;
        Ok(Box::new(number))
    }
    #[rl_span(group = Reward, name = "opaque")]
    fn opaque(items: &[u32]) -> Option<impl Iterator<Item = u32>> {
        Some(items.iter().map(|item| item + 1))
    }
    let capture = Capture::new("all");
    assert_eq!(capture.run(boxed)(), 3);
    assert_eq!(format!("{:?}", block_on(capture.run_async(boxed_async())).unwrap()), "5");
    assert_eq!(capture.run(|| opaque(&[1, 2]).unwrap().sum::<u32>()), 5);
}

#[test]
fn a_step_is_known_beneath_it_across_awaits_and_threads_that_carry_the_context() {
    #[rl_span(group = Step, name = "step", step = number)]
    async fn step(number: u64) -> [Option<u64>; 3] {
        tokio::task::yield_now().await;
        let context = opentelemetry::Context::current();
        let elsewhere = std::thread::spawn(move || {
            let _attached = context.attach();
            current_step()
        });
        let nested = reward().await;
        [current_step(), elsewhere.join().unwrap(), nested]
    }
    #[rl_span(group = Reward, name = "reward")]
    async fn reward() -> Option<u64> {
        current_step()
    }
    let capture = Capture::new("all");
    assert_eq!(block_on(capture.run_async(step(12))), [Some(12); 3]);
    assert_eq!(current_step(), None);
    for name in ["step", "reward"] {
        assert_eq!(capture.span(name).attribute(semconv::ITERATION).unwrap().to_string(), "12");
    }
}

#[test]
fn a_step_is_known_even_if_its_group_makes_no_span() {
    #[rl_span(group = Step, name = "step", step = number)]
    fn step(number: usize) -> Option<u64> {
        current_step()
    }
    let capture = Capture::new("default");
    assert_eq!(capture.run(|| step(4)), Some(4));
    assert_eq!(capture.tree(), "");
}

#[test]
fn leaves_carry_the_bucket_of_their_group_and_umbrellas_none() {
    static TOOLS: SpanGroup = SpanGroup::leaf("annotation_tools", Bucket::Wasted);
    #[rl_span(group = Rollout, name = "umbrella")]
    fn umbrella() {
        generate(false).unwrap();
        tool();
    }
    #[rl_span(group = TOOLS, name = "tool")]
    fn tool() {}
    let capture = Capture::new("all");
    capture.run(umbrella);
    let bucket =
        |name: &str| capture.span(name).attribute(semconv::BUCKET).map(|bucket| bucket.as_str().into_owned());
    assert_eq!(bucket("umbrella"), None);
    assert_eq!(bucket("generate").as_deref(), Some("productive"));
    assert_eq!(bucket("tool").as_deref(), Some("wasted"));
}

#[test]
fn all_beneath_an_evaluation_counts_as_overhead() {
    #[rl_span(group = Evaluate, name = "evaluate")]
    async fn evaluate() {
        generate_async(false).await.unwrap();
    }
    let capture = Capture::new("all");
    block_on(capture.run_async(evaluate()));
    let span = capture.span("generate_async");
    assert_eq!(span.attribute(semconv::BUCKET).unwrap().as_str(), "overhead");
    assert_eq!(capture.span("evaluate").attribute(semconv::BUCKET), None);
}

#[test]
fn tokens_are_summed_on_the_span() {
    #[rl_span(
        group = Generation,
        name = "engine",
        tokens(input = prompts.lengths(), output = |out| out.lengths()),
        model = String::from("tiny"),
        provider = "vllm",
        operation = "chat",
    )]
    async fn engine(prompts: &Rollouts) -> Result<Rollouts, EngineError> {
        Ok(Rollouts(vec![vec![0; 10], vec![0; 20]]))
    }
    let capture = Capture::new("all");
    let prompts = Rollouts(vec![vec![0; 3], vec![0; 4]]);
    block_on(capture.run_async(engine(&prompts))).unwrap();
    let span = capture.span("engine");
    let text = |key: &str| span.attribute(key).unwrap().to_string();
    assert_eq!(text(semconv::GEN_AI_USAGE_INPUT_TOKENS), "7");
    assert_eq!(text(semconv::GEN_AI_USAGE_OUTPUT_TOKENS), "30");
    assert_eq!(text(semconv::GEN_AI_REQUEST_MODEL), "tiny");
    assert_eq!(text(semconv::GEN_AI_PROVIDER_NAME), "vllm");
    assert_eq!(text(semconv::GEN_AI_OPERATION_NAME), "chat");
}

#[test]
fn the_runtime_may_be_found_elsewhere() {
    mod facade {
        pub(super) use lens_runtime as telemetry;
    }
    #[rl_span(crate = facade::telemetry, group = Reward, name = "renamed")]
    fn renamed() {}
    let capture = Capture::new("all");
    capture.run(renamed);
    assert_eq!(capture.tree(), "renamed (ok)\n");
}

#[test]
fn two_captures_at_once_see_only_their_own() {
    let (one, two) = (Capture::new("all"), Capture::new("all"));
    one.run(|| generate(false)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| two.run(cleanup));
        scope.spawn(|| generate(false));
    });
    assert_eq!(one.tree(), "generate (ok)\n");
    assert_eq!(two.tree(), "cleanup (ok)\n");
}

#[test]
fn fault_39_inner_attributes_of_the_body_keep_their_effect() {
    #[rl_span(group = Reward, name = "lenient")]
    fn lenient() -> u32 {
        #![allow(unused_variables)]
        let unused = 1;
        2
    }
    assert_eq!(lenient(), 2);
}

#[rl_span(group = Job, name = "above")]
#[tokio::test]
async fn fault_57_an_annotation_may_stand_above_the_attribute_of_a_test() {
    tokio::task::yield_now().await;
}

#[tokio::test]
#[rl_span(group = Job, name = "below")]
async fn fault_57_an_annotation_may_stand_below_the_attribute_of_a_test() {
    tokio::task::yield_now().await;
}

#[test]
fn strings_of_other_owners_can_be_attributes() {
    #[rl_span(group = Job, name = "owners", attributes(boxed = text, shared = shared, borrowed = cow))]
    fn owners(text: Box<str>, shared: &std::sync::Arc<str>, cow: std::borrow::Cow<'_, str>) -> usize {
        text.len() + shared.len() + cow.len()
    }
    let capture = Capture::new("all");
    capture.run(|| owners("a".into(), &"b".into(), "c".into()));
    let span = capture.span("owners");
    let texts = ["boxed", "shared", "borrowed"].map(|key| span.attribute(key).unwrap().to_string());
    assert_eq!(texts, ["a", "b", "c"]);
}

#[test]
fn fault_103_of_a_long_text_the_beginning_is_kept_and_characters_stay_whole() {
    #[rl_span(group = Reward, name = "text", attributes(text = text, list = [text]))]
    fn record(text: &str) {}
    // The limit falls into a character of two bytes.
    let long = "é".repeat(40_000);
    let capture = Capture::new("all");
    capture.run(|| record(&long));
    let text = capture.spans()[0].attribute("text").unwrap().to_string();
    assert_eq!(text.len(), 64 * 1024 - 1);
    assert_eq!(text.strip_suffix('…').unwrap(), &long[..text.len() - 3]);
    let exact = "x".repeat(64 * 1024);
    capture.run(|| record(&exact));
    assert_eq!(capture.spans()[1].attribute("text").unwrap().to_string(), exact);
}

mod thread_that_ends {
    use super::*;
    use std::cell::RefCell;
    use std::sync::atomic::AtomicBool;

    static WAS_THERE: AtomicBool = AtomicBool::new(false);

    #[rl_span(group = Reward, name = "called", attributes(size = 1), tokens(input = 1_u32))]
    fn called() {}

    #[rl_span(group = Reward, name = "waiting")]
    async fn waiting() {
        let _called = Called;
        std::future::pending::<()>().await;
    }

    struct Called;

    impl Drop for Called {
        fn drop(&mut self) {
            called();
        }
    }

    /// Is dropped with its thread, and what it holds with it.
    struct AtTheEnd(RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>);

    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            assert!(catch_unwind(opentelemetry::Context::current).is_err(), "the context is gone");
            called();
            assert!(pin!(waiting()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(self.0.take());
            lens_runtime::set("key", 1);
            lens_runtime::record_tokens(1_u32, 1_u32);
            assert_eq!(lens_runtime::current_step(), None);
            lens_runtime::propagation::inject(&mut std::collections::HashMap::new());
            lens_runtime::propagation::in_current_context(called)();
            WAS_THERE.store(true, Ordering::Release);
        }
    }

    thread_local! {
        static AT_THE_END: AtTheEnd = const { AtTheEnd(RefCell::new(None)) };
    }

    /// fast/fastrace v0.5.1, tokio-rs/tracing#2870. A panic there would end the process.
    #[test]
    fn fault_87_what_runs_while_its_thread_ends_ends_nothing_else() {
        let capture = Capture::new("reward");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // The first that is used is the last to go.
                AT_THE_END.with(|at_the_end| {
                    capture.run(|| {
                        let mut future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(waiting());
                        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                        at_the_end.0.replace(Some(future));
                    });
                });
            });
            // The scope would wait for the closure alone, and not for what is dropped after it.
            thread.join().unwrap();
        });
        assert!(WAS_THERE.load(Ordering::Acquire));
        // What began before is recorded to its end.
        assert_eq!(capture.tree(), "waiting (cancelled)\n");
    }
}

/// open-telemetry/opentelemetry-rust#1300, #1293, #3497
#[test]
fn fault_109_of_two_values_for_one_key_the_last_is_recorded() {
    #[rl_span(
        group = Rollout,
        name = "rollout",
        attributes(semconv::STEP = 1, rl.step = 2, rl.turns = 1, rl.group = "mine"),
        tokens(output = 3_u32),
    )]
    fn rollout() {
        for turns in 2..5 {
            set("rl.turns", turns);
        }
        set(semconv::GEN_AI_USAGE_OUTPUT_TOKENS, 99);
        set(semconv::OUTCOME, "won");
    }
    let capture = Capture::new("per_step");
    capture.run(rollout);
    let span = capture.span("rollout");
    let mut keys = span.keys();
    keys.sort_unstable();
    assert_eq!(keys, ["gen_ai.usage.output_tokens", "rl.group", "rl.outcome", "rl.step", "rl.turns"]);
    let value = |key: &str| span.attribute(key).unwrap().to_string();
    assert_eq!([value("rl.step"), value("rl.turns"), value("rl.group")], ["2", "4", "mine"]);
    // What Lens says at the end is the last word.
    assert_eq!([value("gen_ai.usage.output_tokens"), value("rl.outcome")], ["3", "ok"]);
}
