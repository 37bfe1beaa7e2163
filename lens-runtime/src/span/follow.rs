//! How long does a call last that does not end when its function returns?
//!
//! The body of an `async fn`, a future or a stream that a function returned, a guard in a scope: each has
//! its call with it, and ends it where its own work ends, or is dropped.

use std::pin::Pin;
use std::task::{Poll, ready};

use futures_core::Stream;
use opentelemetry::ContextGuard;
use pin_project_lite::pin_project;

use super::Call;

/// Runs the body of an annotated `async fn` within its span.
pub fn traced<F: Future>(call: Call, body: F) -> Traced<F> {
    Traced { call, body: Some(body) }
}

pin_project! {
    /// The body of an annotated `async fn`. Its output is the call, to be settled, and the result.
    pub struct Traced<F> {
        call: Call,
        // Emptied when it is done, or by a drop before that, while the span is still current.
        #[pin]
        body: Option<F>,
    }

    impl<F> PinnedDrop for Traced<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _attached = this.call.attach();
            this.body.set(None);
        }
    }
}

impl<F: Future> Future for Traced<F> {
    type Output = (Call, F::Output);

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else {
            unreachable!("a future is not polled when it is done")
        };
        let attached = this.call.resume();
        let out = body.poll(cx);
        if out.is_pending() {
            this.call.pause();
        }
        let out = ready!(out);
        this.body.set(None);
        drop(attached);
        Poll::Ready((std::mem::replace(this.call, Call::off()), out))
    }
}

/// A future that an annotated function returned, within the call that made it. `settle` looks at its
/// output.
pub fn followed<F: Future, S: FnOnce(&mut Call, &F::Output)>(
    mut call: Call,
    future: F,
    settle: S,
) -> Followed<F, S> {
    call.pause();
    Followed { traced: traced(call, future), settle: Some(settle), was_polled: false }
}

pin_project! {
    /// The future that an annotated function returned.
    pub struct Followed<F, S> {
        #[pin]
        traced: Traced<F>,
        // Taken when the future is done.
        settle: Option<S>,
        was_polled: bool,
    }

    impl<F, S> PinnedDrop for Followed<F, S> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // Nobody asked for its work, as if it were an `async fn`.
            if !*this.was_polled {
                this.traced.project().call.discard();
            }
        }
    }
}

impl<F: Future, S: FnOnce(&mut Call, &F::Output)> Future for Followed<F, S> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        *this.was_polled = true;
        let (mut call, out) = ready!(this.traced.poll(cx));
        if let Some(settle) = this.settle.take() {
            settle(&mut call, &out);
        }
        Poll::Ready(out)
    }
}

/// A stream that an annotated function returned, within the call that made it. `settle` looks at each
/// item.
pub fn streamed<S: Stream, F: FnMut(&mut Call, &S::Item)>(
    mut call: Call,
    stream: S,
    settle: F,
) -> Streamed<S, F> {
    call.pause();
    let counted = call.counts();
    Streamed { call, stream: Some(stream), settle, counted, items: 0, was_polled: false }
}

pin_project! {
    /// The stream that an annotated function returned. Its call lasts until the end of the stream, or until
    /// it is dropped; its consumer's time between two items is in it, its consumer's work is not.
    pub struct Streamed<S, F> {
        call: Call,
        // Emptied at the end, or by a drop before that, while the span is still current.
        #[pin]
        stream: Option<S>,
        settle: F,
        // How many requests had tokens before the first item.
        counted: [usize; 2],
        items: u64,
        was_polled: bool,
    }

    impl<S, F> PinnedDrop for Streamed<S, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let attached = this.call.attach();
            this.stream.set(None);
            drop(attached);
            match *this.was_polled {
                true => this.call.end_stream(*this.items, *this.counted),
                false => this.call.discard(),
            }
        }
    }
}

impl<S: Stream, F: FnMut(&mut Call, &S::Item)> Stream for Streamed<S, F> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        *this.was_polled = true;
        let Some(stream) = this.stream.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let attached = this.call.resume();
        let next = stream.poll_next(cx);
        drop(attached);
        this.call.pause();
        match ready!(next) {
            Some(item) => {
                if *this.items == 0 {
                    this.call.first_item();
                }
                *this.items += 1;
                (this.settle)(this.call, &item);
                Poll::Ready(Some(item))
            }
            None => {
                this.stream.set(None);
                this.call.settle_end();
                this.call.end_stream(*this.items, *this.counted);
                drop(std::mem::replace(this.call, Call::off()));
                Poll::Ready(None)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.as_ref().map_or((0, Some(0)), Stream::size_hint)
    }
}

/// Keeps a call open while the body of a function runs that is not looked at. It ends as "ok", or by a
/// panic.
pub fn guard(mut call: Call) -> Guard {
    let attached = call.resume();
    let was_panicking = call.is_on() && std::thread::panicking();
    Guard { attached, call, was_panicking }
}

/// See [`guard`].
pub struct Guard {
    // Ends before the call does.
    attached: Option<ContextGuard>,
    call: Call,
    /// Whether this is a destructor that runs because of a panic elsewhere.
    was_panicking: bool,
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.call.is_on() {
            if self.was_panicking || !std::thread::panicking() {
                self.call.settle(None);
            }
            drop(self.attached.take());
        }
    }
}
