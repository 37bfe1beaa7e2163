//! The program as it is with the `metrics` crate, and the recorder of its exporter for Prometheus.

mod found;
mod measure;
mod work;

use std::hint::black_box;
use std::process::ExitCode;

use found::Kept;
use measure::{Case, MANY, RECORD, REQUESTS, Recorder, case};
use metrics::histogram;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

const CASES: &[Case] = &[
    case(RECORD, "metrics", recorder, record).measuring(1),
    case(REQUESTS, "metrics", recorder, |number| record(number * MANY)).measuring(MANY),
];

fn main() -> ExitCode {
    measure::main(&[work::CASES, CASES])
}

fn record(number: u64) {
    for index in 0..number {
        histogram!(
            "tokens",
            "gen_ai_operation_name" => "text_completion",
            "gen_ai_provider_name" => "vllm",
            "gen_ai_request_model" => "tiny",
            "gen_ai_token_type" => "output"
        )
        .record(black_box(index as f64));
    }
}

/// With the buckets that the OpenTelemetry SDK has by default.
const BUCKETS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1_000.0, 2_500.0, 5_000.0, 7_500.0,
    10_000.0,
];

fn recorder(kept: Kept) -> Box<dyn Recorder> {
    let builder = PrometheusBuilder::new().set_buckets(&BUCKETS).expect("buckets");
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).expect("the only recorder");
    Box::new(Prometheus { handle, kept })
}

struct Prometheus {
    handle: PrometheusHandle,
    kept: Kept,
}

impl Recorder for Prometheus {
    /// Puts what was recorded into its buckets, as the exporter does from time to time.
    fn let_go(&self) {
        self.handle.run_upkeep();
        if let Some(mut place) = self.kept.place() {
            let text = self.handle.render();
            let counts = text.lines().filter(|line| line.starts_with("tokens_count"));
            place.measurements = counts
                .filter_map(|line| line.rsplit(' ').next())
                .map(|count| count.parse::<u64>().expect("a count"))
                .sum();
        }
    }
}
