//! What do tracers and instruments record that are older than the telemetry?
//!
//! Scenarios in which the process has telemetry more than once, or takes what records before it has any.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, LazyLock};
use std::thread;

use lens_runtime::opentelemetry::global::{self, BoxedTracer};
use lens_runtime::opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};
use lens_runtime::opentelemetry::trace::Tracer as _;
use lens_runtime::{Environment, Error, Telemetry, TelemetryConfig, record_step, rl_span, scalars};

use crate::deadline;

/// Runs a scenario, if it is one of these.
pub(crate) fn run(scenario: &str, config: &TelemetryConfig) -> Result<bool, Error> {
    match scenario {
        "late" => late(config)?,
        "late_race" => race(config)?,
        "late_panic" => panicking_callbacks(config)?,
        "late_hang" => hanging_callback(config)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn begin(config: &TelemetryConfig, run_id: &str) -> Result<Telemetry, Error> {
    Telemetry::init_driver_in(config.clone(), &Environment::of_pairs([("LENS_RUN_ID", run_id)]))
}

/// A library that takes what it records with when it is made.
struct Library {
    tracer: BoxedTracer,
    meter: Meter,
    requests: Counter<u64>,
    load: Gauge<f64>,
    latency: Histogram<f64>,
}

/// The phase that the program is in, as the libraries' callbacks observe it.
static PHASE: AtomicU64 = AtomicU64::new(0);

impl Library {
    fn new(tracer: BoxedTracer, meter: Meter) -> Self {
        let phase = meter.u64_observable_gauge("library.phase");
        phase.with_callback(|phase| phase.observe(PHASE.load(Ordering::SeqCst), &[])).build();
        Self {
            tracer,
            requests: meter.u64_counter("library.requests").with_unit("{request}").build(),
            load: meter.f64_gauge("library.load").build(),
            latency: meter.f64_histogram("library.latency").with_boundaries(vec![2.5]).build(),
            meter,
        }
    }

    fn work(&self, phase: u32) {
        self.tracer.in_span(format!("library.phase {phase}"), |_| annotated(phase));
        self.requests.add(10_u64.pow(phase), &[]);
        self.load.record(phase.into(), &[]);
        self.latency.record(phase.into(), &[]);
        // One that takes them each time.
        for _ in 0..100 {
            let requests = self.meter.u64_counter("Library.Requests").with_unit("{request}");
            requests.with_description("the same").build().add(0, &[]);
        }
    }
}

#[rl_span(group = Reward, name = "rl.test.annotated", attributes(phase = phase))]
fn annotated(phase: u32) {}

fn late(config: &TelemetryConfig) -> Result<(), Error> {
    static EARLY: LazyLock<Library> =
        LazyLock::new(|| Library::new(lens_runtime::tracer("early"), lens_runtime::meter("early")));

    let work = |phase, others: &[&Library]| {
        PHASE.store(u64::from(phase), Ordering::SeqCst);
        EARLY.work(phase);
        for library in others {
            library.work(phase);
        }
    };
    work(0, &[]);
    let first = begin(config, "first")?;
    let global = Library::new(global::tracer("global"), global::meter("global"));
    work(1, &[&global]);
    println!("{}", first.shutdown(deadline()));
    work(2, &[&global]);
    let off = Library::new(global::tracer("off"), global::meter("off"));
    work(2, &[&off]);
    let second = begin(config, "second")?;
    work(3, &[&global, &off]);
    println!("{}", second.shutdown(deadline()));
    work(4, &[&global, &off]);
    Ok(())
}

const THREADS: usize = 8;

/// Threads record all the time, and mark what they record while the telemetry is surely on or off.
fn race(config: &TelemetryConfig) -> Result<(), Error> {
    const ROUNDS: usize = 5;
    // All threads and the one that begins and ends the telemetry.
    let (together, racing) = (Barrier::new(THREADS + 1), AtomicBool::new(false));
    let race = || {
        together.wait();
        while racing.load(Ordering::SeqCst) {
            record("racing", 1, &lens_runtime::tracer("race"), &lens_runtime::meter("race"));
            record("racing", 1, &global::tracer("race"), &global::meter("race"));
        }
        together.wait();
    };
    let against = |change: &mut dyn FnMut() -> Result<(), Error>| {
        racing.store(true, Ordering::SeqCst);
        together.wait();
        let changed = change();
        racing.store(false, Ordering::SeqCst);
        together.wait();
        changed
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let (tracer, meter) = (lens_runtime::tracer("race"), lens_runtime::meter("race"));
                for _ in 0..ROUNDS {
                    record("off", 100, &tracer, &meter);
                    race();
                    record("on", 100, &tracer, &meter);
                    together.wait();
                    race();
                }
            });
        }
        for round in 0..ROUNDS {
            let mut telemetry = None;
            against(&mut || {
                telemetry = Some(begin(config, &format!("round-{round}"))?);
                Ok(())
            })?;
            // They have recorded what is sure to be on.
            together.wait();
            against(&mut || {
                let _seen_in_the_files = telemetry.take().map(|telemetry| telemetry.shutdown(deadline()));
                Ok(())
            })?;
        }
        Ok(())
    })
}

fn record(name: &'static str, times: u64, tracer: &BoxedTracer, meter: &Meter) {
    let counter = meter.u64_counter(name).build();
    for _ in 0..times {
        tracer.in_span(name, |_| counter.add(1, &[]));
    }
}

/// Callbacks that panic, and one that itself records and takes instruments.
fn panicking_callbacks(config: &TelemetryConfig) -> Result<(), Error> {
    let meter = lens_runtime::meter("library");
    let half = meter.u64_observable_gauge("library.half").with_callback(|half| {
        half.observe(1, &[]);
        panic!("a lock is poisoned");
    });
    half.build();
    let calls = meter.u64_counter("library.calls").build();
    let of_callback = meter.clone();
    let whole = meter.u64_observable_gauge("library.whole").with_callback(move |whole| {
        whole.observe(calls_so_far(), &[]);
        calls.add(1, &[]);
        of_callback.u64_counter("library.taken").build().add(1, &[]);
        record_step(1, &[(scalars::LEARNING_RATE, 0.5)]);
    });
    whole.build();
    let telemetry = begin(config, "r")?;
    for _ in 0..3 {
        println!("flushed: {}", telemetry.flush(deadline()));
    }
    println!("{}", telemetry.shutdown(deadline()));
    Ok(())
}

fn calls_so_far() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    CALLS.fetch_add(1, Ordering::SeqCst)
}

/// A callback that never returns, and what is recorded beside it.
fn hanging_callback(config: &TelemetryConfig) -> Result<(), Error> {
    let meter = lens_runtime::meter("library");
    meter
        .u64_observable_gauge("library.stuck")
        .with_callback(|_| {
            loop {
                thread::park();
            }
        })
        .build();
    let telemetry = begin(config, "r")?;
    annotated(1);
    println!("flushed: {}", telemetry.flush(deadline()));
    println!("{}", telemetry.shutdown(deadline()));
    Ok(())
}
