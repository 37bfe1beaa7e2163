//! A `main` that is annotated, and sets telemetry up within: what begins from then on is recorded.

use std::time::Duration;

use lens_runtime::{Telemetry, TelemetryConfig, rl_span};

#[rl_span(group = Reward, name = "before")]
fn before() {}

#[rl_span(group = Reward, name = "after")]
async fn after() {}

#[rl_span(group = Job, name = "main")]
#[tokio::main(flavor = "current_thread")]
async fn main() {
    before();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.yaml");
    let runs = folder.path().join("runs");
    let config = format!(
        "telemetry: {{enabled: true, span_groups: all, exporter: file, directory: {:?}}}\n",
        runs.display()
    );
    std::fs::write(&file, config).unwrap();
    let telemetry = Telemetry::init_driver(TelemetryConfig::from_file(&file).unwrap()).unwrap();
    inner().await;
    let report = telemetry.shutdown(Duration::from_secs(60)).to_string();
    assert!(report.contains("after") && !report.contains("before") && !report.contains("main"), "{report}");
}

#[rl_span(group = Rollout, name = "inner")]
async fn inner() {
    after().await;
}
