//! What does an annotation say of a call that is about to begin?

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::{Link, SpanContext, SpanKind, TraceContextExt as _};
use opentelemetry::{Context, KeyValue};

use super::{Call, Open, Scope, Unsettled};
use crate::ambient;
use crate::group::{Bucket, SpanGroup};
use crate::metrics::ModelCall;
use crate::pipeline::{self, Pipeline};
use crate::value::AttributeValue;

/// A call about to begin, while the annotation describes it.
pub struct Entry {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) group: &'static SpanGroup,
    pub(super) spans: bool,
    pub(super) attributes: Vec<KeyValue>,
    pub(super) step: Option<u64>,
    pub(super) model_call: Option<Box<ModelCall>>,
    pub(super) of_span: OfSpan,
}

/// What an annotation may say of its span and rarely does.
#[derive(Default)]
pub(super) struct OfSpan {
    pub(super) kind: Option<SpanKind>,
    pub(super) counts_as: CountsAs,
    pub(super) parent: Option<SpanContext>,
    pub(super) links: Vec<Link>,
}

/// What the time of a span counts as.
#[derive(Clone, Copy, Default)]
pub(super) enum CountsAs {
    /// What its group says.
    #[default]
    ItsGroup,
    Bucket(Bucket),
    Umbrella,
}

#[expect(clippy::boxed_local, reason = "an expansion is smaller that holds no entry but a pointer to it")]
impl Entry {
    /// What a call needs that is about to begin; `None` if it is not recorded after all. Out of line, so that
    /// a call that is off pays for none of it with its stack frame.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin(group: &'static SpanGroup) -> Option<Box<Self>> {
        let wanted = group.wanted();
        let (pipeline, spans) = pipeline::for_call(group, wanted)?;
        // Where the context is gone, the thread is ending.
        if ambient::with(Context::is_telemetry_suppressed) != Some(false) {
            return None;
        }
        let spans = spans && pipeline.tracer.is_some();
        Some(Box::new(Self {
            pipeline,
            group,
            spans,
            attributes: Vec::new(),
            step: None,
            model_call: None,
            of_span: OfSpan::default(),
        }))
    }

    /// Begins the call, now, in a scope whose value is looked at.
    #[cold]
    #[inline(never)]
    pub fn scope(self: Box<Self>, name: &'static str) -> Scope {
        Scope::new((*self).open(name), Unsettled::Panic)
    }

    /// Begins the call, now, in a scope whose value is not looked at.
    #[cold]
    #[inline(never)]
    pub fn guard(self: Box<Self>, name: &'static str) -> Scope {
        let was_panicking = std::thread::panicking();
        Scope::new((*self).open(name), Unsettled::PerhapsPanic { was_panicking })
    }

    /// Begins the call, now, without a scope.
    #[cold]
    #[inline(never)]
    pub fn call(self: Box<Self>, name: &'static str) -> Call {
        Call(Some(Box::new((*self).open(name))))
    }

    fn open(self, name: &'static str) -> Open {
        Open::new(self, name, SystemTime::now())
    }

    /// Whether there is a span to hold attributes.
    pub fn has_span(&self) -> bool {
        self.spans
    }

    /// Sets an attribute of the span.
    #[cold]
    #[inline(never)]
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

    /// The model that is called.
    pub fn model_call(&mut self) -> &mut ModelCall {
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
