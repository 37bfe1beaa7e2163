//! How does a trace cross a border: to another thread, another task, another process?
//!
//! A [`Context`] says in which span something happens and which baggage travels with it, the number
//! of the training step among it. It is written into a *carrier*, such as the headers of a request,
//! in the formats of the W3C (`traceparent`, `tracestate`, `baggage`), and read from one.
//!
//! ```
//! use std::collections::HashMap;
//! use lens_runtime::propagation::{extract, inject, InContext as _};
//!
//! # async fn score() {}
//! # async fn send(_: HashMap<String, String>) {}
//! // Here:
//! let mut headers = HashMap::new();
//! inject(&mut headers);
//!
//! // There:
//! let context = extract(&headers);
//! let _attached = context.clone().attach();      // for the rest of the scope
//! let task = score().in_context(context);        // for a future, wherever it runs
//! # drop(task);
//! ```
//!
//! Headers of requests are [`http::HeaderMap`]s, with any client or server. So is the metadata of gRPC:
//! `inject(request.metadata_mut().as_mut())`, `extract(request.metadata().as_ref())`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::Poll;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapCompositePropagator, TextMapPropagator as _};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use pin_project_lite::pin_project;

use crate::ambient;
use crate::step::StepPropagator;

/// W3C trace context and baggage.
static W3C: LazyLock<TextMapCompositePropagator> = LazyLock::new(propagator);

/// What its propagators read.
const FIELDS: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// A propagator for these formats, for others' libraries.
pub(crate) fn propagator() -> TextMapCompositePropagator {
    TextMapCompositePropagator::new(vec![
        Box::new(TraceContextPropagator::new()),
        Box::new(BaggagePropagator::new()),
        // After the baggage, in which it looks.
        Box::new(StepPropagator),
    ])
}

/// What a context can be written into and read from.
///
/// ```
/// use std::borrow::Cow;
/// use lens_runtime::propagation::{Carrier, inject};
///
/// /// The properties of a message in a queue.
/// struct Properties(Vec<(String, String)>);
///
/// impl Carrier for Properties {
///     fn set(&mut self, key: &str, value: String) {
///         self.0.push((key.to_owned(), value));
///     }
///
///     fn get(&self, key: &str) -> Option<Cow<'_, str>> {
///         self.0.iter().find(|(own, _)| own == key).map(|(_, value)| value.into())
///     }
/// }
///
/// inject(&mut Properties(Vec::new()));
/// ```
pub trait Carrier {
    /// Sets the value of a key, in lower case and of ASCII, in place of one that stands there.
    fn set(&mut self, key: &str, value: String);

    /// The value of a key, in whatever case it was written. Several values are one, with commas between.
    fn get(&self, key: &str) -> Option<Cow<'_, str>>;
}

impl<S: BuildHasher> Carrier for HashMap<String, String, S> {
    fn set(&mut self, key: &str, value: String) {
        self.insert(key.to_owned(), value);
    }

    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        any_case(self, key).map(Cow::from)
    }
}

impl Carrier for BTreeMap<String, String> {
    fn set(&mut self, key: &str, value: String) {
        self.insert(key.to_owned(), value);
    }

    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        any_case(self, key).map(Cow::from)
    }
}

fn any_case<'a>(map: impl IntoIterator<Item = (&'a String, &'a String)>, key: &str) -> Option<&'a String> {
    map.into_iter().find(|(own, _)| own.eq_ignore_ascii_case(key)).map(|(_, value)| value)
}

impl Carrier for HeaderMap {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(key), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.insert(key, value);
        }
    }

    fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        let mut values = self.get_all(key).iter().filter_map(|value| value.to_str().ok());
        let first = values.next()?;
        let rest: Vec<_> = values.collect();
        match rest.is_empty() {
            true => Some(first.into()),
            false => Some(format!("{first},{}", rest.join(",")).into()),
        }
    }
}

/// Writes the current context into a carrier. Outside of any span, and without baggage, nothing is
/// written.
///
/// ```
/// use lens_runtime::{propagation, rl_span, testing::Capture};
///
/// #[rl_span(group = Reward, name = "rl.reward.call")]
/// fn call(headers: &mut http::HeaderMap) {
///     propagation::inject(headers);
/// }
///
/// let capture = Capture::new("reward");
/// let mut headers = http::HeaderMap::new();
/// capture.run(|| call(&mut headers));
/// assert!(headers["traceparent"].to_str().unwrap().contains(&capture.spans()[0].id().to_string()));
/// ```
pub fn inject(carrier: &mut impl Carrier) {
    struct Into<'a, C>(&'a mut C);

    impl<C: Carrier> Injector for Into<'_, C> {
        fn set(&mut self, key: &str, value: String) {
            // The propagators write what is empty too.
            if !value.is_empty() {
                self.0.set(key, value);
            }
        }
    }

    W3C.inject_context(&ambient::current(), &mut Into(carrier));
}

/// The current context, with the span and the baggage that a carrier tells. What begins in it is a child
/// of that span, and is recorded if that span is. A carrier without, or with something that is none,
/// changes nothing.
///
/// ```
/// use std::collections::HashMap;
/// use lens_runtime::{propagation, rl_span, testing::Capture};
///
/// #[rl_span(group = Reward, name = "rl.reward.serve")]
/// fn serve() {}
///
/// let headers = HashMap::from([(
///     "traceparent".to_owned(),
///     "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
/// )]);
/// let capture = Capture::new("reward");
/// capture.run(|| {
///     let _attached = propagation::extract(&headers).attach();
///     serve();
/// });
/// assert_eq!(capture.spans()[0].parent_id().to_string(), "b7ad6b7169203331");
/// ```
pub fn extract(carrier: &impl Carrier) -> Context {
    struct Read(Vec<(&'static str, String)>);

    impl Extractor for Read {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.iter().find(|(own, _)| *own == key).map(|(_, value)| value.as_str())
        }

        fn keys(&self) -> Vec<&str> {
            self.0.iter().map(|(key, _)| *key).collect()
        }
    }

    let values = FIELDS.into_iter().filter_map(|key| carrier.get(key).map(|value| (key, value.into_owned())));
    let read = Read(values.collect());
    W3C.extract_with_context(&ambient::current(), &read)
}

/// Takes the current context along into a closure: for a thread, a pool, a callback.
///
/// ```
/// use lens_runtime::{propagation::in_current_context, rl_span, testing::Capture};
///
/// #[rl_span(group = Rollout, name = "outer")]
/// fn outer() {
///     std::thread::spawn(in_current_context(inner)).join().unwrap();
/// }
///
/// #[rl_span(group = Reward, name = "inner")]
/// fn inner() {}
///
/// let capture = Capture::new("per_step");
/// capture.run(outer);
/// assert_eq!(capture.tree(), "outer (ok)\n  inner (ok)\n");
/// ```
pub fn in_current_context<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let context = ambient::current();
    move || {
        let _attached = ambient::attach(context);
        work()
    }
}

/// Runs futures in a context, on whatever thread they are polled.
pub trait InContext: Future + Sized {
    /// In this context, also while it is dropped.
    fn in_context(self, context: Context) -> WithContext<Self> {
        WithContext { context, work: Some(self) }
    }

    /// In the context that is current now.
    ///
    /// ```
    /// use lens_runtime::propagation::InContext as _;
    /// # async fn score() {}
    /// # async fn spawn() {
    /// tokio::spawn(score().in_current_context());
    /// # }
    /// ```
    fn in_current_context(self) -> WithContext<Self> {
        self.in_context(ambient::current())
    }
}

impl<F: Future> InContext for F {}

pin_project! {
    /// A future in a context, see [`InContext`].
    #[must_use = "futures do nothing unless they are polled"]
    pub struct WithContext<F> {
        context: Context,
        // Emptied by a drop, while the context is current.
        #[pin]
        work: Option<F>,
    }

    impl<F> PinnedDrop for WithContext<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _attached = ambient::attach(this.context.clone());
            this.work.set(None);
        }
    }
}

impl<F: Future> Future for WithContext<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _attached = ambient::attach(this.context.clone());
        match this.work.as_pin_mut() {
            Some(work) => work.poll(cx),
            None => unreachable!("the future is there until it is dropped"),
        }
    }
}
