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
