//! How can a dashboard show what became of the records?
//!
//! By the metrics that OpenTelemetry's conventions have for it. They tell the counts as of the collection before,
//! and cannot tell of the last ones: those are in the [`RunReport`](crate::RunReport).

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use super::{Counts, Delivery};
use crate::semconv;
use crate::signal::Signal;

/// Registers the instruments; they live as long as the meter's provider.
pub(crate) fn observe(delivery: &Delivery, meter: &Meter) {
    for (signal, exported, unit) in [
        (Signal::Traces, semconv::OTEL_SDK_EXPORTER_SPAN_EXPORTED, "{span}"),
        (Signal::Metrics, semconv::OTEL_SDK_EXPORTER_METRIC_DATA_POINT_EXPORTED, "{data_point}"),
        (Signal::Logs, semconv::OTEL_SDK_EXPORTER_LOG_EXPORTED, "{log_record}"),
    ] {
        let delivery = delivery.clone();
        meter
            .u64_observable_counter(exported)
            .with_unit(unit)
            .with_description("Records whose export has finished, by what went wrong")
            .with_callback(move |counter| {
                let counts = delivery.counts(signal);
                tell(counter, counts.exported, None);
                tell(counter, counts.rejected, Some("rejected"));
                tell(counter, counts.failed, Some("failed"));
                tell(counter, counts.in_doubt, Some("in_doubt"));
                if signal == Signal::Metrics {
                    // For them the conventions know no processor.
                    tell(counter, counts.refused, Some(QUEUE_FULL));
                }
            })
            .build();
    }
    for (signal, processed, waiting, unit) in [
        (
            Signal::Traces,
            semconv::OTEL_SDK_PROCESSOR_SPAN_PROCESSED,
            semconv::OTEL_SDK_PROCESSOR_SPAN_QUEUE_SIZE,
            "{span}",
        ),
        (
            Signal::Logs,
            semconv::OTEL_SDK_PROCESSOR_LOG_PROCESSED,
            semconv::OTEL_SDK_PROCESSOR_LOG_QUEUE_SIZE,
            "{log_record}",
        ),
    ] {
        let counts = {
            let delivery = delivery.clone();
            move || delivery.counts(signal)
        };
        meter
            .u64_observable_counter(processed)
            .with_unit(unit)
            .with_description("Records that were taken to be exported, or found no room")
            .with_callback({
                let counts = counts.clone();
                move |counter| {
                    let Counts { exported, rejected, failed, in_doubt, refused, .. } = counts();
                    tell(counter, exported + rejected + failed + in_doubt, None);
                    tell(counter, refused, Some(QUEUE_FULL));
                }
            })
            .build();
        meter
            .i64_observable_up_down_counter(waiting)
            .with_unit(unit)
            .with_description("Records that wait or are on their way")
            .with_callback(move |counter| {
                let counts = counts();
                if counts.made > 0 {
                    counter.observe(i64::try_from(counts.pending()).unwrap_or(i64::MAX), &[]);
                }
            })
            .build();
    }
}

/// What the conventions say of a record that found no room.
const QUEUE_FULL: &str = "queue_full";

/// A count that was never above zero is no series.
fn tell(counter: &dyn AsyncInstrument<u64>, count: u64, error: Option<&'static str>) {
    if count > 0 {
        let error = error.map(|error| KeyValue::new(semconv::ERROR_TYPE, error));
        counter.observe(count, error.as_slice());
    }
}
