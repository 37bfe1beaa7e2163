//! The program as it is with `tracing`, and its bridge to the OpenTelemetry SDK.

mod found;
mod measure;
mod sdk;
mod work;

use std::process::ExitCode;

use found::{Kept, PROMPTS, SAMPLES};
use measure::{Case, OFF_ASYNC, OFF_SYNC, OFF_WIDE, ON_ASYNC, ON_TREE, Recorder, case, nobody};
use opentelemetry::global;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use work::{KIND, SHARE, async_calls, async_work, calls, each, wide_calls, wide_work, work};

const CASES: &[Case] = &[
    case(OFF_SYNC, "no_subscriber.a0", nobody, |number| calls(number, a0::call)),
    case(OFF_SYNC, "no_subscriber.a3", nobody, |number| calls(number, a3::call)),
    case(OFF_SYNC, "filtered.a0", filtered, |number| calls(number, a0::call)),
    case(OFF_SYNC, "filtered.a3", filtered, |number| calls(number, a3::call)),
    case(OFF_WIDE, "no_subscriber.a3", nobody, |number| wide_calls(number, wide)),
    case(OFF_WIDE, "filtered.a3", filtered, |number| wide_calls(number, wide)),
    case(OFF_ASYNC, "no_subscriber.a0", nobody, |number| async_calls(number, a0::async_call)),
    case(OFF_ASYNC, "no_subscriber.a3", nobody, |number| async_calls(number, a3::async_call)),
    case(OFF_ASYNC, "filtered.a0", filtered, |number| async_calls(number, a0::async_call)),
    case(OFF_ASYNC, "filtered.a3", filtered, |number| async_calls(number, a3::async_call)),
    case(ON_TREE, "tracing.a0", spans, |number| calls(number, a0::step)),
    case(ON_TREE, "tracing.a3", spans, |number| calls(number, a3::step)),
    case(ON_ASYNC, "tracing.a0", spans, |number| async_calls(number, a0::async_call)),
    case(ON_ASYNC, "tracing.a3", spans, |number| async_calls(number, a3::async_call)),
];

fn main() -> ExitCode {
    measure::main(&[work::CASES, CASES])
}

fn spans(kept: Kept) -> Box<dyn Recorder> {
    subscribe(kept, Targets::new().with_default(LevelFilter::INFO))
}

/// Another target is on.
fn filtered(kept: Kept) -> Box<dyn Recorder> {
    subscribe(kept, Targets::new().with_target("elsewhere", LevelFilter::INFO))
}

fn subscribe(kept: Kept, filter: Targets) -> Box<dyn Recorder> {
    let recorder = sdk::spans(kept);
    let layer = tracing_opentelemetry::layer().with_tracer(global::tracer("bench"));
    let subscriber = tracing_subscriber::registry().with(filter).with(layer);
    tracing::subscriber::set_global_default(subscriber).expect("the only subscriber");
    recorder
}

mod a0 {
    use tracing::instrument;

    use super::{PROMPTS, SAMPLES, async_work, each, work};

    #[instrument(name = "call", skip_all)]
    #[inline(never)]
    pub(super) fn call(index: i64) -> i64 {
        work(index)
    }

    #[instrument(name = "call", skip_all)]
    #[inline(never)]
    pub(super) async fn async_call(index: i64) -> i64 {
        async_work(index).await
    }

    #[instrument(name = "step", skip_all)]
    #[inline(never)]
    pub(super) fn step(index: i64) -> i64 {
        generate(index)
    }

    #[instrument(name = "generate", skip_all)]
    #[inline(never)]
    fn generate(index: i64) -> i64 {
        each(PROMPTS, |number| prompt(index + number))
    }

    #[instrument(name = "prompt", skip_all)]
    #[inline(never)]
    fn prompt(index: i64) -> i64 {
        each(SAMPLES, |number| call(index + number))
    }
}

mod a3 {
    use tracing::instrument;

    use super::{KIND, PROMPTS, SAMPLES, SHARE, async_work, each, work};

    #[instrument(name = "call", skip_all, fields(kind = KIND, index = index, share = SHARE))]
    #[inline(never)]
    pub(super) fn call(index: i64) -> i64 {
        work(index)
    }

    #[instrument(name = "call", skip_all, fields(kind = KIND, index = index, share = SHARE))]
    #[inline(never)]
    pub(super) async fn async_call(index: i64) -> i64 {
        async_work(index).await
    }

    #[instrument(name = "step", skip_all, fields(kind = KIND, index = index, share = SHARE))]
    #[inline(never)]
    pub(super) fn step(index: i64) -> i64 {
        generate(index)
    }

    #[instrument(name = "generate", skip_all, fields(kind = KIND, index = index, share = SHARE))]
    #[inline(never)]
    fn generate(index: i64) -> i64 {
        each(PROMPTS, |number| prompt(index + number))
    }

    #[instrument(name = "prompt", skip_all, fields(kind = KIND, index = index, share = SHARE))]
    #[inline(never)]
    fn prompt(index: i64) -> i64 {
        each(SAMPLES, |number| call(index + number))
    }
}

#[tracing::instrument(name = "call", skip_all, fields(kind = kind, index = index, share = share))]
#[inline(never)]
fn wide(kind: &'static str, index: i64, share: f64) -> i64 {
    wide_work(kind, index, share)
}
