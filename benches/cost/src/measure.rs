//! What does a call cost the thread that makes it?
//!
//! ```text
//! PROGRAM list           the cases, each with how many calls are counted, its units, and its threads
//! PROGRAM time CASE      nanoseconds of a unit, by the clock and of the thread's own, the medians of many chunks
//! PROGRAM count CASE     for callgrind: `measured` with so many calls and with twice as many, in turns
//! PROGRAM verify CASE    fails unless what the case records is what it says
//! ```
//!
//! The calls come in chunks. Behind each of them everything that was recorded is let go, on nobody's clock, so that
//! none of the programs meets a queue that is full.

#![allow(dead_code, reason = "no program has a case of every kind")]

use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::found::{self, Found, Kept, Shape};

/// One thing that is measured.
pub struct Case {
    kind: Kind,
    /// Whose, and how: `lens_unset.a3`.
    variant: &'static str,
    /// Gets ready what the calls need.
    set_up: fn(Kept) -> Box<dyn Recorder>,
    /// Makes so many calls.
    calls: fn(u64),
    /// How many measurements a call records.
    measurements: u64,
}

/// A case that records no measurements. With three attributes, the name of its variant ends in `.a3`.
pub const fn case(
    kind: Kind,
    variant: &'static str,
    set_up: fn(Kept) -> Box<dyn Recorder>,
    calls: fn(u64),
) -> Case {
    Case { kind, variant, set_up, calls, measurements: 0 }
}

/// What is measured, and how much of it at once.
#[derive(Clone, Copy)]
pub struct Kind {
    name: &'static str,
    /// The calls of a chunk.
    chunk: u64,
    /// The chunks that are timed.
    chunks: usize,
    /// The calls of a chunk that is counted: fewer, since each takes far longer under callgrind.
    counted: u64,
    /// What a figure is given for: a call holds so many of it.
    units: u64,
    /// How many threads make the calls at once, each as many as a chunk has.
    threads: u64,
    records: Records,
}

/// The spans that a call records.
#[derive(Clone, Copy)]
enum Records {
    Nothing,
    Call,
    Tree,
}

/// A function of one parameter that is off.
pub const OFF_SYNC: Kind = Kind {
    name: "off_sync",
    chunk: 100_000,
    chunks: 101,
    counted: 1_000,
    units: 1,
    threads: 1,
    records: Records::Nothing,
};
/// A function of three parameters that is off.
pub const OFF_WIDE: Kind = Kind { name: "off_wide", ..OFF_SYNC };
/// An `async fn` that is off.
pub const OFF_ASYNC: Kind = Kind { name: "off_async", chunk: 10_000, ..OFF_SYNC };
/// A tree of functions; figures are for one span.
pub const ON_TREE: Kind =
    Kind { name: "on_tree", chunk: 25, counted: 25, units: found::SPANS, records: Records::Tree, ..OFF_SYNC };
/// An `async fn`.
pub const ON_ASYNC: Kind =
    Kind { name: "on_async", chunk: 500, counted: 500, records: Records::Call, ..OFF_SYNC };
/// A measurement.
pub const RECORD: Kind = Kind { name: "record", chunk: 10_000, counted: 500, ..OFF_SYNC };
/// A call that holds many requests; figures are for one of them.
pub const REQUESTS: Kind = Kind { name: "requests", chunk: 1, counted: 1, units: MANY, ..OFF_SYNC };
/// The tree on many threads, each with enough to do that it does not matter which of them began first.
pub const THREADS: Kind = Kind { name: "threads", chunk: 200, chunks: 25, threads: 8, ..ON_TREE };

/// Requests of one call.
pub const MANY: u64 = 10_000;

impl Case {
    /// The same, with so many measurements of each call.
    pub const fn measuring(self, measurements: u64) -> Self {
        Self { measurements, ..self }
    }

    fn name(&self) -> String {
        format!("{}.{}", self.kind.name, self.variant)
    }

    /// The trace that a call makes, if it makes one.
    fn trace(&self) -> Option<Shape> {
        let has_attributes = self.variant.rsplit('.').next() == Some("a3");
        match self.kind.records {
            _ if self.variant == BARE => None,
            Records::Nothing => None,
            Records::Call => Some(found::call(has_attributes)),
            Records::Tree => Some(found::tree(has_attributes)),
        }
    }
}

/// The variant without instrumentation.
pub const BARE: &str = "bare";

/// What takes up what the calls record.
pub trait Recorder {
    /// Waits until nothing is left to do with what was recorded so far.
    fn let_go(&self);
}

/// Nobody does: nothing is set up.
pub fn nobody(_kept: Kept) -> Box<dyn Recorder> {
    struct Nobody;
    impl Recorder for Nobody {
        fn let_go(&self) {}
    }
    Box::new(Nobody)
}

/// How often a chunk and one of twice its calls are counted.
const COUNTS: usize = 7;
/// Chunks before it is timed: caches, call sites, buffers that grow.
const WARM_UP: usize = 5;
/// Calls that are verified.
const VERIFIED: u64 = 7;

pub fn main(cases: &[&[Case]]) -> ExitCode {
    let cases: Vec<&Case> = cases.iter().copied().flatten().collect();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if arguments[..] == ["list"] {
        for case in &cases {
            println!("{} {} {} {}", case.name(), case.kind.counted, case.kind.units, case.kind.threads);
        }
        return ExitCode::SUCCESS;
    }
    let [mode, name] = arguments[..] else {
        return fail("expected list, or time, count or verify with the name of a case", &arguments);
    };
    let Some(case) = cases.iter().find(|case| case.name() == name) else {
        return fail("expected the name of a case, as list has them", &arguments);
    };
    let done = match mode {
        "time" => time(case).map(|(by_clock, own)| println!("{by_clock} {own}")),
        "count" => count(case),
        "verify" => verify(case),
        _ => Err("expected time, count or verify".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaint) => fail(&complaint, &arguments),
    }
}

fn fail(complaint: &str, arguments: &[&str]) -> ExitCode {
    eprintln!("{}: {complaint}", arguments.join(" "));
    ExitCode::FAILURE
}

/// Makes calls that are measured, by a name that callgrind is told.
#[inline(never)]
fn measured(calls: fn(u64), number: u64) {
    std::hint::black_box(calls)(number);
    // So that the call is not the last thing that happens here, which would make a jump of it.
    std::hint::black_box(());
}

/// Nanoseconds of a unit: by the clock, and of the threads' own time.
fn time(case: &Case) -> Result<(f64, f64), String> {
    let Kind { chunk, chunks, units, threads, .. } = case.kind;
    let units = (chunk * threads * units) as f64;
    let (mut by_clock, mut own) = (Vec::new(), Vec::new());
    let kept = Kept::default();
    let recorder = (case.set_up)(kept.clone());
    for _ in 0..WARM_UP + chunks {
        let (passed, used) = match threads {
            1 => one_chunk(case),
            _ => chunk_in_threads(case),
        };
        recorder.let_go();
        by_clock.push(passed.as_nanos() as f64 / units);
        own.push(used.as_nanos() as f64 / units);
    }
    all_arrived(case, (WARM_UP + chunks) as u64 * chunk * threads, &kept)?;
    Ok((median(by_clock.split_off(WARM_UP)), median(own.split_off(WARM_UP))))
}

fn one_chunk(case: &Case) -> (Duration, Duration) {
    let (began, began_own) = (Instant::now(), thread_time());
    measured(case.calls, case.kind.chunk);
    let passed = began.elapsed();
    (passed, thread_time().saturating_sub(began_own))
}

/// From when the first thread began until the last one was done; and what they used, all together.
fn chunk_in_threads(case: &Case) -> (Duration, Duration) {
    let barrier = Barrier::new(usize::try_from(case.kind.threads).expect("few threads"));
    let found: Vec<(Instant, Instant, Duration)> = std::thread::scope(|scope| {
        let work = || {
            barrier.wait();
            let (began, began_own) = (Instant::now(), thread_time());
            measured(case.calls, case.kind.chunk);
            (began, Instant::now(), thread_time().saturating_sub(began_own))
        };
        let threads: Vec<_> = (0..case.kind.threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread without a panic")).collect()
    });
    let first = found.iter().map(|(began, ..)| *began).min().expect("a thread");
    let last = found.iter().map(|(_, ended, _)| *ended).max().expect("a thread");
    (last - first, found.iter().map(|(.., own)| *own).sum())
}

/// The difference between the two is what so many calls cost, without what costs the first of a chunk more, and
/// without what callgrind counts of what stands between chunks. The first two are there to warm up.
fn count(case: &Case) -> Result<(), String> {
    let kept = Kept::default();
    let recorder = (case.set_up)(kept.clone());
    let mut made = 0;
    for _ in 0..=COUNTS {
        for calls in [case.kind.counted, 2 * case.kind.counted] {
            measured(case.calls, calls);
            recorder.let_go();
            made += calls;
        }
    }
    all_arrived(case, made, &kept)
}

/// What is dropped costs less.
fn all_arrived(case: &Case, calls: u64, kept: &Kept) -> Result<(), String> {
    let expected = case.trace().map_or(0, |trace| trace.spans() * calls);
    match kept.spans() == expected {
        true => Ok(()),
        false => Err(format!("expected {expected} spans to arrive, got {}", kept.spans())),
    }
}

fn verify(case: &Case) -> Result<(), String> {
    let kept = Kept::all();
    let recorder = (case.set_up)(kept.clone());
    (case.calls)(VERIFIED);
    recorder.let_go();
    let Found { spans, measurements } = kept.take();
    let (traces, expected) = (found::traces(&spans)?, case.trace());
    if traces.len() as u64 != expected.as_ref().map_or(0, |_| VERIFIED)
        || traces.iter().any(|trace| Some(trace) != expected.as_ref())
    {
        return Err(format!("expected {expected:?} for each of {VERIFIED} calls, got {traces:?}"));
    }
    let expected = case.measurements * VERIFIED;
    match measurements == expected {
        true => Ok(()),
        false => Err(format!("expected {expected} measurements, got {measurements}")),
    }
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("a time")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
