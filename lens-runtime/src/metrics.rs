//! Which numbers are recorded? The instruments, and the scalars of a training step.

use std::sync::LazyLock;
use std::time::Duration;

use opentelemetry::logs::{AnyValue, LogRecord as _, Logger, Severity};
use opentelemetry::metrics::{Histogram, Meter, MeterProvider as _};
use opentelemetry::{InstrumentationScope, KeyValue};

use crate::late::Late;
use crate::outcome::Outcome;
use crate::pipeline;
use crate::semconv;
use crate::value::{TokenCounts, TokenUsage};

/// The instruments of one pipeline, each made once.
pub(crate) struct Instruments {
    pub(crate) phase_duration: Histogram<f64>,
    pub(crate) token_usage: Histogram<u64>,
    pub(crate) operation_duration: Histogram<f64>,
}

impl Instruments {
    pub(crate) fn new(meter: &Meter) -> Self {
        Self {
            phase_duration: meter
                .f64_histogram(semconv::PHASE_DURATION)
                .with_unit(semconv::SECONDS)
                .with_description("Duration of annotated calls")
                .with_boundaries(semconv::PHASE_DURATION_BOUNDS.to_vec())
                .build(),
            token_usage: meter
                .u64_histogram(semconv::GEN_AI_CLIENT_TOKEN_USAGE)
                .with_unit(semconv::TOKENS)
                .with_description("Number of input and output tokens used")
                .with_boundaries(semconv::TOKEN_USAGE_BOUNDS.to_vec())
                .build(),
            operation_duration: meter
                .f64_histogram(semconv::GEN_AI_CLIENT_OPERATION_DURATION)
                .with_unit(semconv::SECONDS)
                .with_description("GenAI operation duration")
                .with_boundaries(semconv::OPERATION_DURATION_BOUNDS.to_vec())
                .build(),
        }
    }
}

impl Instruments {
    /// Records a call that has ended.
    pub(crate) fn record(
        &self,
        name: &'static str,
        group: &'static str,
        outcome: Outcome,
        took: Duration,
        model_call: Option<&ModelCall>,
    ) {
        let seconds = took.as_secs_f64();
        let attributes = [
            KeyValue::new(semconv::PHASE, name),
            KeyValue::new(semconv::GROUP, group),
            KeyValue::new(semconv::OUTCOME, outcome.as_str()),
        ];
        self.phase_duration.record(seconds, &attributes);
        if let Some(model_call) = model_call.filter(|call| call.counted) {
            model_call.record(self, seconds, outcome.error_type());
        }
    }
}

/// Who records, as a receiver reads it.
pub(crate) fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(semconv::SCOPE).with_version(env!("CARGO_PKG_VERSION")).build()
}

/// A number that a trainer reports once per step.
///
/// The usual ones are constants in [`scalars`]; declare others as constants of your own.
///
/// ```
/// use lens_runtime::Scalar;
///
/// const CLIP_FRACTION: Scalar =
///     Scalar::new("rl.clip.fraction", "1", "Share of tokens whose ratio was clipped");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar {
    name: &'static str,
    unit: &'static str,
    description: &'static str,
}

impl Scalar {
    /// A scalar with its metric name, its unit (UCUM, `1` for a ratio, empty if it has none) and
    /// its meaning.
    pub const fn new(name: &'static str, unit: &'static str, description: &'static str) -> Self {
        Self { name, unit, description }
    }

    /// The metric's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// The scalars that RL trainers have in common, with the names that NeMo-RL gives them.
pub mod scalars {
    use super::Scalar;
    use crate::semconv;

    /// Mean reward of the step's samples.
    pub const REWARD_MEAN: Scalar = Scalar::new(semconv::REWARD_MEAN, "", "Mean reward");
    /// Divergence of the policy from the reference policy, without its coefficient.
    pub const KL_DIVERGENCE: Scalar =
        Scalar::new(semconv::KL_DIVERGENCE, "", "KL divergence from the reference policy");
    /// Loss of the policy.
    pub const POLICY_LOSS: Scalar = Scalar::new(semconv::POLICY_LOSS, "", "Policy loss");
    /// Loss of the critic.
    pub const VALUE_LOSS: Scalar = Scalar::new(semconv::VALUE_LOSS, "", "Value loss");
    /// Entropy of the policy.
    pub const ENTROPY: Scalar = Scalar::new(semconv::ENTROPY, "", "Policy entropy");
    /// Mean number of tokens of a response.
    pub const RESPONSE_LENGTH_MEAN: Scalar =
        Scalar::new(semconv::RESPONSE_LENGTH_MEAN, semconv::TOKENS, "Mean response length");
    /// Norm of the gradient, before clipping.
    pub const GRAD_NORM: Scalar = Scalar::new(semconv::GRAD_NORM, "", "Gradient norm");
    /// Learning rate.
    pub const LEARNING_RATE: Scalar = Scalar::new(semconv::LEARNING_RATE, "", "Learning rate");
}

/// Records the scalars of training step `step`, once per step.
///
/// Each value becomes a gauge of its name, for dashboards, and all of them one `rl.step.metrics`
/// event with the step's number, in which every value is kept exactly: a gauge is sampled every
/// few seconds and loses fast steps, the event does not. A value that is not finite is in the
/// event, which is then a warning, and not in the gauge, which would show the last finite one.
///
/// Does nothing while metrics are off. No span group switches it off.
///
/// ```
/// use lens_runtime::{record_step, scalars, testing};
///
/// let capture = testing::Capture::new("default");
/// capture.run(|| record_step(3, &[(scalars::REWARD_MEAN, 0.25), (scalars::KL_DIVERGENCE, 0.01)]));
/// assert_eq!(capture.gauge("rl.reward.mean"), Some(0.25));
/// ```
pub fn record_step(step: u64, values: &[(Scalar, f64)]) {
    // One that knows what to do in a callback of the program's, in which no gauge can be made.
    static METER: LazyLock<Meter> = LazyLock::new(|| Late.meter_with_scope(scope()));
    let Some(pipeline) = pipeline::current() else {
        return;
    };
    if pipeline.instruments.is_none() {
        return;
    }
    for (scalar, value) in values.iter().filter(|(_, value)| value.is_finite()) {
        let gauge = METER.f64_gauge(scalar.name).with_unit(scalar.unit);
        gauge.with_description(scalar.description).build().record(*value, &[]);
    }
    if let Some(emit) = &pipeline.step_events {
        emit(step, values);
    }
}

/// Where the scalars of a step go as an event.
pub(crate) type StepEvents = Box<dyn Fn(u64, &[(Scalar, f64)]) + Send + Sync>;

pub(crate) fn step_events(logger: impl Logger + Send + Sync + 'static) -> StepEvents {
    Box::new(move |step, values| emit_event(&logger, step, values))
}

fn emit_event(logger: &impl Logger, step: u64, values: &[(Scalar, f64)]) {
    let (severity, text) = match values.iter().all(|(_, value)| value.is_finite()) {
        true => (Severity::Info, "INFO"),
        false => (Severity::Warn, "WARN"),
    };
    let mut record = logger.create_log_record();
    record.set_event_name(semconv::STEP_METRICS_EVENT);
    record.set_timestamp(std::time::SystemTime::now());
    record.set_severity_number(severity);
    record.set_severity_text(text);
    record.add_attribute(semconv::ITERATION, AnyValue::Int(i64::try_from(step).unwrap_or(i64::MAX)));
    // Of a scalar that is given twice the last value, as the gauge has it.
    let is_last =
        |index: usize| values[index + 1..].iter().all(|(later, _)| later.name != values[index].0.name);
    let last = values.iter().enumerate().filter(|(index, _)| is_last(*index));
    record.add_attributes(last.map(|(_, (scalar, value))| (scalar.name, AnyValue::Double(*value))));
    logger.emit(record);
}

/// What an annotated call to a model counted.
#[derive(Default)]
pub struct ModelCall {
    pub(crate) model: Option<String>,
    pub(crate) provider: Option<String>,
    pub(crate) operation: Option<String>,
    /// Tokens of each request.
    pub(crate) input: Vec<u64>,
    pub(crate) output: Vec<u64>,
    /// How long each request took, if that was said.
    pub(crate) latencies: Vec<Duration>,
    /// Whether `tokens` or `operation` was given, which is what makes it a call to a model.
    pub(crate) counted: bool,
}

/// What an annotation says of it, when the call begins or when it is done.
impl ModelCall {
    /// `gen_ai.request.model`.
    pub fn model(&mut self, model: &(impl AsRef<str> + ?Sized)) {
        self.model = Some(model.as_ref().to_owned());
    }

    /// `gen_ai.provider.name`.
    pub fn provider(&mut self, provider: &(impl AsRef<str> + ?Sized)) {
        self.provider = Some(provider.as_ref().to_owned());
    }

    /// `gen_ai.operation.name`.
    pub fn operation(&mut self, operation: &(impl AsRef<str> + ?Sized)) {
        self.operation = Some(operation.as_ref().to_owned());
        self.counted = true;
    }

    /// Input tokens.
    pub fn input_tokens<Shape>(&mut self, counts: impl TokenCounts<Shape>) {
        self.counted = true;
        counts.append_to(&mut self.input);
    }

    /// Output tokens.
    pub fn output_tokens<Shape>(&mut self, counts: impl TokenCounts<Shape>) {
        self.counted = true;
        counts.append_to(&mut self.output);
    }

    /// Tokens of both sides.
    pub fn usage<Shape>(&mut self, usage: impl TokenUsage<Shape>) {
        self.counted = true;
        usage.append_to(&mut self.input, &mut self.output);
    }

    /// How long each request took.
    pub fn latencies(&mut self, latencies: impl IntoIterator<Item = Duration>) {
        self.counted = true;
        self.latencies.extend(latencies);
    }
}

/// The sum of what the requests of a call took, if there were any.
pub(crate) fn sum(counts: &[u64]) -> Option<u64> {
    (!counts.is_empty()).then(|| counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)))
}

impl ModelCall {
    /// Takes over what more is known of the same call.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { model, provider, operation, mut input, mut output, mut latencies, counted } = other;
        self.model = model.or(self.model.take());
        self.provider = provider.or(self.provider.take());
        self.operation = operation.or(self.operation.take());
        self.input.append(&mut input);
        self.output.append(&mut output);
        self.latencies.append(&mut latencies);
        self.counted |= counted;
    }

    /// The attributes that its metrics have in common.
    fn attributes(&self) -> Vec<KeyValue> {
        let operation = self.operation.clone().unwrap_or_else(|| semconv::DEFAULT_OPERATION.to_owned());
        let mut attributes = vec![KeyValue::new(semconv::GEN_AI_OPERATION_NAME, operation)];
        if let Some(provider) = &self.provider {
            attributes.push(KeyValue::new(semconv::GEN_AI_PROVIDER_NAME, provider.clone()));
        }
        if let Some(model) = &self.model {
            attributes.push(KeyValue::new(semconv::GEN_AI_REQUEST_MODEL, model.clone()));
        }
        attributes
    }

    pub(crate) fn record(&self, instruments: &Instruments, seconds: f64, error_type: Option<&'static str>) {
        let mut attributes = self.attributes();
        for (kind, counts) in [("input", &self.input), ("output", &self.output)] {
            attributes.push(KeyValue::new(semconv::GEN_AI_TOKEN_TYPE, kind));
            for count in counts {
                instruments.token_usage.record(*count, &attributes);
            }
            attributes.pop();
        }
        attributes.extend(error_type.map(|name| KeyValue::new(semconv::ERROR_TYPE, name)));
        // Where a call is many requests, its own duration is that of none of them.
        if self.latencies.is_empty() {
            instruments.operation_duration.record(seconds, &attributes);
        }
        for latency in &self.latencies {
            instruments.operation_duration.record(latency.as_secs_f64(), &attributes);
        }
    }
}
