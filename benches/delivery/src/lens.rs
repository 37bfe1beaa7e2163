//! The program as it is with Lens.

mod measure;

use std::time::Duration;

use lens_runtime::{Telemetry, TelemetryConfig, rl_span};
use measure::{Ended, Program};

/// Traces alone, as the SDK's program has them.
const CONFIG: &str = "telemetry: { enabled: true, span_groups: all, metrics_enabled: false }";

struct Lens(Telemetry);

fn main() {
    measure::run::<Lens>();
}

impl Program for Lens {
    fn start() -> Self {
        let config = TelemetryConfig::from_yaml(CONFIG, "the bench").expect("a configuration");
        Self(Telemetry::init_driver(config).expect("telemetry"))
    }

    fn tree(number: u64) {
        step(number);
    }

    fn call(number: u64) {
        sample(number);
    }

    fn end(self, deadline: Duration) -> Ended {
        let counts = self.0.shutdown(deadline).health.traces;
        Ended {
            is_ok: counts.lost() + counts.in_doubt + counts.pending() == 0,
            made: counts.made,
            became: vec![
                ("exported", counts.exported),
                ("rejected", counts.rejected),
                ("failed", counts.failed),
                ("refused", counts.refused),
                ("in_doubt", counts.in_doubt),
                ("left", counts.pending()),
            ],
        }
    }
}

#[rl_span(group = Step, name = "rl.bench.step", step = number, attributes(kind = "grpo", index = number, share = 0.25))]
fn step(number: u64) {
    generate(number);
}

#[rl_span(group = Generation, name = "rl.bench.generate", attributes(kind = "rollouts", index = number, share = 0.5))]
fn generate(number: u64) {
    for prompt in 0..measure::PROMPTS {
        answer(number + prompt);
    }
}

#[rl_span(group = Rollout, name = "rl.bench.prompt", attributes(kind = "prompt", index = number, share = 0.75))]
fn answer(number: u64) {
    for index in 0..measure::SAMPLES {
        sample(number + index);
    }
}

#[rl_span(group = Rollout, name = "rl.bench.sample", attributes(kind = "sample", index = number, share = 1.5))]
fn sample(number: u64) {
    std::hint::black_box(number);
}
