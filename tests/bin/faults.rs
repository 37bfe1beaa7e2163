//! What else does a driver do, to show that it has not a fault that users of other libraries met?

use std::hint::black_box;
use std::time::{Duration, SystemTime};

use lens_runtime::opentelemetry::global;
use lens_runtime::propagation::InContext as _;
use lens_runtime::{Telemetry, groups, record_step, rl_span, scalars, semconv, set, span};
use tokio::task::yield_now;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[rl_span(group = Reward, name = "rl.test.end")]
fn end() {}

/// Does what the scenario is about, if it is one of these.
pub fn record(scenario: &str, telemetry: &Telemetry) -> bool {
    match scenario {
        "lines" => write_lines(telemetry),
        "rounds" => {
            let whole = (1..=250).filter(|round| ends_are_exported(telemetry, *round)).count();
            println!("{whole} of 250 rounds");
        }
        "many" => {
            (0..20_000).for_each(|_| end());
            let before = resident();
            (0..50_000).for_each(|_| end());
            println!("grew by {} KiB", resident().saturating_sub(before));
        }
        "bridge" => {
            // Whatever is said to `tracing` becomes a record, and a span of the global provider.
            let bridge = tracing_opentelemetry::layer().with_tracer(global::tracer("bridge"));
            tracing_subscriber::registry().with(telemetry.log_layer()).with(bridge).init();
            tracing::trace_span!("bridged").in_scope(|| tracing::trace!("within"));
            end();
            for _ in 0..6 {
                assert!(telemetry.flush(super::deadline()));
                let health = telemetry.health();
                println!("made {:?}", [health.traces.made, health.logs.made, health.metrics.made]);
            }
        }
        "shown" => {
            // A program that shows all that anybody says, and all that it knows of its telemetry.
            tracing_subscriber::fmt()
                .with_writer(std::io::stderr)
                .with_max_level(tracing::Level::TRACE)
                .init();
            println!("{telemetry_config:?}\n{telemetry_config:#?}", telemetry_config = telemetry.config());
            println!("{}", telemetry.config().unwrap());
            end();
            telemetry.flush(super::deadline());
        }
        "absurd" => {
            let age = Duration::from_secs(i64::MAX.unsigned_abs());
            for _ in 0..3 {
                let eternity = SystemTime::UNIX_EPOCH + age;
                span(&groups::Reward, "rl.test.age").interval(SystemTime::UNIX_EPOCH, eternity);
                span(&groups::Reward, "rl.test.backwards").interval(eternity, SystemTime::UNIX_EPOCH);
                span(&groups::Reward, "rl.test.tokens").tokens(u64::MAX, [1, u64::MAX]).run(|| {
                    set(semconv::GEN_AI_USAGE_INPUT_TOKENS, 1);
                    set(semconv::GEN_AI_USAGE_INPUT_TOKENS, i64::MAX);
                });
            }
            record_step(1, &[(scalars::ENTROPY, 1.0), (scalars::ENTROPY, 2.0)]);
        }
        _ => return false,
    }
    true
}

/// Calls a great many times what is annotated, in a program that sets nothing up.
pub fn call_without_telemetry() {
    end();
    let before = resident();
    (0..1_000_000).for_each(|number| {
        black_box(number);
        end();
    });
    println!("grew by {} KiB without telemetry", resident().saturating_sub(before));
}

/// The memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Whether a flush has exported all that eight threads ended before it.
fn ends_are_exported(telemetry: &Telemetry, round: u64) -> bool {
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(end)).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    telemetry.flush(super::deadline()) && telemetry.health().traces.exported == 8 * round
}

/// Takes all lines of the `log` crate, and shows none.
struct Silent;

impl log::Log for Silent {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {}

    fn flush(&self) {}
}

/// Says where it is, by both ways.
fn say(place: &str) {
    tracing::info!(target: "by tracing", "{place}");
    log::info!(target: "by log", "{place}");
}

fn write_lines(telemetry: &Telemetry) {
    log::set_boxed_logger(Box::new(telemetry.tee_log(Silent))).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    let subscriber = tracing_subscriber::registry().with(telemetry.log_layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        tokio::spawn(async {
            outer().await;
            say("after");
        })
        .await
        .unwrap();
        say("outside");
    });
}

#[rl_span(group = Rollout, name = "outer")]
async fn outer() {
    yield_now().await;
    say("outer");
    span(&groups::Reward, "inner").run(|| say("inner"));
    inner().await;
    say("outer");
    for task in [tokio::spawn(task("task")), tokio::spawn(task("outer").in_current_context())] {
        task.await.unwrap();
    }
    tokio::spawn(inner()).await.unwrap();
    say("outer");
}

#[rl_span(group = Reward, name = "inner")]
async fn inner() {
    yield_now().await;
    say("inner");
}

async fn task(place: &str) {
    yield_now().await;
    say(place);
}
