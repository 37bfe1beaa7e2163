//! A driver as small as can be, for tests of what belongs to a whole process.
//!
//! `driver SCENARIO CONFIG [overrides]`

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use tracing_subscriber::layer::SubscriberExt as _;

use lens_runtime::{Error, Overrides, Telemetry, TelemetryConfig, record_step, rl_span, scalars, semconv};

const DEADLINE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().collect();
    match drive(&mut arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn drive(arguments: &mut Vec<String>) -> Result<(), Error> {
    let overrides = Overrides::take_from(arguments)?;
    let [_, scenario, config] = arguments.as_slice() else { panic!("driver SCENARIO CONFIG [overrides]") };
    let config = TelemetryConfig::from_file(config)?.with_overrides(&overrides)?;
    let telemetry = Telemetry::init_driver(config.clone())?;
    match scenario.as_str() {
        "train" => (1..=3).for_each(step),
        "log" => {
            let subscriber = tracing_subscriber::registry().with(telemetry.log_layer());
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(target: "trainer", epochs = 3, "begins");
                step(1);
            });
        }
        "twice" => {
            let second = Telemetry::init_driver(config);
            println!("{:?}", second.err().map(|error| (error.is_already_initialized(), error.to_string())));
        }
        "again" => {
            step(1);
            assert!(telemetry.is_on());
            let _first = telemetry.shutdown(DEADLINE);
            step(2);
            let telemetry = Telemetry::init_driver(config)?;
            step(3);
            println!("{}", telemetry.shutdown(DEADLINE));
            return Ok(());
        }
        "switch" => {
            step(1);
            telemetry.set_span_groups("generation")?;
            step(2);
            println!("{}", telemetry.set_span_groups("nonsense").unwrap_err());
            step(3);
            telemetry.set_span_groups("reward")?;
            step(4);
        }
        "abort" => {
            (1..=1000).for_each(step);
            assert!(telemetry.flush(DEADLINE));
            (1001..=2000).for_each(step);
            std::process::abort();
        }
        "large" => (0..600).for_each(|_| answer(&"x".repeat(4096))),
        "burst" => (1..=10_000).for_each(step),
        "panic" => {
            step(1);
            panic!("the trainer fell over");
        }
        "hold_stdout" => {
            let mut stdout = std::io::stdout().lock();
            (1..=100).for_each(step);
            writeln!(stdout, "still here").unwrap();
        }
        "lose_folder" => {
            let folder = telemetry.folder().unwrap();
            std::fs::remove_dir_all(folder).unwrap();
            step(1);
        }
        other => panic!("unknown scenario {other}"),
    }
    println!("{}", telemetry.shutdown(DEADLINE));
    Ok(())
}

#[rl_span(group = Step, name = "rl.test.step", step = number)]
fn step(number: u64) {
    tracing::warn!(share = 0.5, "a step");
    let rollouts = generate(number);
    reward(&rollouts).unwrap_err();
    let kl = if number == 2 { f64::INFINITY } else { 0.1 + 0.2 };
    record_step(number, &[(scalars::REWARD_MEAN, 1.0 / number as f64), (scalars::KL_DIVERGENCE, kl)]);
}

#[rl_span(
    group = Generation,
    name = "rl.test.generate",
    attributes(
        semconv::NUM_GENERATIONS_PER_PROMPT = 2,
        temperature = f64::NAN,
        seeds = [i64::MAX, -1],
        texts = ["a", "b\n\"c\""],
    ),
    tokens(input = 3_u32, output = |rollouts| rollouts.iter().copied()),
)]
fn generate(number: u64) -> Vec<u64> {
    vec![number, number + 1]
}

#[rl_span(group = Reward, name = "rl.test.reward")]
fn reward(rollouts: &[u64]) -> Result<u64, std::fmt::Error> {
    rollouts.iter().max().filter(|_| false).copied().ok_or(std::fmt::Error)
}

#[rl_span(group = Rollout, name = "rl.test.answer", attributes(text = text))]
fn answer(text: &str) {}
