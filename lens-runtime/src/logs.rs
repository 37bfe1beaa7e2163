//! How do the program's log lines become log records?
//!
//! Lines of `tracing` come through a [`LogLayer`], those of the `log` crate through it too or through a
//! [`TeeLog`]. A record has the level, the target (as the name of its scope), the text, the fields, the
//! place in the code, and by way of the current context the ids of the span in which it was written.

use std::borrow::Cow;
use std::fmt;

use log::kv::{self, VisitSource};
use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, Severity};
use opentelemetry_sdk::logs::{SdkLogRecord, SdkLogger};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_log::{AsTrace as _, NormalizeEvent as _};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::semconv;
use crate::value::kept;

/// Records the lines of `tracing`, see [`Telemetry::log_layer`](crate::Telemetry::log_layer).
pub(crate) struct LogLayer {
    pub(crate) logger: SdkLogger,
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        // A line of the `log` crate that came through `tracing` has its real metadata in fields.
        let normalized = event.normalized_metadata();
        let metadata = normalized.as_ref().unwrap_or_else(|| event.metadata());
        let place = (metadata.file(), metadata.line());
        record(&self.logger, *metadata.level(), metadata.target(), place, |record| {
            event.record(&mut Fields { record, is_normalized: normalized.is_some() });
        });
    }
}

/// Records the lines of the `log` crate, see [`Telemetry::tee_log`](crate::Telemetry::tee_log).
pub(crate) struct TeeLog<L> {
    pub(crate) own: L,
    pub(crate) logger: Option<SdkLogger>,
}

impl<L: log::Log> log::Log for TeeLog<L> {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.own.enabled(metadata)
    }

    fn log(&self, line: &log::Record<'_>) {
        self.own.log(line);
        let Some(logger) = self.logger.as_ref().filter(|_| self.own.enabled(line.metadata())) else {
            return;
        };
        let place = (line.file(), line.line());
        record(logger, line.level().as_trace(), line.target(), place, |record| {
            record.set_body(text(line.args().to_string()));
            // It fails only if the visitor does.
            let _infallible = line.key_values().visit(&mut KeyValues(record));
        });
    }

    fn flush(&self) {
        self.own.flush();
    }
}

/// Targets of what the export itself says.
fn is_internal(target: &str) -> bool {
    // The delivery thread's lines are suppressed by its context. What the OpenTelemetry crates say they
    // may say on any thread.
    target.starts_with("opentelemetry")
}

/// Makes a record of a line, with its place in the code behind its own content.
fn record(
    logger: &SdkLogger,
    level: Level,
    target: &str,
    (file, line): (Option<&str>, Option<u32>),
    add_content: impl FnOnce(&mut SdkLogRecord),
) {
    let (severity, name) = match level {
        Level::TRACE => (Severity::Trace, "TRACE"),
        Level::DEBUG => (Severity::Debug, "DEBUG"),
        Level::INFO => (Severity::Info, "INFO"),
        Level::WARN => (Severity::Warn, "WARN"),
        Level::ERROR => (Severity::Error, "ERROR"),
    };
    if is_internal(target) || !logger.event_enabled(severity, target, None) {
        return;
    }
    let mut record = logger.create_log_record();
    record.set_target(target.to_owned());
    record.set_severity_number(severity);
    record.set_severity_text(name);
    record.set_timestamp(std::time::SystemTime::now());
    add_content(&mut record);
    if let Some(file) = file {
        record.add_attribute(semconv::CODE_FILE_PATH, file.to_owned());
    }
    if let Some(line) = line {
        record.add_attribute(semconv::CODE_LINE_NUMBER, i64::from(line));
    }
    logger.emit(record);
}

/// Takes over the fields of a line of `tracing`.
struct Fields<'a> {
    record: &'a mut SdkLogRecord,
    /// Whether it comes from the `log` crate: some of its fields are its metadata.
    is_normalized: bool,
}

impl Fields<'_> {
    fn add(&mut self, field: &Field, value: impl Into<AnyValue>) {
        match field.name() {
            "message" => self.record.set_body(value.into()),
            "log.target" | "log.module_path" | "log.file" | "log.line" if self.is_normalized => {}
            name => self.record.add_attribute(name, value),
        }
    }

    /// The protocol's integers are signed and have 64 bits; others are kept as text.
    fn add_integer(&mut self, field: &Field, value: impl TryInto<i64> + fmt::Display + Copy) {
        match value.try_into() {
            Ok(number) => self.add(field, AnyValue::Int(number)),
            Err(_) => self.add(field, value.to_string()),
        }
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, text(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add_integer(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.add_integer(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.add_integer(field, value);
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.add(field, AnyValue::Bytes(Box::new(value.to_vec())));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.add(field, text(value.to_string()));
    }
}

/// A text as it is recorded: as long as that of an attribute may be.
fn text<'a>(text: impl Into<Cow<'a, str>>) -> AnyValue {
    kept(text).into_owned().into()
}

/// Takes over the key-values of a line of the `log` crate.
struct KeyValues<'a>(&'a mut SdkLogRecord);

impl<'kvs> VisitSource<'kvs> for KeyValues<'_> {
    fn visit_pair(&mut self, key: kv::Key<'kvs>, value: kv::Value<'kvs>) -> Result<(), kv::Error> {
        let integer = value.to_i64().map(AnyValue::Int);
        let value = integer
            .or_else(|| value.to_f64().map(AnyValue::Double))
            .or_else(|| value.to_bool().map(AnyValue::Boolean))
            .unwrap_or_else(|| text(value.to_string()));
        self.0.add_attribute(key.as_str().to_owned(), value);
        Ok(())
    }
}
