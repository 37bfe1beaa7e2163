//! Does Lens have the faults that users of other instrumentation libraries reported?
//!
//! Each fault has a number, and what shows that Lens does not have it carries it: the tests below, those
//! of other files by `fault_NN_` in their name, and the cases of `ui/` by the table of their section. What
//! is not applicable stands at the end.

use std::cell::Cell;
use std::error::Error;
use std::fmt::Debug;
use std::future::{Future, pending};
use std::num::ParseIntError;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_recursion::async_recursion;
use async_trait::async_trait;
use lens_runtime::opentelemetry::Context as Current;
use lens_runtime::opentelemetry::trace::{SpanId, Status, TraceContextExt as _};
use lens_runtime::propagation::in_current_context;
use lens_runtime::testing::{Capture, CapturedSpan};
use lens_runtime::{Bucket, SpanGroup, rl_span, semconv};
use lens_tests as layers;
use tokio::task::yield_now;

/// 56: in `editions/` for those before.
#[path = "editions/corpus.rs"]
mod edition_2024;

#[rl_span(group = Reward, name = "child")]
fn child() {}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs a future on a runtime with one thread.
fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// How many calls of a phase the metrics counted.
fn counted(capture: &Capture, phase: &str) -> u64 {
    let points = capture.points(semconv::PHASE_DURATION);
    points.iter().filter(|point| point.attributes["rl.phase"] == phase).map(|point| point.count).sum()
}

/// The same function twice, `bare::…` and `annotated::…`.
macro_rules! twins {
    ($($function:tt)*) => {
        mod bare {
            use super::*;
            $($function)*
        }
        mod annotated {
            use super::*;
            #[rl_span(group = Reward, name = "annotated")]
            $($function)*
        }
    };
}

/// What counts as the function's work.
///
/// | fault | shown by |
/// |---|---|
/// | 3, an `impl` block, a method without a body | `ui/fail/impl_block`, `method_without_body` |
/// | 4, a returned future | `shapes`, `ui/fail/future_beside_something`, `future_of_its_own_type` |
/// | 7, `Future::poll` | `ui/fail/future_poll` |
/// | 8, 11 | `annotation` |
/// | 21, a poll costs nothing when off | `ui/pass/off_reaches_for_no_thread_local` |
/// | 4, an `async fn` that never returns | `ui/pass/async_fn_that_never_returns` |
/// | 25, `main` | `ui/pass/main_may_be_annotated` |
#[expect(clippy::needless_pass_by_value, reason = "it is about how arguments are dropped")]
mod async_shape {
    use super::*;

    #[async_trait]
    trait Engine: Send {
        async fn generate(&mut self, prompts: &[u32]) -> Result<usize, ParseIntError>;

        #[rl_span(group = Rollout, name = "default method", attributes(size = |out| *out))]
        async fn twice(&mut self, prompts: &[u32]) -> Result<usize, ParseIntError> {
            Ok(self.generate(prompts).await? + self.generate(prompts).await?)
        }
    }

    struct Local {
        calls: usize,
    }

    #[async_trait]
    impl Engine for Local {
        #[rl_span(group = Generation, name = "method", attributes(calls = self.calls, size = prompts.len()))]
        async fn generate(&mut self, prompts: &[u32]) -> Result<usize, ParseIntError> {
            yield_now().await;
            child();
            self.calls += 1;
            if self.calls > 2 {
                "x".parse::<u32>()?;
            }
            Ok(prompts.len())
        }
    }

    /// tokio-rs/tracing#399, #711, #1219
    #[tokio::test]
    async fn fault_1_a_method_of_the_real_async_trait_is_measured_like_an_async_fn() {
        let capture = Capture::new("per_step");
        let mut engine = Local { calls: 0 };
        assert_eq!(capture.run_async(async { engine.twice(&[1, 2]).await }).await, Ok(4));
        assert!(capture.run_async(async { engine.generate(&[]).await }).await.is_err());
        let method = "  method (ok)\n    child (ok)\n";
        assert_eq!(
            capture.tree(),
            format!("default method (ok)\n{method}{method}method (error)\n  child (ok)\n")
        );
        assert_eq!(capture.span("default method").attribute("size").unwrap().to_string(), "4");
    }

    #[async_trait(?Send)]
    trait OneThread {
        async fn score<T: Debug>(&self, value: Rc<T>) -> String;
    }

    #[async_trait(?Send)]
    impl OneThread for Local {
        #[rl_span(group = Reward, name = "one thread", attributes(size = self.calls))]
        async fn score<T: Debug>(&self, value: Rc<T>) -> String {
            yield_now().await;
            format!("{value:?}")
        }
    }

    #[tokio::test]
    async fn fault_1_also_one_whose_future_stays_on_its_thread() {
        let capture = Capture::new("per_step");
        assert_eq!(capture.run_async(async { Local { calls: 0 }.score(Rc::new(1)).await }).await, "1");
        assert_eq!(capture.tree(), "one thread (ok)\n");
    }

    /// tokio-rs/tracing#1296
    #[tokio::test]
    async fn fault_6_what_stands_before_the_box_runs_once_and_stays_in_scope() {
        #[rl_span(group = Rollout, name = "boxed", attributes(size = |out| *out))]
        fn boxed(log: &Mutex<Vec<u32>>) -> Pin<Box<dyn Future<Output = usize> + Send + '_>> {
            log.lock().unwrap().push(1);
            let two = 2;
            log.lock().unwrap().push(two);
            Box::pin(async move {
                log.lock().unwrap().push(two + 1);
                log.lock().unwrap().len()
            })
        }
        let log = Mutex::new(Vec::new());
        let capture = Capture::new("per_step");
        assert_eq!(boxed(&log).await, 3);
        assert_eq!(capture.run_async(async { boxed(&log).await }).await, 6);
        assert_eq!(*log.lock().unwrap(), [1, 2, 3, 1, 2, 3]);
        assert_eq!(capture.tree(), "boxed (ok)\n");
    }

    #[rl_span(group = Rollout, name = "task", attributes(id = id))]
    async fn task(id: u32) -> u32 {
        for _ in 0..3 {
            yield_now().await;
            part(id).await;
        }
        id
    }

    #[rl_span(group = Reward, name = "part", attributes(id = id))]
    async fn part(id: u32) {
        yield_now().await;
    }

    /// open-telemetry/opentelemetry-rust#239, tokio-rs/tracing#698
    #[test]
    fn fault_9_tasks_that_take_turns_on_one_thread_do_not_nest() {
        let capture = Capture::new("per_step");
        let mut tasks: Vec<_> = (1..=2).map(|id| Box::pin(capture.run_async(task(id)))).collect();
        while !tasks.is_empty() {
            tasks.retain_mut(|task| {
                let turn = poll_once(task.as_mut());
                assert!(!Current::current().has_active_span());
                turn.is_pending()
            });
        }
        let spans = capture.spans();
        assert_eq!(spans.len(), 8);
        for part in spans.iter().filter(|span| span.name() == "part") {
            let parent = spans.iter().find(|span| span.id() == part.parent_id()).unwrap();
            assert_eq!((parent.name(), parent.attribute("id")), ("task", part.attribute("id")));
        }
    }

    #[test]
    fn fault_9_an_annotated_future_goes_wherever_the_bare_one_went() {
        fn handler<F, R>(_: F)
        where
            F: Fn(u32) -> R + Clone + Send + Sync + 'static,
            R: Future<Output = u32> + Send + Sync + 'static,
        {
        }
        #[rl_span(group = Reward, name = "stays")]
        async fn stays() -> u32 {
            let shared = Rc::new(1);
            yield_now().await;
            *shared
        }
        handler(task);
        assert_eq!(block_on(stays()), 1);
    }

    /// tokio-rs/tracing#1487
    #[test]
    fn fault_10_what_an_annotation_makes_on_the_way_does_not_live_across_an_await() {
        #[rl_span(
            group = Generation,
            name = "temporaries",
            attributes(
                shared = Rc::new(prompt.to_owned()).as_str(),
                cell = Rc::new(Cell::new(1)).get(),
                text = format!("{}", format_args!("{prompt:?}")),
                length = |out| *Rc::new(out.len()),
            ),
            tokens(input = Rc::new([1_u32]).iter(), output = |out| *Rc::new(out.len())),
            model = Rc::new(prompt.to_owned()).as_str(),
        )]
        async fn temporaries(prompt: &str) -> String {
            yield_now().await;
            prompt.to_owned()
        }
        fn is_send<T: Send>(value: T) -> T {
            value
        }
        let capture = Capture::new("all");
        block_on(is_send(capture.run_async(temporaries("a"))));
        let span = capture.span("temporaries");
        let texts = ["shared", "cell", "text", "length"].map(|key| span.attribute(key).unwrap().to_string());
        assert_eq!(texts, ["a", "1", "\"a\"", "1"]);
    }

    /// magnet/metered-rs#2
    #[test]
    fn fault_13_each_way_out_is_recorded_once() {
        macro_rules! body {
            ($way:ident) => {{
                let unless_large = |n: u32| {
                    if n > 100 {
                        return 0;
                    }
                    n
                };
                let found = 'search: {
                    for n in 0..10 {
                        if n == $way {
                            break 'search n;
                        }
                        if n == 3 && $way == 20 {
                            return Ok(unless_large(200));
                        }
                    }
                    $way
                };
                if $way == 30 {
                    "x".parse::<u32>()?;
                }
                Ok(unless_large(found))
            }};
        }
        #[rl_span(group = Reward, name = "sync")]
        fn of_a_fn(way: u32) -> Result<u32, ParseIntError> {
            body!(way)
        }
        #[rl_span(group = Reward, name = "async")]
        async fn of_an_async_fn(way: u32) -> Result<u32, ParseIntError> {
            yield_now().await;
            body!(way)
        }
        let capture = Capture::new("reward");
        for (way, out) in [(1, Some(1)), (20, Some(0)), (30, None), (40, Some(40))] {
            assert_eq!(capture.run(|| of_a_fn(way)).ok(), out);
            assert_eq!(block_on(capture.run_async(of_an_async_fn(way))).ok(), out);
        }
        for name in ["sync", "async"] {
            let spans = capture.spans();
            let outcomes =
                spans.iter().filter(|span| span.name() == name).map(|span| span.outcome().unwrap());
            assert_eq!(outcomes.collect::<Vec<_>>(), ["ok", "ok", "error", "ok"], "{name}");
            assert_eq!(counted(&capture, name), 4);
        }
    }

    /// gsingh93/trace#29, #31
    #[test]
    fn fault_16_borrows_and_early_returns_are_those_of_the_bare_function() {
        struct Pool(Vec<String>);
        type Change = Box<dyn Fn(i32) -> i32>;
        impl Pool {
            #[rl_span(group = Reward, name = "get", attributes(size = self.0.len()))]
            fn get(&mut self, name: &str) -> &mut String {
                if let Some(at) = self.0.iter().position(|own| own == name) {
                    return &mut self.0[at];
                }
                self.0.push(name.to_owned());
                self.0.last_mut().unwrap()
            }

            #[rl_span(group = Reward, name = "get_async")]
            async fn get_async(&mut self, name: &str) -> &mut String {
                yield_now().await;
                self.get(name)
            }

            #[rl_span(group = Reward, name = "halves")]
            fn halves(&mut self) -> Option<(&mut String, &mut String)> {
                let [first, second, ..] = &mut self.0[..] else { return None };
                Some((first, second))
            }
        }
        #[rl_span(group = Reward, name = "keep")]
        fn keep<'a>(kept: &mut Vec<&'a str>, text: &'a str) {
            kept.push(text);
        }
        #[rl_span(group = Reward, name = "change")]
        fn change(negative: bool, text: &str) -> Result<Change, Box<dyn Error + Send + Sync>> {
            if negative {
                return Ok(Box::new(|n| -n));
            }
            let more: i32 = text.parse()?;
            Ok(Box::new(move |n| n + more))
        }
        let mut pool = Pool(Vec::new());
        pool.get("a").push('!');
        block_on(pool.get_async("b")).push('!');
        assert_eq!(pool.halves(), Some((&mut "a!".to_owned(), &mut "b!".to_owned())));
        let text = "text".to_owned();
        let mut kept = Vec::new();
        keep(&mut kept, &text);
        keep(&mut kept, "more");
        assert_eq!(kept, ["text", "more"]);
        assert_eq!((change(true, "").unwrap()(1), change(false, "2").unwrap()(1)), (-1, 3));
        assert!(change(false, "x").is_err());
    }

    type Log = Arc<Mutex<Vec<&'static str>>>;

    /// Says when it is dropped.
    struct Noisy(&'static str, Log);

    impl Drop for Noisy {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    /// What was dropped by `run`, in order, without and within a capture.
    fn dropped(run: impl Fn(&dyn Fn(&'static str) -> Noisy)) -> [Vec<&'static str>; 2] {
        let order = || {
            let log = Log::default();
            run(&|name| Noisy(name, Arc::clone(&log)));
            std::mem::take(&mut *log.lock().unwrap())
        };
        [order(), Capture::new("all").run(order)]
    }

    /// tokio-rs/tracing#1841
    #[test]
    fn fault_17_a_parameter_without_a_name_is_dropped_in_its_place() {
        twins! {
            pub(super) fn call(a: Noisy, _: Noisy, c: Noisy) {
                let _used = (&a, &c);
            }
        }
        let expected = ["c", "_", "a"];
        let bare = dropped(|noisy| bare::call(noisy("a"), noisy("_"), noisy("c")));
        assert_eq!(bare, [expected, expected]);
        let annotated = dropped(|noisy| annotated::call(noisy("a"), noisy("_"), noisy("c")));
        assert_eq!(annotated, [expected, expected]);
    }

    struct Halves {
        _first: Noisy,
        second: Noisy,
    }

    #[test]
    fn fault_17_what_a_pattern_leaves_out_is_dropped_in_its_place() {
        twins! {
            pub(super) fn call(a: Noisy, (b, _): (Noisy, Noisy), mut c: Noisy, Halves { second, .. }: Halves) {
                c = Noisy("d", Arc::clone(&c.1));
                let _used = (&a, &b, &c, &second);
            }
            pub(super) async fn call_async(a: Noisy, (b, _): (Noisy, Noisy), Halves { second, .. }: Halves) {
                let _used = (&a, &b, &second);
                yield_now().await;
            }
        }
        let pair = |noisy: &dyn Fn(&'static str) -> Noisy| Halves { _first: noisy("1"), second: noisy("2") };
        let bare =
            dropped(|noisy| bare::call(noisy("a"), (noisy("b"), noisy("_")), noisy("c"), pair(&noisy)));
        let annotated =
            dropped(|noisy| annotated::call(noisy("a"), (noisy("b"), noisy("_")), noisy("c"), pair(&noisy)));
        assert_eq!(bare[0], ["c", "2", "1", "d", "b", "_", "a"]);
        assert_eq!(annotated, bare);
        let arguments = |noisy: &dyn Fn(&'static str) -> Noisy| {
            (noisy("a"), (noisy("b"), noisy("_")), Halves { _first: noisy("1"), second: noisy("2") })
        };
        let bare = dropped(|noisy| {
            let (a, b, pair) = arguments(&noisy);
            block_on(bare::call_async(a, b, pair));
        });
        let annotated = dropped(|noisy| {
            let (a, b, pair) = arguments(&noisy);
            block_on(annotated::call_async(a, b, pair));
        });
        assert_eq!(bare[0], ["2", "1", "b", "_", "a"]);
        assert_eq!(annotated, bare);
    }

    #[test]
    fn fault_17_the_arguments_of_an_async_fn_are_dropped_in_its_order() {
        twins! {
            pub(super) async fn call(a: Noisy, b: Noisy) {
                let _used = (&a, &b);
                yield_now().await;
            }
        }
        let expected = ["b", "a"];
        assert_eq!(dropped(|noisy| block_on(bare::call(noisy("a"), noisy("b")))), [expected, expected]);
        assert_eq!(dropped(|noisy| block_on(annotated::call(noisy("a"), noisy("b")))), [expected, expected]);
    }

    #[test]
    fn fault_17_an_argument_that_an_async_fn_does_not_use_is_dropped_in_its_place() {
        twins! {
            pub(super) async fn call(a: Noisy, _b: Noisy) {
                let _used = &a;
                yield_now().await;
            }
        }
        let expected = ["b", "a"];
        assert_eq!(dropped(|noisy| block_on(bare::call(noisy("a"), noisy("b")))), [expected, expected]);
        assert_eq!(dropped(|noisy| block_on(annotated::call(noisy("a"), noisy("b")))), [expected, expected]);
    }

    #[test]
    fn fault_17_so_are_those_of_one_that_is_dropped_halfway() {
        twins! {
            pub(super) async fn call(a: Noisy, _: Noisy, c: Noisy) {
                let _local = Noisy("local", Arc::clone(&c.1));
                let _used = (&a, &c);
                yield_now().await;
            }
        }
        fn halfway(future: impl Future) {
            assert!(poll_once(pin!(future)).is_pending());
        }
        let bare = dropped(|noisy| halfway(bare::call(noisy("a"), noisy("_"), noisy("c"))));
        let annotated = dropped(|noisy| halfway(annotated::call(noisy("a"), noisy("_"), noisy("c"))));
        assert_eq!(annotated, bare);
    }

    #[test]
    fn fault_17_what_a_method_does_not_move_out_of_itself_is_dropped_at_its_end() {
        struct Pair {
            first: Noisy,
            second: Noisy,
        }
        impl Pair {
            fn bare(self, c: &Noisy) {
                let _ = self.first;
                let _local = Noisy("local", Arc::clone(&c.1));
                drop(self.second);
            }
            #[rl_span(group = Reward, name = "annotated")]
            fn annotated(self, c: &Noisy) {
                let _ = self.first;
                let _local = Noisy("local", Arc::clone(&c.1));
                drop(self.second);
            }
            async fn bare_async(self, c: &Noisy) {
                yield_now().await;
                let _ = self.first;
                let _local = Noisy("local", Arc::clone(&c.1));
                drop(self.second);
            }
            #[rl_span(group = Reward, name = "annotated_async")]
            async fn annotated_async(self, c: &Noisy) {
                yield_now().await;
                let _ = self.first;
                let _local = Noisy("local", Arc::clone(&c.1));
                drop(self.second);
            }
        }
        let pair = |noisy: &dyn Fn(&'static str) -> Noisy| Pair { first: noisy("1"), second: noisy("2") };
        let bare = dropped(|noisy| pair(noisy).bare(&noisy("c")));
        assert_eq!(bare[0], ["2", "local", "1", "c"]);
        assert_eq!(dropped(|noisy| pair(noisy).annotated(&noisy("c"))), bare);
        assert_eq!(dropped(|noisy| block_on(pair(noisy).bare_async(&noisy("c")))), bare);
        assert_eq!(dropped(|noisy| block_on(pair(noisy).annotated_async(&noisy("c")))), bare);
    }

    /// tokio-rs/tracing#616, lance-format/lance#8416. With `--nocapture` it tells the sizes.
    #[test]
    fn fault_18_annotated_futures_in_one_another_compile_and_stay_small() {
        let capture = Capture::new("rollout");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let task = runtime.spawn(capture.run_async(layers::annotated::layer_12(vec![Some("value")])));
        assert_eq!(runtime.block_on(task).unwrap().unwrap(), [Some("value")]);
        assert_eq!(capture.spans().len(), 13);
        let of_a_layer = |outer: usize, inner: usize| (outer - inner) / 11;
        let bare = of_a_layer(
            size_of_val(&layers::bare::layer_12([0_u64; 2])),
            size_of_val(&layers::bare::layer_1([0_u64; 2])),
        );
        let annotated = of_a_layer(
            size_of_val(&layers::annotated::layer_12([0_u64; 2])),
            size_of_val(&layers::annotated::layer_1([0_u64; 2])),
        );
        println!("a layer of futures takes {bare} bytes bare and {annotated} annotated");
        assert!(annotated <= bare + 64, "{bare} bytes bare and {annotated} annotated");
    }

    struct Large([u8; 4096]);

    #[test]
    fn fault_18_a_large_argument_is_not_held_more_often_than_in_the_bare_function() {
        twins! {
            pub(super) async fn call(large: Large) -> u8 {
                yield_now().await;
                large.0[0]
            }
        }
        let (bare, annotated) =
            (size_of_val(&bare::call(Large([0; 4096]))), size_of_val(&annotated::call(Large([0; 4096]))));
        assert!(annotated < bare + 1024, "{bare} bytes became {annotated}");
    }

    #[rl_span(group = Rollout, name = "by hand", attributes(n = n))]
    async fn by_hand(n: u32) -> u32 {
        match n {
            0 => 0,
            _ => Box::pin(by_hand(n - 1)).await + 1,
        }
    }

    #[async_recursion]
    #[rl_span(group = Rollout, name = "below", attributes(n = n))]
    async fn below(n: u32) -> u32 {
        match n {
            0 => 0,
            _ => below(n - 1).await + 1,
        }
    }

    #[rl_span(group = Rollout, name = "above", attributes(n = n))]
    #[async_recursion]
    async fn above(n: u32) -> u32 {
        match n {
            0 => 0,
            _ => above(n - 1).await + 1,
        }
    }

    /// dcchut/async-recursion#33
    #[tokio::test]
    async fn fault_19_a_recursive_async_fn_is_a_chain_of_spans() {
        type Boxed = Pin<Box<dyn Future<Output = u32> + Send>>;
        let make: [(_, fn() -> Boxed); 3] =
            [("by hand", || Box::pin(by_hand(2))), ("below", || below(2)), ("above", || above(2))];
        for (name, make) in make {
            let capture = Capture::new("rollout");
            let task = tokio::spawn(capture.run_async(async move { make().await }));
            assert_eq!(task.await.unwrap(), 2);
            assert_eq!(capture.tree(), format!("{name} (ok)\n  {name} (ok)\n    {name} (ok)\n"));
        }
    }

    /// The frames of this library on the stack, and the caller's place.
    #[track_caller]
    fn frames() -> (usize, &'static Location<'static>) {
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        let ours = trace.lines().filter_map(|line| line.trim().split_once(": ")).map(|(_, frame)| frame);
        let ours =
            ours.filter(|frame| frame.starts_with("lens_runtime") || frame.starts_with("<lens_runtime"));
        (ours.count(), Location::caller())
    }

    /// tokio-rs/tracing#3453
    #[test]
    fn fault_20_a_backtrace_has_one_frame_of_ours_for_each_call_and_the_users_line() {
        #[rl_span(group = Reward, name = "sync")]
        fn of_a_fn() -> (usize, &'static Location<'static>, u32) {
            let (frames, place) = frames();
            (frames, place, line!() - 1)
        }
        #[rl_span(group = Reward, name = "async")]
        async fn of_an_async_fn() -> (usize, &'static Location<'static>, u32) {
            yield_now().await;
            let (frames, place) = frames();
            (frames, place, line!() - 1)
        }
        let capture = Capture::new("reward");
        let _attached = capture.context().attach();
        for (frames, place, line) in [of_a_fn(), block_on(of_an_async_fn())] {
            assert!(frames <= 1, "{frames} frames");
            assert_eq!((place.file(), place.line()), (file!(), line));
        }
    }

    /// tokio-rs/tokio#6106, tokio-rs/tracing-opentelemetry#116
    #[test]
    fn fault_22_a_context_that_is_kept_keeps_no_span_open() {
        #[rl_span(group = Reward, name = "kept")]
        fn kept() -> Current {
            Current::current()
        }
        let capture = Capture::new("reward");
        let context = capture.run(kept);
        let span = capture.span("kept");
        assert_eq!(context.span().span_context().span_id(), span.id());
        assert!(!context.span().is_recording());
        assert_eq!(counted(&capture, "kept"), 1);
    }

    #[test]
    fn fault_22_nor_does_it_make_a_call_longer_that_is_only_measured() {
        #[rl_span(group = Rollout, name = "around")]
        fn around() -> Current {
            kept()
        }
        #[rl_span(group = Reward, name = "kept")]
        fn kept() -> Current {
            Current::current()
        }
        for span_groups in ["rollout", "checkpoint"] {
            let capture = Capture::new(span_groups);
            let [alone, within] = capture.run(|| [kept(), around()]);
            assert_eq!((counted(&capture, "kept"), counted(&capture, "around")), (2, 1), "{span_groups}");
            assert!(!alone.span().is_recording() && !within.span().is_recording());
            let expected = if span_groups == "rollout" { "around (ok)\n" } else { "" };
            assert_eq!(capture.tree(), expected, "{span_groups}");
            // What is said there now is said of nobody.
            for context in [alone, within] {
                let _attached = context.attach();
                lens_runtime::record_tokens(1_u32, 1_u32);
                lens_runtime::set("late", 1);
            }
            assert!(capture.points(semconv::GEN_AI_CLIENT_TOKEN_USAGE).is_empty(), "{span_groups}");
        }
    }

    /// tikv/minitrace-rust#126
    #[test]
    fn fault_23_a_call_without_a_parent_is_a_root_span() {
        let capture = Capture::new("reward");
        capture.run(|| {
            assert!(!Current::current().has_active_span());
            child();
        });
        assert_eq!(capture.span("child").parent_id(), SpanId::INVALID);
    }

    /// tikv/minitrace-rust#207, open-telemetry/opentelemetry-rust#858
    #[tokio::test]
    async fn fault_24_on_another_thread_a_call_is_a_root_or_by_the_helper_a_child() {
        #[rl_span(group = Rollout, name = "parent")]
        async fn parent(alone: Current) {
            let root = move || {
                let _attached = alone.attach();
                child();
            };
            tokio::task::spawn_blocking(root.clone()).await.unwrap();
            std::thread::spawn(root).join().unwrap();
            tokio::task::spawn_blocking(in_current_context(child)).await.unwrap();
            std::thread::scope(|scope| scope.spawn(in_current_context(child)).join().unwrap());
        }
        let capture = Capture::new("per_step");
        capture.run_async(parent(capture.context())).await;
        let parent = capture.span("parent").id();
        let spans = capture.spans();
        let parents = spans.iter().filter(|span| span.name() == "child").map(CapturedSpan::parent_id);
        assert_eq!(parents.collect::<Vec<_>>(), [SpanId::INVALID, SpanId::INVALID, parent, parent]);
    }
}

/// Signatures, results and what is recorded of them.
///
/// | fault | shown by |
/// |---|---|
/// | 31, a key without a value | `ui/fail/attribute_without_value` |
/// | 32 | `annotation` |
/// | 33, unknown, misspelt and repeated words | `ui/fail/unknown_argument`, `argument_twice`, `argument_in_another_case`, `empty_name`, `name_is_a_number`, `misspelt_group`, `lower_case_group`, `group_in_quotes`, `group_of_unknown_path`, `missing_group_and_name`, `missing_name`, `missing_comma`, `unknown_choice`, `unknown_side_of_tokens` |
/// | 35 | `annotation`, and `arguments` with 36 |
/// | 36 | `arguments` |
/// | 38, `const`, `unsafe`, `extern` | `ui/fail/const_fn`, `variadic`, `ui/pass/qualifiers` |
/// | 39 | `annotation`, `ui/pass/inner_attributes` |
/// | 40 | `absences` |
/// | 43, names that clash | `ui/fail/missing_name`: there is no default that could |
mod signatures {
    use super::*;

    /// Neither `Debug` nor `Clone`.
    struct Opaque;

    /// tokio-rs/tracing#1407
    #[test]
    fn fault_30_a_parameter_may_be_anything_and_have_no_name() {
        #[rl_span(group = Reward, name = "sync", attributes(b = b, first = first))]
        fn of_a_fn(a: u32, _: Opaque, &(_, b): &(Opaque, u8), [first, ..]: [u32; 3]) -> u32 {
            a + u32::from(b) + first
        }
        #[rl_span(group = Reward, name = "async", attributes(a = a))]
        async fn of_an_async_fn(_: Opaque, (a, _): (u32, Opaque)) -> u32 {
            yield_now().await;
            a
        }
        let capture = Capture::new("reward");
        assert_eq!(capture.run(|| of_a_fn(1, Opaque, &(Opaque, 2), [3, 4, 5])), 6);
        assert_eq!(block_on(capture.run_async(of_an_async_fn(Opaque, (7, Opaque)))), 7);
        assert_eq!(capture.tree(), "sync (ok)\nasync (ok)\n");
    }

    /// tokio-rs/tracing#2184
    #[test]
    fn fault_41_every_signal_knows_a_call_by_the_same_name() {
        const NAME: &str = "rl.own.name";
        static OWN: SpanGroup = SpanGroup::leaf("faults_own", Bucket::Idle);
        #[rl_span(group = OWN, name = NAME, operation = "chat", err = message)]
        fn own() -> Result<(), String> {
            Err("refused".to_owned())
        }
        let capture = Capture::new("all");
        assert!(capture.run(own).is_err());
        let span = capture.span(NAME);
        assert_eq!(span.attribute(semconv::GROUP).unwrap().as_str(), "faults_own");
        let points = capture.points(semconv::PHASE_DURATION);
        let names = |key: &str| points.iter().map(|point| point.attributes[key].clone()).collect::<Vec<_>>();
        assert_eq!(names("rl.phase"), [NAME]);
        assert_eq!(names("rl.group"), ["faults_own"]);
        assert_eq!(names("rl.outcome"), ["error"]);
    }

    /// tokio-rs/tracing#2941, #2925, #3158, #1489
    #[test]
    fn fault_42_a_name_is_any_constant_text_and_a_key_may_be_a_keyword() {
        mod names {
            pub(super) const STEP: &str = "rl.constant";
        }
        #[rl_span(group = Reward, name = names::STEP)]
        fn by_constant() {}
        #[rl_span(group = Reward, name = concat!("rl.", "macro"))]
        fn by_macro() {}
        #[rl_span(group = Reward, name = r#"rl."raw""#)]
        fn raw() {}
        #[rl_span(
            group = Reward,
            name = "keys",
            attributes(type = 1, match = 2, r#async = 3, self = 4, gen_ai.type.in = 5, crate.fn = 6,),
        )]
        fn keys() {}
        let capture = Capture::new("reward");
        capture.run(|| {
            by_constant();
            by_macro();
            raw();
            keys();
        });
        assert_eq!(capture.tree(), "rl.constant (ok)\nrl.macro (ok)\nrl.\"raw\" (ok)\nkeys (ok)\n");
        let span = capture.span("keys");
        for (key, value) in
            ["type", "match", "async", "self", "gen_ai.type.in", "crate.fn"].into_iter().zip(1..)
        {
            assert_eq!(span.attribute(key).unwrap().to_string(), format!("{value}"), "{key}");
        }
    }

    #[test]
    fn fault_44_what_is_configured_away_is_away() {
        #[cfg(test)]
        #[rl_span(group = Reward, name = "sync", attributes(size = a))]
        #[cfg(test)]
        fn of_a_fn(
            a: u32,
            #[cfg(any())] b: Missing,
            #[cfg_attr(all(), allow(unused))] c: u32,
            #[cfg(test)] mut d: u32,
        ) -> u32 {
            #[cfg(any())]
            let a = missing();
            #[cfg(test)]
            let a = a + 1;
            d += a;
            d
        }
        #[rl_span(group = Reward, name = "async", attributes(size = a))]
        async fn of_an_async_fn(#[cfg(any())] b: Missing, a: u32, #[cfg(test)] c: u32) -> u32 {
            a + c
        }
        #[cfg(any())]
        #[rl_span(group = Reward, name = "gone")]
        fn gone(a: Missing) {}
        #[rl_span(group = Reward, name = "gone")]
        #[cfg(any())]
        fn gone(a: Missing) {}
        let capture = Capture::new("reward");
        assert_eq!(capture.run(|| of_a_fn(1, 2, 3)), 5);
        assert_eq!(block_on(capture.run_async(of_an_async_fn(1, 2))), 3);
        assert_eq!(capture.tree(), "sync (ok)\nasync (ok)\n");
    }
}

/// Names in scope, other macros, compile errors, editions.
///
/// | fault | shown by |
/// |---|---|
/// | 45, no prelude, and its names taken | `ui/pass/hygiene`, `hygiene_of_every_form`, `hygiene_of_methods` |
/// | 53, errors in the body point at the body | `ui/fail/wrong_type_in_the_body`, `mistakes_in_the_body`, `borrows_in_the_body` |
/// | 54, unfinished code | `ui/fail/many_mistakes_at_once`, `unfinished_body` |
/// | 55, types out of a macro | `ui/pass/types_out_of_a_macro` |
/// | 56 | below, and `editions/` |
/// | 57 | below, and `annotation` |
mod company {
    use super::*;

    /// pydantic/logfire-rust#100
    #[test]
    fn fault_47_the_users_names_are_the_users() {
        #[expect(clippy::too_many_arguments, reason = "each is a name that an expansion might use itself")]
        #[rl_span(
            group = Reward,
            name = name,
            attributes(
                span = span, cx = cx, guard = guard, result = result, start = start, call = call,
                entry = entry, out = out, arguments = arguments, ok = ok, error = error, own = __span,
                twice = |out| *out * 2,
                more = |ok| { let call = ok; let entry = call; *entry + 1 },
            ),
        )]
        fn names(
            span: u32,
            cx: u32,
            guard: u32,
            result: u32,
            start: u32,
            call: u32,
            entry: u32,
            out: u32,
            arguments: u32,
            ok: u32,
            error: u32,
            __span: u32,
            name: &'static str,
        ) -> Result<u32, String> {
            let attached = [span, cx, guard, result, start, call, entry, out, arguments, ok, error, __span];
            assert_eq!(name, "names");
            Ok(attached.iter().sum())
        }
        #[rl_span(group = Reward, name = "async names", attributes(call = call, out = |call| *call))]
        async fn async_names(call: u32, out: u32, body: u32) -> u32 {
            yield_now().await;
            call + out + body
        }
        let capture = Capture::new("reward");
        assert_eq!(capture.run(|| names(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, "names")), Ok(78));
        assert_eq!(block_on(capture.run_async(async_names(1, 2, 3))), 6);
        let span = capture.span("names");
        let keys =
            ["span", "cx", "guard", "result", "start", "call", "entry", "out", "arguments", "ok", "error"];
        for (key, value) in keys.into_iter().zip(1..) {
            assert_eq!(span.attribute(key).unwrap().to_string(), format!("{value}"), "{key}");
        }
        let text = |key: &str| span.attribute(key).unwrap().to_string();
        assert_eq!([text("own"), text("twice"), text("more")], ["12", "156", "79"]);
        assert_eq!(capture.span("async names").attribute("out").unwrap().to_string(), "6");
    }

    /// Methods, made by a macro: of its own body, and of one that it is given with its `self`.
    macro_rules! methods {
        ($name:ident, $ty:ty) => {
            impl Scale {
                #[rl_span(group = Reward, name = stringify!($name), attributes(factor = self.factor))]
                fn $name(&self) -> $ty {
                    Ok(self.factor)
                }
            }
        };
        ($name:ident($self:ident $(, $parameter:ident: $of:ty)*) -> $ty:ty $body:block) => {
            impl Scale {
                #[rl_span(group = Reward, name = stringify!($name), attributes(factor = $self.factor))]
                fn $name(&$self $(, $parameter: $of)*) -> $ty $body
            }
        };
        (async $name:ident($self:ident $(, $parameter:ident: $of:ty)*) -> $ty:ty $body:block) => {
            impl Scale {
                #[rl_span(group = Reward, name = stringify!($name), attributes(factor = $self.factor))]
                async fn $name(&$self $(, $parameter: $of)*) -> $ty $body
            }
        };
    }

    struct Scale {
        factor: u32,
    }

    methods!(own, Result<u32, String>);
    methods!(given(self, by: u32) -> Result<u32, String> {
        if by == 0 {
            return Err("nothing".to_owned());
        }
        Ok(self.factor * by)
    });
    methods!(async given_async(self, by: u32) -> Result<u32, String> {
        yield_now().await;
        self.given(by)
    });

    /// rust-lang/rust#75801, #39922
    #[test]
    fn fault_55_a_function_may_be_made_by_a_macro() {
        let scale = Scale { factor: 2 };
        let capture = Capture::new("reward");
        assert_eq!(capture.run(|| scale.own()), Ok(2));
        assert!(capture.run(|| scale.given(0)).is_err());
        assert_eq!(block_on(capture.run_async(scale.given_async(3))), Ok(6));
        assert_eq!(capture.tree(), "own (ok)\ngiven (error)\ngiven_async (ok)\n  given (ok)\n");
    }

    /// What changed with 2024, beside what holds in every edition.
    #[test]
    fn fault_56_temporaries_and_captures_are_those_of_the_edition() {
        #[rl_span(group = Reward, name = "tail")]
        fn tail() -> usize {
            let cell = std::cell::RefCell::new(vec![1]);
            cell.borrow().len()
        }
        #[rl_span(group = Reward, name = "tail_async")]
        async fn tail_async(lock: &Mutex<Vec<u32>>) -> usize {
            let own = Mutex::new(vec![1]);
            let _length = own.lock().unwrap().len();
            lock.lock().unwrap().len()
        }
        /// The lock of the scrutinee is released before `else`.
        #[rl_span(group = Reward, name = "scrutinee")]
        fn scrutinee(lock: &Mutex<Vec<u32>>) -> usize {
            if let Some(first) = lock.lock().unwrap().first() {
                *first as usize
            } else {
                lock.try_lock().map_or(0, |list| list.len() + 7)
            }
        }
        /// Captures the elided lifetime, as `impl Trait` does.
        #[rl_span(group = Reward, name = "opaque")]
        fn opaque(list: &[u32]) -> impl Iterator<Item = u32> {
            list.iter().copied()
        }
        #[rl_span(group = Reward, name = "opaque_future")]
        fn opaque_future(list: &[u32]) -> impl Future<Output = usize> {
            async { list.len() }
        }
        let lock = Mutex::new(Vec::new());
        assert_eq!((tail(), block_on(tail_async(&lock)), scrutinee(&lock)), (1, 0, 7));
        assert_eq!((opaque(&[1, 2]).sum::<u32>(), block_on(opaque_future(&[1]))), (3, 1));
    }

    /// tokio-rs/tokio#6497
    #[rl_span(group = Job, name = "above")]
    #[test]
    #[should_panic(expected = "on purpose")]
    fn fault_57_an_annotation_may_stand_above_the_attributes_of_a_test_that_panics() {
        panic!("on purpose");
    }

    #[tokio::test]
    #[should_panic(expected = "on purpose")]
    #[rl_span(group = Job, name = "below")]
    async fn fault_57_or_below_those_of_one_with_a_runtime() {
        yield_now().await;
        panic!("on purpose");
    }

    /// frondeus/test-case#152. Attributes below the cases go to the function that each becomes.
    #[test_case::case(1, "one"; "the first")]
    #[test_case::case(2, "two"; "the second")]
    #[tokio::test]
    #[rl_span(group = Job, name = "cases")]
    async fn fault_57_a_test_may_have_cases(number: usize, text: &str) {
        yield_now().await;
        assert_eq!(["one", "two"][number - 1], text);
    }

    /// fast/fastrace#113
    #[test]
    fn fault_60_the_macro_and_the_runtime_are_of_the_very_same_version() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        let pin = concat!("path = \"lens-macros\", version = \"=", env!("CARGO_PKG_VERSION"), "\"");
        assert!(manifest.contains(pin), "{pin}");
    }

    /// divviup/divviup-api#1485, tokio-rs/tracing-opentelemetry#211
    #[test]
    fn fault_84_there_is_one_version_of_opentelemetry_and_programs_find_it_in_lens() {
        // Through the re-export alone, which these tests have besides nothing else.
        #[rl_span(group = Reward, name = "seen")]
        fn seen() -> bool {
            Current::current().span().span_context().is_valid()
        }
        let capture = Capture::new("per_step");
        assert!(capture.run(seen));
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
        for package in ["opentelemetry", "opentelemetry_sdk", "opentelemetry-proto"] {
            assert_eq!(lock.matches(&format!("name = \"{package}\"\n")).count(), 1, "{package}");
        }
    }
}

/// Panics, ends and names.
///
/// | fault | shown by |
/// |---|---|
/// | 112 | `block` |
/// | 111, units and bounds | `run` |
/// | 113, what may be caught | `ui/pass/unwind_safety` |
/// | 117, features that other crates switch | `absences` with 40: there are none |
mod ends {
    use super::*;

    /// autometrics-dev changelog 0.6.0: a name that changes is a dashboard that is empty. What changes here is told
    /// in CHANGELOG.
    #[test]
    fn fault_111_names_stay_as_they_are() {
        let source = include_str!("../lens-runtime/src/semconv.rs");
        let names: Vec<_> = source
            .lines()
            .filter_map(|line| line.strip_prefix("    ")?.strip_suffix("\";")?.split_once(" = \""))
            .map(|(_, name)| name)
            .collect();
        let expected = [
            "rl.iteration",
            "rl.group",
            "rl.outcome",
            "rl.bucket",
            "rl.phase",
            "rl.num_generations_per_prompt",
            "rl.step",
            "rl.stream.items",
            "rl.stream.time_to_first_item",
            "nemo.span.truncated",
            "nemo.span.truncated.reason",
            "error.type",
            "gen_ai.operation.name",
            "gen_ai.provider.name",
            "gen_ai.request.model",
            "gen_ai.token.type",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
            "rl.phase.duration",
            "gen_ai.client.token.usage",
            "gen_ai.client.operation.duration",
            "otel.sdk.exporter.span.exported",
            "otel.sdk.exporter.metric_data_point.exported",
            "otel.sdk.exporter.log.exported",
            "otel.sdk.processor.span.processed",
            "otel.sdk.processor.log.processed",
            "otel.sdk.processor.span.queue.size",
            "otel.sdk.processor.log.queue.size",
            "rl.reward.mean",
            "rl.kl.divergence",
            "rl.policy.loss",
            "rl.value.loss",
            "rl.entropy",
            "rl.response.length.mean",
            "rl.grad_norm",
            "rl.learning_rate",
            "code.file.path",
            "code.line.number",
            "rl.step.metrics",
            "rl.span.open",
            "rl.span.start_time_unix_nano",
            "rl.span.parent_id",
            "service.name",
            "service.instance.id",
            "nemo.run.id",
            "nemo.user.id",
            "host.name",
            "process.pid",
        ];
        assert_eq!(names, expected);
    }

    #[rl_span(group = Rollout, name = "outer")]
    fn outer(cell: &Cell<u32>) {
        middle(cell);
    }

    #[rl_span(group = Rollout, name = "middle")]
    fn middle(cell: &Cell<u32>) {
        let _in_a_destructor = Calls;
        block_on(inner(cell));
    }

    #[rl_span(group = Rollout, name = "inner")]
    async fn inner(cell: &Cell<u32>) {
        cell.set(cell.get() + 1);
        panic!("a reward model fell over");
    }

    struct Calls;

    impl Drop for Calls {
        fn drop(&mut self) {
            child();
            assert!(poll_once(pin!(waits())).is_pending());
        }
    }

    #[rl_span(group = Reward, name = "waits")]
    async fn waits() {
        pending::<()>().await;
    }

    /// open-telemetry/opentelemetry-go#3283
    #[test]
    fn fault_113_a_panic_marks_each_call_that_it_ends_and_no_other() {
        let capture = Capture::new("per_step");
        let cell = Cell::new(0);
        capture.run(|| {
            let caught = catch_unwind(AssertUnwindSafe(|| outer(&cell)));
            assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "a reward model fell over");
            assert!(!Current::current().has_active_span());
            child();
        });
        assert_eq!(cell.get(), 1);
        assert_eq!(
            capture.tree(),
            "outer (panic)\n  middle (panic)\n    inner (panic)\n    child (ok)\n    waits (cancelled)\nchild (ok)\n"
        );
        for name in ["outer", "middle", "inner"] {
            assert_eq!(*capture.span(name).status(), Status::error("panic"), "{name}");
            assert_eq!(counted(&capture, name), 1);
        }
    }

    /// pydantic/logfire#704
    #[test]
    fn fault_114_a_span_that_the_user_ends_harms_nothing() {
        #[rl_span(group = Reward, name = "ended", attributes(size = |out| *out), tokens(output = 3_u32))]
        fn ended() -> u32 {
            Current::current().span().end();
            child();
            1
        }
        let capture = Capture::new("reward");
        assert_eq!(capture.run(ended), 1);
        assert_eq!(capture.span("child").parent_id(), capture.span("ended").id());
        assert_eq!(counted(&capture, "ended"), 1);
        assert_eq!(capture.points(semconv::GEN_AI_CLIENT_TOKEN_USAGE).len(), 1);
    }
}

// Not applicable:
//
// | fault | because |
// |---|---|
// | 60, arguments that are parsed when compiled out | nothing is compiled out: there are no Cargo features |
// | 115, wasm32 | the runtime brings its delivery along, by threads and sockets that wasm32 does not have |
// | 116, Miri | the one toolchain is a stable one, without Miri; there is no `unsafe` of ours for it to judge, and nothing asks for the path of the program, at which the fault came up |
