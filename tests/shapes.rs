//! Is every shape of function recorded for what it does?

use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use lens_runtime::rl_span;
use lens_runtime::testing::Capture;
use tokio::task::yield_now;

#[rl_span(group = Reward, name = "inner")]
fn inner() {}

/// Polls once.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

mod returned_futures {
    use super::*;

    #[rl_span(group = Rollout, name = "opaque", attributes(size = size, doubled = |out| out * 2))]
    fn opaque(size: u32) -> impl Future<Output = u32> {
        inner();
        async move {
            yield_now().await;
            inner();
            size + 1
        }
    }

    #[rl_span(group = Rollout, name = "boxed")]
    fn boxed(fail: bool) -> Pin<Box<dyn Future<Output = Result<u32, std::io::Error>> + Send>> {
        if fail {
            return Box::pin(async { Err(std::io::Error::other("no")) });
        }
        Box::pin(std::future::ready(Ok(1)))
    }

    #[rl_span(group = Rollout, name = "borrows")]
    fn borrows<'a>(text: &'a str, log: &'a Mutex<Vec<u32>>) -> impl Future<Output = &'a str> + Send + 'a {
        log.lock().unwrap().push(1);
        async move {
            yield_now().await;
            &text[1..]
        }
    }

    #[tokio::test]
    async fn fault_4_the_span_lasts_until_the_returned_future_is_done() {
        let capture = Capture::new("per_step");
        assert_eq!(capture.run_async(async { opaque(3).await }).await, 4);
        assert_eq!(capture.tree(), "opaque (ok)\n  inner (ok)\n  inner (ok)\n");
        assert_eq!(capture.span("opaque").attribute("doubled").unwrap().to_string(), "8");
    }

    #[tokio::test]
    async fn fault_4_a_boxed_future_is_followed_from_every_return() {
        let capture = Capture::new("per_step");
        assert!(capture.run_async(async { boxed(true).await }).await.is_err());
        assert_eq!(capture.run_async(async { boxed(false).await }).await.unwrap(), 1);
        assert_eq!(capture.tree(), "boxed (error)\nboxed (ok)\n");
    }

    #[tokio::test]
    async fn what_is_returned_may_borrow_and_travel() {
        fn is_send<T: Send>(value: T) -> T {
            value
        }
        let log = Mutex::new(Vec::new());
        assert_eq!(is_send(borrows("abc", &log)).await, "bc");
        assert_eq!(*log.lock().unwrap(), [1]);
    }

    #[test]
    fn one_that_is_dropped_is_cancelled_and_one_that_nobody_polls_is_nothing() {
        let capture = Capture::new("per_step");
        capture.run(|| {
            let mut future = Box::pin(opaque(1));
            assert!(poll_once(future.as_mut()).is_pending());
        });
        assert_eq!(capture.tree(), "opaque (cancelled)\n  inner (ok)\n");
        let capture = Capture::new("rollout");
        capture.run(|| drop(opaque(1)));
        assert_eq!(capture.tree(), "");
        let points = capture.points("rl.phase.duration");
        assert!(points.iter().all(|point| point.attributes["rl.phase"] != "opaque"), "{points:?}");
    }

    /// What `#[async_trait]` makes of an `async fn`.
    struct Engine;

    impl Engine {
        #[rl_span(group = Generation, name = "as async_trait", attributes(index = *index))]
        fn generate<'life0, 'life1, 'async_trait>(
            &'life0 self,
            index: &'life1 u32,
        ) -> ::core::pin::Pin<
            Box<dyn ::core::future::Future<Output = u32> + ::core::marker::Send + 'async_trait>,
        >
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(async move {
                let __self = self;
                let _ = __self;
                yield_now().await;
                inner();
                *index
            })
        }
    }

    #[tokio::test]
    async fn fault_1_a_method_of_async_trait_is_measured_like_an_async_fn() {
        let capture = Capture::new("per_step");
        assert_eq!(capture.run_async(async { Engine.generate(&5).await }).await, 5);
        assert_eq!(capture.tree(), "as async_trait (ok)\n  inner (ok)\n");
    }
}

mod guarded {
    use super::*;

    #[rl_span(group = Reward, name = "caller")]
    #[track_caller]
    fn caller() -> &'static Location<'static> {
        Location::caller()
    }

    #[rl_span(group = Reward, name = "never")]
    fn never(shared: &AtomicU32) -> ! {
        shared.fetch_add(1, Ordering::SeqCst);
        inner();
        std::panic::resume_unwind(Box::new("on purpose"))
    }

    #[rl_span(group = Reward, name = "closure", attributes(size = prefix.len()))]
    fn closure(prefix: &str) -> impl Fn(&str) -> &str {
        let skip = prefix.len();
        inner();
        move |text| &text[skip..]
    }

    #[rl_span(group = Reward, name = "iterator")]
    fn iterator(items: &[u32]) -> impl DoubleEndedIterator<Item = u32> + Debug {
        items.iter().copied()
    }

    #[test]
    fn a_track_caller_function_still_knows_its_caller() {
        let capture = Capture::new("per_step");
        let place = capture.run(|| caller());
        assert_eq!((place.file(), place.line()), (file!(), line!() - 1));
        assert_eq!(capture.tree(), "caller (ok)\n");
    }

    #[test]
    fn a_function_that_never_returns_is_recorded_when_it_panics() {
        let capture = Capture::new("per_step");
        let shared = Arc::new(AtomicU32::new(0));
        let own = Arc::clone(&shared);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| capture.run(|| never(&own))));
        assert!(caught.is_err());
        assert_eq!(shared.load(Ordering::SeqCst), 1);
        assert_eq!(capture.tree(), "never (panic)\n  inner (ok)\n");
    }

    #[test]
    fn a_function_may_return_what_no_closure_can() {
        let capture = Capture::new("per_step");
        let skip = capture.run(|| closure("ab"));
        assert_eq!(skip("abcd"), "cd");
        assert_eq!(iterator(&[1, 2]).next_back(), Some(2));
        assert_eq!(capture.tree(), "closure (ok)\n  inner (ok)\n");
    }

    #[test]
    fn a_guard_in_a_destructor_that_runs_by_a_panic_elsewhere_is_ok() {
        struct Calls;
        impl Drop for Calls {
            fn drop(&mut self) {
                caller();
            }
        }
        let capture = Capture::new("per_step");
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            capture.run(|| {
                let _calls = Calls;
                std::panic::resume_unwind(Box::new("on purpose"));
            });
        }));
        assert!(caught.is_err());
        assert_eq!(capture.tree(), "caller (ok)\n");
    }
}

mod returned_streams {
    use std::collections::VecDeque;

    use futures_core::Stream;

    use super::*;

    /// Waits once before each item, and has a span for each.
    struct Chunks(VecDeque<Result<u32, &'static str>>, bool);

    impl Stream for Chunks {
        type Item = Result<u32, &'static str>;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.1 = !self.1;
            if self.1 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            inner();
            Poll::Ready(self.0.pop_front())
        }
    }

    fn chunks(items: &[Result<u32, &'static str>]) -> Chunks {
        Chunks(items.iter().copied().collect(), false)
    }

    #[rl_span(group = Generation, name = "stream", tokens(input = 5_u32, output = |tokens| *tokens))]
    fn stream(items: &[Result<u32, &'static str>]) -> impl Stream<Item = Result<u32, &'static str>> + use<> {
        chunks(items)
    }

    #[rl_span(group = Generation, name = "boxed")]
    fn boxed(fail: bool) -> Pin<Box<dyn Stream<Item = Result<u32, &'static str>> + Send>> {
        if fail {
            return Box::pin(chunks(&[Err("no")]));
        }
        Box::pin(chunks(&[Ok(1)]))
    }

    #[rl_span(group = Rollout, name = "consumer")]
    fn consumes() {}

    /// Takes so many items, with work of its own after each.
    async fn take<S>(mut stream: Pin<&mut S>, most: usize) -> usize
    where
        S: Stream<Item = Result<u32, &'static str>> + ?Sized,
    {
        let mut taken = 0;
        while taken < most {
            match std::future::poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
                Some(_) => consumes(),
                None => break,
            }
            taken += 1;
        }
        taken
    }

    #[tokio::test]
    async fn fault_14_a_stream_is_recorded_until_its_end() {
        let capture = Capture::new("per_step");
        let taken = capture
            .run_async(async { take(std::pin::pin!(stream(&[Ok(3), Ok(4)])), usize::MAX).await })
            .await;
        assert_eq!(taken, 2);
        // What the consumer does between two items is not the stream's.
        assert_eq!(
            capture.tree(),
            "stream (ok)\n  inner (ok)\n  inner (ok)\n  inner (ok)\nconsumer (ok)\nconsumer (ok)\n"
        );
        let span = capture.span("stream");
        let text = |key: &str| span.attribute(key).unwrap().to_string();
        assert_eq!(text("rl.stream.items"), "2");
        assert_eq!(text("gen_ai.usage.input_tokens"), "5");
        assert_eq!(text("gen_ai.usage.output_tokens"), "7");
        assert!(span.attribute("rl.stream.time_to_first_item").is_some());
        // The tokens of all items are those of one request.
        let usage = capture.points("gen_ai.client.token.usage");
        assert!(usage.iter().all(|point| point.count == 1), "{usage:?}");
    }

    #[tokio::test]
    async fn fault_14_a_stream_that_is_dropped_has_counted_so_far() {
        let capture = Capture::new("per_step");
        capture.run_async(async { take(std::pin::pin!(stream(&[Ok(3), Ok(4), Ok(5)])), 1).await }).await;
        let span = capture.span("stream");
        assert_eq!(span.outcome().as_deref(), Some("cancelled"));
        assert_eq!(span.attribute("rl.stream.items").unwrap().to_string(), "1");
        assert_eq!(span.attribute("gen_ai.usage.output_tokens").unwrap().to_string(), "3");
    }

    #[tokio::test]
    async fn a_stream_with_an_error_ends_with_it() {
        let capture = Capture::new("per_step");
        capture.run_async(async { take(std::pin::pin!(stream(&[Ok(3), Err("no")])), 2).await }).await;
        assert_eq!(capture.span("stream").outcome().as_deref(), Some("error"));
        let capture = Capture::new("generation");
        capture.run_async(async { take(boxed(true).as_mut(), 5).await }).await;
        capture.run_async(async { take(boxed(false).as_mut(), 5).await }).await;
        let outcomes: Vec<_> = capture
            .spans()
            .iter()
            .filter(|span| span.name() == "boxed")
            .map(|span| span.outcome().unwrap())
            .collect();
        assert_eq!(outcomes, ["error", "ok"]);
    }

    #[test]
    fn a_stream_that_nobody_polls_is_nothing() {
        let capture = Capture::new("per_step");
        capture.run(|| drop(stream(&[Ok(1)])));
        assert_eq!(capture.tree(), "");
    }

    #[tokio::test]
    async fn a_stream_that_is_off_is_what_it_was() {
        assert_eq!(stream(&[Ok(1)]).size_hint(), chunks(&[Ok(1)]).size_hint());
        assert_eq!(take(std::pin::pin!(stream(&[Ok(1), Ok(2)])), 9).await, 2);
    }
}
