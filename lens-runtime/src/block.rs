//! How is something recorded that is no function of one's own: a block, a closure, a future, an interval
//! that has passed?
//!
//! By a function API with the powers of the annotation. It ends where the annotation's calls end.

use std::time::{Duration, SystemTime};

use futures_core::Stream;
use opentelemetry::trace::SpanKind;

use crate::group::{Bucket, SpanGroup};
use crate::outcome::Failure;
use crate::sampling::SampleKey;
use crate::span::{self, Call, Entry, SpanRef};
use crate::value::{AttributeValue, TokenCounts};

/// Describes a call to be recorded, for what is no function that could be annotated.
///
/// ```
/// use lens_runtime::{groups, span, testing::Capture};
///
/// let capture = Capture::new("per_step");
/// let sum: u32 = capture.run(|| {
///     span(&groups::Reward, "rl.reward.sum").attribute("size", 3).run(|| [1, 2, 3].iter().sum())
/// });
/// assert_eq!(sum, 6);
/// assert_eq!(capture.tree(), "rl.reward.sum (ok)\n");
/// ```
///
/// An error is told by its type, as with `err = status`. Values are evaluated by the caller, also where the group is off; what is dear to compute is said within
/// the call, by [`set`](crate::set), or given to [`attribute_with`](SpanBuilder::attribute_with).
pub fn span(group: &'static SpanGroup, name: &'static str) -> SpanBuilder {
    SpanBuilder { name, entry: span::enter(group) }
}

/// A call that is described and has not begun, see [`span`].
#[must_use = "nothing is recorded before `run`, `traced`, `streamed`, `enter` or `interval`"]
pub struct SpanBuilder {
    name: &'static str,
    /// Nothing where it is not recorded.
    entry: Option<Entry>,
}

impl SpanBuilder {
    /// Sets an attribute of the span.
    pub fn attribute(self, key: &'static str, value: impl AttributeValue) -> Self {
        self.attribute_with(key, || value)
    }

    /// Sets an attribute of the span, whose value is evaluated only if there is one.
    pub fn attribute_with<V: AttributeValue>(self, key: &'static str, value: impl FnOnce() -> V) -> Self {
        self.with(|entry| {
            if entry.has_span() {
                entry.attribute(key, &value());
            }
        })
    }

    /// Input and output tokens, one number or an iterable of one number per request.
    pub fn tokens<Input, Output>(
        self,
        input: impl TokenCounts<Input>,
        output: impl TokenCounts<Output>,
    ) -> Self {
        self.with(|entry| {
            let model_call = entry.model_call();
            model_call.input_tokens(input);
            model_call.output_tokens(output);
        })
    }

    /// `gen_ai.request.model`.
    pub fn model(self, model: impl AsRef<str>) -> Self {
        self.with(|entry| entry.model_call().model(&model))
    }

    /// `gen_ai.provider.name`.
    pub fn provider(self, provider: impl AsRef<str>) -> Self {
        self.with(|entry| entry.model_call().provider(&provider))
    }

    /// `gen_ai.operation.name`.
    pub fn operation(self, operation: impl AsRef<str>) -> Self {
        self.with(|entry| entry.model_call().operation(&operation))
    }

    /// How long each request of the call took, known before it begins, as of an interval that has passed.
    pub fn latencies(self, latencies: impl IntoIterator<Item = Duration>) -> Self {
        self.with(|entry| entry.model_call().latencies(latencies))
    }

    /// The span's kind; `Internal` by default.
    pub fn kind(self, kind: SpanKind) -> Self {
        self.with(|entry| entry.kind(kind))
    }

    /// What the span's time counts as, instead of what its group says.
    pub fn bucket(self, bucket: Bucket) -> Self {
        self.with(|entry| entry.bucket(bucket))
    }

    /// The span encloses others, though its group is one of leaves: its time counts as nothing.
    pub fn umbrella(self) -> Self {
        self.with(Entry::umbrella)
    }

    /// What the call is about, if a share of its group is kept, see [`SampleKey`].
    pub fn key(self, key: impl SampleKey) -> Self {
        self.with(|entry| entry.key(&key))
    }

    /// The span's parent, instead of the current span.
    ///
    /// ```
    /// use lens_runtime::opentelemetry::Context;
    /// use lens_runtime::{groups, span, testing::Capture};
    ///
    /// let capture = Capture::new("per_step");
    /// capture.run(|| {
    ///     let rollout = span(&groups::Rollout, "rollout").run(Context::current);
    ///     span(&groups::Reward, "reward").parent(&rollout).run(|| ());
    /// });
    /// assert_eq!(capture.tree(), "rollout (ok)\n  reward (ok)\n");
    /// ```
    pub fn parent(self, parent: &(impl SpanRef + ?Sized)) -> Self {
        self.with(|entry| entry.parent(parent))
    }

    /// Spans that this one has to do with. OpenTelemetry keeps the first 128 of a span, or as many as
    /// `OTEL_SPAN_LINK_COUNT_LIMIT` says, and counts the others.
    pub fn links<I: IntoIterator<Item: SpanRef>>(self, spans: I) -> Self {
        self.with(|entry| entry.links(spans))
    }

    /// The number of the training step that begins with the call.
    pub fn step(self, number: u64) -> Self {
        self.with(|entry| entry.step(number))
    }

    /// Runs a closure as the call. It ends as `ok`, or as `panic`.
    pub fn run<R>(self, body: impl FnOnce() -> R) -> R {
        self.run_and_ask(body, |_| None)
    }

    /// Runs a closure that may fail as the call.
    ///
    /// # Errors
    /// That of the closure, with which the call ends as `error`.
    ///
    /// ```
    /// use lens_runtime::{groups, span, testing::Capture};
    ///
    /// let capture = Capture::new("per_step");
    /// let parsed = capture.run(|| span(&groups::Reward, "parse").try_run(|| "x".parse::<u32>()));
    /// assert!(parsed.is_err());
    /// assert_eq!(capture.tree(), "parse (error)\n");
    /// ```
    pub fn try_run<T, E>(self, body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.run_and_ask(body, Failure::of)
    }

    /// Makes the call last until the guard is dropped, at the end of a scope. It ends as `ok`, or as
    /// `panic`.
    ///
    /// ```
    /// use lens_runtime::{groups, span, testing::Capture};
    ///
    /// let capture = Capture::new("per_step");
    /// capture.run(|| {
    ///     let _scope = span(&groups::DataProcessing, "rl.data.load").enter();
    ///     // …
    /// });
    /// assert_eq!(capture.tree(), "rl.data.load (ok)\n");
    /// ```
    #[must_use = "the call ends when the guard is dropped"]
    pub fn enter(self) -> Scope {
        Scope { _scope: self.entry.map_or(span::Scope::OFF, |entry| entry.guard(self.name)) }
    }

    /// Runs a future as the call, which begins when it is polled first. It ends as `ok`, as `panic`, or,
    /// if it is dropped before it is done, as `cancelled`.
    ///
    /// ```
    /// use lens_runtime::{groups, span, testing::Capture};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let capture = Capture::new("per_step");
    /// let work = async { span(&groups::Rollout, "rl.rollout").traced(async { 1 }).await };
    /// assert_eq!(capture.run_async(work).await, 1);
    /// assert_eq!(capture.tree(), "rl.rollout (ok)\n");
    /// # }
    /// ```
    pub async fn traced<F: Future>(self, body: F) -> F::Output {
        let mut call = self.call();
        let out = span::traced(&mut call, body).await;
        if let Some(open) = call.recorded() {
            open.settle(None);
        }
        out
    }

    /// Runs a future that may fail as the call.
    ///
    /// # Errors
    /// That of the future, with which the call ends as `error`.
    pub async fn try_traced<T, E, F: Future<Output = Result<T, E>>>(self, body: F) -> Result<T, E> {
        let mut call = self.call();
        let out = span::traced(&mut call, body).await;
        if let Some(open) = call.recorded() {
            open.settle(Failure::of(&out));
        }
        out
    }

    /// Records a stream as the call, which begins now and lasts until the end of the stream, or until it is
    /// dropped: with the number of its items and the time to the first. One that is never polled is nothing.
    /// It ends as `ok`, as `panic`, or as `cancelled`, if it is dropped before its end. What is counted while
    /// it makes its items, with [`record_tokens`](crate::record_tokens), is one request's.
    ///
    /// ```
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    /// use futures_core::Stream;
    /// use lens_runtime::{groups, span, testing::Capture};
    ///
    /// struct Tokens(std::vec::IntoIter<u32>);
    ///
    /// impl Stream for Tokens {
    ///     type Item = u32;
    ///     fn poll_next(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u32>> {
    ///         Poll::Ready(self.0.next())
    ///     }
    /// }
    ///
    /// let capture = Capture::new("per_step");
    /// let tokens = Tokens(vec![7, 8].into_iter());
    /// let mut tokens = pin!(capture.run(|| span(&groups::Generation, "rl.decode").streamed(tokens)));
    /// let cx = &mut Context::from_waker(Waker::noop());
    /// while let Poll::Ready(Some(_)) = tokens.as_mut().poll_next(cx) {}
    /// assert_eq!(capture.tree(), "rl.decode (ok)\n");
    /// ```
    pub fn streamed<S: Stream>(self, stream: S) -> impl Stream<Item = S::Item> + use<S> {
        span::streamed(self.lasting(), stream, |_, _| {})
    }

    /// Records a stream whose items may be errors, with the first of which the call has failed.
    pub fn try_streamed<T, E, S>(self, stream: S) -> impl Stream<Item = Result<T, E>> + use<T, E, S>
    where
        S: Stream<Item = Result<T, E>>,
    {
        span::streamed(self.lasting(), stream, |open, item| open.settle_item(Failure::of(item)))
    }

    /// Records an interval that has passed, such as what another program measured. One that ends before it
    /// begins is recorded with no duration.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use lens_runtime::{groups, span, testing::Capture};
    ///
    /// let capture = Capture::new("setup");
    /// let end = SystemTime::now();
    /// capture.run(|| span(&groups::Setup, "rl.setup.container").interval(end - Duration::from_secs(3), end));
    /// assert_eq!(capture.spans()[0].duration(), Duration::from_secs(3));
    /// ```
    pub fn interval(self, began: SystemTime, ended: SystemTime) {
        if let Some(entry) = self.entry {
            entry.interval(self.name, began, ended.duration_since(began).unwrap_or_default());
        }
    }

    fn with(mut self, describe: impl FnOnce(&mut Entry)) -> Self {
        if let Some(entry) = &mut self.entry {
            describe(entry);
        }
        self
    }

    /// Runs a closure, and asks its value how it went.
    fn run_and_ask<R>(self, body: impl FnOnce() -> R, failure: impl FnOnce(&R) -> Option<Failure>) -> R {
        let mut scope = self.scope();
        let out = body();
        if let Some(open) = scope.recorded() {
            open.settle(failure(&out));
        }
        out
    }

    fn scope(self) -> span::Scope {
        self.entry.map_or(span::Scope::OFF, |entry| entry.scope(self.name))
    }

    fn lasting(self) -> span::Scope {
        self.entry.map_or(span::Scope::OFF, |entry| entry.lasting(self.name))
    }

    fn call(self) -> Call {
        self.entry.map_or(Call::OFF, |entry| entry.call(self.name))
    }
}

/// A call that lasts until this is dropped, see [`SpanBuilder::enter`].
pub struct Scope {
    _scope: span::Scope,
}
