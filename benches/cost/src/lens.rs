//! The program as it is with Lens.

mod found;
mod measure;
mod receiver;
mod work;

use std::process::ExitCode;
use std::time::Duration;

use found::{Kept, PROMPTS, SAMPLES};
use lens_runtime::{Environment, OtlpProtocol, Telemetry, TelemetryConfig, rl_span};
use measure::{
    Case, MANY, OFF_ASYNC, OFF_SYNC, OFF_WIDE, ON_ASYNC, ON_TREE, RECORD, REQUESTS, Recorder, THREADS, case,
    nobody,
};
use work::{KIND, SHARE, async_calls, async_work, calls, each, wide_calls, wide_work, work};

/// Another variant of Lens is another function here, and a case below.
fn spans(kept: Kept) -> Box<dyn Recorder> {
    Lens::init("span_groups: all, metrics_enabled: false", kept)
}

/// Telemetry is on, but not for the group of the calls.
fn group_off(kept: Kept) -> Box<dyn Recorder> {
    Lens::init("span_groups: default, metrics_enabled: false", kept)
}

fn metrics(kept: Kept) -> Box<dyn Recorder> {
    Lens::init("traces_enabled: false", kept)
}

const CASES: &[Case] = &[
    case(OFF_SYNC, "lens_unset.a0", nobody, |number| calls(number, a0::call)),
    case(OFF_SYNC, "lens_unset.a3", nobody, |number| calls(number, a3::call)),
    case(OFF_SYNC, "lens_group_off.a0", group_off, |number| calls(number, a0::call)),
    case(OFF_SYNC, "lens_group_off.a3", group_off, |number| calls(number, a3::call)),
    case(OFF_WIDE, "lens_group_off.a3", group_off, |number| wide_calls(number, wide)),
    case(OFF_ASYNC, "lens_unset.a0", nobody, |number| async_calls(number, a0::async_call)),
    case(OFF_ASYNC, "lens_unset.a3", nobody, |number| async_calls(number, a3::async_call)),
    case(OFF_ASYNC, "lens_group_off.a0", group_off, |number| async_calls(number, a0::async_call)),
    case(OFF_ASYNC, "lens_group_off.a3", group_off, |number| async_calls(number, a3::async_call)),
    case(ON_TREE, "lens.a0", spans, |number| calls(number, a0::step)),
    case(ON_TREE, "lens.a3", spans, |number| calls(number, a3::step)),
    case(ON_ASYNC, "lens.a0", spans, |number| async_calls(number, a0::async_call)),
    case(ON_ASYNC, "lens.a3", spans, |number| async_calls(number, a3::async_call)),
    case(RECORD, "lens_call", metrics, |number| calls(number, a3::call)).measuring(1),
    case(RECORD, "lens_model_call", metrics, |number| calls(number, model_call)).measuring(3),
    // Beside the requests, how long the call took: as a phase, and as an operation.
    case(REQUESTS, "lens", metrics, many_requests).measuring(MANY + 2),
    case(THREADS, "lens.a3", spans, |number| calls(number, a3::step)),
];

fn main() -> ExitCode {
    measure::main(&[work::CASES, CASES])
}

mod a0 {
    use super::{PROMPTS, SAMPLES, async_work, each, rl_span, work};

    #[rl_span(group = Generation, name = "call")]
    #[inline(never)]
    pub(super) fn call(index: i64) -> i64 {
        work(index)
    }

    #[rl_span(group = Generation, name = "call")]
    #[inline(never)]
    pub(super) async fn async_call(index: i64) -> i64 {
        async_work(index).await
    }

    #[rl_span(group = Step, name = "step", step = index)]
    #[inline(never)]
    pub(super) fn step(index: i64) -> i64 {
        generate(index)
    }

    #[rl_span(group = Rollout, name = "generate")]
    #[inline(never)]
    fn generate(index: i64) -> i64 {
        each(PROMPTS, |number| prompt(index + number))
    }

    #[rl_span(group = PerPrompt, name = "prompt")]
    #[inline(never)]
    fn prompt(index: i64) -> i64 {
        each(SAMPLES, |number| call(index + number))
    }
}

mod a3 {
    use super::{KIND, PROMPTS, SAMPLES, SHARE, async_work, each, rl_span, work};

    #[rl_span(group = Generation, name = "call", attributes(kind = KIND, index = index, share = SHARE))]
    #[inline(never)]
    pub(super) fn call(index: i64) -> i64 {
        work(index)
    }

    #[rl_span(group = Generation, name = "call", attributes(kind = KIND, index = index, share = SHARE))]
    #[inline(never)]
    pub(super) async fn async_call(index: i64) -> i64 {
        async_work(index).await
    }

    #[rl_span(group = Step, name = "step", step = index, attributes(kind = KIND, index = index, share = SHARE))]
    #[inline(never)]
    pub(super) fn step(index: i64) -> i64 {
        generate(index)
    }

    #[rl_span(group = Rollout, name = "generate", attributes(kind = KIND, index = index, share = SHARE))]
    #[inline(never)]
    fn generate(index: i64) -> i64 {
        each(PROMPTS, |number| prompt(index + number))
    }

    #[rl_span(group = PerPrompt, name = "prompt", attributes(kind = KIND, index = index, share = SHARE))]
    #[inline(never)]
    fn prompt(index: i64) -> i64 {
        each(SAMPLES, |number| call(index + number))
    }
}

#[rl_span(group = Generation, name = "call", attributes(kind = kind, index = index, share = share))]
#[inline(never)]
fn wide(kind: &'static str, index: i64, share: f64) -> i64 {
    wide_work(kind, index, share)
}

#[rl_span(group = Generation, name = "call", operation = "text_completion", provider = "vllm", model = "tiny",
    tokens(output = index.unsigned_abs()))]
#[inline(never)]
fn model_call(index: i64) -> i64 {
    work(index)
}

fn many_requests(number: u64) {
    let lengths: Vec<u64> = (0..MANY).collect();
    for index in 0..number.cast_signed() {
        std::hint::black_box(requests(std::hint::black_box(&lengths), index));
    }
}

#[rl_span(group = Generation, name = "call", operation = "text_completion", provider = "vllm", model = "tiny",
    tokens(output = lengths))]
#[inline(never)]
fn requests(lengths: &[u64], index: i64) -> i64 {
    work(index)
}

/// Lens, sending to a receiver that accepts everything.
struct Lens {
    telemetry: Telemetry,
    kept: Kept,
}

impl Lens {
    fn init(block: &str, kept: Kept) -> Box<dyn Recorder> {
        let yaml = format!("telemetry: {{ enabled: true, {block} }}");
        let config = TelemetryConfig::from_yaml(&yaml, "the bench")
            .expect("a configuration")
            .with_protocol(OtlpProtocol::HttpProtobuf)
            .with_endpoint(receiver::start(kept.clone()));
        // No variable of whoever measures plays a part, and nothing is collected by itself.
        let environment = Environment::of_pairs([("OTEL_METRIC_EXPORT_INTERVAL", "3600000")]);
        let telemetry = Telemetry::init_driver_in(config, &environment).expect("telemetry");
        Box::new(Self { telemetry, kept })
    }
}

impl Recorder for Lens {
    fn let_go(&self) {
        let is_done = self.telemetry.flush(Duration::from_mins(1));
        let health = self.telemetry.health();
        assert!(is_done, "expected all to be written within a minute, got {health:?}");
        self.kept.count(health.traces.exported - self.kept.spans());
    }
}
