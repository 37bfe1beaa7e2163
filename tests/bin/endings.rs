//! What may end a process, or make two of it.

use std::io::{BufRead as _, Write as _};
use std::sync::OnceLock;
use std::time::Duration;

use lens_runtime::{Telemetry, TelemetryConfig, flush_on_signal, groups, span};
use tokio::signal::unix::{SignalKind, signal};

use super::{deadline, step};

pub(crate) fn run(scenario: &str, telemetry: Telemetry, config: TelemetryConfig) {
    match scenario {
        "open" => within_two(|| println!("{}", telemetry.shutdown(deadline()))),
        "exit" => within_two(|| {
            keep_for_ever(telemetry);
            std::thread::spawn(|| std::process::exit(3)).join().unwrap();
        }),
        "flushed" => {
            step(1);
            println!("flushed: {}", telemetry.flush(deadline()));
            keep_for_ever(telemetry);
            std::process::exit(0);
        }
        "abort" => {
            (1..=1000).for_each(step);
            assert!(telemetry.flush(deadline()));
            (1001..=2000).for_each(step);
            std::process::abort();
        }
        "panic" => {
            step(1);
            panic!("the trainer fell over");
        }
        "returns" => {
            keep_for_ever(telemetry);
            step(1);
        }
        "killed" => within_two(|| {
            keep_for_ever(telemetry);
            wait_for_a_line();
        }),
        "ignores" => {
            step(1);
            wait_for_a_line();
            println!("{}", telemetry.shutdown(deadline()));
        }
        "takes_over" => take_over(telemetry, || {}),
        "takes_over_and_flushes" => {
            let health = telemetry.health();
            assert_eq!(health.metrics.made, 0);
            take_over(telemetry, flush_on_signal);
        }
        "takes_over_first" => {
            telemetry.shutdown(deadline());
            let checkpoint = checkpoint();
            let telemetry = Telemetry::init_driver(config).unwrap();
            step(2);
            checkpoint();
            println!("{}", telemetry.shutdown(deadline()));
        }
        "announced" => within_two(|| {
            step(1);
            assert!(telemetry.flush(deadline()));
            assert!(telemetry.flush(deadline()), "nobody is announced twice");
            std::process::abort();
        }),
        "announced_in_time" => within_two(|| {
            wait_for_a_line();
            std::process::abort();
        }),
        "endless" => loop {
            step(1);
        },
        "fork" => within_two(|| {
            let child = forked(|| {
                assert!(!telemetry.is_on());
                (0..100_000).for_each(step);
                assert!(!telemetry.flush(deadline()) || telemetry.health().traces.made == 0);
            });
            assert_eq!(child, 0);
            step(1);
            println!("{}", telemetry.shutdown(deadline()));
        }),
        "fork_and_exit" => {
            step(1);
            assert_eq!(forked(|| std::process::exit(4)), 4);
            println!("{}", telemetry.shutdown(deadline()));
        }
        "fork_and_begin_again" => within_two(|| {
            let child = forked(|| {
                let telemetry = Telemetry::init_driver(config).unwrap();
                step(2);
                let report = telemetry.shutdown(deadline());
                assert_eq!(report.health.traces.exported, 3, "{report}");
            });
            assert_eq!(child, 0);
            step(1);
            println!("{}", telemetry.shutdown(deadline()));
        }),
        other => panic!("unknown scenario {other}"),
    }
}

/// Two spans in one another, open while `body` runs.
fn within_two(body: impl FnOnce()) {
    span(&groups::Step, "outer").run(|| span(&groups::Rollout, "inner").run(body));
}

/// A handle that is never dropped.
fn keep_for_ever(telemetry: Telemetry) {
    static TELEMETRY: OnceLock<Telemetry> = OnceLock::new();
    TELEMETRY.get_or_init(|| telemetry);
}

/// Says that it is ready, and waits for a word.
fn wait_for_a_line() {
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().lock().lines().next();
}

/// Handles SIGTERM from here on. What is returned waits for it, and writes a checkpoint.
fn checkpoint() -> impl FnOnce() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut terminate = runtime.block_on(async { signal(SignalKind::terminate()) }).unwrap();
    move || {
        println!("ready");
        std::io::stdout().flush().unwrap();
        runtime.block_on(terminate.recv());
        println!("checkpoint");
    }
}

/// A trainer that writes a checkpoint when it is to end, and handles the signal after it has set up telemetry.
fn take_over(telemetry: Telemetry, first: impl FnOnce()) {
    let checkpoint = checkpoint();
    step(1);
    checkpoint();
    first();
    // Metrics leave every minute, or when somebody wants to flush.
    while telemetry.health().metrics.exported == 0 {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    step(2);
    println!("{}", telemetry.shutdown(deadline()));
}

/// Forks; the exit code of the child, which runs `body`.
#[expect(unsafe_code, reason = "a fork is what this is about")]
fn forked(body: impl FnOnce()) -> i32 {
    std::io::stdout().flush().unwrap();
    // SAFETY: this process forks as programs do that were not told better. What is done in the child is what is tested.
    match unsafe { libc::fork() } {
        0 => {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            std::process::exit(i32::from(ended.is_err()));
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` lives as long as the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            libc::WEXITSTATUS(status)
        }
    }
}
