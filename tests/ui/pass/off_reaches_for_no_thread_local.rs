//! A call that is off, and each poll of it, does without thread-local variables: it runs when they are gone.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use lens_runtime::opentelemetry;
use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "off", attributes(size = 1))]
fn off() {}

#[rl_span(group = Reward, name = "off_async")]
async fn off_async() {
    std::future::ready(()).await;
}

#[rl_span(group = Reward, name = "off_for_long", attributes(size = 1))]
async fn off_for_long(polls: u32) {
    let mut left = polls;
    std::future::poll_fn(|_| {
        left = left.saturating_sub(1);
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[rl_span(group = Reward, name = "off_future")]
fn off_future() -> impl Future<Output = ()> {
    std::future::ready(())
}

#[rl_span(group = Reward, name = "off_guarded")]
#[track_caller]
fn off_guarded() {}

struct AtTheEnd;

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        assert!(std::panic::catch_unwind(opentelemetry::Context::current).is_err(), "it is gone");
        let cx = &mut Context::from_waker(Waker::noop());
        off();
        off_guarded();
        assert!(pin!(off_async()).poll(cx).is_ready());
        assert!(pin!(off_future()).poll(cx).is_ready());
        let mut for_long = pin!(off_for_long(1000));
        let polls = std::iter::repeat_with(|| for_long.as_mut().poll(cx)).position(|poll| poll.is_ready());
        assert_eq!(polls, Some(999));
        // It is dropped halfway.
        assert!(pin!(off_for_long(1000)).poll(cx).is_pending());
    }
}

thread_local! {
    static AT_THE_END: AtTheEnd = const { AtTheEnd };
}

fn main() {
    let thread = std::thread::spawn(|| {
        // The last that is used is the first to go. A panic in a destructor ends the process.
        AT_THE_END.with(|_| ());
        opentelemetry::Context::current();
    });
    thread.join().unwrap();
}
