//! What does the process hold on to? The one test here has its process to itself, whose memory it measures.

mod support;

use std::time::Duration;

use lens_runtime::opentelemetry::Context;
use lens_runtime::opentelemetry_sdk::error::OTelSdkResult;
use lens_runtime::opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use lens_runtime::{groups, span};
use support::run::Run;

#[derive(Debug)]
struct Nothing;

impl SpanProcessor for Nothing {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, _span: SpanData) {}

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Neither a span that was exported nor one that the SDK's sampler dropped is remembered.
#[test]
fn spans_that_are_dropped_cost_no_memory_once_they_have_ended() {
    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
    let variables = [("OTEL_TRACES_SAMPLER", "always_off")];
    let run = Run::begin_as(&["span_groups: all", "queue_mib: 1"], &variables, |config| {
        config.with_span_processor(|| Nothing)
    });
    let call = |count: u32| {
        for _ in 0..count {
            span(&groups::Reward, "dropped").run(|| ());
        }
    };
    // As many as are measured, so that what waits at once has had its most.
    call(120_000);
    let before = resident_kib();
    call(120_000);
    let grown = resident_kib().saturating_sub(before);
    run.end();
    assert!(grown < 4096, "grew by {grown} KiB");
}
