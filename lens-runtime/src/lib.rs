//! Instrumentation for reinforcement-learning training.
//!
//! Annotate the functions of a trainer, and see where each step's time and tokens go:
//!
//! ```
//! use lens_runtime::rl_span;
//!
//! # struct Prompts(Vec<Vec<u32>>);
//! # impl Prompts { fn lengths(&self) -> impl Iterator<Item = usize> { self.0.iter().map(Vec::len) } }
//! #[rl_span(group = Generation, name = "rl.vllm.generate", tokens(input = prompts.lengths()))]
//! async fn generate(prompts: &Prompts) -> Result<Vec<String>, std::io::Error> {
//!     // …
//! #   Ok(Vec::new())
//! }
//! ```
//!
//! A driver sets telemetry up from the `telemetry:` block of its run configuration, see
//! [`Telemetry`] and [`TelemetryConfig`]. Traces cross threads, tasks and processes by way of
//! [`propagation`]. Without set-up, or where neither its group nor metrics are
//! on, an annotated call costs one atomic load.
//!
//! The rooms of this crate, in reading order. Hot path: `group`, `sampling`, `span`, `block`, `current`, `outcome`,
//! `value`, `step`, `pipeline`, `ambient`, `late`. Set-up: `config`, `resource`, `telemetry`. Delivery: `delivery`, `export`,
//! [`files`], `summary`. Signals: `metrics`, `logs`, [`propagation`], `signal`. Beside them `groups` and `semconv`
//! (names), `error`, `ids`, `notice`, `process`, and [`testing`].

mod group;
pub mod groups;

mod ambient;
mod block;
mod clock;
mod current;
mod late;
mod outcome;
mod pipeline;
mod sampling;
mod span;
mod step;
mod value;

mod config;
mod resource;
mod telemetry;

mod delivery;
mod export;
pub mod files;
mod summary;

mod logs;
mod metrics;
pub mod propagation;
mod signal;

mod error;
mod ids;
mod notice;
mod process;
pub mod semconv;
pub mod testing;

pub use block::{Scope, SpanBuilder, span};
pub use config::{Environment, ExporterKind, Origin, OtlpProtocol, Overrides, TelemetryConfig};
pub use current::{record_tokens, set};
pub use delivery::Counts;
pub use error::Error;
pub use group::{Bucket, SpanGroup};
pub use late::{meter, tracer};
pub use lens_macros::rl_span;
pub use metrics::{Scalar, record_step, scalars};
pub use process::flush_on_signal;
pub use sampling::SampleKey;
pub use span::SpanRef;
pub use step::current_step;
pub use summary::{Phase, Phases};
pub use telemetry::{Health, RunReport, Telemetry};
pub use value::{AttributeValue, TokenCounts, TokenUsage, Usage};

/// The OpenTelemetry API that Lens uses, so that a program can be sure to use the same version.
///
/// Each version has a current span and global providers of its own: what a library records through another
/// one goes nowhere, without a word, and its spans know nothing of ours. `cargo tree -d -i opentelemetry` shows
/// whether there are two, and cargo-deny holds that there are not:
///
/// ```toml
/// [bans]
/// deny = [{ crate = "opentelemetry", deny-multiple-versions = true }]
/// ```
///
/// ```
/// use lens_runtime::opentelemetry::{Context, KeyValue, trace::TraceContextExt as _};
/// use lens_runtime::{rl_span, testing::Capture};
///
/// #[rl_span(group = Reward, name = "reward")]
/// fn reward() {
///     Context::current().span().set_attribute(KeyValue::new("judge", "tiny"));
/// }
///
/// let capture = Capture::new("reward");
/// capture.run(reward);
/// assert_eq!(capture.span("reward").attribute("judge").unwrap().as_str(), "tiny");
/// ```
pub use opentelemetry;

/// The OpenTelemetry SDK, for programs that bring a sampler or a processor of spans along:
/// [`TelemetryConfig::with_sampler`], [`TelemetryConfig::with_span_processor`].
pub use opentelemetry_sdk;

/// The messages of the OpenTelemetry protocol, as which [`files`] reads what was written.
pub use opentelemetry_proto;

/// The types of HTTP whose headers [`propagation`] reads and writes.
pub use http;

/// What expansions of `#[rl_span]` call. Not for use by hand: it changes with any version.
#[doc(hidden)]
pub mod __private {
    pub use core::convert::Infallible;
    pub use core::option::Option::{None, Some};
    pub use opentelemetry::trace::SpanKind;
    pub use std::boxed::Box;

    pub use crate::group::Bucket;
    pub use crate::metrics::ModelCall;
    pub use crate::outcome::by_type;
    pub use crate::span::{Call, Entry, Open, Scope, enter, followed, never, run, streamed, taken, traced};
}
