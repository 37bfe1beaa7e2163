//! Into what is a number recorded whose instrument may be older than the telemetry?
//!
//! An instrument exists once for its scope, kind, name and unit, however often it is asked for, and is made
//! once more for each pipeline. That is done when the pipeline begins, or when the instrument is taken, and
//! later only if the two meet: a program may measure while it holds a lock that a callback of its own wants,
//! and the SDK runs callbacks under the lock that it needs to make an instrument.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use opentelemetry::metrics::{
    AsyncInstrument, AsyncInstrumentBuilder, Callback, Counter, Gauge, Histogram, HistogramBuilder,
    InstrumentBuilder, InstrumentProvider, Meter, MeterProvider, ObservableCounter, ObservableGauge,
    ObservableUpDownCounter, SyncInstrument, UpDownCounter,
};
use opentelemetry::{InstrumentationScope, KeyValue};

use super::Bound;
use crate::notice;
use crate::pipeline::{self, Pipeline};

/// A meter of OpenTelemetry's that may be taken at any time, also before the telemetry is on, and so may its
/// instruments: what they measure goes into the telemetry that is on at that moment, within a
/// [`testing::Capture`](crate::testing::Capture) into that, and nowhere while telemetry is off. An instrument
/// may be asked for again and again, it is the same one.
///
/// The callbacks of observable instruments are called for each collection of any telemetry from then on, as
/// long as the process lives; of a test's, if they are made in it. One that panics loses what it has not
/// observed yet, and nothing else.
///
/// `opentelemetry::global::meter` hands out the same from the first [`Telemetry::init_driver`] on. The
/// instruments of what it hands out before, for instance to a `static`, never record anything, whatever is
/// set up later; that is what this is for.
///
/// [`Telemetry::init_driver`]: crate::Telemetry::init_driver
///
/// # Example
/// ```
/// use std::sync::LazyLock;
/// use lens_runtime::opentelemetry::metrics::Counter;
/// use lens_runtime::testing::Capture;
///
/// static EVICTED: LazyLock<Counter<u64>> =
///     LazyLock::new(|| lens_runtime::meter("replay-buffer").u64_counter("evicted").build());
///
/// EVICTED.add(1, &[]); // telemetry is off: goes nowhere
/// let capture = Capture::new("default");
/// capture.run(|| EVICTED.add(2, &[]));
/// assert_eq!(capture.points("evicted")[0].sum, 2.0);
/// ```
pub fn meter(name: &'static str) -> Meter {
    with_scope(InstrumentationScope::builder(name).build())
}

pub(super) fn with_scope(scope: InstrumentationScope) -> Meter {
    Meter::new(Arc::new(LateMeter { scope }))
}

/// Makes every instrument for `pipeline`.
pub(crate) fn follow(pipeline: &Arc<Pipeline>) {
    let all: Vec<_> =
        known(|known| known.synchronous.values().cloned().chain(known.observable.iter().cloned()).collect());
    for instrument in all {
        instrument.follow(pipeline);
    }
}

/// Makes those that were taken during a collection that is over.
pub(crate) fn catch_up() {
    if let Some(pipeline) = pipeline::active().as_ref() {
        follow(pipeline);
    }
}

/// An instrument that each pipeline has to have.
trait Follow: Any + Send + Sync {
    fn follow(&self, pipeline: &Arc<Pipeline>);
}

/// Every instrument that was asked for.
#[derive(Default)]
struct Known {
    synchronous: HashMap<Key, Arc<dyn Follow>>,
    observable: Vec<Arc<dyn Follow>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    scope: InstrumentationScope,
    kind: &'static str,
    /// In lower case, as in the SDK: two names that differ in that alone are one.
    name: String,
    unit: Option<Cow<'static, str>>,
}

/// Runs `look` with the instruments, none of which is made or used under this lock.
fn known<R>(look: impl FnOnce(&mut Known) -> R) -> R {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    look(KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

thread_local! {
    /// Whether this thread runs a callback, and so within the lock that an instrument is made under.
    static COLLECTS: Cell<bool> = const { Cell::new(false) };
}

struct LateMeter {
    scope: InstrumentationScope,
}

impl LateMeter {
    fn synchronous<T: 'static>(
        &self,
        kind: &'static str,
        name: &str,
        unit: Option<Cow<'static, str>>,
        make: impl Fn(&Meter) -> Measure<T> + Send + Sync + 'static,
    ) -> Arc<Synchronous<T>> {
        let scope = self.scope.clone();
        let key = Key { scope: scope.clone(), kind, name: name.to_lowercase(), unit };
        let new = Arc::new(Synchronous { scope, make: Box::new(make), bound: Bound::to_none() });
        let instrument: Arc<dyn Any + Send + Sync> =
            known(|known| Arc::clone(known.synchronous.entry(key).or_insert_with(|| Arc::clone(&new) as _)));
        // A kind measures numbers of one type.
        let instrument = instrument.downcast().unwrap_or(new);
        if let Some(pipeline) = pipeline::active().as_ref() {
            instrument.follow(pipeline);
        }
        instrument
    }

    fn observable(&self, register: impl Fn(&Meter) + Send + Sync + 'static) {
        let observable = Arc::new(Observable {
            scope: self.scope.clone(),
            register: Box::new(register),
            known_to: Mutex::default(),
        });
        known(|known| known.observable.push(Arc::clone(&observable) as _));
        if let Some(captured) = pipeline::captured() {
            observable.follow(&captured.pipeline);
        }
        if let Some(pipeline) = pipeline::active().as_ref() {
            observable.follow(pipeline);
        }
    }
}

/// Where to make an instrument. A program that takes one in a callback has it from the next collection on,
/// instead of waiting for itself.
fn meters(pipeline: &Pipeline) -> Option<&(dyn MeterProvider + Send + Sync)> {
    pipeline.meters.as_deref().filter(|_| !COLLECTS.get())
}

struct Observable {
    scope: InstrumentationScope,
    register: Box<dyn Fn(&Meter) + Send + Sync>,
    /// The pipelines that have its callbacks, and are still there.
    known_to: Mutex<Vec<Weak<Pipeline>>>,
}

impl Observable {
    /// Whether this is the first to ask for `pipeline`, of all threads.
    fn is_first(&self, pipeline: &Arc<Pipeline>) -> bool {
        let mut known_to = self.known_to.lock().unwrap_or_else(PoisonError::into_inner);
        known_to.retain(|known| known.strong_count() > 0);
        let is_first = known_to.iter().all(|known| known.as_ptr() != Arc::as_ptr(pipeline));
        if is_first {
            known_to.push(Arc::downgrade(pipeline));
        }
        is_first
    }
}

impl Follow for Observable {
    fn follow(&self, pipeline: &Arc<Pipeline>) {
        if let Some(meters) = meters(pipeline)
            && self.is_first(pipeline)
        {
            (self.register)(&meters.meter_with_scope(self.scope.clone()));
        }
    }
}

/// Takes a measurement with an instrument of one pipeline.
type Measure<T> = Box<dyn Fn(T, &[KeyValue]) + Send + Sync>;

/// Makes that instrument.
type Make<T> = Box<dyn Fn(&Meter) -> Measure<T> + Send + Sync>;

struct Synchronous<T> {
    scope: InstrumentationScope,
    make: Make<T>,
    bound: Bound<Measure<T>>,
}

impl<T> Synchronous<T> {
    fn make(&self, pipeline: &Pipeline) -> Option<Measure<T>> {
        meters(pipeline).map(|meters| (self.make)(&meters.meter_with_scope(self.scope.clone())))
    }
}

impl<T: 'static> Follow for Synchronous<T> {
    fn follow(&self, pipeline: &Arc<Pipeline>) {
        self.bound.look(Some(pipeline), |pipeline| self.make(pipeline), |_measure| ());
    }
}

impl<T> SyncInstrument<T> for Synchronous<T> {
    fn measure(&self, value: T, attributes: &[KeyValue]) {
        let take = |measure: Option<&Measure<T>>| {
            if let Some(measure) = measure {
                measure(value, attributes);
            }
        };
        match pipeline::captured() {
            // A test's is used a few times, and would live on in `bound`.
            Some(captured) => take(self.make(&captured.pipeline).as_ref()),
            None => self.bound.look(pipeline::active().as_ref(), |pipeline| self.make(pipeline), take),
        }
    }
}

/// A callback that may panic: the SDK would end the thread that collects, or never collect again.
fn guarded<T: 'static>(
    name: Cow<'static, str>,
    callback: Arc<Callback<T>>,
) -> impl Fn(&dyn AsyncInstrument<T>) + Send + Sync + 'static {
    let is_told = AtomicBool::new(false);
    move |instrument| {
        COLLECTS.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| callback(instrument)));
        if outcome.is_err() && !is_told.swap(true, Ordering::Relaxed) {
            notice::warn("metrics", "a callback of an observable instrument panics, others go on", &name);
        }
        COLLECTS.set(false);
    }
}

/// `kind(builder, what it knows beside name and unit) -> instrument, the method that measures`
macro_rules! synchronous {
    ($($kind:ident($builder:ident $($field:ident)*) -> $instrument:ident<$number:ty>, $measure:ident;)*) => {$(
        fn $kind(&self, asked: $builder<'_, $instrument<$number>>) -> $instrument<$number> {
            let $builder { name, unit, $($field,)* .. } = asked;
            $instrument::new(self.synchronous(stringify!($kind), &name.clone(), unit.clone(), move |meter| {
                let mut own = meter.$kind(name.clone());
                own.unit.clone_from(&unit);
                $(own.$field.clone_from(&$field);)*
                let instrument = own.build();
                Box::new(move |value: $number, attributes: &[KeyValue]| instrument.$measure(value, attributes))
            }))
        }
    )*};
}

macro_rules! observable {
    ($($kind:ident -> $instrument:ident<$number:ty>;)*) => {$(
        fn $kind(
            &self,
            asked: AsyncInstrumentBuilder<'_, $instrument<$number>, $number>,
        ) -> $instrument<$number> {
            let AsyncInstrumentBuilder { name, description, unit, callbacks, .. } = asked;
            let callbacks: Vec<_> = callbacks.into_iter().map(Arc::new).collect();
            self.observable(move |meter| {
                let mut own = meter.$kind(name.clone());
                own.description.clone_from(&description);
                own.unit.clone_from(&unit);
                for callback in &callbacks {
                    own = own.with_callback(guarded(name.clone(), Arc::clone(callback)));
                }
                // Holds nothing.
                let _instrument = own.build();
            });
            $instrument::new()
        }
    )*};
}

impl InstrumentProvider for LateMeter {
    synchronous! {
        u64_counter(InstrumentBuilder description) -> Counter<u64>, add;
        f64_counter(InstrumentBuilder description) -> Counter<f64>, add;
        i64_up_down_counter(InstrumentBuilder description) -> UpDownCounter<i64>, add;
        f64_up_down_counter(InstrumentBuilder description) -> UpDownCounter<f64>, add;
        u64_gauge(InstrumentBuilder description) -> Gauge<u64>, record;
        i64_gauge(InstrumentBuilder description) -> Gauge<i64>, record;
        f64_gauge(InstrumentBuilder description) -> Gauge<f64>, record;
        u64_histogram(HistogramBuilder description boundaries) -> Histogram<u64>, record;
        f64_histogram(HistogramBuilder description boundaries) -> Histogram<f64>, record;
    }

    observable! {
        u64_observable_counter -> ObservableCounter<u64>;
        f64_observable_counter -> ObservableCounter<f64>;
        i64_observable_up_down_counter -> ObservableUpDownCounter<i64>;
        f64_observable_up_down_counter -> ObservableUpDownCounter<f64>;
        u64_observable_gauge -> ObservableGauge<u64>;
        i64_observable_gauge -> ObservableGauge<i64>;
        f64_observable_gauge -> ObservableGauge<f64>;
    }
}
