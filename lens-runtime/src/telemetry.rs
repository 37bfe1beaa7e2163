//! How does telemetry begin and end?
//!
//! Set-up happens once, on the driver, and fails loudly there or not at all. From then on nothing
//! here fails: what could not be delivered is counted, and told at the end.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::logs::LoggerProvider as _;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use opentelemetry_sdk::trace::{SdkTracerProvider, TracerProviderBuilder as SdkTracerProviderBuilder};
use tracing_subscriber::Layer;

use crate::config::{self, Environment, ExporterKind, Origin, Setting, Target, TelemetryConfig};
use crate::delivery::{self, Counts, Delivery, MetricCourier};
use crate::error::{Error, Kind};
use crate::export::{Client, Exporter, Files};
use crate::group::{self, Selection};
use crate::ids::IdsOfSdk;
use crate::late::{self, Late};
use crate::logs::{LogLayer, TeeLog};
use crate::metrics::{self, Instruments};
use crate::notice;
use crate::pipeline::{self, Pipeline};
use crate::process::{self, Last};
use crate::propagation;
use crate::resource::Identity;
use crate::signal::Signal;
use crate::span::{SamplerOfSdk, Sampling, Spans, TableRef};
use crate::summary::Phases;

/// How long a handle that is dropped, a signal and an exit wait for what is left to be written.
const DROP_DEADLINE: Duration = Duration::from_secs(5);

/// How often it is looked whether a span is to be announced, at the least and at the most.
const LOOK_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// The telemetry that is on in this process.
static ACTIVE: Mutex<Option<Arc<Running>>> = Mutex::new(None);

fn active() -> MutexGuard<'static, Option<Arc<Running>>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run's telemetry; keep it until the run is over.
///
/// [`shutdown`](Self::shutdown) ends it and reports. Where that is not called, the end comes with a deadline of 5 s
/// and reports what was lost, if anything was:
///
/// - The handle is dropped, also by a panic.
/// - The program ends and nobody has dropped it: by `std::process::exit`, or because it lies in a `static`.
/// - The process gets a SIGTERM or SIGINT that nobody else handles, and is then ended by it as it would have been. A
///   program that handles them, before or after, is left alone; see [`flush_on_signal`](crate::flush_on_signal).
///
/// Spans that are open at the end are ended by it, the youngest first, with `nemo.span.truncated`. What ends the process
/// without a word, as `abort`, `_exit` and SIGKILL do, loses what was recorded in the last second or so; of spans that
/// had been open for long there is an `rl.span.open` event in the log (`announce_after_s`).
///
/// In a process that is forked from this one telemetry is off, its handle does nothing, and another can be set up; what
/// that records has the spans that were open at the fork as parents.
///
/// # Example
///
/// ```no_run
/// use std::time::Duration;
/// use lens_runtime::{Overrides, Telemetry, TelemetryConfig};
///
/// fn main() -> Result<(), lens_runtime::Error> {
///     let mut args: Vec<String> = std::env::args().collect();
///     let overrides = Overrides::take_from(&mut args)?;
///     let config = TelemetryConfig::from_file("run.yaml")?.with_overrides(&overrides)?;
///     let telemetry = Telemetry::init_driver(config)?;
///
///     // train(args)
///
///     let report = telemetry.shutdown(Duration::from_secs(5));
///     println!("{report}");
///     Ok(())
/// }
/// ```
#[must_use = "dropping the handle ends the telemetry at once"]
pub struct Telemetry {
    /// `None` if telemetry is off, or has ended.
    running: Option<Arc<Running>>,
}

struct Running {
    config: TelemetryConfig,
    run_id: String,
    folder: Option<PathBuf>,
    pipeline: Arc<Pipeline>,
    delivery: Delivery,
    tracer_provider: Option<SdkTracerProvider>,
    meter_provider: Option<SdkMeterProvider>,
    logger_provider: Option<SdkLoggerProvider>,
    announcer: Option<Announcer>,
    /// Once it has ended, whoever asked for that first.
    report: Mutex<Option<RunReport>>,
}

impl Telemetry {
    /// Sets up the telemetry of the process that drives the run. With `enabled: false` it only
    /// checks the configuration.
    ///
    /// OpenTelemetry's global tracer and meter providers are Lens's from here on, so that what other
    /// libraries record goes the same way; so is the global propagator, for W3C trace context and baggage.
    /// What was taken from them stays good: it records whenever telemetry is on, and nothing between a
    /// shutdown and the next set-up. What was taken from OpenTelemetry's globals before the first set-up is
    /// OpenTelemetry's own and never records anything; [`tracer`](crate::tracer) and
    /// [`meter`](crate::meter) hand out what may be taken at any time. A program that sets global providers
    /// of its own does so after this. A runtime is neither needed nor used.
    ///
    /// The run's id is `LENS_RUN_ID`, `NEMO_RL_OTEL_RUN_ID` or `SLURM_JOB_ID`, whichever is set
    /// first in this order, and otherwise twelve random hex digits.
    ///
    /// # Errors
    /// If the configuration means nothing, if the run's folder cannot be written, or if telemetry is
    /// on already.
    pub fn init_driver(config: TelemetryConfig) -> Result<Self, Error> {
        Self::init_driver_in(config, &Environment::of_process())
    }

    /// The same, with these environment variables instead of the process's.
    ///
    /// # Errors
    /// As for [`init_driver`](Self::init_driver).
    pub fn init_driver_in(config: TelemetryConfig, environment: &Environment) -> Result<Self, Error> {
        let config = config.with_environment(environment);
        let selection = config.validate()?;
        let metric_interval = config::metric_interval(environment)?;
        let identity = Identity::detect(&config, environment)?;
        if !config.enabled.value {
            return Ok(Self { running: None });
        }
        let mut active = active();
        if let Some(running) = active.as_ref().filter(|running| running.is_here()) {
            return Err(Kind::AlreadyInitialized { run_id: running.run_id.clone() }.into());
        }
        let config = config.with_targets(environment)?.with_span_variables(environment)?;
        let place = Place::find(&config, environment, &identity)?;
        let running = Running::start(config, identity, place, metric_interval).map(Arc::new)?;
        process::listen(Last { flush: flush_active, stop: stop_active })
            .map_err(|source| Kind::Thread { source })?;
        // What a fork brought along is left as it is: to end it would be to wait for threads that are not here.
        std::mem::forget(active.replace(Arc::clone(&running)));
        drop(active);
        running.select(selection);
        running.announce();
        Ok(Self { running: Some(running) })
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.running().is_some()
    }

    fn running(&self) -> Option<&Arc<Running>> {
        self.running.as_ref().filter(|running| running.is_here())
    }

    /// The run's id; `None` if telemetry is off.
    pub fn run_id(&self) -> Option<&str> {
        self.running().map(|running| running.run_id.as_str())
    }

    /// The run's folder; `None` if no files are written.
    pub fn folder(&self) -> Option<&Path> {
        self.running()?.folder.as_deref()
    }

    /// The effective configuration, with the origin of each value; `None` if telemetry is off.
    pub fn config(&self) -> Option<&TelemetryConfig> {
        self.running().map(|running| &running.config)
    }

    /// A layer for the program's `tracing` subscriber that records its log lines, each with its level,
    /// target, fields and place in the code, and with the ids of the span in which it was written. `None`,
    /// which is a layer too and does nothing, unless `logs_enabled` is on.
    ///
    /// Lines of the `log` crate come along where the subscriber takes them up, as that of
    /// `tracing_subscriber::fmt` does. Which levels are recorded is the subscriber's filter to say. What
    /// the export itself says is never recorded. Of a long text the first 64 KiB are.
    ///
    /// # Example
    /// ```
    /// use lens_runtime::Telemetry;
    /// use tracing_subscriber::layer::SubscriberExt as _;
    ///
    /// # fn logs(telemetry: &Telemetry) {
    /// let subscriber = tracing_subscriber::registry().with(telemetry.log_layer());
    /// let _guard = tracing::subscriber::set_default(subscriber);
    /// # }
    /// ```
    pub fn log_layer<S: tracing::Subscriber>(&self) -> Option<impl Layer<S> + use<S>> {
        self.line_logger().map(|logger| LogLayer { logger })
    }

    /// A logger for the `log` crate that hands each line to `own`, which may be any other logger, and
    /// records those that `own` has enabled, as [`log_layer`](Self::log_layer) does. Unless `logs_enabled`
    /// is on, it is `own` and nothing else. For programs that do without `tracing`.
    ///
    /// # Example
    /// ```
    /// # fn logs(telemetry: &lens_runtime::Telemetry, env_logger: impl log::Log + 'static) {
    /// // `env_logger` is what the program used before.
    /// log::set_boxed_logger(Box::new(telemetry.tee_log(env_logger))).expect("no logger is set yet");
    /// log::set_max_level(log::LevelFilter::Info);
    /// # }
    /// ```
    pub fn tee_log<L: log::Log>(&self, own: L) -> impl log::Log + use<L> {
        TeeLog { own, logger: self.line_logger() }
    }

    /// What log lines are recorded with. The name of a line's scope is its target.
    fn line_logger(&self) -> Option<SdkLogger> {
        let running = self.running().filter(|running| running.config.logs_enabled.value)?;
        running.logger_provider.as_ref().map(|provider| provider.logger(""))
    }

    /// Switches span groups while the program runs. Calls that are under way end as they began.
    ///
    /// # Errors
    /// If the text names an unknown group; nothing is switched then.
    ///
    /// # Example
    /// ```
    /// # fn debug_this_step(telemetry: &lens_runtime::Telemetry) -> Result<(), lens_runtime::Error> {
    /// telemetry.set_span_groups("per_step,per_prompt")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_span_groups(&self, span_groups: &str) -> Result<(), Error> {
        let Some(running) = self.running() else {
            return Ok(());
        };
        let selection = running.config.selection(&Setting::in_code(span_groups.to_owned()))?;
        running.select(selection);
        Ok(())
    }

    /// Writes what was recorded so far, within `deadline`. Whether all of it was written, or accepted by
    /// the receiver.
    ///
    /// Spans that are open are not part of it, but those that have been so for `announce_after_s` are announced.
    pub fn flush(&self, deadline: Duration) -> bool {
        self.running().is_none_or(|running| running.flush(deadline))
    }

    /// What became of the records so far.
    pub fn health(&self) -> Health {
        self.running().map_or_else(Health::default, |running| Health::of(&running.delivery))
    }

    /// Ends the telemetry: writes what is left, within `deadline`, and reports. Afterwards annotated
    /// calls are off, and telemetry can be set up again.
    ///
    /// It can be called from anywhere, also within a runtime, whose thread then waits for it; see
    /// [`shutdown_async`](Self::shutdown_async).
    pub fn shutdown(mut self, deadline: Duration) -> RunReport {
        self.running.take().map(|running| running.stop(deadline, "shutdown")).unwrap_or_default()
    }
}

impl Telemetry {
    /// [`shutdown`](Self::shutdown) without a wait on this thread. It goes on if the future is dropped.
    pub async fn shutdown_async(self, deadline: Duration) -> RunReport {
        let (report, reported) = tokio::sync::oneshot::channel();
        // If there is no thread to be had, the handle is dropped with the closure, which ends it too.
        let _thread = thread::Builder::new().name("lens-shutdown".to_owned()).spawn(move || {
            let _gone = report.send(self.shutdown(deadline));
        });
        reported.await.unwrap_or_default()
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop(DROP_DEADLINE, "shutdown");
        }
    }
}

/// Does `work`, and waits for it no longer: a collection runs callbacks of the program's, which may hang.
fn within(time: Duration, work: impl FnOnce() + Send + 'static) {
    let (working, worked) = mpsc::channel::<()>();
    let thread = thread::Builder::new().name("lens-collect".to_owned()).spawn(move || {
        work();
        drop(working);
    });
    // It hangs up when it is done, or when there is no thread to be had.
    let _done = worked.recv_timeout(time);
    drop(thread);
}

/// Writes what the process has recorded so far.
fn flush_active() {
    let running = active().clone();
    if let Some(running) = running {
        running.flush(DROP_DEADLINE);
    }
}

/// Ends the telemetry of the process.
fn stop_active(reason: &'static str) {
    let running = active().clone();
    if let Some(running) = running {
        running.stop(DROP_DEADLINE, reason);
    }
}

impl Running {
    /// Builds everything and makes it the process's.
    fn start(
        config: TelemetryConfig,
        identity: Identity,
        place: Place,
        metric_interval: Duration,
    ) -> Result<Self, Error> {
        let Place { exporters, temporality, folder } = place;
        let [_, metric_exporter, _] = &exporters;
        let encode = metric_exporter.encoder.metrics();
        let era = pipeline::next_era();
        let steps = config.steps()?;
        let delivery = Delivery::start(exporters, config.queue_mib.value << 20, era, &steps)
            .map_err(|source| Kind::Thread { source })?;
        let scope = metrics::scope();
        let sampling = || match &config.own.sampler {
            Some(sampler) => Sampling::Own(sampler.clone()),
            None => Sampling::BuiltIn(config.sampler.value),
        };
        let limits = config.limits.of_spans();
        let tracer_provider = config.has(Signal::Traces).then(|| {
            let builder = SdkTracerProvider::builder()
                .with_span_limits(limits)
                .with_id_generator(IdsOfSdk)
                .with_resource(identity.resource.clone())
                .with_sampler(SamplerOfSdk::new(&sampling()));
            let processors = config.own.processors.iter().map(|new| new());
            let builder = processors.fold(builder, SdkTracerProviderBuilder::with_span_processor);
            builder.with_span_processor(delivery.clone()).build()
        });
        let meter_provider = config.has(Signal::Metrics).then(|| {
            let courier = MetricCourier {
                delivery: delivery.clone(),
                encode,
                temporality,
                closed: AtomicBool::new(false),
            };
            let reader = PeriodicReader::builder(courier).with_interval(metric_interval).build();
            SdkMeterProvider::builder().with_reader(reader).with_resource(identity.resource.clone()).build()
        });
        let logger_provider = config.has(Signal::Logs).then(|| {
            SdkLoggerProvider::builder()
                .with_log_processor(delivery.clone())
                .with_resource(identity.resource.clone())
                .build()
        });
        let pipeline = Arc::new(Pipeline {
            spans: tracer_provider.as_ref().map(|provider| Spans {
                run_id: Arc::from(identity.run_id.as_str()),
                sampling: sampling(),
                steps,
                ordinals: Arc::default(),
                tracer: (!config.own.processors.is_empty())
                    .then(|| BoxedTracer::new(Box::new(provider.tracer_with_scope(scope.clone())))),
            }),
            era,
            instruments: meter_provider.as_ref().map(|provider| {
                let meter = provider.meter_with_scope(scope.clone());
                delivery::observe(&delivery, &meter);
                Instruments::new(&meter)
            }),
            step_events: logger_provider
                .as_ref()
                .map(|provider| metrics::step_events(provider.logger_with_scope(scope.clone()))),
            tracers: tracer_provider.clone().map(|provider| Box::new(provider) as _),
            meters: meter_provider.clone().map(|provider| Box::new(provider) as _),
            table: TableRef::default(),
            process: process::generation(),
        });
        let announcer = match &logger_provider {
            Some(provider) => {
                let logger = provider.logger_with_scope(scope);
                let after = Duration::from_secs(config.announce_after_s.value as u64);
                Some(Announcer::start(&pipeline, logger, after).map_err(|source| Kind::Thread { source })?)
            }
            None => None,
        };
        pipeline.table.open(era, Some(&delivery.outlet()), limits, config.limits.value_length());
        // Before, so that nobody has to make an instrument who measures; and again, for those that were
        // taken meanwhile.
        late::follow(&pipeline);
        pipeline::activate(Some(Arc::clone(&pipeline)));
        late::follow(&pipeline);
        // For other libraries. A tracer that one of them takes is to find its context in requests and
        // its instruments, so that it comes last. They stay, because what was taken from them does.
        global::set_text_map_propagator(propagation::propagator());
        if meter_provider.is_some() {
            global::set_meter_provider(Late);
        }
        if tracer_provider.is_some() {
            global::set_tracer_provider(Late);
        }
        group::join_all(&config.groups);
        Ok(Self {
            run_id: identity.run_id,
            config,
            folder,
            pipeline,
            delivery,
            tracer_provider,
            meter_provider,
            logger_provider,
            announcer,
            report: Mutex::default(),
        })
    }

    /// Whether this is the process in which it was started.
    fn is_here(&self) -> bool {
        !self.delivery.is_elsewhere()
    }

    fn flush(&self, deadline: Duration) -> bool {
        let until = Instant::now() + deadline;
        if let Some(announcer) = &self.announcer {
            announcer.announce(&self.pipeline);
        }
        if let Some(provider) = self.meter_provider.clone() {
            // It fails only if the collection cannot be queued, which is counted.
            within(deadline / 2, move || drop(provider.force_flush()));
        }
        self.delivery.flush(until)
    }

    fn select(&self, selection: Selection) {
        let spans = if self.tracer_provider.is_some() { selection } else { Selection::default() };
        group::select(spans, self.meter_provider.is_some());
    }

    /// Tells the program's log what is on, and by whose word.
    fn announce(&self) {
        tracing::info!(
            run_id = self.run_id,
            folder = ?self.folder,
            "telemetry is on\n{}",
            self.config
        );
    }

    /// Ends it, unless that was done; then waits until it is. In a forked process it does nothing.
    fn stop(self: Arc<Self>, deadline: Duration, reason: &'static str) -> RunReport {
        if !self.is_here() {
            // What it holds would wait for its threads, which are not here.
            std::mem::forget(self);
            return RunReport::default();
        }
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.get_or_insert_with(|| self.end(deadline, reason)).clone()
    }

    fn end(&self, deadline: Duration, reason: &'static str) -> RunReport {
        let until = Instant::now() + deadline;
        group::select(Selection::default(), false);
        pipeline::activate(None);
        let table = &self.pipeline.table;
        table.close();
        table.end_all(reason);
        if let Some(provider) = &self.tracer_provider {
            // Spans that end from here on have nowhere to go.
            let _infallible = provider.shutdown();
        }
        self.delivery.leave_open_spans();
        if let Some(provider) = self.meter_provider.clone() {
            // Collects once more. It fails only if the collection cannot be queued, which is counted.
            within(deadline / 2, move || drop(provider.shutdown()));
        }
        let phases = self.delivery.close(until).unwrap_or_default();
        let health = Health::of(&self.delivery);
        *active() = None;
        let report = RunReport {
            run_id: Some(self.run_id.clone()),
            folder: self.folder.clone(),
            endpoint: self.config.targets.first().map(Target::shown),
            phases,
            health,
        };
        if report.health.is_lossy() {
            tracing::warn!("{}", report.losses());
            // Also where a subscriber hides it: what is lost at the end cannot be looked up elsewhere.
            notice::to_stderr(&report.losses());
        }
        report
    }
}

/// Announces the spans that have been open for long, while it is there.
struct Announcer {
    logger: SdkLogger,
    after: Duration,
    /// Its thread ends with this.
    _thread: mpsc::Sender<()>,
}

impl Announcer {
    fn start(pipeline: &Arc<Pipeline>, logger: SdkLogger, after: Duration) -> std::io::Result<Self> {
        let (thread, ended) = mpsc::channel();
        let announcer = Self { logger: logger.clone(), after, _thread: thread };
        let pipeline = Arc::downgrade(pipeline);
        let [shortest, longest] = LOOK_EVERY;
        thread::Builder::new().name("lens-announcer".to_owned()).spawn(move || {
            while ended.recv_timeout(after.clamp(shortest, longest)) == Err(RecvTimeoutError::Timeout)
                && let Some(pipeline) = pipeline.upgrade()
            {
                pipeline.table.announce(after, &logger);
            }
        })?;
        Ok(announcer)
    }

    fn announce(&self, pipeline: &Pipeline) {
        pipeline.table.announce(self.after, &self.logger);
    }
}

/// Where the telemetry of a run goes.
struct Place {
    /// Of traces, metrics and logs. What is off has one that is never used.
    exporters: [Exporter; 3],
    temporality: Temporality,
    folder: Option<PathBuf>,
}

impl Place {
    /// Makes the exporters; for files, also the run's folder with the effective configuration in it,
    /// which shows at once whether it can be written.
    fn find(config: &TelemetryConfig, environment: &Environment, identity: &Identity) -> Result<Self, Error> {
        let resource = &identity.resource;
        let temporality = config.temporality(environment)?;
        match config.exporter.value {
            ExporterKind::Otlp => {
                let exporter =
                    |signal: Signal| match config.targets.iter().find(|target| target.signal == signal) {
                        Some(target) => Client::new(target.clone())
                            .map(|client| Exporter::to_wire(resource.clone(), client)),
                        None => Ok(Exporter::to_nowhere(resource.clone())),
                    };
                let exporters =
                    [exporter(Signal::Traces)?, exporter(Signal::Metrics)?, exporter(Signal::Logs)?];
                Ok(Self { exporters, temporality, folder: None })
            }
            ExporterKind::Console => Ok(Self {
                exporters: std::array::from_fn(|_| Exporter::to_console(resource.clone())),
                temporality,
                folder: None,
            }),
            ExporterKind::File => {
                let folder = config.directory.value.join(identity.folder_name());
                let text = format!(
                    "# Effective telemetry configuration.\n# run: {} ({})\n# process: {}\n{config}",
                    identity.run_id,
                    match &identity.run_id_origin {
                        Origin::Default => "random".to_owned(),
                        origin => origin.to_string(),
                    },
                    identity.instance_id,
                );
                let files = Files::in_folder(
                    folder.clone(),
                    identity.process_name(),
                    (config.file_mib.value as u64) << 20,
                )
                .and_then(|files| files.write_once("config", "yaml", &text).map(|_| files))
                .map_err(|source| Kind::Folder {
                    path: folder.clone(),
                    origin: config.directory.origin.clone(),
                    source,
                })?;
                let exporters =
                    Signal::ALL.map(|signal| Exporter::to_file(resource.clone(), files.of_signal(signal)));
                Ok(Self { exporters, temporality, folder: Some(folder) })
            }
        }
    }
}

/// What became of the records that the process made, by signal.
///
/// ```
/// # fn check(telemetry: &lens_runtime::Telemetry) {
/// if telemetry.health().traces.lost() > 0 {
///     eprintln!("spans are being lost");
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Spans.
    pub traces: Counts,
    /// Data points of metrics.
    pub metrics: Counts,
    /// Log records.
    pub logs: Counts,
}

impl Health {
    fn of(delivery: &Delivery) -> Self {
        let [traces, metrics, logs] = Signal::ALL.map(|signal| delivery.counts(signal));
        Self { traces, metrics, logs }
    }

    fn by_signal(&self) -> [(Signal, Counts); 3] {
        [(Signal::Traces, self.traces), (Signal::Metrics, self.metrics), (Signal::Logs, self.logs)]
    }

    /// Whether a record was lost, may be lost, or has not been written yet.
    fn is_lossy(&self) -> bool {
        self.by_signal().iter().any(|(_, counts)| counts.exported < counts.made)
    }
}

/// What a run's telemetry has to tell at its end.
///
/// Written out, it is the table of the run's [`Phases`], where the files are, and what was lost.
///
/// ```
/// # fn end(telemetry: lens_runtime::Telemetry) {
/// let report = telemetry.shutdown(std::time::Duration::from_secs(5));
/// if let Some(generation) = report.phases.get("rl.grpo.generation") {
///     println!("{:?} on average", generation.mean());
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// The run's id; `None` if telemetry was off.
    pub run_id: Option<String>,
    /// The run's folder; `None` if no files were written.
    pub folder: Option<PathBuf>,
    /// Where it was sent, without query; of several, the first of traces, metrics and logs. `None` if it
    /// was not sent.
    pub endpoint: Option<String>,
    /// Where the time went.
    pub phases: Phases,
    /// What became of the records.
    pub health: Health,
}

impl RunReport {
    fn losses(&self) -> String {
        let by_signal: Vec<_> = self
            .health
            .by_signal()
            .into_iter()
            .filter(|(_, counts)| counts.exported < counts.made)
            .map(|(signal, counts)| {
                format!(
                    "{} of {} {} (refused {}, rejected {}, failed {}, in doubt {}, left at shutdown {})",
                    counts.made - counts.exported,
                    counts.made,
                    signal.noun(),
                    counts.refused,
                    counts.rejected,
                    counts.failed,
                    counts.in_doubt,
                    counts.pending(),
                )
            })
            .collect();
        format!("telemetry was lost: {}", by_signal.join(", "))
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(run_id) = &self.run_id else {
            return f.write_str("telemetry was off");
        };
        if !self.phases.is_empty() {
            writeln!(f, "{}", self.phases)?;
        }
        write!(f, "telemetry of run {run_id}: {} spans", self.health.traces.exported)?;
        match (&self.folder, &self.endpoint) {
            (Some(folder), _) => write!(f, " in {}", folder.display())?,
            (None, Some(endpoint)) => write!(f, " at {endpoint}")?,
            (None, None) => f.write_str(" on the console")?,
        }
        if self.health.is_lossy() {
            write!(f, "\n{}", self.losses())?;
        }
        Ok(())
    }
}
