//! What does an annotation say of a call that is about to begin?

use std::time::{Duration, SystemTime};

use opentelemetry::Context;
use opentelemetry::trace::{Link, SpanContext, SpanKind, TraceContextExt as _};

use super::ended::End;
use super::{Call, Open, Scope, Unsettled, local};
use crate::group::{Bucket, SpanGroup};
use crate::metrics::ModelCall;
use crate::pipeline::{self, For};
use crate::process;
use crate::sampling::{SampleKey, Share};
use crate::step;
use crate::value::AttributeValue;

/// A call about to begin, while the annotation describes it.
pub struct Entry(pub(super) Box<Open>);

/// What the time of a span counts as.
#[derive(Clone, Copy, Default)]
pub(super) enum CountsAs {
    /// What its group says.
    #[default]
    ItsGroup,
    Bucket(Bucket),
    Umbrella,
}

impl Entry {
    /// What a call needs that is about to begin; `None` if it is not recorded after all. Out of line, so that
    /// a call that is off pays for none of it with its stack frame.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin(group: &'static SpanGroup) -> Option<Self> {
        let For { whose, spans, metrics, share } = pipeline::for_call(group, group.wanted())?;
        let mut call = local::call()?;
        call.process = process::generation();
        call.has_span = spans;
        let record = call.record();
        record.facts.group = group;
        record.whose = whose;
        record.wants_span = spans;
        record.wants_metrics = metrics;
        record.share = share;
        Some(Self(call))
    }

    /// Begins the call, now, in a scope whose value is looked at.
    #[cold]
    #[inline(never)]
    pub fn scope(self, name: &'static str) -> Scope {
        self.in_scope(name, Unsettled::Panic)
    }

    /// The same for a call that goes on when the scope ends.
    #[cold]
    #[inline(never)]
    pub fn lasting(self, name: &'static str) -> Scope {
        let Self(mut call) = self;
        let context = call.begin(name);
        call.context.clone_from(&context);
        Scope::new(call, context, Unsettled::Panic)
    }

    /// Begins the call, now, in a scope whose value is not looked at.
    #[cold]
    #[inline(never)]
    pub fn guard(self, name: &'static str) -> Scope {
        let was_panicking = std::thread::panicking();
        self.in_scope(name, Unsettled::PerhapsPanic { was_panicking })
    }

    #[inline]
    fn in_scope(self, name: &'static str, unsettled: Unsettled) -> Scope {
        let Self(mut call) = self;
        let context = call.begin(name);
        Scope::new(call, context, unsettled)
    }

    /// Begins the call, now, without a scope.
    #[cold]
    #[inline(never)]
    pub fn call(self, name: &'static str) -> Call {
        let Self(mut call) = self;
        call.unsettled = Unsettled::Cancelled;
        call.context = call.begin(name);
        Call(call.context.is_some().then_some(call))
    }

    /// Records a call that is over.
    pub(crate) fn interval(mut self, name: &'static str, began_at: SystemTime, took: Duration) {
        let record = self.0.record();
        record.extras().began_at = Some(began_at);
        record.facts.end = End::After(took);
        let mut call = self.call(name);
        if let Some(open) = call.recorded() {
            open.settle(None);
        }
    }

    /// Whether there is a span to hold attributes.
    pub fn has_span(&self) -> bool {
        self.0.has_span
    }

    /// Sets an attribute of the span.
    #[cold]
    #[inline(never)]
    pub fn attribute(&mut self, key: &'static str, value: &(impl AttributeValue + ?Sized)) {
        value.describe(key, &mut self.0.record().attributes);
    }

    /// The number of the training step that begins here. A number that is negative is none.
    pub fn step(&mut self, number: impl TryInto<u64>) {
        self.0.record().begins = number.try_into().ok();
    }

    /// What the call is about, if a share of its group is kept.
    pub fn key(&mut self, key: &(impl SampleKey + ?Sized)) {
        let record = self.0.record();
        if record.share != Share::ALL {
            record.sample_key = Some(Box::new(key.key().to_owned()));
        }
    }

    /// The span's kind.
    pub fn kind(&mut self, kind: SpanKind) {
        self.0.record().extras().kind = Some(kind);
    }

    /// What the span's time counts as, instead of what its group says.
    pub fn bucket(&mut self, bucket: Bucket) {
        self.0.record().counts_as = CountsAs::Bucket(bucket);
    }

    /// The span encloses others, though its group is one of leaves: it has no bucket.
    pub fn umbrella(&mut self) {
        self.0.record().counts_as = CountsAs::Umbrella;
    }

    /// The span's parent, instead of the current one.
    pub fn parent(&mut self, parent: &(impl SpanRef + ?Sized)) {
        let record = self.0.record();
        record.elsewhere = parent.span_context().map(Box::new);
        record.is_within_nothing = parent.is_left_out();
    }

    /// Spans that this one has to do with.
    pub fn links<I: IntoIterator<Item: SpanRef>>(&mut self, spans: I) {
        let contexts = spans.into_iter().filter_map(|span| span.span_context());
        let links = contexts.map(|context| Link::new(context, Vec::new(), 0));
        self.0.record().extras().links.links.extend(links);
    }

    /// The model that is called.
    pub fn model_call(&mut self) -> &mut ModelCall {
        self.0.record().extras().model_call.get_or_insert_default()
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

    /// Whether it was left out, and with it all that is beneath it.
    #[doc(hidden)]
    fn is_left_out(&self) -> bool {
        false
    }
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

    fn is_left_out(&self) -> bool {
        step::is_left_out(self)
    }
}

impl<T: SpanRef + ?Sized> SpanRef for &T {
    fn span_context(&self) -> Option<SpanContext> {
        (**self).span_context()
    }

    fn is_left_out(&self) -> bool {
        (**self).is_left_out()
    }
}

impl<T: SpanRef> SpanRef for Option<T> {
    fn span_context(&self) -> Option<SpanContext> {
        self.as_ref().and_then(SpanRef::span_context)
    }

    fn is_left_out(&self) -> bool {
        self.as_ref().is_some_and(SpanRef::is_left_out)
    }
}
