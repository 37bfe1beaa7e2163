//! A driver as small as can be, for tests of what belongs to a whole process.
//!
//! `driver SCENARIO CONFIG [overrides]`

mod endings;
mod faults;
mod late;
mod ledger;
mod prompts;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use tracing_subscriber::layer::SubscriberExt as _;

use lens_runtime::opentelemetry::trace::Tracer as _;
use lens_runtime::opentelemetry::{Context, global};
use lens_runtime::{
    Error, Overrides, RunReport, Telemetry, TelemetryConfig, groups, http, propagation, record_step, rl_span,
    scalars, semconv, span,
};

/// How long a shutdown may take: as long as it does on a machine that is busy, unless a test is about that.
fn deadline() -> Duration {
    let millis = std::env::var("DRIVER_DEADLINE_MS").map_or(60_000, |text| text.parse().unwrap());
    Duration::from_millis(millis)
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().collect();
    match drive(&mut arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn drive(arguments: &mut Vec<String>) -> Result<(), Error> {
    let overrides = Overrides::take_from(arguments)?;
    let (scenario, url, config) = match arguments.as_slice() {
        [_, scenario, config] => (scenario, None, config),
        [_, scenario, url, config] => (scenario, Some(url), config),
        _ => panic!("driver SCENARIO [URL] CONFIG [overrides]"),
    };
    let mut config = TelemetryConfig::from_file(config)?.with_overrides(&overrides)?;
    if scenario == "in_code" {
        config = config.with_header("X-Code", "a%2Bb");
    }
    if scenario == "many" {
        faults::call_without_telemetry();
    }
    if let Some(report) = within_a_runtime(scenario, &config)? {
        println!("{report}");
        return Ok(());
    }
    if late::run(scenario, &config)? {
        return Ok(());
    }
    let telemetry = Telemetry::init_driver(config.clone())?;
    match scenario.as_str() {
        "train" | "in_code" => (1..=3).for_each(step),
        "log" => {
            let subscriber = tracing_subscriber::registry().with(telemetry.log_layer());
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(target: "trainer", epochs = 3, "begins");
                step(1);
            });
        }
        "twice" => {
            let second = Telemetry::init_driver(config);
            println!("{:?}", second.err().map(|error| (error.is_already_initialized(), error.to_string())));
        }
        "switch" => {
            step(1);
            telemetry.set_span_groups("generation")?;
            step(2);
            println!("{}", telemetry.set_span_groups("nonsense").unwrap_err());
            step(3);
            telemetry.set_span_groups("reward")?;
            step(4);
        }
        "switch_within" => {
            span(&groups::Step, "seen").run(|| {
                telemetry.set_span_groups("reward").unwrap();
                let _fails = reward(&[1]);
            });
            span(&groups::Step, "unseen").run(|| {
                telemetry.set_span_groups("all").unwrap();
                let _fails = reward(&[2]);
            });
        }
        "others" => with_library(4),
        "prompts" => (1..=3).for_each(|number| prompts::step(number, 300)),
        "ledger" => ledger::run(&telemetry, true),
        "finite" => ledger::run(&telemetry, false),
        "call" => {
            let url = url.expect("driver call URL CONFIG");
            call(url);
        }
        "serve" => serve(),
        "log_everything" => {
            // The whole process logs all that it can, what the export calls included.
            let subscriber = tracing_subscriber::registry().with(telemetry.log_layer());
            tracing::subscriber::set_global_default(subscriber).unwrap();
            tracing::trace!(target: "trainer", "begins");
            telemetry.flush(deadline());
            tracing::trace!(target: "trainer", "ends");
        }
        "watched" => {
            // A program with a subscriber, that shows what is said.
            let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr).finish();
            let _guard = tracing::subscriber::set_global_default(subscriber);
            for number in 1..=300 {
                step(number);
                telemetry.flush(Duration::from_millis(1));
            }
        }
        "large" => (0..600).for_each(|_| answer(&"x".repeat(4096))),
        "burst" => (1..=33_334).for_each(step),
        "hold_stdout" => {
            let mut stdout = std::io::stdout().lock();
            (1..=100).for_each(step);
            writeln!(stdout, "still here").unwrap();
        }
        "lose_folder" => {
            let folder = telemetry.folder().unwrap();
            std::fs::remove_dir_all(folder).unwrap();
            step(1);
        }
        other if faults::record(other, &telemetry) => {}
        other => return to_its_own_end(other, telemetry, config),
    }
    println!("{}", telemetry.shutdown(deadline()));
    Ok(())
}

/// Scenarios that end their telemetry in a way of their own.
fn to_its_own_end(scenario: &str, telemetry: Telemetry, config: TelemetryConfig) -> Result<(), Error> {
    match scenario {
        "again" => {
            step(1);
            assert!(telemetry.is_on());
            let _first = telemetry.shutdown(deadline());
            (0..100_000).for_each(|_| step(2));
            let telemetry = Telemetry::init_driver(config)?;
            step(3);
            println!("{}", telemetry.shutdown(deadline()));
        }
        "ignored" => {
            // The handle is dropped at once, and the program goes on.
            drop(telemetry);
            step(1);
            println!("still here");
        }
        "held" => {
            // Others hold on to what is shut down: a tracer, and a span that is open.
            let (done, wait) = mpsc::channel::<()>();
            let (begun, has_begun) = mpsc::channel();
            let holder = std::thread::spawn(move || {
                let tracer = global::tracer("holder");
                let span = tracer.start("held");
                begun.send(()).unwrap();
                wait.recv().unwrap_err();
                drop((span, tracer));
            });
            has_begun.recv().unwrap();
            step(1);
            println!("{}", telemetry.shutdown(deadline()));
            drop(done);
            holder.join().unwrap();
        }
        other => endings::run(other, telemetry, config),
    }
    Ok(())
}

/// Scenarios that begin, record and end within a tokio runtime.
fn within_a_runtime(scenario: &str, config: &TelemetryConfig) -> Result<Option<RunReport>, Error> {
    use tokio::runtime::{Builder, Runtime};

    fn run(config: TelemetryConfig) -> Result<Telemetry, Error> {
        let telemetry = Telemetry::init_driver(config)?;
        step(1);
        Ok(telemetry)
    }

    let current_thread = || Builder::new_current_thread().enable_all().build().unwrap();
    let workers = |count| Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap();
    let config = config.clone();
    fn to_its_end(config: TelemetryConfig) -> Result<RunReport, Error> {
        Ok(run(config)?.shutdown(deadline()))
    }

    // All of it within one task, without an await in between.
    let spawned = |runtime: Runtime, all: Box<dyn FnOnce() -> Result<RunReport, Error> + Send>| {
        runtime.block_on(async { tokio::spawn(async { all() }).await })
    };
    match scenario {
        "current_thread" => current_thread().block_on(async { to_its_end(config) }).map(Some),
        "one_worker" => spawned(workers(1), Box::new(|| to_its_end(config))).unwrap().map(Some),
        "two_workers" => spawned(workers(2), Box::new(|| to_its_end(config))).unwrap().map(Some),
        "awaited" => current_thread().block_on(async {
            // The only thread has other work to do meanwhile.
            let ticks = tokio::spawn(async {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                10
            });
            let telemetry = run(config)?;
            let report = telemetry.shutdown_async(deadline()).await;
            assert!(ticks.is_finished());
            Ok(Some(report))
        }),
        "runtime_gone" => {
            let telemetry = current_thread().block_on(async { run(config) })?;
            step(2);
            Ok(Some(telemetry.shutdown(deadline())))
        }
        "panic_in_task" => {
            let panics = || {
                let _telemetry = run(config)?;
                panic!("the trainer fell over");
            };
            let ended = spawned(workers(1), Box::new(panics));
            assert!(ended.unwrap_err().is_panic());
            std::process::exit(7);
        }
        _ => Ok(None),
    }
}

/// Uses a library that knows OpenTelemetry and nothing of Lens, and is used by it.
#[rl_span(group = Step, name = "rl.test.with_library", step = number)]
fn with_library(number: u64) {
    let mut headers = std::collections::HashMap::new();
    global::get_text_map_propagator(|propagator| propagator.inject(&mut headers));
    for (name, value) in headers {
        println!("{name}: {value}");
    }
    global::meter("library").u64_counter("library.requests").build().add(1, &[]);
    global::tracer("library").in_span("library.outer", |_| reward(&[1]).unwrap_err());
}

/// Calls a server, from within a span that goes along.
#[rl_span(group = Rollout, name = "rl.test.call")]
fn call(url: &str) {
    let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut headers = http::HeaderMap::new();
    propagation::inject(&mut headers);
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n").unwrap();
    for (name, value) in &headers {
        write!(stream, "{name}: {}\r\n", value.to_str().unwrap()).unwrap();
    }
    write!(stream, "\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
}

/// Serves one request, in the context that came along.
fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("listening {}", listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    let mut headers = http::HeaderMap::new();
    for line in
        BufReader::new(&stream).lines().skip(1).map(Result::unwrap).take_while(|line| !line.is_empty())
    {
        let (name, value) = line.split_once(':').unwrap();
        headers.append(http::HeaderName::try_from(name).unwrap(), value.trim().parse().unwrap());
    }
    {
        let _attached = propagation::extract(&headers).attach();
        answer_request();
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    assert!(!Context::map_current(lens_runtime::opentelemetry::trace::TraceContextExt::has_active_span));
}

#[rl_span(group = Rollout, name = "rl.test.serve")]
fn answer_request() {}

#[rl_span(group = Step, name = "rl.test.step", step = number)]
fn step(number: u64) {
    tracing::warn!(share = 0.5, "a step");
    let rollouts = generate(number);
    reward(&rollouts).unwrap_err();
    let kl = if number == 2 { f64::INFINITY } else { 0.1 + 0.2 };
    record_step(number, &[(scalars::REWARD_MEAN, 1.0 / number as f64), (scalars::KL_DIVERGENCE, kl)]);
}

#[rl_span(
    group = Generation,
    name = "rl.test.generate",
    attributes(
        semconv::NUM_GENERATIONS_PER_PROMPT = 2,
        temperature = f64::NAN,
        seeds = [i64::MAX, -1],
        texts = ["a", "b\n\"c\""],
    ),
    tokens(input = 3_u32, output = |rollouts| rollouts.iter().copied()),
)]
fn generate(number: u64) -> Vec<u64> {
    vec![number, number + 1]
}

#[rl_span(group = Reward, name = "rl.test.reward")]
fn reward(rollouts: &[u64]) -> Result<u64, std::fmt::Error> {
    rollouts.iter().max().filter(|_| false).copied().ok_or(std::fmt::Error)
}

#[rl_span(group = Rollout, name = "rl.test.answer", attributes(text = text))]
fn answer(text: &str) {}
