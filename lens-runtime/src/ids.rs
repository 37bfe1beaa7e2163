//! Which ids do traces and spans get?

use std::cell::RefCell;

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::IdGenerator;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::process;

/// Random ids, on which no seed of the program's has an influence, and which are others in a forked process.
pub(crate) struct Ids {
    random: SmallRng,
    /// For which it was seeded.
    process: u32,
}

impl Ids {
    pub(crate) fn new() -> Self {
        Self { random: SmallRng::from_os_rng(), process: process::generation() }
    }

    #[inline]
    pub(crate) fn span(&mut self) -> SpanId {
        SpanId::from(self.draw())
    }

    #[inline]
    fn trace(&mut self) -> TraceId {
        TraceId::from(u128::from(self.draw()) << 64 | u128::from(self.draw()))
    }

    /// Zero is no id.
    #[inline]
    fn draw(&mut self) -> u64 {
        if self.process != process::generation() {
            *self = Self::new();
        }
        loop {
            let drawn = self.random.random();
            if drawn != 0 {
                return drawn;
            }
        }
    }
}

/// The id of a new trace.
pub(crate) fn trace() -> TraceId {
    of_thread(Ids::trace)
}

/// The id of a new span.
fn span() -> SpanId {
    of_thread(Ids::span)
}

fn of_thread<T>(draw: fn(&mut Ids) -> T) -> T {
    thread_local! {
        static OWN: RefCell<Ids> = RefCell::new(Ids::new());
    }
    // A thread that is ending has none any more.
    OWN.try_with(|own| draw(&mut own.borrow_mut())).unwrap_or_else(|_| draw(&mut Ids::new()))
}

/// The same ids for the SDK.
#[derive(Debug)]
pub(crate) struct IdsOfSdk;

impl IdGenerator for IdsOfSdk {
    fn new_trace_id(&self) -> TraceId {
        trace()
    }

    fn new_span_id(&self) -> SpanId {
        span()
    }
}
