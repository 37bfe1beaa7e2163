//! How is everything called? Each attribute and metric name stands here once.
//!
//! The `gen_ai.*` and `error.type` names are OpenTelemetry's (semantic conventions 1.37);
//! the `rl.*` and `nemo.*` names are those of NeMo-RL's telemetry where it has one.
//!
//! ```
//! use lens_runtime::{rl_span, semconv};
//!
//! #[rl_span(group = Evaluate, name = "rl.grpo.evaluate", attributes(semconv::STEP = step))]
//! fn evaluate(step: u64) {}
//! # evaluate(1);
//! ```

/// Declares the constants, each documented by its meaning.
macro_rules! names {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
        $($(#[doc = $doc])+ pub const $name: &str = $text;)+
    };
}

names! {
    // Span attributes.
    /// The number of the training step, counted from 1. In the step's baggage, and on its span and on
    /// every span beneath it.
    ITERATION = "rl.iteration";
    /// The span group of a span or of a metric point.
    GROUP = "rl.group";
    /// How a call ended: `ok`, `error`, `panic` or `cancelled`.
    OUTCOME = "rl.outcome";
    /// What the time of a leaf span counts as: `productive`, `overhead`, `idle` or `wasted`.
    BUCKET = "rl.bucket";
    /// The name of the span that a metric point is about.
    PHASE = "rl.phase";
    /// Samples drawn for each prompt.
    NUM_GENERATIONS_PER_PROMPT = "rl.num_generations_per_prompt";
    /// The training step at which an evaluation ran.
    STEP = "rl.step";
    /// How many items a stream gave, of a call that returned one.
    STREAM_ITEMS = "rl.stream.items";
    /// How long the first item of a stream took from the call on, in seconds.
    STREAM_TIME_TO_FIRST_ITEM = "rl.stream.time_to_first_item";
    /// `true` on a span that was still open at the shutdown, which ended it; and an event of it.
    TRUNCATED = "nemo.span.truncated";
    /// What ended the program's telemetry, on that event: `shutdown`, `signal` or `exit`.
    TRUNCATED_REASON = "nemo.span.truncated.reason";
    /// The type of the error with which a call ended.
    ERROR_TYPE = "error.type";

    // GenAI attributes.
    /// What the model was asked to do, such as `text_completion` or `chat`.
    GEN_AI_OPERATION_NAME = "gen_ai.operation.name";
    /// Who served the model, such as `vllm`.
    GEN_AI_PROVIDER_NAME = "gen_ai.provider.name";
    /// The model that was asked for.
    GEN_AI_REQUEST_MODEL = "gen_ai.request.model";
    /// `input` or `output`.
    GEN_AI_TOKEN_TYPE = "gen_ai.token.type";
    /// Input tokens of a call, all its requests together.
    GEN_AI_USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens";
    /// Output tokens of a call, all its requests together.
    GEN_AI_USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens";

    // Metrics.
    /// Histogram, seconds: the duration of every annotated call, by phase, group and outcome.
    PHASE_DURATION = "rl.phase.duration";
    /// Histogram, tokens: tokens of one request, by token type.
    GEN_AI_CLIENT_TOKEN_USAGE = "gen_ai.client.token.usage";
    /// Histogram, seconds: the duration of one call to a model.
    GEN_AI_CLIENT_OPERATION_DURATION = "gen_ai.client.operation.duration";

    // Metrics of the delivery, as OpenTelemetry's conventions have them for its SDKs.
    /// Counter, spans: those whose export has finished, without `error.type` those that arrived, else `rejected`,
    /// `failed` or `in_doubt`.
    OTEL_SDK_EXPORTER_SPAN_EXPORTED = "otel.sdk.exporter.span.exported";
    /// Counter, data points of metrics: the same, and `queue_full`.
    OTEL_SDK_EXPORTER_METRIC_DATA_POINT_EXPORTED = "otel.sdk.exporter.metric_data_point.exported";
    /// Counter, log records: the same as for spans.
    OTEL_SDK_EXPORTER_LOG_EXPORTED = "otel.sdk.exporter.log.exported";
    /// Counter, spans: those that were taken to be exported and, with `error.type`, those that were refused
    /// (`queue_full`).
    OTEL_SDK_PROCESSOR_SPAN_PROCESSED = "otel.sdk.processor.span.processed";
    /// Counter, log records: the same.
    OTEL_SDK_PROCESSOR_LOG_PROCESSED = "otel.sdk.processor.log.processed";
    /// Up-down counter, spans: those that wait or are on their way.
    OTEL_SDK_PROCESSOR_SPAN_QUEUE_SIZE = "otel.sdk.processor.span.queue.size";
    /// Up-down counter, log records: the same.
    OTEL_SDK_PROCESSOR_LOG_QUEUE_SIZE = "otel.sdk.processor.log.queue.size";

    // Scalars of a step, as gauges and in the step's event; see `scalars` for their meaning.
    /// Mean reward of the step's samples.
    REWARD_MEAN = "rl.reward.mean";
    /// Divergence of the policy from the reference policy.
    KL_DIVERGENCE = "rl.kl.divergence";
    /// Loss of the policy.
    POLICY_LOSS = "rl.policy.loss";
    /// Loss of the critic.
    VALUE_LOSS = "rl.value.loss";
    /// Entropy of the policy.
    ENTROPY = "rl.entropy";
    /// Mean number of tokens of a response.
    RESPONSE_LENGTH_MEAN = "rl.response.length.mean";
    /// Norm of the gradient, before clipping.
    GRAD_NORM = "rl.grad_norm";
    /// Learning rate.
    LEARNING_RATE = "rl.learning_rate";

    // Log records.
    /// The source file in which a log line was written, as the compiler names it.
    CODE_FILE_PATH = "code.file.path";
    /// The line of that file.
    CODE_LINE_NUMBER = "code.line.number";

    // Log events.
    /// The event that carries the scalars of one training step, exactly as they were given.
    STEP_METRICS_EVENT = "rl.step.metrics";
    /// The event that announces a span which has been open for long, with the ids of that span: should the
    /// process be killed, its children have a parent all the same.
    SPAN_OPEN_EVENT = "rl.span.open";
    /// When an announced span began, in nanoseconds since 1970.
    SPAN_START = "rl.span.start_time_unix_nano";
    /// The id of an announced span's parent, if it has one, in hex.
    SPAN_PARENT = "rl.span.parent_id";

    // Resource attributes.
    /// The name of the service.
    SERVICE_NAME = "service.name";
    /// Unique for each process.
    SERVICE_INSTANCE_ID = "service.instance.id";
    /// The same in every process of a run.
    RUN_ID = "nemo.run.id";
    /// Who started the run, if they said so.
    USER_ID = "nemo.user.id";
    /// The name of the machine.
    HOST_NAME = "host.name";
    /// The process id.
    PROCESS_PID = "process.pid";
}

/// The instrumentation scope of everything that Lens makes.
pub(crate) const SCOPE: &str = "lens";

/// `gen_ai.operation.name` where an annotation counts tokens and names no operation.
pub(crate) const DEFAULT_OPERATION: &str = "text_completion";

/// The unit of durations.
pub(crate) const SECONDS: &str = "s";

/// The unit of token counts.
pub(crate) const TOKENS: &str = "{token}";

/// Bounds of `rl.phase.duration` in seconds: from one millisecond (a reward on a small batch) to
/// an hour (a generation phase on a large one), about three to a decade.
pub(crate) const PHASE_DURATION_BOUNDS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0,
    500.0, 1000.0, 2000.0, 3600.0,
];

/// Bounds that OpenTelemetry's conventions recommend for `gen_ai.client.token.usage`.
pub(crate) const TOKEN_USAGE_BOUNDS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Bounds that OpenTelemetry's conventions recommend for `gen_ai.client.operation.duration`, in seconds.
pub(crate) const OPERATION_DURATION_BOUNDS: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
