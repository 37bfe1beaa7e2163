//! Does telemetry arrive over the wire, and what is said if it does not?
//!
//! Each test runs a driver in a process of its own against a receiver on the loopback that answers as the
//! test tells it. `tests/peers` has the same against real receivers. A test whose name begins with `fault`
//! is about a fault that users of other libraries met.

mod receiver;
mod support;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lens_runtime::opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
    TraceId, TraceState, Tracer, TracerProvider as _,
};
use lens_runtime::opentelemetry::{
    Array, Context, InstrumentationScope, KeyValue, StringValue, Value, global,
};
use lens_runtime::{Environment, OtlpProtocol, Overrides, Telemetry, TelemetryConfig, rl_span, semconv};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::{common, trace};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use prost::Message as _;
use receiver::{Answer, Received, Receiver};
use support::{folder_with, text};

/// Traces alone, so that a script of answers is about one signal.
const TRACES: &str = "\
telemetry:
  enabled: true
  span_groups: per_step
  metrics_enabled: false
";

const ALL: &str = "\
telemetry:
  enabled: true
  span_groups: per_step
  logs_enabled: true
";

const PROTOCOLS: [&str; 3] = ["grpc", "http/protobuf", "http/json"];

/// What one step of the driver makes, in the order in which the spans end.
const STEP: [&str; 3] = ["rl.test.generate", "rl.test.reward", "rl.test.step"];

/// Runs the driver with no variable but the given ones.
fn drive_in(folder: &Path, scenario: &str, variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_driver"))
        .args([scenario, "run.yaml"])
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn drive(config: &str, scenario: &str, variables: &[(&str, &str)]) -> Output {
    drive_in(folder_with(config).path(), scenario, variables)
}

/// Runs the driver against a receiver, and what it printed.
fn drive_at(receiver: &Receiver, protocol: &str, config: &str, scenario: &str) -> String {
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", &*receiver.url()), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
    let output = drive(config, scenario, &variables);
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// The only error line of a driver that ended before it trained.
fn refusal(variables: &[(&str, &str)]) -> String {
    let output = drive(TRACES, "train", variables);
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    text(&output.stderr).trim().to_owned()
}

/// A port at which nobody listens.
fn closed_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn three_signals_arrive_over_every_protocol() {
    for protocol in PROTOCOLS {
        let receiver = Receiver::start([]);
        let printed = drive_at(&receiver, protocol, ALL, "log");
        assert!(printed.contains(&format!("3 spans at {}", receiver.url())), "{printed}");
        assert!(!printed.contains("telemetry was lost"), "{printed}");
        assert_eq!(receiver.spans(), STEP, "{protocol}");
        let of = |word: &str| -> Vec<Received> {
            receiver
                .received()
                .into_iter()
                .filter(|request| request.path.to_lowercase().contains(word))
                .collect()
        };
        let (metrics, logs) = (of("metrics"), of("logs"));
        assert_eq!((metrics.len(), logs.len()), (1, 1), "{protocol}");
        if protocol != "http/json" {
            // Three phases, two token types, one operation, two gauges.
            assert_eq!(metrics[0].points(), 8);
            // Two lines and a step's scalars.
            assert_eq!(logs[0].log_records(), 3);
        }
        let kinds = receiver.received();
        let content = match protocol {
            "grpc" => "application/grpc",
            "http/protobuf" => "application/x-protobuf",
            _ => "application/json",
        };
        assert!(kinds.iter().all(|request| request.header("content-type") == Some(content)));
    }
}

#[test]
fn what_the_export_says_itself_is_not_recorded() {
    // The HTTP/2 library writes dozens of lines for each request.
    for protocol in PROTOCOLS {
        let receiver = Receiver::start([]);
        let config = format!("{TRACES}  logs_enabled: true\n");
        drive_at(&receiver, protocol, &config, "log_everything");
        let logs: Vec<_> = receiver.received();
        assert_eq!(logs.len(), 2, "{protocol}");
        if protocol != "http/json" {
            assert!(logs.iter().all(|request| request.log_records() == 1), "{protocol}");
        }
    }
}

#[test]
fn the_export_makes_no_telemetry_whatever_listens_to_it() {
    for protocol in ["grpc", "http/protobuf"] {
        let receiver = Receiver::start([]);
        // A name, so that it is looked up.
        let url = receiver.url().replace("127.0.0.1", "localhost");
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*url), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
        let output = drive(ALL, "bridge", &variables);
        assert!(output.status.success(), "{output:?}");
        let printed = text(&output.stdout);
        // A call's span, and one of the bridge with a line in it, are the program's, and so is one of the points that
        // are collected for each flush. The others are the counts themselves: how many spans and lines wait, and
        // from the second flush on how many were taken, and how many of each signal arrived.
        let expected = [0, 1, 2, 3, 4, 5].map(|more| format!("made [2, 1, {}]\n", 3 + 8 * more));
        assert!(printed.starts_with(&expected.concat()), "{protocol}: {printed}");
    }
}

#[test]
fn gzip_is_spoken_where_it_is_asked_for() {
    for protocol in PROTOCOLS {
        let receiver = Receiver::start([]);
        let url = receiver.url();
        let output = drive(
            TRACES,
            "train",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "GZIP"),
            ],
        );
        assert!(output.status.success(), "{output:?}");
        assert_eq!(receiver.spans().len(), 9);
        let request = &receiver.received()[0];
        let encoding = if protocol == "grpc" { "grpc-encoding" } else { "content-encoding" };
        assert_eq!(request.header(encoding), Some("gzip"));
    }
}

#[test]
fn a_burst_arrives_whole_and_in_requests_that_receivers_take() {
    let receiver = Receiver::start([]);
    let printed = drive_at(&receiver, "grpc", TRACES, "burst");
    assert!(!printed.contains("telemetry was lost"), "{printed}");
    assert_eq!(receiver.spans().len(), 100_002);
}

#[test]
fn fault_99_what_finds_no_room_is_refused_and_counted_to_the_span() {
    let receiver = Receiver::start([Answer::Hang]);
    let output = drive(
        &format!("{TRACES}  queue_mib: 1\n"),
        "burst",
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url()), ("DRIVER_DEADLINE_MS", "300")],
    );
    let printed = text(&output.stdout);
    let (_, losses) = printed.split_once("telemetry was lost: ").unwrap_or_else(|| panic!("{printed}"));
    let words = losses.split(|sign: char| !sign.is_ascii_digit());
    let numbers: Vec<usize> = words.filter_map(|word| word.parse().ok()).collect();
    let [lost, made, refused, rejected, failed, in_doubt, left] = numbers[..] else { panic!("{printed}") };
    assert_eq!((lost, made), (100_002, 100_002), "{printed}");
    assert_eq!((rejected, failed), (0, 0), "{printed}");
    assert_eq!(refused + in_doubt + left, made, "{printed}");
    // A span has an id of a trace and one of its own, and times: no encoding of one takes less than this.
    assert!(left > 0 && (in_doubt + left) * 60 < 1 << 20, "{printed}");
}

#[test]
fn a_large_batch_is_sent_in_requests_of_less_than_four_mebibytes() {
    for protocol in PROTOCOLS {
        let receiver = Receiver::start([]);
        let config = TRACES.replace("per_step", "all");
        drive_at(&receiver, protocol, &config, "large");
        assert_eq!(receiver.spans().len(), 600);
        assert!(receiver.received().iter().all(|request| request.message.len() < 4 << 20));
    }
}

#[test]
fn fault_105_what_a_receiver_rejects_is_counted_and_told() {
    for protocol in ["grpc", "http/protobuf"] {
        let receiver = Receiver::start([Answer::Partial(2, "no such tenant")]);
        let printed = drive_at(&receiver, protocol, TRACES, "train");
        let expected = "telemetry was lost: 2 of 9 spans (refused 0, rejected 2, failed 0, in doubt 0, left at shutdown 0)";
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
fn what_became_of_the_records_can_be_seen_on_a_dashboard() {
    let [spans, metrics] = [Receiver::start([Answer::Partial(2, "no such tenant")]), Receiver::start([])];
    let output = drive(
        &TRACES.replace("metrics_enabled: false", "metrics_enabled: true"),
        "flushed",
        &[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &spans.url()),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", &metrics.url()),
        ],
    );
    assert!(text(&output.stdout).contains("flushed: false"), "{output:?}");
    let requests = metrics.received();
    let last = requests.last().unwrap();
    let rejected = Some("rejected".to_owned());
    assert_eq!(last.sums(semconv::OTEL_SDK_EXPORTER_SPAN_EXPORTED), [(None, 1), (rejected, 2)].into());
    assert_eq!(last.sums(semconv::OTEL_SDK_PROCESSOR_SPAN_PROCESSED), [(None, 3)].into());
    assert_eq!(last.sums(semconv::OTEL_SDK_PROCESSOR_SPAN_QUEUE_SIZE), [(None, 0)].into());
    // Those of the collection before.
    let points = last.sums(semconv::OTEL_SDK_EXPORTER_METRIC_DATA_POINT_EXPORTED)[&None];
    assert!(usize::try_from(points).unwrap() >= requests[0].points(), "{points}");
}

#[test]
fn a_flush_says_whether_the_receiver_has_it() {
    for (answer, flushed) in
        [(Answer::Ok, true), (Answer::Partial(1, ""), false), (Answer::Grpc(3, ""), false)]
    {
        let receiver = Receiver::start([answer]);
        let printed = drive_at(&receiver, "grpc", TRACES, "flushed");
        assert!(printed.contains(&format!("flushed: {flushed}")), "{printed}");
    }
}

#[test]
fn what_a_receiver_will_never_take_is_not_sent_again() {
    for (protocol, answer) in [
        ("grpc", Answer::Grpc(12, "unknown service")),
        ("grpc", Answer::Grpc(8, "too large, and no word of when")),
        ("http/protobuf", Answer::Http(400, Vec::new(), "")),
        ("http/protobuf", Answer::Http(404, vec![("content-type", "text/html")], "<html>")),
        ("http/json", Answer::Http(308, vec![("location", "http://127.0.0.1:1/")], "")),
    ] {
        let receiver = Receiver::start([answer]);
        let printed = drive_at(&receiver, protocol, TRACES, "train");
        assert!(printed.contains("9 of 9 spans (refused 0, rejected 9, failed 0"), "{printed}");
        assert_eq!(receiver.received().len(), 1);
    }
}

#[test]
fn a_connection_that_breaks_is_tried_again() {
    for protocol in PROTOCOLS {
        let receiver = Receiver::start([Answer::Close, Answer::Ok]);
        let printed = drive_at(&receiver, protocol, TRACES, "train");
        assert!(!printed.contains("telemetry was lost"), "{protocol}: {printed}");
        assert_eq!(receiver.spans().len(), 18, "the receiver has them twice: it never said that it has them");
    }
}

#[test]
fn a_receiver_that_asks_for_a_pause_gets_it() {
    // The pause is longer than what is left, so that there is no second attempt.
    let receiver = Receiver::start([Answer::Http(503, vec![("retry-after", "3600")], ""), Answer::Ok]);
    let url = receiver.url();
    let output = drive(
        TRACES,
        "train",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("DRIVER_DEADLINE_MS", "500"),
        ],
    );
    let printed = text(&output.stdout);
    assert!(
        printed.contains("9 of 9 spans (refused 0, rejected 0, failed 0, in doubt 0, left at shutdown 9)"),
        "{printed}"
    );
    assert_eq!(receiver.received().len(), 1);
}

#[test]
fn each_signal_goes_where_its_own_variables_say() {
    let [general, logs] = [Receiver::start([]), Receiver::start([])];
    let output = drive(
        ALL,
        "log",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &general.url()),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", &format!("{}/insert/logs?stream=a", logs.url())),
            ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/protobuf"),
        ],
    );
    assert!(output.status.success(), "{output:?}");
    assert_eq!(general.received().len(), 2);
    let received = logs.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].path, "/insert/logs?stream=a");
    assert_eq!(received[0].log_records(), 3);
}

#[test]
fn one_signal_without_a_receiver_does_not_hold_up_the_others() {
    let receiver = Receiver::start([]);
    let output = drive(
        ALL,
        "log",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url()),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &format!("http://{}", closed_port())),
        ],
    );
    let printed = text(&output.stdout);
    assert!(
        printed.contains("3 of 3 spans (refused 0, rejected 0, failed 3, in doubt 0, left at shutdown 0)"),
        "{printed}"
    );
    assert!(!printed.contains("log records") && !printed.contains("data points"), "{printed}");
    assert_eq!(receiver.received().len(), 2);
}

#[test]
fn fault_73_a_shutdown_delivers_from_within_any_runtime() {
    for protocol in PROTOCOLS {
        for scenario in ["current_thread", "one_worker", "two_workers", "awaited"] {
            let receiver = Receiver::start([]);
            let printed = drive_at(&receiver, protocol, TRACES, scenario);
            assert!(!printed.contains("telemetry was lost"), "{protocol} {scenario}: {printed}");
            assert_eq!(receiver.spans(), STEP, "{protocol} {scenario}");
        }
    }
}

#[test]
fn fault_74_no_runtime_is_needed_and_one_that_is_gone_is_not_missed() {
    for protocol in PROTOCOLS {
        for (scenario, spans) in [("train", 9), ("runtime_gone", 6), ("flushed", 3)] {
            let receiver = Receiver::start([]);
            drive_at(&receiver, protocol, TRACES, scenario);
            assert_eq!(receiver.spans().len(), spans, "{protocol} {scenario}");
        }
    }
}

#[test]
fn fault_75_the_client_works_on_plain_threads() {
    // No runtime but the delivery's own, and no client that a feature of another crate could swap:
    // `absences` holds that.
    let receiver = Receiver::start([]);
    let printed = drive_at(&receiver, "http/protobuf", ALL, "train");
    assert!(!printed.contains("telemetry was lost"), "{printed}");
    assert_eq!(receiver.spans().len(), 9);
}

#[test]
fn fault_76_a_handle_may_be_dropped_within_a_runtime() {
    for protocol in PROTOCOLS {
        let receiver = Receiver::start([]);
        let output = drive(
            TRACES,
            "panic_in_task",
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url()), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)],
        );
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let said = text(&output.stderr);
        assert_eq!(said.matches("panicked").count(), 1, "only the trainer's: {said}");
        assert_eq!(receiver.spans(), STEP);
    }
}

#[test]
fn fault_76_a_receiver_that_hangs_holds_a_runtime_no_longer_than_the_deadline() {
    for protocol in PROTOCOLS {
        for scenario in ["current_thread", "awaited"] {
            let receiver = Receiver::start([Answer::Hang]);
            let output = drive(
                TRACES,
                scenario,
                &[
                    ("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url()),
                    ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                    ("DRIVER_DEADLINE_MS", "300"),
                ],
            );
            let printed = text(&output.stdout);
            let expected = "3 of 3 spans (refused 0, rejected 0, failed 0, in doubt 3, left at shutdown 0)";
            assert!(printed.contains(expected), "{protocol} {scenario}: {printed}");
            // The table is there all the same.
            assert!(printed.contains("rl.test.generate"), "{printed}");
        }
    }
}

#[test]
fn fault_77_a_receiver_that_is_unavailable_twice_gets_it_the_third_time() {
    for (protocol, answer) in [
        ("grpc", Answer::Grpc(14, "not yet")),
        ("http/protobuf", Answer::Http(503, Vec::new(), "")),
        ("http/json", Answer::Http(429, vec![("retry-after", "0")], "")),
    ] {
        let receiver = Receiver::start([answer.clone(), answer, Answer::Ok]);
        let printed = drive_at(&receiver, protocol, TRACES, "train");
        assert!(!printed.contains("telemetry was lost"), "{protocol}: {printed}");
        assert_eq!(receiver.received().len(), 3);
        assert_eq!(receiver.received()[2].spans().len(), 9);
    }
}

#[test]
fn fault_78_nothing_is_lost_at_exit() {
    for protocol in ["grpc", "http/protobuf"] {
        // A handle that is dropped at once ends the telemetry, and nothing else.
        let receiver = Receiver::start([]);
        assert!(drive_at(&receiver, protocol, TRACES, "ignored").contains("still here"));
        assert_eq!(receiver.spans().len(), 0);

        // A panic of `main`.
        let receiver = Receiver::start([]);
        let variables =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", &*receiver.url()), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
        assert_eq!(drive(TRACES, "panic", &variables).status.code(), Some(101));
        assert_eq!(receiver.spans(), STEP);

        // Another thread that holds a tracer and an open span, which only itself could end.
        let receiver = Receiver::start([]);
        let printed = drive_at(&receiver, protocol, TRACES, "held");
        assert!(
            printed
                .contains("1 of 4 spans (refused 0, rejected 0, failed 0, in doubt 0, left at shutdown 1)"),
            "{printed}"
        );
        assert_eq!(receiver.spans(), STEP);
    }
}

/// open-telemetry/opentelemetry-rust#3453
#[test]
fn fault_79_what_ended_before_a_flush_is_exported_by_it() {
    let receiver = Receiver::start([]);
    let config = TRACES.replace("per_step", "reward");
    let printed = drive_at(&receiver, "grpc", &config, "rounds");
    assert!(printed.starts_with("250 of 250 rounds\n"), "{printed}");
    assert_eq!(receiver.spans().len(), 2000);
}

#[test]
fn fault_82_a_program_that_holds_its_standard_output_is_not_held_up() {
    let config = format!("{TRACES}  exporter: console\n");
    let printed = text(&drive(&config, "hold_stdout", &[]).stdout);
    assert!(printed.starts_with("still here\n"), "{printed}");
    assert_eq!(printed.lines().filter(|line| line.starts_with('{')).count(), 300);
}

#[test]
fn fault_90_a_base_url_gets_the_path_of_each_signal_and_a_signals_own_is_kept() {
    let path_of = |variable: &str, path: &str| {
        let receiver = Receiver::start([]);
        let url = format!("{}{path}", receiver.url());
        let output =
            drive(TRACES, "train", &[(variable, &url), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]);
        assert!(output.status.success(), "{output:?}");
        receiver.received()[0].path.clone()
    };
    let general = "OTEL_EXPORTER_OTLP_ENDPOINT";
    for (base, expected) in [
        ("", "/v1/traces"),
        ("/", "/v1/traces"),
        ("/otlp", "/otlp/v1/traces"),
        ("/otlp/", "/otlp/v1/traces"),
        ("/v1/traces", "/v1/traces"),
        ("/otlp/v1/traces/", "/otlp/v1/traces"),
        // Somebody took the URL of one signal for that of all.
        ("/v1/metrics", "/v1/traces"),
        ("/v1/tenants", "/v1/tenants/v1/traces"),
        ("?tenant=a", "/v1/traces?tenant=a"),
        ("/otlp?tenant=a/b", "/otlp/v1/traces?tenant=a/b"),
    ] {
        assert_eq!(path_of(general, base), expected, "base {base:?}");
    }
    let own = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    for (endpoint, expected) in [("", "/"), ("/", "/"), ("/in/traces/?a=b", "/in/traces/?a=b")] {
        assert_eq!(path_of(own, endpoint), expected, "endpoint {endpoint:?}");
    }
}

#[test]
fn fault_91_endpoints_are_trimmed_and_what_is_none_is_told_with_variable_and_value() {
    for protocol in PROTOCOLS {
        let receiver = Receiver::start([]);
        let spaced = format!(" {}\n", receiver.url());
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*spaced),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "  "),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ];
        assert!(drive(TRACES, "train", &variables).status.success());
        assert_eq!(receiver.spans().len(), 9);
    }
    let of = |endpoint: &str| {
        refusal(&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)])
            .strip_prefix("variable OTEL_EXPORTER_OTLP_ENDPOINT: expected a URL ")
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        of("collector:4317"),
        "that begins with http:// or https://, such as http://collector:4317, got \"collector:4317\""
    );
    assert_eq!(
        of("unix:/sock"),
        "that begins with http:// or https://, such as http://unix:/sock, got \"unix:/sock\""
    );
    assert_eq!(of("ftp://collector"), "that begins with http:// or https://, got \"ftp://collector\"");
    assert_eq!(of("http://"), "such as http://localhost:4318, got \"http://\"");
    assert_eq!(of("http://a b"), "such as http://localhost:4318, got \"http://a b\"");
}

#[test]
fn fault_91_a_grpc_endpoint_may_do_without_a_scheme_if_it_is_said_which() {
    let receiver = Receiver::start([]);
    let address = receiver.address();
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", &*address);
    assert!(drive(TRACES, "train", &[endpoint, ("OTEL_EXPORTER_OTLP_INSECURE", "true")]).status.success());
    assert_eq!(receiver.spans().len(), 9);
    let error = refusal(&[endpoint, ("OTEL_EXPORTER_OTLP_INSECURE", "yes")]);
    assert_eq!(error, "variable OTEL_EXPORTER_OTLP_INSECURE: expected true or false, got \"yes\"");
}

/// A certificate for localhost, signed by itself: its PEM, and a server that has it.
fn self_signed() -> (String, tokio_rustls::TlsAcceptor) {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = signed.cert.pem();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (pem, tokio_rustls::TlsAcceptor::from(Arc::new(server)))
}

/// What is needed for mutual TLS: the authority and the client's certificate and key in PEM, and a server
/// that lets in nobody else.
fn mutual() -> ([String; 3], tokio_rustls::TlsAcceptor) {
    let [ca_key, server_key, client_key] = [(); 3].map(|()| rcgen::KeyPair::generate().unwrap());
    let mut of_ca = rcgen::CertificateParams::default();
    of_ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = of_ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(of_ca, ca_key);
    let signed = |name: &str, key: &rcgen::KeyPair| {
        rcgen::CertificateParams::new([name.to_owned()]).unwrap().signed_by(key, &issuer).unwrap()
    };
    let (server, client) = (signed("localhost", &server_key), signed("trainer", &client_key));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(
            vec![server.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(server_key.serialize_der()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    ([ca.pem(), client.pem(), client_key.serialize_pem()], tokio_rustls::TlsAcceptor::from(Arc::new(config)))
}

#[test]
fn a_server_that_asks_who_calls_is_told() {
    for protocol in PROTOCOLS {
        let ([ca, certificate, key], acceptor) = mutual();
        let receiver = Receiver::with([], Some(acceptor));
        let folder = folder_with(TRACES);
        for (name, pem) in [("ca.pem", ca), ("me.pem", certificate), ("me.key", key)] {
            std::fs::write(folder.path().join(name), pem).unwrap();
        }
        let url = receiver.url();
        let stranger = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"),
            ("DRIVER_DEADLINE_MS", "500"),
        ];
        let printed = text(&drive_in(folder.path(), "train", &stranger).stdout);
        assert!(printed.contains("telemetry was lost: 9 of 9 spans"), "{protocol}: {printed}");
        assert!(receiver.received().is_empty());

        let mut known = stranger[..3].to_vec();
        known.push(("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "me.pem"));
        known.push(("OTEL_EXPORTER_OTLP_CLIENT_KEY", "me.key"));
        let printed = text(&drive_in(folder.path(), "train", &known).stdout);
        assert!(!printed.contains("telemetry was lost"), "{protocol}: {printed}");
        assert_eq!(receiver.spans().len(), 9);
    }
}

#[test]
fn fault_92_https_is_tls_and_nothing_else() {
    for protocol in PROTOCOLS {
        let (pem, acceptor) = self_signed();
        let receiver = Receiver::with([], Some(acceptor));
        let folder = folder_with(TRACES);
        let url = receiver.url();
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*url), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];

        // The machine does not know this authority.
        let stranger = drive_in(folder.path(), "train", &variables);
        let printed = text(&stranger.stdout);
        assert!(printed.contains("9 of 9 spans (refused 0, rejected 0, failed 9"), "{protocol}: {printed}");
        assert!(receiver.received().is_empty());

        std::fs::write(folder.path().join("ca.pem"), &pem).unwrap();
        let trusted = [variables[0], variables[1], ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem")];
        let printed = text(&drive_in(folder.path(), "train", &trusted).stdout);
        assert!(!printed.contains("telemetry was lost"), "{protocol}: {printed}");
        assert_eq!(receiver.spans().len(), 9);

        // A server without TLS gets nothing in the clear.
        let plain = Receiver::start([]);
        let https = plain.url().replace("http://", "https://");
        drive_in(folder.path(), "train", &[("OTEL_EXPORTER_OTLP_ENDPOINT", &https), variables[1]]);
        assert!(plain.received().is_empty());
    }
    let https = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost:4317");
    assert_eq!(
        refusal(&[https, ("OTEL_EXPORTER_OTLP_CERTIFICATE", "run.yaml")]),
        "variable OTEL_EXPORTER_OTLP_CERTIFICATE: expected certificates in PEM in run.yaml: there is none"
    );
    let error = refusal(&[https, ("OTEL_EXPORTER_OTLP_CERTIFICATE", "no/such.pem")]);
    assert!(error.starts_with(
        "variable OTEL_EXPORTER_OTLP_CERTIFICATE: expected certificates in PEM in no/such.pem: "
    ));
    assert_eq!(
        refusal(&[https, ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "key.pem")]),
        "variable OTEL_EXPORTER_OTLP_CLIENT_KEY: expected OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE or \
         OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE beside it, which are not set"
    );
}

#[test]
fn fault_93_headers_are_decoded_once_merged_by_name_and_sent_byte_for_byte() {
    for protocol in PROTOCOLS {
        let receiver = Receiver::start([]);
        let output = drive(
            TRACES,
            "in_code",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url()),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                (
                    "OTEL_EXPORTER_OTLP_HEADERS",
                    "Authorization=Basic%20dTpw==, x-general=1,,x-signal=general,x-code=no",
                ),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-signal=a%2Cb%2525"),
            ],
        );
        assert!(output.status.success(), "{output:?}");
        let request = &receiver.received()[0];
        for (name, value) in [
            ("authorization", "Basic dTpw=="),
            ("x-general", "1"),
            ("x-signal", "a,b%25"),
            // In code, and not to be decoded.
            ("x-code", "a%2Bb"),
        ] {
            assert_eq!(request.header(name), Some(value), "{protocol} {name}");
        }
        // An empty variable hides nothing.
        let receiver = Receiver::start([]);
        let output = drive(
            TRACES,
            "train",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url()),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-general=1"),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", ""),
            ],
        );
        assert!(output.status.success(), "{output:?}");
        assert_eq!(receiver.received()[0].header("x-general"), Some("1"));
    }
}

#[test]
fn fault_93_a_header_that_cannot_be_sent_is_told_and_its_value_is_not() {
    let of = |headers: &str| {
        let error = refusal(&[("OTEL_EXPORTER_OTLP_HEADERS", headers)]);
        assert!(!error.contains("s3cret"), "{error}");
        error.strip_prefix("variable OTEL_EXPORTER_OTLP_HEADERS: ").unwrap().to_owned()
    };
    assert_eq!(of("a=1,s3cret"), "entry 2: expected name=value, got no equals sign");
    assert_eq!(of("b d=s3cret"), "entry 1: expected the name of a header in front of the equals sign");
    assert_eq!(
        of("x-key=s3cret%0A"),
        "entry 1: the value of header x-key holds bytes that no header may hold"
    );
    assert_eq!(
        of("Content-Type=s3cret"),
        "entry 1: header content-type belongs to the protocol and cannot be set"
    );
    assert_eq!(
        refusal(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:s3cret@host:4318/?key=s3cret")]),
        "variable OTEL_EXPORTER_OTLP_ENDPOINT: expected a URL without user and password, got \"http://host:4318/\"; \
         they belong into a header, such as OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20<base64 of user:password>"
    );
}

#[test]
fn fault_94_a_timeout_is_in_milliseconds_and_garbage_is_an_error() {
    for text in ["5s", "0", "-1", "1.5", "ten"] {
        assert_eq!(
            refusal(&[("OTEL_EXPORTER_OTLP_TIMEOUT", text)]),
            format!(
                "variable OTEL_EXPORTER_OTLP_TIMEOUT: expected a positive number of milliseconds, got {text:?}"
            )
        );
    }
    // It is the first answer that does not come; the second attempt is in time.
    let receiver = Receiver::start([Answer::Hang, Answer::Ok]);
    let output = drive(
        TRACES,
        "train",
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url()),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "20000"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "100"),
        ],
    );
    assert!(!text(&output.stdout).contains("telemetry was lost"), "{output:?}");
    assert_eq!(receiver.received().len(), 2);
    assert_eq!(receiver.received()[0].header("grpc-timeout"), Some("100000u"));
    assert_eq!(receiver.connections(), 2, "the first one may be one that a router forgot");
}

#[test]
fn fault_95_protocol_and_compression_mean_the_same_for_every_signal() {
    let is_grpc = |variables: &[(&str, &str)]| {
        let receiver = Receiver::start([]);
        let url = receiver.url();
        let mut all = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", &*url)];
        all.extend_from_slice(variables);
        assert!(drive(ALL, "log", &all).status.success());
        let mut kinds: Vec<bool> = receiver
            .received()
            .iter()
            .map(|request| request.header("content-type") == Some("application/grpc"))
            .collect();
        assert_eq!(kinds.len(), 3);
        kinds.dedup();
        assert_eq!(kinds.len(), 1, "{variables:?}");
        kinds[0]
    };
    let general = "OTEL_EXPORTER_OTLP_PROTOCOL";
    assert!(is_grpc(&[]));
    assert!(is_grpc(&[(general, "")]));
    assert!(is_grpc(&[(general, "grpc")]));
    assert!(!is_grpc(&[(general, "HTTP/PROTOBUF")]));
    assert!(!is_grpc(&[(general, "http/json")]));
    assert!(is_grpc(&[
        (general, "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "grpc"),
    ]));
    assert_eq!(
        refusal(&[(general, "http")]),
        "variable OTEL_EXPORTER_OTLP_PROTOCOL: unknown protocol \"http\"; expected one of grpc, http/protobuf, http/json"
    );
    assert_eq!(
        refusal(&[("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuff")]),
        "variable OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: unknown protocol \"http/protobuff\"; did you mean \
         \"http/protobuf\"?; expected one of grpc, http/protobuf, http/json"
    );
    assert_eq!(
        refusal(&[("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")]),
        "variable OTEL_EXPORTER_OTLP_COMPRESSION: unknown compression \"zstd\"; expected gzip or none"
    );
}

#[test]
fn variables_of_the_wire_are_not_read_where_nothing_goes_over_it() {
    let broken = [("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier pigeon")];
    for config in [format!("{TRACES}  exporter: file\n"), TRACES.replace("enabled: true", "enabled: false")] {
        assert!(drive(&config, "train", &broken).status.success());
    }
}

#[test]
fn fault_100_a_receiver_that_fails_is_told_in_one_line_with_place_and_cause() {
    let hangs = Receiver::start([Answer::Hang]);
    let busy = Receiver::start([Answer::Http(503, vec![("content-type", "text/plain")], "s3cret is busy")]);
    let closed = format!("http://{}", closed_port());
    for (url, cause) in [
        (&*closed, "onnection refused"),
        (&*hangs.url(), "no answer within 100 ms"),
        (&*busy.url(), "HTTP 503 Service Unavailable: [redacted] is busy"),
        ("http://no-such-host.invalid:4317", "(the protocol is HTTP, and by convention 4317 is gRPC's port)"),
    ] {
        let output = drive(
            TRACES,
            "watched",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "100"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret"),
                ("DRIVER_DEADLINE_MS", "500"),
            ],
        );
        assert!(output.status.success(), "{output:?}");
        let said = text(&output.stderr);
        let lines: Vec<_> =
            said.lines().filter(|line| line.contains("telemetry does not get through")).collect();
        assert_eq!(lines.len(), 1, "{said}");
        assert!(lines[0].contains(url) && lines[0].contains(cause), "{}", lines[0]);
        assert!(!said.contains("s3cret"), "{said}");
        // A program without a subscriber has it on standard error.
        let output = drive(
            TRACES,
            "train",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "100"),
                ("DRIVER_DEADLINE_MS", "500"),
            ],
        );
        let unheard = text(&output.stderr);
        let line = format!("lens: telemetry does not get through: traces: {url}");
        assert_eq!(unheard.matches(&line).count(), 1, "{unheard}");
        // At the end the losses, to the program's log and without one.
        assert_eq!(said.matches("telemetry was lost: 900 of 900 spans").count(), 2, "{said}");
    }
}

/// fast/fastrace#120
#[test]
fn fault_86_memory_does_not_grow_where_nobody_listens() {
    let url = format!("http://{}", closed_port());
    let config = format!("{TRACES}  queue_mib: 1\n");
    let printed = text(
        &drive(&config, "many", &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url), ("DRIVER_DEADLINE_MS", "300")])
            .stdout,
    );
    let grew: Vec<u64> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("grew by ")?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(grew.len(), 2, "{printed}");
    assert!(grew.iter().all(|kib| *kib < 1024), "{printed}");
    assert!(printed.contains("telemetry was lost: 70000 of 70000 spans"), "{printed}");
}

/// open-telemetry/opentelemetry-rust#3021, #3465
#[test]
fn fault_101_nothing_that_is_said_has_a_secret_in_it() {
    // What a receiver may know of the request, and repeat: as it came, and decoded.
    const ECHO: &str =
        "no: Basic YWRhOmh1bnRlci0y, ada:hunter-2 hunter-2, s3cret\tkey, ?token=qu%20ery-1&a=b, qu ery-1";
    const JSON: &str =
        r#"{"message": "no: Basic YWRhOmh1bnRlci0y, hunter-2, s3cret\tkey, token=qu%20ery-1, qu ery-1"}"#;
    let secrets = ["YWRhOmh1bnRlci0y", "hunter-2", "s3cret", "qu%20ery-1", "qu ery-1"];
    let echoes = |kind, text| Answer::Http(400, vec![("content-type", kind)], text);
    for (protocol, answer) in [
        ("grpc", Answer::Grpc(3, ECHO)),
        ("grpc", Answer::Grpc(14, ECHO)),
        ("grpc", Answer::Partial(1, ECHO)),
        ("grpc", echoes("text/plain", ECHO)),
        ("http/protobuf", Answer::Partial(0, ECHO)),
        ("http/protobuf", echoes("text/plain", ECHO)),
        ("http/json", echoes("application/json", JSON)),
    ] {
        let receiver = Receiver::start([answer.clone()]);
        for scenario in ["shown", "train"] {
            let output = drive(
                TRACES,
                scenario,
                &[
                    ("OTEL_EXPORTER_OTLP_ENDPOINT", &*format!("{}?token=qu%20ery-1&a=b", receiver.url())),
                    ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                    (
                        "OTEL_EXPORTER_OTLP_HEADERS",
                        "authorization=Basic%20YWRhOmh1bnRlci0y,x-key=s3cret%09key",
                    ),
                    ("DRIVER_DEADLINE_MS", "200"),
                ],
            );
            assert!(output.status.success(), "{output:?}");
            let said = text(&output.stderr) + &text(&output.stdout);
            assert!(said.contains("traces"), "{said}");
            for secret in secrets {
                let line = said.lines().find(|line| line.contains(secret));
                assert_eq!(line, None, "{secret} by {protocol} with {answer:?}");
            }
        }
        assert!(!receiver.received().is_empty());
    }
}

/// What was meant as a URL, or as a header, and is none.
#[test]
fn fault_101_no_error_has_a_secret_in_it() {
    for endpoint in [
        "http://me:s3cret@host",
        "http://me:s3cret/s3cret@host",
        "http://me:s3cret?s3cret@host",
        "http://me:s3cret#s3cret@host",
        "me:s3cret@host:4317",
        "me:s3cret?s3cret@host:4317",
        "ftp://me:s3cret@host",
        "http://host name/?key=s3cret",
    ] {
        let error = refusal(&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]);
        assert!(
            error.starts_with("variable OTEL_EXPORTER_OTLP_ENDPOINT: ") && !error.contains("s3cret"),
            "{error}"
        );
        let overrides = Overrides::take_from(&mut vec![format!("++telemetry.endpoint={endpoint}")]).unwrap();
        let error = TelemetryConfig::default().with_overrides(&overrides).unwrap_err().to_string();
        assert!(error.contains("unknown key telemetry.endpoint") && !error.contains("s3cret"), "{error}");
        let yaml = format!("telemetry: {{endpoint: \"{endpoint}\"}}");
        let error = TelemetryConfig::from_yaml(&yaml, "run.yaml").unwrap_err().to_string();
        assert!(!error.contains("s3cret"), "{error}");
        let config = TelemetryConfig::default().with_enabled(true).with_endpoint(endpoint);
        assert!(!format!("{config:?} {config}").contains("s3cret"));
        let error = Telemetry::init_driver_in(config, &Environment::of_pairs([("", "")])).err().unwrap();
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
    // Name and value in the wrong order.
    let config = TelemetryConfig::default().with_enabled(true).with_header("Bearer s3cret", "authorization");
    assert!(!format!("{config:?} {config}").contains("s3cret"));
    let error = Telemetry::init_driver_in(config, &Environment::of_pairs([("", "")])).err().unwrap();
    assert_eq!(
        error.to_string(),
        "set in code: header 1: expected the name of a header in front of the equals sign"
    );
}

#[rl_span(group = Step, name = "rl.test.step", step = number)]
fn step(number: u64) {}

/// Tests that have telemetry of their own take turns: a process has one.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn fault_73_telemetry_is_delivered_from_a_test_over_every_protocol_and_again_and_again() {
    let _turn = TURN.lock();
    let nothing_set = Environment::of_pairs([("", "")]);
    for protocol in [OtlpProtocol::Grpc, OtlpProtocol::HttpProtobuf, OtlpProtocol::HttpJson] {
        let receiver = Receiver::start([]);
        let config = TelemetryConfig::default()
            .with_enabled(true)
            .with_span_groups("per_step")
            .with_endpoint(receiver.url())
            .with_protocol(protocol);
        let telemetry = Telemetry::init_driver_in(config, &nothing_set).unwrap();
        step(1);
        let shown = telemetry.config().unwrap().to_string();
        let expected = format!("# traces go to {}", receiver.url());
        assert!(shown.contains(&expected) && shown.contains("(set in code)"), "{shown}");
        assert!(telemetry.flush(Duration::from_secs(5)));
        assert_eq!(receiver.spans(), ["rl.test.step"]);
        step(2);
        let report = telemetry.shutdown(Duration::from_secs(5));
        let health = report.health;

        assert_eq!((health.traces.made, health.traces.exported), (2, 2));
        assert_eq!(health.metrics.made, health.metrics.exported);
        assert_eq!(health.logs.made, 0);
        assert_eq!(report.endpoint.unwrap().trim_end_matches("/v1/traces"), receiver.url());
        assert_eq!(receiver.spans().len(), 2);
    }
}

/// What the SDK itself knows of the spans that end.
#[derive(Clone, Debug, Default)]
struct Known(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Known {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Spans with everything that a span can have, and with more than it may.
fn record_all(tracer: &impl Tracer) {
    let remote =
        |state| SpanContext::new(TraceId::from(7), SpanId::from(9), TraceFlags::SAMPLED, true, state);
    let state = TraceState::from_key_value([("a", "1"), ("b", "2")]).unwrap();
    let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
    let long = "prompt ".repeat(4000);
    let values: Vec<Value> = vec![
        false.into(),
        true.into(),
        0_i64.into(),
        i64::MIN.into(),
        0.0_f64.into(),
        f64::NEG_INFINITY.into(),
        "".into(),
        long.into(),
        Value::Array(Array::Bool(vec![false, true])),
        Value::Array(Array::I64(vec![0, -1, i64::MAX])),
        Value::Array(Array::F64(vec![0.0, -0.5])),
        Value::Array(Array::String(vec!["".into(), StringValue::from("b")])),
        Value::Array(Array::I64(Vec::new())),
    ];
    let numbered = |(number, value)| KeyValue::new(format!("rl.test.value_{number}"), value);
    let all: Vec<_> = values.iter().cloned().enumerate().map(numbered).collect();
    let too_many: Vec<_> = values.into_iter().cycle().take(200).enumerate().map(numbered).collect();
    let statuses = [Status::Unset, Status::Ok, Status::error("why"), Status::error("")];
    let kinds =
        [SpanKind::Client, SpanKind::Server, SpanKind::Producer, SpanKind::Consumer, SpanKind::Internal];
    for (kind, status) in kinds.into_iter().zip(statuses.into_iter().cycle()) {
        let builder = SpanBuilder::from_name("rl.test.all")
            .with_kind(kind)
            .with_start_time(at(1))
            .with_attributes(too_many.clone())
            .with_links(vec![
                Link::new(remote(state.clone()), all.clone(), 0),
                Link::new(SpanContext::NONE, too_many.clone(), 0),
            ]);
        let parent = Context::new().with_remote_span_context(remote(state.clone()));
        let mut span = tracer.build_with_context(builder, &parent);
        for number in 0..200 {
            span.add_event_with_timestamp("", at(number), Vec::new());
        }
        span.set_status(status);
        span.end_with_timestamp(at(u64::from(u32::MAX)));
        let mut plain = tracer.build_with_context(SpanBuilder::from_name("").with_start_time(at(0)), &parent);
        plain.add_event_with_timestamp("happened", at(2), too_many.clone());
        plain.add_link(remote(TraceState::default()), Vec::new());
        plain.end_with_timestamp(at(0));
    }
}

#[test]
fn spans_arrive_as_the_protocols_own_conversion_has_them() {
    let _turn = TURN.lock();
    let scope = InstrumentationScope::builder("rl.test")
        .with_version("1.2")
        .with_schema_url("https://schema.example")
        .with_attributes([KeyValue::new("part", true)])
        .build();
    let known = Known::default();
    let reference = SdkTracerProvider::builder().with_span_processor(known.clone()).build();
    record_all(&reference.tracer_with_scope(scope.clone()));

    let receiver = Receiver::start([]);
    let config = TelemetryConfig::default()
        .with_enabled(true)
        .with_endpoint(receiver.url())
        .with_protocol(OtlpProtocol::Grpc);
    let telemetry = Telemetry::init_driver_in(config, &Environment::of_pairs([("", "")])).unwrap();
    record_all(&global::tracer_provider().tracer_with_scope(scope.clone()));
    telemetry.shutdown(Duration::from_secs(5));

    let requests = receiver.received();
    let bytes = &requests.iter().find(|request| request.path.contains("trace")).unwrap().message;
    let request = ExportTraceServiceRequest::decode(bytes.clone()).unwrap();
    assert!(request.encode_to_vec() == *bytes, "not what others would write");
    let [resource_spans] = &request.resource_spans[..] else { panic!("{} resources", requests.len()) };
    let [scope_spans] = &resource_spans.scope_spans[..] else { panic!("{resource_spans:?}") };
    assert_eq!(scope_spans.scope, Some(common::v1::InstrumentationScope::from((&scope, None))));
    assert_eq!(scope_spans.schema_url, "https://schema.example");
    let known = known.0.lock().unwrap();
    assert_eq!(scope_spans.spans.len(), known.len());
    for (arrived, known) in scope_spans.spans.iter().zip(known.iter().cloned()) {
        // Only the id was drawn.
        let span_id = arrived.span_id.clone();
        assert!(*arrived == trace::v1::Span { span_id, ..known.into() }, "{}", arrived.name);
    }
}
