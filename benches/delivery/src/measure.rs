//! What does a process take that records spans, and how long does recording hold up its thread?
//!
//! ```text
//! PROGRAM burst  SPANS DEADLINE_MS    makes so many, flat out, and shuts down
//! PROGRAM pauses CALLS DEADLINE_MS    makes calls over two seconds, and shuts down
//! PROGRAM off    CALLS                the same calls, with telemetry off
//! ```
//!
//! Prints one JSON object of numbers. Times are in nanoseconds, memory in KiB.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Children of the one span below a step.
pub const PROMPTS: u64 = 3;
/// Children of each of those.
pub const SAMPLES: u64 = 5;
/// Spans of a step.
const TREE: u64 = 2 + PROMPTS + PROMPTS * SAMPLES;

/// The calls come in so many parts, with a pause behind each: a receiver has to have the time to fail.
const PARTS: u64 = 20;
const BETWEEN: Duration = Duration::from_millis(100);

/// A way to record spans.
pub trait Program: Sized {
    fn start() -> Self;
    /// Makes a step of [`TREE`] spans.
    fn tree(number: u64);
    /// Makes one span.
    fn call(number: u64);
    fn end(self, deadline: Duration) -> Ended;
}

/// What a shutdown said.
#[derive(Default)]
pub struct Ended {
    /// Whether it said that all is well.
    pub is_ok: bool,
    pub made: u64,
    pub became: Vec<(&'static str, u64)>,
}

pub fn run<P: Program>() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments[index].parse::<u64>().expect("a number");
    let mut results: Vec<(&str, u64)> = Vec::new();
    let mut measured = |work: &mut dyn FnMut() -> Vec<(&'static str, u64)>, deadline| {
        results.push(("memory_bare", memory("VmRSS")));
        let program = P::start();
        results.push(("memory_idle", memory("VmRSS")));
        let began = Instant::now();
        results.extend(work());
        results.push(("work", nanos(began.elapsed())));
        let began = Instant::now();
        let ended = program.end(Duration::from_millis(deadline));
        results.push(("shutdown", nanos(began.elapsed())));
        results.extend([("said_ok", u64::from(ended.is_ok)), ("made", ended.made)]);
        results.extend(ended.became);
    };
    match arguments[0].as_str() {
        "burst" => measured(&mut || burst::<P>(number(1)), number(2)),
        "pauses" => measured(&mut || pauses(number(1), P::call), number(2)),
        "off" => results.extend(pauses(number(1), P::call)),
        other => panic!("burst, pauses or off, not {other}"),
    }
    results.extend([("memory_after", memory("VmRSS")), ("memory_peak", memory("VmHWM"))]);
    let fields: Vec<String> = results.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    println!("{{{}}}", fields.join(", "));
}

fn burst<P: Program>(spans: u64) -> Vec<(&'static str, u64)> {
    (0..spans / TREE).for_each(P::tree);
    Vec::new()
}

/// How long calls take: by the clock, and of the thread's own time. What the machine takes from the thread is
/// in the first alone.
fn pauses(calls: u64, call: fn(u64)) -> Vec<(&'static str, u64)> {
    let mut by_clock = Vec::with_capacity(usize::try_from(calls).expect("a number of calls"));
    let mut own = by_clock.clone();
    for part in 0..PARTS {
        for index in 0..calls / PARTS {
            let (began, began_own) = (Instant::now(), thread_time());
            call(part * calls + index);
            own.push(nanos(thread_time().saturating_sub(began_own)));
            by_clock.push(nanos(began.elapsed()));
        }
        std::thread::sleep(BETWEEN);
    }
    by_clock.sort_unstable();
    own.sort_unstable();
    let nearly = |sorted: &[u64]| sorted[sorted.len() * 9_999 / 10_000];
    vec![
        ("clock_median", by_clock[by_clock.len() / 2]),
        ("clock_9999", nearly(&by_clock)),
        ("clock_max", by_clock[by_clock.len() - 1]),
        ("own_9999", nearly(&own)),
        ("own_max", own[own.len() - 1]),
    ]
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("a time")
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("less than centuries")
}

/// A line of the process's status, in KiB.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with(name)).expect("the line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}
