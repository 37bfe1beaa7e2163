//! How long does a call last that does not end when its function returns?
//!
//! The body of an `async fn`, a future or a stream that a function returned: each is within its call while
//! it is polled and while it is dropped, and ends it when it is done, or is dropped before that.

use std::cell::RefCell;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use opentelemetry::ContextGuard;
use pin_project_lite::pin_project;

use super::{Call, Open, Scope, Unsettled, local};

impl Call {
    /// Makes the span current for a poll of a body. If a panic ends it, then it ends the call on its way through the
    /// function, which is where the span ceases to be current.
    #[cold]
    #[inline(never)]
    fn enter(&mut self) {
        if let Some(open) = &mut self.0
            && let Some(context) = open.context.clone()
        {
            open.unsettled = Unsettled::Panic;
            open.attached = local::attach(context);
        }
    }

    /// The poll is over, and no panic was the end of it.
    #[cold]
    #[inline(never)]
    fn leave(&mut self) {
        if let Some(open) = &mut self.0 {
            open.detach();
            open.unsettled = Unsettled::Cancelled;
        }
    }

    /// Makes the span current for a poll. If the call ends within it, a panic ended it.
    #[inline]
    fn resume(&mut self) -> Polling<'_> {
        Polling(self.0.as_deref_mut().map(Polled::new))
    }

    /// Makes the span current while what the call was about is dropped.
    #[inline]
    fn attach(&self) -> Option<ContextGuard> {
        self.0.as_ref().and_then(|open| open.attach())
    }

    /// Takes the call back: it is not recorded.
    fn discard(&mut self) {
        if let Some(open) = &mut self.0 {
            open.is_discarded = true;
        }
    }
}

/// A poll, during which the call's span is current.
struct Polling<'a>(Option<Polled<'a>>);

struct Polled<'a> {
    _attached: Option<ContextGuard>,
    open: &'a mut Open,
}

impl<'a> Polled<'a> {
    #[cold]
    #[inline(never)]
    fn new(open: &'a mut Open) -> Self {
        open.unsettled = Unsettled::Panic;
        Self { _attached: open.attach(), open }
    }

    #[cold]
    #[inline(never)]
    fn pause(self) {
        self.open.unsettled = Unsettled::Cancelled;
    }
}

impl Polling<'_> {
    /// The poll is over, and no panic was the end of it.
    #[inline]
    fn pause(self) {
        if let Some(polled) = self.0 {
            polled.pause();
        }
    }
}

/// Runs the body of an annotated `async fn` within its span. The call stays with the function, which
/// settles and ends it.
#[inline]
pub fn traced<F: Future>(call: &mut Call, body: F) -> Traced<'_, F> {
    let is_on = call.0.is_some();
    Traced { call: Borrowed { call, attach_to_drop: is_on }, body, detach: Detach(is_on) }
}

pin_project! {
    /// The body of an annotated `async fn`.
    ///
    /// A body that is dropped before it is done must find its span current. What is needed for that is no
    /// method of this type, of which every annotated function would have its own, but the drop of the fields
    /// around the body: fields are dropped in the order in which they stand here.
    #[must_use = "futures do nothing unless polled"]
    pub struct Traced<'a, F> {
        call: Borrowed<'a>,
        #[pin]
        body: F,
        detach: Detach,
    }
}

/// The call, borrowed; and what is done before the body is dropped.
struct Borrowed<'a> {
    call: &'a mut Call,
    attach_to_drop: bool,
}

/// What is done after the body was dropped.
struct Detach(bool);

thread_local! {
    /// The contexts of the bodies that are being dropped on this thread, innermost last.
    static DROPPING: RefCell<Vec<Option<ContextGuard>>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Borrowed<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.attach_to_drop {
            begin_to_drop(self.call);
        }
    }
}

impl Drop for Detach {
    #[inline]
    fn drop(&mut self) {
        if self.0 {
            end_of_drop();
        }
    }
}

#[cold]
#[inline(never)]
fn begin_to_drop(call: &Call) {
    let attached = call.attach();
    let _thread_is_ending = DROPPING.try_with(|dropping| dropping.borrow_mut().push(attached));
}

#[cold]
#[inline(never)]
fn end_of_drop() {
    let attached = DROPPING.try_with(|dropping| dropping.borrow_mut().pop());
    drop(attached);
}

/// Like the call itself, it is only looked at again to be ended, after a panic.
impl UnwindSafe for Borrowed<'_> {}
impl RefUnwindSafe for Borrowed<'_> {}

impl<F: Future> Future for Traced<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let is_on = this.detach.0;
        if is_on {
            this.call.call.enter();
        }
        let out = this.body.poll(cx);
        if is_on {
            this.call.call.leave();
            if out.is_ready() {
                (this.call.attach_to_drop, this.detach.0) = (false, false);
            }
        }
        out
    }
}

/// A future that an annotated function returned, within the call that made it. `settle` looks at its
/// output.
pub fn followed<F: Future, S: FnOnce(&mut Open, &F::Output)>(
    scope: Scope,
    future: F,
    settle: S,
) -> Followed<F, S> {
    Followed { call: scope.leave(), future: Some(future), settle: Some(settle), was_polled: false }
}

pin_project! {
    /// The future that an annotated function returned.
    #[must_use = "futures do nothing unless polled"]
    pub struct Followed<F, S> {
        call: Call,
        // Emptied when it is done, or by a drop before that, while the span is still current.
        #[pin]
        future: Option<F>,
        // Taken when the future is done.
        settle: Option<S>,
        was_polled: bool,
    }

    impl<F, S> PinnedDrop for Followed<F, S> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // Nobody asked for its work, as if it were an `async fn`.
            if !*this.was_polled {
                this.call.discard();
            }
            let _attached = this.call.attach();
            this.future.set(None);
        }
    }
}

impl<F: Future, S: FnOnce(&mut Open, &F::Output)> Future for Followed<F, S> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            panic!("`async fn` resumed after completion")
        };
        *this.was_polled = true;
        let polling = this.call.resume();
        let polled = future.poll(cx);
        if polled.is_ready() {
            this.future.set(None);
        }
        polling.pause();
        let out = ready!(polled);
        if let (Some(open), Some(settle)) = (this.call.recorded(), this.settle.take()) {
            settle(open, &out);
        }
        *this.call = Call::OFF;
        Poll::Ready(out)
    }
}

/// A stream that an annotated function returned, within the call that made it. `settle` looks at each
/// item.
pub fn streamed<S: Stream, F: FnMut(&mut Open, &S::Item)>(
    scope: Scope,
    stream: S,
    settle: F,
) -> Streamed<S, F> {
    let mut call = scope.leave();
    let counted = call.recorded().map_or([0, 0], |open| open.counts());
    Streamed { call, stream: Some(stream), settle, counted, items: 0, was_polled: false }
}

pin_project! {
    /// The stream that an annotated function returned. Its call lasts until the end of the stream, or until
    /// it is dropped; its consumer's time between two items is in it, its consumer's work is not.
    #[must_use = "streams do nothing unless polled"]
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
            match this.call.recorded() {
                Some(open) if *this.was_polled => open.end_stream(*this.items, *this.counted),
                _ => this.call.discard(),
            }
        }
    }
}

impl<S: Stream, F: FnMut(&mut Open, &S::Item)> Stream for Streamed<S, F> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        *this.was_polled = true;
        let Some(stream) = this.stream.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let polling = this.call.resume();
        let polled = stream.poll_next(cx);
        if matches!(polled, Poll::Ready(None)) {
            this.stream.set(None);
        }
        polling.pause();
        let next = ready!(polled);
        if let Some(open) = this.call.recorded() {
            match &next {
                Some(item) => {
                    if *this.items == 0 {
                        open.first_item();
                    }
                    *this.items += 1;
                    (this.settle)(open, item);
                }
                None => {
                    open.settle_end();
                    open.end_stream(*this.items, *this.counted);
                    *this.call = Call::OFF;
                }
            }
        }
        Poll::Ready(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.as_ref().map_or((0, Some(0)), Stream::size_hint)
    }
}
