//! What is measured? The `telemetry:` block of a run configuration, and what overrules it.
//!
//! Every value remembers where it came from, so that an error can point there and the effective
//! configuration can tell. What is read from the environment is read through one
//! [`Environment`], so that all of this can be tested as functions of values.

mod environment;
mod limits;
mod otlp;
mod overrides;
mod own;
mod sampler;
mod setting;
mod yaml;

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::trace::{ShouldSample, SpanProcessor};

pub use environment::Environment;
pub(crate) use limits::Limits;
pub use otlp::OtlpProtocol;
pub(crate) use otlp::Target;
pub use overrides::Overrides;
pub use setting::Origin;
pub(crate) use setting::Setting;
use setting::{Raw, quoted};

use crate::error::{Error, did_you_mean};
use crate::group::{Selection, SpanGroup};
use crate::sampling::{BuiltInSampler, Steps};
use crate::signal::Signal;

/// The configuration of a run's telemetry.
///
/// It is the `telemetry:` block of the run's YAML file, which may hold anything else beside it:
///
/// ```yaml
/// telemetry:
///   enabled: true
///   span_groups: per_step
/// ```
///
/// | key | type | default | meaning |
/// |---|---|---|---|
/// | `enabled` | bool | `false` | whether anything is recorded; if not, no thread is started, no file written and no socket opened |
/// | `service_name` | string | `rl-trainer` | `service.name` of the resource; `OTEL_SERVICE_NAME` overrules the file, an override on the command line overrules both |
/// | `span_groups` | string | `default` | comma-separated presets (`default`, `per_step`, `all`) and groups whose spans are recorded, with `-` in front those that are not, and with `@` and a number behind those of which a share is kept, see below |
/// | `steps` | string | `all` | of which steps spans are recorded, see below |
/// | `traces_enabled` | bool | `true` | whether spans are recorded |
/// | `metrics_enabled` | bool | `true` | whether metrics and the scalars of each step are recorded |
/// | `logs_enabled` | bool | `false` | whether log lines are recorded, through [`Telemetry::log_layer`](crate::Telemetry::log_layer); with `otlp`, also whether the scalars of each step go as events besides their gauges |
/// | `exporter` | string | `otlp` | `otlp`: to where the `OTEL_EXPORTER_OTLP_*` variables say, see below; `file`: OTLP-JSON lines in the run's folder; `console`: JSON objects on standard output |
/// | `directory` | string | `runs` | where run folders are made, relative to the working directory; a run's is `<directory>/<run id>` |
/// | `file_mib` | integer | `256` | the size, in MiB, 1 to 1048576, beyond which a signal's file is followed by another one: `traces-<process>.jsonl`, `traces-<process>.1.jsonl`, … None is removed |
/// | `queue_mib` | integer | `128` | the most memory that records of all signals may hold while they wait, in MiB, 1 to 65536; spans get three quarters of it. Beyond that, new records are refused and counted. A span takes about 1 KiB, and a fifth of that once it has its place in a request |
/// | `announce_after_s` | integer | `60` | for how many seconds, 0 to 86400, a span has been open when it is announced by an `rl.span.open` event, so that its children have a parent should the process be killed; with `otlp`, if `logs_enabled` is on |
/// | `vllm_native_tracing` | bool | `false` | whether engines that the trainer starts trace themselves; this version starts none and refuses `true` |
///
/// Unknown keys and values of a wrong type are errors with file, line and column. A file without
/// the block is one with telemetry off.
///
/// Later sources overrule earlier ones: default, file, environment (where a variable exists),
/// override, code.
///
/// # Which spans are recorded
///
/// The words of `span_groups` are read from left to right, in any case, and the last one that names a group decides
/// about it. A preset stands for each of its groups; `all` also for those that nobody has used yet.
///
/// | word | meaning |
/// |---|---|
/// | `generation`, `per_step` | the group is on, or each group of the preset |
/// | `-generation`, `-per_step` | it is off; not as the first word |
/// | `generation@0.1`, `all@0.01` | it is on, and this share of its spans is kept, more than 0 and up to 1 |
///
/// So `all,-per_prompt` is everything but the spans of single prompts, and `per_step,generation@0.1` keeps one in ten
/// calls of the engine. Metrics count all of them.
///
/// `steps` is one of these, in any case:
///
/// | text | steps whose spans are recorded |
/// |---|---|
/// | `all` | all |
/// | `every 10` | those whose number can be divided by 10: 0, 10, 20, …; the first one, if it is called 1, is not among them |
/// | `1,5,10-20,100-` | these, with both ends of a range; one without an end goes on for ever |
/// | `slowest 3 of 100` | the three slowest among each hundred that follow one another, 1 to 99 of 100 |
///
/// # Where OTLP goes
///
/// This block says what is measured; where it goes stands in the environment, as OpenTelemetry has it.
/// Each variable exists for all signals and, with `_TRACES_`, `_METRICS_` or `_LOGS_` behind `OTLP`, for
/// one, which then wins. One that is empty is as good as not set. They are read if `exporter` is `otlp`
/// and telemetry is on; what means nothing is an error.
///
/// | variable | default | meaning |
/// |---|---|---|
/// | `OTEL_EXPORTER_OTLP_PROTOCOL` | `grpc` | `grpc`, `http/protobuf` or `http/json`, in any case |
/// | `OTEL_EXPORTER_OTLP_ENDPOINT` | `http://localhost:4317`, with HTTP `http://localhost:4318` | a URL with `http://` or `https://`. With HTTP, the one for all signals is a base: `/v1/traces` and the like is put behind its path, unless it ends so already; one signal's own is used as it is |
/// | `OTEL_EXPORTER_OTLP_INSECURE` | | for gRPC endpoints without `http://` or `https://`, which are an error else: `true` means the first, `false` the second |
/// | `OTEL_EXPORTER_OTLP_HEADERS` | | `name=value,name=value`, values percent-encoded; those for all and those for one signal are put together, per name the signal's wins |
/// | `OTEL_EXPORTER_OTLP_TIMEOUT` | `10000` | how long one request may take, in milliseconds, more than 0 |
/// | `OTEL_EXPORTER_OTLP_COMPRESSION` | `none` | `gzip` or `none` |
/// | `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE` | `cumulative` | for metrics alone: `cumulative`, `delta` or `lowmemory` |
/// | `OTEL_EXPORTER_OTLP_CERTIFICATE` | the machine's | a PEM file with the certificates to trust, for `https://` |
/// | `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE`, `_CLIENT_KEY` | | PEM files with the certificate and the key to show a server that asks for them |
///
/// A program can overrule endpoint, protocol and single headers in code: [`with_endpoint`],
/// [`with_protocol`], [`with_header`]. Variables for proxies are not read.
///
/// # OpenTelemetry's variables for spans
///
/// They are read if telemetry and `traces_enabled` are on; here too what means nothing is an error.
///
/// | variable | default | meaning |
/// |---|---|---|
/// | `OTEL_TRACES_SAMPLER` | `parentbased_always_on` | which traces are recorded: `always_on`, `always_off`, `traceidratio`, or one of these behind `parentbased_`, in any case |
/// | `OTEL_TRACES_SAMPLER_ARG` | | for the two with a ratio, and for no other: which share of the traces, 0 to 1 |
/// | `OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`, else `OTEL_ATTRIBUTE_COUNT_LIMIT` | `128` | how many attributes a span may have |
/// | `OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT`, else `OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT` | | how many characters of a text are kept, besides the 64 KiB that are the most in any case |
/// | `OTEL_SPAN_EVENT_COUNT_LIMIT`, `OTEL_SPAN_LINK_COUNT_LIMIT` | `128` | how many events and links a span may have |
/// | `OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT`, `OTEL_LINK_ATTRIBUTE_COUNT_LIMIT` | `128` | how many attributes each of these may have |
///
/// [`with_endpoint`]: Self::with_endpoint
/// [`with_protocol`]: Self::with_protocol
/// [`with_header`]: Self::with_header
///
/// # Example
///
/// ```
/// use lens_runtime::{Overrides, TelemetryConfig};
///
/// let yaml = "policy: {model_name: tiny}\ntelemetry:\n  enabled: true\n  exporter: file\n";
/// let mut args = vec!["--seed=1".to_owned(), "++telemetry.exporter=console".to_owned()];
/// let overrides = Overrides::take_from(&mut args)?;
/// let config = TelemetryConfig::from_yaml(yaml, "run.yaml")?.with_overrides(&overrides)?;
///
/// assert!(config.is_enabled());
/// assert_eq!(args, ["--seed=1"]);
/// assert!(config.to_string().contains("exporter: \"console\""));
/// # Ok::<(), lens_runtime::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TelemetryConfig {
    pub(crate) enabled: Setting<bool>,
    pub(crate) service_name: Setting<String>,
    pub(crate) span_groups: Setting<String>,
    steps: Setting<String>,
    pub(crate) traces_enabled: Setting<bool>,
    pub(crate) metrics_enabled: Setting<bool>,
    pub(crate) logs_enabled: Setting<bool>,
    pub(crate) exporter: Setting<ExporterKind>,
    pub(crate) directory: Setting<PathBuf>,
    pub(crate) file_mib: Setting<usize>,
    pub(crate) queue_mib: Setting<usize>,
    pub(crate) announce_after_s: Setting<usize>,
    pub(crate) vllm_native_tracing: Setting<bool>,
    pub(crate) groups: Vec<&'static SpanGroup>,
    otlp: otlp::InCode,
    /// Where the signals go, once that is known.
    pub(crate) targets: Vec<Target>,
    /// What the environment says of spans, once it was asked.
    pub(crate) sampler: Setting<BuiltInSampler>,
    pub(crate) limits: Limits,
    pub(crate) own: own::Own,
}

/// Where telemetry goes.
///
/// ```
/// use lens_runtime::{ExporterKind, TelemetryConfig};
///
/// let config = TelemetryConfig::default().with_enabled(true).with_exporter(ExporterKind::Console);
/// assert_eq!(config.exporter().as_str(), "console");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExporterKind {
    /// OTLP, to where the environment says.
    Otlp,
    /// JSON objects on standard output, one a line.
    Console,
    /// OTLP-JSON lines in the run's folder.
    File,
}

impl ExporterKind {
    const ALL: [ExporterKind; 3] = [ExporterKind::Otlp, ExporterKind::Console, ExporterKind::File];

    /// The name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            ExporterKind::Otlp => "otlp",
            ExporterKind::Console => "console",
            ExporterKind::File => "file",
        }
    }
}

/// The keys of the block, in the order in which they are shown.
const KEYS: &[&str] = &[
    "enabled",
    "service_name",
    "span_groups",
    "steps",
    "traces_enabled",
    "metrics_enabled",
    "logs_enabled",
    "exporter",
    "directory",
    "file_mib",
    "queue_mib",
    "announce_after_s",
    "vllm_native_tracing",
];

/// Keys that NeMo-RL once had and that would be read in vain.
const RETIRED: &[&str] = &["export_strategy", "export_rank", "export_sample_rate", "sampler_enabled"];

impl Default for TelemetryConfig {
    /// Telemetry off, and every other value as in the table above.
    fn default() -> Self {
        Self {
            enabled: Setting::default_of(false),
            service_name: Setting::default_of("rl-trainer".to_owned()),
            span_groups: Setting::default_of("default".to_owned()),
            steps: Setting::default_of("all".to_owned()),
            traces_enabled: Setting::default_of(true),
            metrics_enabled: Setting::default_of(true),
            logs_enabled: Setting::default_of(false),
            exporter: Setting::default_of(ExporterKind::Otlp),
            directory: Setting::default_of(PathBuf::from("runs")),
            file_mib: Setting::default_of(256),
            queue_mib: Setting::default_of(128),
            announce_after_s: Setting::default_of(60),
            vllm_native_tracing: Setting::default_of(false),
            groups: Vec::new(),
            otlp: otlp::InCode::default(),
            targets: Vec::new(),
            sampler: Setting::default_of(BuiltInSampler::DEFAULT),
            limits: Limits::default(),
            own: own::Own::default(),
        }
    }
}

impl TelemetryConfig {
    /// Reads the `telemetry:` block of a YAML run configuration.
    ///
    /// # Errors
    /// If the file cannot be read, is not YAML, or its block holds an unknown key or a value of a
    /// wrong type.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| crate::error::Kind::Read { path: path.to_owned(), source })?;
        Self::from_yaml(&text, &path.display().to_string())
    }

    /// Reads the `telemetry:` block out of YAML text; `name` is what errors call it.
    ///
    /// # Errors
    /// As for [`from_file`](Self::from_file).
    pub fn from_yaml(text: &str, name: &str) -> Result<Self, Error> {
        let mut config = Self::default();
        for (key, raw) in yaml::block(text, name)? {
            config.set(&key, &raw)?;
        }
        Ok(config)
    }

    /// Applies overrides of the command line.
    ///
    /// # Errors
    /// If one names an unknown key or holds a value of a wrong type.
    pub fn with_overrides(mut self, overrides: &Overrides) -> Result<Self, Error> {
        for (key, raw) in overrides.iter() {
            self.set(key, raw)?;
        }
        Ok(self)
    }

    /// Makes span groups known that are not built in, so that `span_groups` can name them.
    #[must_use]
    pub fn with_groups(mut self, groups: &[&'static SpanGroup]) -> Self {
        self.groups.extend(groups);
        self
    }

    /// Switches telemetry on or off.
    #[must_use]
    pub fn with_enabled(mut self, enabled: bool) -> Self {
        self.enabled = Setting::in_code(enabled);
        self
    }

    /// Sets the groups whose spans are recorded, in the grammar of `span_groups`.
    #[must_use]
    pub fn with_span_groups(mut self, span_groups: impl Into<String>) -> Self {
        self.span_groups = Setting::in_code(span_groups.into());
        self
    }

    /// Asks a sampler of the program's own of every span that would be recorded, instead of the one that
    /// `OTEL_TRACES_SAMPLER` names. What it keeps, a share (`group@0.1`) and `steps` may still leave out. It is not asked
    /// of what is within a call that has no span, which has none either: no tree is without its root. It runs in the
    /// thread and the context of the call; if it panics, the span is left out.
    ///
    /// ```
    /// use lens_runtime::opentelemetry::Context;
    /// use lens_runtime::opentelemetry::trace::{Link, SpanKind, TraceId, TraceState};
    /// use lens_runtime::opentelemetry::KeyValue;
    /// use lens_runtime::opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};
    ///
    /// /// Leaves out whatever is called a warm-up.
    /// #[derive(Clone, Debug)]
    /// struct NoWarmUp;
    ///
    /// impl ShouldSample for NoWarmUp {
    ///     fn should_sample(
    ///         &self,
    ///         _parent: Option<&Context>,
    ///         _trace_id: TraceId,
    ///         name: &str,
    ///         _kind: &SpanKind,
    ///         _attributes: &[KeyValue],
    ///         _links: &[Link],
    ///     ) -> SamplingResult {
    ///         SamplingResult {
    ///             decision: match name.ends_with("warm_up") {
    ///                 true => SamplingDecision::Drop,
    ///                 false => SamplingDecision::RecordAndSample,
    ///             },
    ///             attributes: Vec::new(),
    ///             trace_state: TraceState::default(),
    ///         }
    ///     }
    /// }
    ///
    /// let config = lens_runtime::TelemetryConfig::default().with_sampler(NoWarmUp);
    /// # drop(config);
    /// ```
    #[must_use]
    pub fn with_sampler(mut self, sampler: impl ShouldSample + 'static) -> Self {
        self.own.sampler = Some(Box::new(sampler));
        self
    }

    /// Shows every span to a processor of the program's own, which `new` makes for each telemetry that is set up.
    ///
    /// A processor can only be shown spans of the SDK's, so that with one annotated calls make those: all that the SDK
    /// does for spans is done then, and a span costs more than one of the SDK's, instead of less. Where a processor is only
    /// wanted for spans of other libraries, a tracer provider of one's own is cheaper.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lens_runtime::opentelemetry::Context;
    /// use lens_runtime::opentelemetry_sdk::error::OTelSdkResult;
    /// use lens_runtime::opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
    ///
    /// #[derive(Debug)]
    /// struct PrintNames;
    ///
    /// impl SpanProcessor for PrintNames {
    ///     fn on_start(&self, _span: &mut Span, _context: &Context) {}
    ///
    ///     fn on_end(&self, span: SpanData) {
    ///         println!("{}", span.name);
    ///     }
    ///
    ///     fn force_flush(&self) -> OTelSdkResult {
    ///         Ok(())
    ///     }
    ///
    ///     fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let config = lens_runtime::TelemetryConfig::default().with_span_processor(|| PrintNames);
    /// # drop(config);
    /// ```
    #[must_use]
    pub fn with_span_processor<P: SpanProcessor + 'static>(
        mut self,
        new: impl Fn() -> P + Send + Sync + 'static,
    ) -> Self {
        self.own.processors.push(Arc::new(move || own::OwnProcessor(Box::new(new()))));
        self
    }

    /// Sets the steps whose spans are recorded, in the grammar of `steps`.
    ///
    /// ```
    /// let config = lens_runtime::TelemetryConfig::default().with_steps("every 10");
    /// assert!(config.to_string().contains("steps: \"every 10\""));
    /// ```
    #[must_use]
    pub fn with_steps(mut self, steps: impl Into<String>) -> Self {
        self.steps = Setting::in_code(steps.into());
        self
    }

    /// Sets the exporter.
    #[must_use]
    pub fn with_exporter(mut self, exporter: ExporterKind) -> Self {
        self.exporter = Setting::in_code(exporter);
        self
    }

    /// Sends all signals by OTLP to this URL. With HTTP, `/v1/traces` and the like is put behind its path,
    /// unless it ends so already.
    #[must_use]
    pub fn with_endpoint(mut self, url: impl Into<String>) -> Self {
        self.otlp.endpoint = Some(otlp::Secret(url.into()));
        self
    }

    /// Speaks OTLP in this way, for all signals.
    #[must_use]
    pub fn with_protocol(mut self, protocol: OtlpProtocol) -> Self {
        self.otlp.protocol = Some(protocol);
        self
    }

    /// Sends a header with every OTLP request, its value byte for byte as it is given. It wins over one of
    /// the same name in the environment.
    ///
    /// ```
    /// # let key = "k";
    /// let config = lens_runtime::TelemetryConfig::default().with_header("authorization", format!("Bearer {key}"));
    /// assert!(!format!("{config:?}").contains("Bearer"));
    /// ```
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.otlp.headers.push((otlp::Secret(name.into()), otlp::Secret(value.into())));
        self
    }

    /// Sets the directory in which run folders are made.
    #[must_use]
    pub fn with_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Setting::in_code(directory.into());
        self
    }

    /// Sets `service.name`.
    #[must_use]
    pub fn with_service_name(mut self, name: impl Into<String>) -> Self {
        self.service_name = Setting::in_code(name.into());
        self
    }

    /// Whether anything is recorded.
    pub fn is_enabled(&self) -> bool {
        self.enabled.value
    }

    /// Where telemetry goes.
    pub fn exporter(&self) -> ExporterKind {
        self.exporter.value
    }

    fn set(&mut self, key: &str, raw: &Raw) -> Result<(), Error> {
        match key {
            "enabled" => self.enabled = raw.boolean()?,
            "service_name" => self.service_name = raw.text("a name")?,
            "span_groups" => self.span_groups = raw.text("presets and groups, such as per_step")?,
            "steps" => self.steps = raw.text_or_number("steps, such as \"every 10\"")?,
            "traces_enabled" => self.traces_enabled = raw.boolean()?,
            "metrics_enabled" => self.metrics_enabled = raw.boolean()?,
            "logs_enabled" => self.logs_enabled = raw.boolean()?,
            "exporter" => self.exporter = exporter(raw)?,
            "directory" => self.directory = raw.text("a folder")?.map(PathBuf::from),
            "file_mib" => self.file_mib = raw.whole(1..=1_048_576, "MiB of a file")?,
            "queue_mib" => self.queue_mib = raw.whole(1..=65_536, "MiB of memory")?,
            "announce_after_s" => self.announce_after_s = raw.whole(0..=86_400, "seconds")?,
            "vllm_native_tracing" => self.vllm_native_tracing = raw.boolean()?,
            _ => return Err(unknown_key(key, raw.origin())),
        }
        Ok(())
    }

    /// The groups that are switched on, and the errors that only show when all is known.
    pub(crate) fn validate(&self) -> Result<Selection, Error> {
        if self.vllm_native_tracing.value {
            let problem =
                "telemetry.vllm_native_tracing is true, but this version starts no engines; expected false";
            return Err(Error::invalid(&self.vllm_native_tracing.origin, problem));
        }
        self.steps()?;
        self.selection(&self.span_groups)
    }

    /// The steps whose spans are recorded.
    ///
    /// # Errors
    /// If the text means nothing.
    pub(crate) fn steps(&self) -> Result<Steps, Error> {
        let Setting { value, origin } = &self.steps;
        Steps::parse(value).map_err(|problem| Error::invalid(origin, format!("telemetry.steps: {problem}")))
    }

    /// Finds out where each signal goes that is on.
    ///
    /// # Errors
    /// If a variable of the environment, or what the program said, means nothing.
    pub(crate) fn with_targets(mut self, environment: &Environment) -> Result<Self, Error> {
        if self.exporter.value == ExporterKind::Otlp {
            let on = Signal::ALL.into_iter().filter(|signal| self.has(*signal));
            self.targets =
                on.map(|signal| Target::resolve(signal, &self, environment)).collect::<Result<_, _>>()?;
        }
        Ok(self)
    }

    /// Asks the environment which traces are recorded and how much a span may hold.
    ///
    /// # Errors
    /// If a variable means nothing.
    pub(crate) fn with_span_variables(mut self, environment: &Environment) -> Result<Self, Error> {
        if self.has(Signal::Traces) {
            self.sampler = sampler::resolve(environment)?;
            self.limits = Limits::resolve(environment)?;
        }
        Ok(self)
    }

    /// From when metrics count: since the start, as files and the console have them, or as the variable
    /// says.
    ///
    /// # Errors
    /// If the variable means nothing.
    pub(crate) fn temporality(&self, environment: &Environment) -> Result<Temporality, Error> {
        match self.exporter.value {
            ExporterKind::Otlp => otlp::temporality(environment),
            ExporterKind::Console | ExporterKind::File => Ok(Temporality::Cumulative),
        }
    }

    /// Whether anything of this signal is made.
    pub(crate) fn has(&self, signal: Signal) -> bool {
        match signal {
            Signal::Traces => self.traces_enabled.value,
            Signal::Metrics => self.metrics_enabled.value,
            // The scalars of a step are events: they belong to the metrics, and travel with the logs.
            // Many receivers take no logs, so that over the wire only those that were asked for go.
            Signal::Logs => {
                let is_local = self.exporter.value != ExporterKind::Otlp;
                self.logs_enabled.value || (is_local && self.metrics_enabled.value)
            }
        }
    }

    /// Reads a `span_groups` text.
    pub(crate) fn selection(&self, span_groups: &Setting<String>) -> Result<Selection, Error> {
        Selection::parse(&span_groups.value, &self.groups)
            .map_err(|wrong| Error::invalid(&span_groups.origin, wrong.told(" in telemetry.span_groups")))
    }

    /// Takes over what the environment says of these values.
    pub(crate) fn with_environment(mut self, environment: &Environment) -> Self {
        const NAME: &str = "OTEL_SERVICE_NAME";
        let is_overruled = matches!(self.service_name.origin, Origin::Default | Origin::File { .. });
        if let Some(name) = environment.get(NAME).filter(|_| is_overruled) {
            self.service_name = Setting { value: name, origin: Origin::Variable(NAME) };
        }
        self
    }

    /// Each key with its value as YAML and its origin.
    fn rows(&self) -> [(&'static str, String, &Origin); 13] {
        let flag = |setting: &Setting<bool>| setting.value.to_string();
        [
            (KEYS[0], flag(&self.enabled), &self.enabled.origin),
            (KEYS[1], quoted(&self.service_name.value), &self.service_name.origin),
            (KEYS[2], quoted(&self.span_groups.value), &self.span_groups.origin),
            (KEYS[3], quoted(&self.steps.value), &self.steps.origin),
            (KEYS[4], flag(&self.traces_enabled), &self.traces_enabled.origin),
            (KEYS[5], flag(&self.metrics_enabled), &self.metrics_enabled.origin),
            (KEYS[6], flag(&self.logs_enabled), &self.logs_enabled.origin),
            (KEYS[7], quoted(self.exporter.value.as_str()), &self.exporter.origin),
            (KEYS[8], quoted(&self.directory.value.display().to_string()), &self.directory.origin),
            (KEYS[9], self.file_mib.value.to_string(), &self.file_mib.origin),
            (KEYS[10], self.queue_mib.value.to_string(), &self.queue_mib.origin),
            (KEYS[11], self.announce_after_s.value.to_string(), &self.announce_after_s.origin),
            (KEYS[12], flag(&self.vllm_native_tracing), &self.vllm_native_tracing.origin),
        ]
    }
}

impl fmt::Display for TelemetryConfig {
    /// The effective configuration as a `telemetry:` block, with the origin of each value beside it; of
    /// running telemetry also where each signal goes and what variables say of spans, as comments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows().map(|(key, value, origin)| (format!("{key}: {value}"), origin));
        let width = rows.iter().map(|(text, _)| text.len()).max().unwrap_or(0);
        let mut text = "telemetry:\n".to_owned();
        for (setting, origin) in rows {
            writeln!(text, "  {setting:<width$}  # {origin}")?;
        }
        for target in &self.targets {
            writeln!(text, "# {target}")?;
        }
        if self.sampler.origin != Origin::Default {
            writeln!(text, "# traces are recorded by {} ({})", self.sampler.value, self.sampler.origin)?;
        }
        if !self.limits.are_default() {
            writeln!(text, "# {}", self.limits)?;
        }
        f.write_str(&text)
    }
}

fn exporter(raw: &Raw) -> Result<Setting<ExporterKind>, Error> {
    let names = ExporterKind::ALL.map(ExporterKind::as_str);
    let text = raw.text("an exporter, otlp, console or file")?;
    match ExporterKind::ALL.into_iter().find(|kind| kind.as_str() == text.value) {
        Some(kind) => Ok(text.map(|_| kind)),
        None => Err(Error::invalid(
            raw.origin(),
            format!(
                "unknown exporter {:?} in telemetry.exporter{}; expected otlp, console or file",
                text.value,
                did_you_mean(&text.value, names)
            ),
        )),
    }
}

fn unknown_key(key: &str, origin: &Origin) -> Error {
    // What was meant may be an endpoint or a header, with a password in it.
    let is_word = |value: &str| value.chars().all(|c| c.is_alphanumeric() || "_-.,".contains(c));
    let origin = &match origin {
        Origin::Override(argument) => Origin::Override(match argument.split_once('=') {
            Some((path, value)) if !is_word(value) => format!("{path}=[redacted]"),
            _ => argument.clone(),
        }),
        origin => origin.clone(),
    };
    let problem = if RETIRED.contains(&key) {
        format!(
            "telemetry.{key} was retired: every process that enables telemetry exports. Remove the key, and thin \
             out processes behind the exporter"
        )
    } else {
        let hint = did_you_mean(key, KEYS.iter().copied());
        format!("unknown key telemetry.{key}{hint}; expected one of {}", KEYS.join(", "))
    };
    Error::invalid(origin, problem)
}

/// How often metrics are collected; NeMo-RL's default, not the SDK's minute.
const METRIC_INTERVAL: Duration = Duration::from_secs(10);

/// The collection interval of metrics.
///
/// # Errors
/// If the variable holds no positive number of milliseconds.
pub(crate) fn metric_interval(environment: &Environment) -> Result<Duration, Error> {
    const NAME: &str = "OTEL_METRIC_EXPORT_INTERVAL";
    match environment.get(NAME) {
        None => Ok(METRIC_INTERVAL),
        Some(value) => otlp::millis(&Setting { value, origin: Origin::Variable(NAME) }).map(|set| set.value),
    }
}
