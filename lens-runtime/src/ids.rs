//! Which ids do traces and spans get?

use std::cell::RefCell;

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::IdGenerator;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::process;

/// Random ids, on which no seed of the program's has an influence, and which are others in a forked process.
#[derive(Debug)]
pub(crate) struct Ids;

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        TraceId::from(draw(|random| not_zero(|| random.random::<u128>())))
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::from(draw(|random| not_zero(|| random.random::<u64>())))
    }
}

/// Zero is no id.
#[inline]
fn not_zero<T: Default + PartialEq>(mut draw: impl FnMut() -> T) -> T {
    loop {
        let drawn = draw();
        if drawn != T::default() {
            return drawn;
        }
    }
}

/// A generator, and the process for which it was seeded.
struct Source {
    random: SmallRng,
    process: u32,
}

impl Source {
    fn new() -> Self {
        Self { random: SmallRng::from_os_rng(), process: process::generation() }
    }
}

fn draw<T>(draw: fn(&mut SmallRng) -> T) -> T {
    thread_local! {
        static OWN: RefCell<Source> = RefCell::new(Source::new());
    }
    let of_thread = OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        if own.process != process::generation() {
            *own = Source::new();
        }
        draw(&mut own.random)
    });
    // A thread that is ending has none any more.
    of_thread.unwrap_or_else(|_| draw(&mut Source::new().random))
}
