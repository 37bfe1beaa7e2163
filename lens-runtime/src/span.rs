//! What happens when a call is recorded?
//!
//! The way of a call: [`enter`] passes the gate, or leaves; an [`Entry`] is described by the
//! annotation and becomes a [`Call`], which is open until it is dropped; `run` or [`Traced`] runs the
//! body in the span's context; `settle` learns from the result how it went. Whatever ends a call,
//! it ends in one place, [`Open`]'s `drop`, with exactly one outcome.
//!
//! Nothing here knows of configuration, exporters or OTLP.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use futures_core::Stream;
use opentelemetry::trace::{Link, SpanContext, SpanKind, Status, TraceContextExt, Tracer as _};
use opentelemetry::{Context, ContextGuard, KeyValue};
use opentelemetry_sdk::trace::SpanData;
use pin_project_lite::pin_project;

use crate::current::Said;
use crate::group::{Bucket, SpanGroup};
use crate::metrics::ModelCall;
use crate::outcome::{Failure, Outcome};
use crate::pipeline::{self, Pipeline};
use crate::value::{AttributeValue, TokenCounts, TokenUsage};
use crate::{semconv, step};

/// Opens a call, if its group is wanted. `describe` runs only then.
#[inline]
pub fn enter(group: &'static SpanGroup, describe: impl FnOnce(&mut Entry)) -> Call {
    match group.is_off() {
        true => Call(None),
        false => enter_recorded(group, describe),
    }
}

/// Out of line, so that a call that is off pays for none of it with its stack frame.
#[cold]
#[inline(never)]
fn enter_recorded(group: &'static SpanGroup, describe: impl FnOnce(&mut Entry)) -> Call {
    match begin(group) {
        None => Call(None),
        Some(mut entry) => {
            describe(&mut entry);
            open(entry)
        }
    }
}

/// What a call needs that is about to begin; `None` if it is not recorded.
pub(crate) fn begin(group: &'static SpanGroup) -> Option<Entry> {
    let wanted = group.wanted();
    let (pipeline, spans) = pipeline::for_call(group, wanted)?;
    if Context::map_current(Context::is_telemetry_suppressed) {
        return None;
    }
    let spans = spans && pipeline.tracer.is_some();
    Some(Entry {
        pipeline,
        group,
        spans,
        name: "",
        attributes: Vec::new(),
        step: None,
        model_call: None,
        of_span: OfSpan::default(),
    })
}

/// A call about to begin, while the annotation describes it.
pub struct Entry {
    pipeline: Arc<Pipeline>,
    group: &'static SpanGroup,
    spans: bool,
    name: &'static str,
    attributes: Vec<KeyValue>,
    step: Option<u64>,
    model_call: Option<Box<ModelCall>>,
    of_span: OfSpan,
}

/// What an annotation may say of its span and rarely does.
#[derive(Default)]
struct OfSpan {
    kind: Option<SpanKind>,
    counts_as: CountsAs,
    parent: Option<SpanContext>,
    links: Vec<Link>,
}

/// What the time of a span counts as.
#[derive(Clone, Copy, Default)]
enum CountsAs {
    /// What its group says.
    #[default]
    ItsGroup,
    Bucket(Bucket),
    Umbrella,
}

impl Entry {
    /// The span's name.
    pub fn name(&mut self, name: &'static str) {
        self.name = name;
    }

    /// Whether there is a span to hold attributes.
    pub fn has_span(&self) -> bool {
        self.spans
    }

    /// Sets an attribute of the span.
    pub fn attribute(&mut self, key: &'static str, value: &(impl AttributeValue + ?Sized)) {
        self.attributes.extend(value.to_value().map(|value| KeyValue::new(key, value)));
    }

    /// The number of the training step that begins here. A number that is negative is none.
    pub fn step(&mut self, number: impl TryInto<u64>) {
        self.step = number.try_into().ok();
    }

    /// The span's kind.
    pub fn kind(&mut self, kind: SpanKind) {
        self.of_span.kind = Some(kind);
    }

    /// What the span's time counts as, instead of what its group says.
    pub fn bucket(&mut self, bucket: Bucket) {
        self.of_span.counts_as = CountsAs::Bucket(bucket);
    }

    /// The span encloses others, though its group is one of leaves: it has no bucket.
    pub fn umbrella(&mut self) {
        self.of_span.counts_as = CountsAs::Umbrella;
    }

    /// The span's parent, instead of the current one.
    pub fn parent(&mut self, parent: &(impl SpanRef + ?Sized)) {
        self.of_span.parent = parent.span_context();
    }

    /// Spans that this one has to do with.
    pub fn links<I: IntoIterator<Item: SpanRef>>(&mut self, spans: I) {
        let contexts = spans.into_iter().filter_map(|span| span.span_context());
        self.of_span.links.extend(contexts.map(|context| Link::new(context, Vec::new(), 0)));
    }

    /// `gen_ai.request.model`.
    pub fn model(&mut self, model: &(impl AsRef<str> + ?Sized)) {
        self.model_call().model = Some(model.as_ref().to_owned());
    }

    /// `gen_ai.provider.name`.
    pub fn provider(&mut self, provider: &(impl AsRef<str> + ?Sized)) {
        self.model_call().provider = Some(provider.as_ref().to_owned());
    }

    /// `gen_ai.operation.name`.
    pub fn operation(&mut self, operation: &(impl AsRef<str> + ?Sized)) {
        let model_call = self.model_call();
        model_call.operation = Some(operation.as_ref().to_owned());
        model_call.counted = true;
    }

    /// Input tokens, known at entry.
    pub fn input_tokens<Shape>(&mut self, counts: impl TokenCounts<Shape>) {
        let model_call = self.model_call();
        model_call.counted = true;
        counts.append_to(&mut model_call.input);
    }

    /// Output tokens, known at entry.
    pub fn output_tokens<Shape>(&mut self, counts: impl TokenCounts<Shape>) {
        let model_call = self.model_call();
        model_call.counted = true;
        counts.append_to(&mut model_call.output);
    }

    /// Tokens of both sides, known at entry.
    pub fn usage<Shape>(&mut self, usage: impl TokenUsage<Shape>) {
        let model_call = self.model_call();
        model_call.counted = true;
        usage.append_to(&mut model_call.input, &mut model_call.output);
    }

    /// How long each request took, known at entry.
    pub fn latencies(&mut self, latencies: impl IntoIterator<Item = Duration>) {
        let model_call = self.model_call();
        model_call.counted = true;
        model_call.latencies.extend(latencies);
    }

    fn model_call(&mut self) -> &mut ModelCall {
        self.model_call.get_or_insert_default()
    }
}

/// What names a span: its context, or a context in which it is current. Of a context without a span, and
/// of `None`, there is none.
///
/// ```
/// use lens_runtime::opentelemetry::Context;
/// use lens_runtime::{rl_span, testing::Capture};
///
/// #[rl_span(group = Rollout, name = "rollout")]
/// fn rollout() -> Context {
///     Context::current()
/// }
///
/// #[rl_span(group = PolicyUpdate, name = "train", links = rollouts)]
/// fn train(rollouts: &[Context]) {}
///
/// let capture = Capture::new("per_step");
/// capture.run(|| train(&[rollout(), rollout()]));
/// assert_eq!(capture.span("train").links().len(), 2);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a span",
    label = "expected an OpenTelemetry `Context` or `SpanContext`"
)]
pub trait SpanRef {
    /// The span's context, if there is a span.
    fn span_context(&self) -> Option<SpanContext>;
}

impl SpanRef for SpanContext {
    fn span_context(&self) -> Option<SpanContext> {
        self.is_valid().then(|| self.clone())
    }
}

impl SpanRef for Context {
    fn span_context(&self) -> Option<SpanContext> {
        self.span().span_context().span_context()
    }
}

impl<T: SpanRef + ?Sized> SpanRef for &T {
    fn span_context(&self) -> Option<SpanContext> {
        (**self).span_context()
    }
}

impl<T: SpanRef> SpanRef for Option<T> {
    fn span_context(&self) -> Option<SpanContext> {
        self.as_ref().and_then(SpanRef::span_context)
    }
}

/// Begins the call, now.
pub(crate) fn open(entry: Entry) -> Call {
    Call(Some(Box::new(open_at(entry, SystemTime::now()))))
}

/// Records a call that is over.
pub(crate) fn record_interval(entry: Entry, began_at: SystemTime, took: Duration) {
    let mut open = open_at(entry, began_at);
    open.took = Some(took);
    open.settled = Some(Outcome::Ok);
}

/// Starts the span, if there is one, and makes the context in which the body will run.
fn open_at(entry: Entry, began_at: SystemTime) -> Open {
    let Entry { pipeline, group, spans, name, attributes, step, model_call, of_span } = entry;
    let parent = Context::current();
    let began = Instant::now();
    let said = Said::default();
    let mut context = parent.with_value(said.clone());
    if let Some(number) = step {
        context = step::within(&context, number);
    }
    if let Some(bucket) = group.scope() {
        context = context.with_value(BucketScope(bucket));
    }
    if let Some(tracer) = pipeline.tracer.as_ref().filter(|_| spans) {
        let bucket = match of_span.counts_as {
            CountsAs::ItsGroup => bucket(group, &parent),
            CountsAs::Bucket(bucket) => Some(bucket),
            CountsAs::Umbrella => None,
        };
        let own = own_attributes(group, bucket, &context, model_call.as_deref());
        let mut builder =
            tracer.span_builder(name).with_start_time(began_at).with_attributes(merge(own, attributes));
        builder.span_kind = of_span.kind;
        if !of_span.links.is_empty() {
            builder = builder.with_links(of_span.links);
        }
        let span = match of_span.parent {
            Some(elsewhere) => {
                tracer.build_with_context(builder, &context.with_remote_span_context(elsewhere))
            }
            None => tracer.build_with_context(builder, &context),
        };
        context = context.with_span(span);
    }
    Open {
        pipeline,
        group,
        name,
        began,
        began_at,
        took: None,
        context,
        said,
        spans,
        model_call,
        settled: None,
        told: Told::Type,
        running: false,
        is_discarded: false,
    }
}

/// What the time of a span counts as: as its group says, unless a span around it says otherwise.
fn bucket(group: &SpanGroup, parent: &Context) -> Option<Bucket> {
    let scope = parent.get::<BucketScope>().map(|scope| scope.0);
    group.bucket().map(|own| scope.unwrap_or(own))
}

/// The attributes that Lens gives every span.
fn own_attributes(
    group: &SpanGroup,
    bucket: Option<Bucket>,
    around: &Context,
    model_call: Option<&ModelCall>,
) -> impl Iterator<Item = KeyValue> {
    let model_call = model_call.map(|call| {
        [
            (semconv::GEN_AI_OPERATION_NAME, &call.operation),
            (semconv::GEN_AI_PROVIDER_NAME, &call.provider),
            (semconv::GEN_AI_REQUEST_MODEL, &call.model),
        ]
        .map(|(key, text)| text.as_ref().map(|text| KeyValue::new(key, text.clone())))
    });
    [
        Some(KeyValue::new(semconv::GROUP, group.name())),
        bucket.map(|bucket| KeyValue::new(semconv::BUCKET, bucket.as_str())),
        step::of(around).map(|n| KeyValue::new(semconv::ITERATION, i64::try_from(n).unwrap_or(i64::MAX))),
    ]
    .into_iter()
    .flatten()
    .chain(model_call.into_iter().flatten().flatten())
}

/// Ours first, so that a limit cuts the user's; but of two values for one key, the user's.
fn merge(own: impl Iterator<Item = KeyValue>, users: Vec<KeyValue>) -> Vec<KeyValue> {
    let mut merged: Vec<_> = own.filter(|own| users.iter().all(|user| user.key != own.key)).collect();
    merged.extend(users);
    merged
}

/// What leaf spans beneath count as, in the context.
struct BucketScope(Bucket);

/// A call of an annotated function; off, or open until it is dropped.
pub struct Call(Option<Box<Open>>);

impl Call {
    /// A call that is not recorded.
    pub(crate) fn off() -> Self {
        Self(None)
    }

    /// Whether the call is recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether there is a span to hold attributes.
    pub fn has_span(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.spans)
    }

    /// Runs the body with its arguments, within the span.
    #[inline]
    pub fn run<A, R>(&mut self, arguments: A, body: impl FnOnce(A) -> R) -> R {
        let _attached = self.resume();
        body(arguments)
    }

    /// Sets an attribute of the span, from the successful value.
    ///
    /// Here and below the lifetime is named so that the closure may return something that borrows
    /// from the value.
    pub fn attribute<'a, T, V: AttributeValue>(
        &mut self,
        key: &'static str,
        value: &'a T,
        attribute: impl FnOnce(&'a T) -> V,
    ) {
        let Some(open) = &self.0 else { return };
        if let Some(value) = attribute(value).to_value() {
            open.set_attribute(KeyValue::new(key, value));
        }
    }

    /// Input tokens, from the successful value.
    pub fn input_tokens<'a, T, C: TokenCounts<Shape>, Shape>(
        &mut self,
        value: &'a T,
        tokens: impl FnOnce(&'a T) -> C,
    ) {
        if let Some(model_call) = self.counted() {
            tokens(value).append_to(&mut model_call.input);
        }
    }

    /// Output tokens, from the successful value.
    pub fn output_tokens<'a, T, C: TokenCounts<Shape>, Shape>(
        &mut self,
        value: &'a T,
        tokens: impl FnOnce(&'a T) -> C,
    ) {
        if let Some(model_call) = self.counted() {
            tokens(value).append_to(&mut model_call.output);
        }
    }

    /// Tokens of both sides, from the successful value.
    pub fn usage<'a, T, U: TokenUsage<Shape>, Shape>(
        &mut self,
        value: &'a T,
        usage: impl FnOnce(&'a T) -> U,
    ) {
        if let Some(model_call) = self.counted() {
            usage(value).append_to(&mut model_call.input, &mut model_call.output);
        }
    }

    /// How long each request took, from the successful value.
    pub fn latencies<'a, T, I: IntoIterator<Item = Duration>>(
        &mut self,
        value: &'a T,
        latencies: impl FnOnce(&'a T) -> I,
    ) {
        if let Some(model_call) = self.counted() {
            model_call.latencies.extend(latencies(value));
        }
    }

    /// The error is the function's way of answering: it makes no failure of the span.
    pub fn hide_error(&mut self) {
        if let Some(open) = &mut self.0 {
            open.told = Told::Nothing;
        }
    }

    /// The error is told with its text.
    pub fn error_message(&mut self, error: &(impl fmt::Display + ?Sized)) {
        if let Some(open) = &mut self.0 {
            open.told = Told::Text(error.to_string());
        }
    }

    /// The error is told with its text and those of its causes.
    pub fn error_chain(&mut self, error: &(impl Error + 'static)) {
        let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |&error| error.source());
        if let Some(open) = &mut self.0 {
            open.told = Told::Text(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
        }
    }

    /// The body returned; this is how it went.
    pub fn settle(&mut self, failure: Option<Failure>) {
        if let Some(open) = &mut self.0 {
            open.settled = Some(failure.map_or(Outcome::Ok, Outcome::Error));
        }
    }

    /// An item of a stream came; if it is an error, that is how the call went.
    pub fn settle_item(&mut self, failure: Option<Failure>) {
        if failure.is_some() {
            self.settle(failure);
        }
    }

    /// A stream is at its end.
    fn settle_end(&mut self) {
        if self.0.as_ref().is_some_and(|open| open.settled.is_none()) {
            self.settle(None);
        }
    }

    /// The first item of a stream came.
    fn first_item(&mut self) {
        if let Some(open) = &self.0 {
            let seconds = open.began.elapsed().as_secs_f64();
            open.set_attribute(KeyValue::new(semconv::STREAM_TIME_TO_FIRST_ITEM, seconds));
        }
    }

    /// For how many requests each side has tokens.
    fn counts(&self) -> [usize; 2] {
        let call = self.0.as_ref().and_then(|open| open.model_call.as_ref());
        call.map_or([0, 0], |call| [call.input.len(), call.output.len()])
    }

    /// No item will come any more. What was counted of each item since `counted` is one request's.
    fn end_stream(&mut self, items: u64, counted: [usize; 2]) {
        let Some(open) = &mut self.0 else { return };
        open.set_attribute(KeyValue::new(semconv::STREAM_ITEMS, i64::try_from(items).unwrap_or(i64::MAX)));
        if let Some(call) = &mut open.model_call {
            for (side, before) in [&mut call.input, &mut call.output].into_iter().zip(counted) {
                let of_items = side.split_off(before);
                if !of_items.is_empty() {
                    side.push(of_items.iter().fold(0, |sum, count| sum.saturating_add(*count)));
                }
            }
        }
    }

    /// Makes the span current while the body runs on this thread. Until `pause` or `settle`, the
    /// body is running: if the call ends before, a panic ended it.
    #[inline]
    fn resume(&mut self) -> Option<ContextGuard> {
        self.0.as_mut().map(|open| open.resume())
    }

    /// Takes the call back: it is not recorded.
    fn discard(&mut self) {
        if let Some(open) = &mut self.0 {
            open.is_discarded = true;
        }
    }

    /// The body waits.
    fn pause(&mut self) {
        if let Some(open) = &mut self.0 {
            open.running = false;
        }
    }

    fn counted(&mut self) -> Option<&mut ModelCall> {
        let model_call = self.0.as_mut()?.model_call.get_or_insert_default();
        model_call.counted = true;
        Some(model_call)
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            end(open);
        }
    }
}

/// Out of line, as [`enter_recorded`].
#[cold]
#[inline(never)]
fn end(open: Box<Open>) {
    drop(open);
}

/// A call that is recorded and has not ended.
struct Open {
    pipeline: Arc<Pipeline>,
    group: &'static SpanGroup,
    name: &'static str,
    began: Instant,
    began_at: SystemTime,
    /// How long it took, if that is not for the clock to say.
    took: Option<Duration>,
    /// The context of the body.
    context: Context,
    said: Said,
    spans: bool,
    model_call: Option<Box<ModelCall>>,
    settled: Option<Outcome>,
    told: Told,
    running: bool,
    is_discarded: bool,
}

/// What is told of an error.
#[derive(Default)]
enum Told {
    /// Its type.
    #[default]
    Type,
    /// Nothing: the span has not failed.
    Nothing,
    /// Its type and this.
    Text(String),
}

impl Open {
    #[cold]
    #[inline(never)]
    fn resume(&mut self) -> ContextGuard {
        self.running = true;
        self.attach()
    }

    /// Makes the span current, without saying that the body runs.
    fn attach(&self) -> ContextGuard {
        self.context.clone().attach()
    }

    fn set_attribute(&self, attribute: KeyValue) {
        if self.spans {
            self.context.span().set_attribute(attribute);
        }
    }

    /// Takes over the tokens that were counted from within.
    fn hear(&mut self) {
        if let Some(mut said) = self.said.take() {
            let call = self.model_call.get_or_insert_default();
            call.counted = true;
            call.input.append(&mut said.input);
            call.output.append(&mut said.output);
        }
    }

    fn end_span(&self, outcome: Outcome, elapsed: Duration) {
        if !self.spans {
            return;
        }
        let span = self.context.span();
        span.set_attribute(KeyValue::new(semconv::OUTCOME, outcome.as_str()));
        if let Some(error_type) = outcome.error_type()
            && !matches!((outcome, &self.told), (Outcome::Error(_), Told::Nothing))
        {
            span.set_attribute(KeyValue::new(semconv::ERROR_TYPE, error_type));
            span.set_status(match (outcome, &self.told) {
                (Outcome::Panic, _) => Status::error("panic"),
                (_, Told::Text(text)) => Status::error(text.clone()),
                (_, Told::Type | Told::Nothing) => Status::error(""),
            });
        }
        if let Some(model_call) = &self.model_call {
            let sides = [
                (semconv::GEN_AI_USAGE_INPUT_TOKENS, &model_call.input),
                (semconv::GEN_AI_USAGE_OUTPUT_TOKENS, &model_call.output),
            ];
            for (key, counts) in sides.into_iter().filter(|(_, counts)| !counts.is_empty()) {
                let sum = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
                span.set_attribute(KeyValue::new(key, i64::try_from(sum).unwrap_or(i64::MAX)));
            }
        }
        // The wall clock may be set while the call runs; its duration is that of the steady clock.
        span.end_with_timestamp(self.began_at + elapsed);
    }

    fn record_metrics(&self, outcome: Outcome, elapsed: Duration) {
        let Some(instruments) = &self.pipeline.instruments else {
            return;
        };
        let seconds = elapsed.as_secs_f64();
        let attributes = [
            KeyValue::new(semconv::PHASE, self.name),
            KeyValue::new(semconv::GROUP, self.group.name()),
            KeyValue::new(semconv::OUTCOME, outcome.as_str()),
        ];
        instruments.phase_duration.record(seconds, &attributes);
        if let Some(model_call) = self.model_call.as_ref().filter(|call| call.counted) {
            model_call.record(instruments, seconds, outcome.error_type());
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.is_discarded {
            return self.set_attribute(KeyValue::new(semconv::DISCARDED, true));
        }
        let elapsed = self.took.unwrap_or_else(|| self.began.elapsed());
        self.hear();
        let outcome = match (self.settled, self.running) {
            (Some(outcome), _) => outcome,
            (None, true) => Outcome::Panic,
            (None, false) => Outcome::Cancelled,
        };
        self.end_span(outcome, elapsed);
        self.record_metrics(outcome, elapsed);
    }
}

/// Runs the body of an annotated `async fn` within its span.
pub fn traced<F: Future>(call: Call, body: F) -> Traced<F> {
    Traced { call: Some(call), body: Some(body) }
}

pin_project! {
    /// The body of an annotated `async fn`. Its output is the call, to be settled, and the result.
    pub struct Traced<F> {
        // Taken when the body is done.
        call: Option<Call>,
        // Emptied early by a drop before that, while the span is still current.
        #[pin]
        body: Option<F>,
    }

    impl<F> PinnedDrop for Traced<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Some(open) = this.call.as_ref().and_then(|call| call.0.as_ref()) {
                let _attached = open.attach();
                this.body.set(None);
            }
        }
    }
}

impl<F: Future> Future for Traced<F> {
    type Output = (Call, F::Output);

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (Some(call), Some(body)) = (this.call.as_mut(), this.body.as_pin_mut()) else {
            unreachable!("the expansion awaits this future once, so it is not polled when it is done")
        };
        let attached = call.resume();
        let out = body.poll(cx);
        drop(attached);
        if out.is_pending() {
            call.pause();
        }
        let out = ready!(out);
        let call = this.call.take().unwrap_or(Call(None));
        Poll::Ready((call, out))
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
            if let Some(call) = this.traced.project().call.as_mut().filter(|_| !*this.was_polled) {
                call.discard();
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
            if let Some(open) = this.call.0.as_ref() {
                let _attached = open.attach();
                this.stream.set(None);
            }
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

/// Whether a span was taken back.
pub(crate) fn is_discarded(span: &SpanData) -> bool {
    // Set last, where it is set.
    span.attributes.last().is_some_and(|attribute| attribute.key.as_str() == semconv::DISCARDED)
}

/// A value that is never made; only its type is used, to tell the body what to coerce to.
pub fn never<T>() -> T {
    unreachable!("stands behind `if false`")
}
