//! What does a whole run leave behind? Tests of a driver in a process of its own.

mod support;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use support::{attribute, file, files, folder_with, items, lines, names, spans, text};

const CONFIG: &str = "\
trainer: {steps: 3}
telemetry:
  enabled: true
  span_groups: per_step
  exporter: file
";

/// Runs the driver in a folder, with no variable but the given ones.
fn drive(folder: &Path, scenario: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_driver"))
        .args([scenario, "run.yaml"])
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// The only run folder.
fn run_folder(folder: &Path) -> PathBuf {
    let mut runs: Vec<_> = std::fs::read_dir(folder.join("runs")).unwrap().collect();
    assert_eq!(runs.len(), 1);
    runs.pop().unwrap().unwrap().path()
}

fn sorted_names(spans: &[Value]) -> Vec<&str> {
    let mut names = names(spans);
    names.sort_unstable();
    names
}

#[test]
fn the_files_hold_every_span_under_its_parent() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "train", &[], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let spans = spans(&run_folder(folder.path()));
    assert_eq!(spans.len(), 9);
    for number in ["1", "2", "3"] {
        let of_step: Vec<_> = spans
            .iter()
            .filter(|span| attribute(span, "rl.iteration").unwrap()["intValue"] == number)
            .collect();
        let step = of_step.iter().find(|span| span["name"] == "rl.test.step").unwrap();
        assert_eq!(step["parentSpanId"], Value::Null);
        let beneath: Vec<_> = of_step.iter().filter(|span| span["parentSpanId"] == step["spanId"]).collect();
        assert_eq!(beneath.len(), 2);
        assert!(beneath.iter().all(|span| span["traceId"] == step["traceId"]));
        let inside = |span: &Value| {
            let time = |span: &Value, key: &str| -> u64 { span[key].as_str().unwrap().parse().unwrap() };
            time(span, "startTimeUnixNano") >= time(step, "startTimeUnixNano")
                && time(span, "endTimeUnixNano") <= time(step, "endTimeUnixNano")
        };
        assert!(beneath.iter().all(|span| inside(span)));
    }
}

#[test]
fn values_are_written_as_otlp_json_has_them() {
    let folder = folder_with(CONFIG);
    drive(folder.path(), "train", &[], &[("LENS_RUN_ID", "run-7"), ("LENS_USER_ID", "ada")]);
    let run = folder.path().join("runs/run-7");
    let spans = spans(&run);
    let generate = spans.iter().find(|span| span["name"] == "rl.test.generate").unwrap();
    let value = |key: &str| attribute(generate, key).unwrap().to_string();
    assert_eq!(value("rl.num_generations_per_prompt"), r#"{"intValue":"2"}"#);
    assert_eq!(value("temperature"), r#"{"doubleValue":"NaN"}"#);
    assert_eq!(
        value("seeds"),
        r#"{"arrayValue":{"values":[{"intValue":"9223372036854775807"},{"intValue":"-1"}]}}"#
    );
    assert_eq!(
        value("texts"),
        r#"{"arrayValue":{"values":[{"stringValue":"a"},{"stringValue":"b\n\"c\""}]}}"#
    );
    assert_eq!(generate["kind"], 1);
    assert_eq!(generate["flags"], 0x101);
    assert_eq!(generate["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(generate["spanId"].as_str().unwrap().len(), 16);
    let reward = spans.iter().find(|span| span["name"] == "rl.test.reward").unwrap();
    assert_eq!(reward["status"], serde_json::json!({"code": 2}));

    let resource = &lines(&file(&run, "traces"))[0]["resourceSpans"][0]["resource"];
    let text = |key: &str| attribute(resource, key).unwrap()["stringValue"].as_str().unwrap().to_owned();
    assert_eq!(text("nemo.run.id"), "run-7");
    assert_eq!(text("nemo.user.id"), "ada");
    assert_eq!(text("service.name"), "rl-trainer");
}

#[test]
fn a_given_service_name_wins_over_the_resource_variable_and_that_over_the_default() {
    let service_name = |config: &str, variables: &[(&str, &str)]| {
        let folder = folder_with(config);
        drive(folder.path(), "train", &[], variables);
        let line = &lines(&file(&run_folder(folder.path()), "traces"))[0];
        attribute(&line["resourceSpans"][0]["resource"], "service.name").unwrap()["stringValue"].clone()
    };
    let named = format!("{CONFIG}  service_name: in-the-file\n");
    let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=by%20attribute,team=rl");
    assert_eq!(service_name(CONFIG, &[]), "rl-trainer");
    assert_eq!(service_name(CONFIG, &[attributes]), "by attribute");
    assert_eq!(service_name(&named, &[attributes]), "in-the-file");
    assert_eq!(service_name(&named, &[attributes, ("OTEL_SERVICE_NAME", "by-variable")]), "by-variable");
}

#[test]
fn token_sums_are_those_of_the_program() {
    let folder = folder_with(CONFIG);
    drive(folder.path(), "train", &[], &[]);
    let run = run_folder(folder.path());
    // Steps 1, 2 and 3 make n and n + 1 tokens.
    let (input, output) = (3 * 3, 3 + 5 + 7);
    let sum = |key: &str| -> i64 {
        let values = spans(&run);
        let counts = values.iter().filter_map(|span| attribute(span, key));
        counts.map(|value| value["intValue"].as_str().unwrap().parse::<i64>().unwrap()).sum()
    };
    assert_eq!(sum("gen_ai.usage.input_tokens"), input);
    assert_eq!(sum("gen_ai.usage.output_tokens"), output);

    let metrics = items(&file(&run, "metrics"), ["resourceMetrics", "scopeMetrics", "metrics"]);
    let usage = metrics.iter().rfind(|metric| metric["name"] == "gen_ai.client.token.usage").unwrap();
    let sum = |kind: &str| {
        let points = usage["histogram"]["dataPoints"].as_array().unwrap();
        let is_kind = |point: &&Value| attribute(point, "gen_ai.token.type").unwrap()["stringValue"] == kind;
        points.iter().find(is_kind).unwrap()["sum"].clone()
    };
    assert_eq!(sum("input"), Value::from(9.0));
    assert_eq!(sum("output"), Value::from(15.0));
    assert_eq!(usage["unit"], "{token}");
    assert_eq!(usage["histogram"]["aggregationTemporality"], 2);
}

#[test]
fn the_scalars_of_every_step_are_in_the_log_to_the_last_bit() {
    let folder = folder_with(CONFIG);
    drive(folder.path(), "train", &[], &[]);
    let run = run_folder(folder.path());
    let records = items(&file(&run, "logs"), ["resourceLogs", "scopeLogs", "logRecords"]);
    let scalars: Vec<_> = records
        .iter()
        .map(|record| {
            assert_eq!(record["eventName"], "rl.step.metrics");
            let double = |key: &str| attribute(record, key).unwrap()["doubleValue"].clone();
            let step = attribute(record, "rl.iteration").unwrap()["intValue"].as_str().unwrap();
            (step.to_owned(), double("rl.reward.mean"), double("rl.kl.divergence"))
        })
        .collect();
    let exact = |value: f64| Value::from(value);
    assert_eq!(
        scalars,
        [
            ("1".to_owned(), exact(1.0), exact(0.1 + 0.2)),
            ("2".to_owned(), exact(0.5), Value::from("Infinity")),
            ("3".to_owned(), exact(1.0 / 3.0), exact(0.1 + 0.2)),
        ]
    );
    let step = spans(&run).into_iter().find(|span| span["name"] == "rl.test.step").unwrap();
    assert!(records.iter().any(|record| record["spanId"] == step["spanId"]));
}

#[test]
fn log_lines_are_recorded_with_the_span_in_which_they_were_written() {
    let folder = folder_with(CONFIG);
    drive(folder.path(), "log", &["++telemetry.logs_enabled=true", "telemetry.metrics_enabled=false"], &[]);
    let run = run_folder(folder.path());
    let logs = file(&run, "logs");
    let scopes: Vec<Value> = lines(&logs)
        .iter()
        .flat_map(|line| line["resourceLogs"][0]["scopeLogs"].as_array().unwrap().clone())
        .collect();
    let record = |target: &str| {
        let scope = scopes.iter().find(|scope| scope["scope"]["name"] == target).unwrap();
        scope["logRecords"][0].clone()
    };
    let begins = record("trainer");
    assert_eq!(begins["body"]["stringValue"], "begins");
    assert_eq!(begins["severityText"], "INFO");
    assert_eq!(attribute(&begins, "epochs").unwrap()["intValue"], "3");
    assert_eq!(begins["spanId"], Value::Null);
    let of_step = record("driver");
    assert_eq!(of_step["severityNumber"], 13);
    let step = spans(&run).into_iter().find(|span| span["name"] == "rl.test.step").unwrap();
    assert_eq!((&of_step["traceId"], &of_step["spanId"]), (&step["traceId"], &step["spanId"]));
}

/// open-telemetry/opentelemetry-rust#1378, #2824
#[test]
fn fault_67_a_line_has_the_ids_of_the_innermost_active_span_and_no_others() {
    let folder = folder_with(CONFIG);
    drive(folder.path(), "lines", &["++telemetry.logs_enabled=true", "telemetry.metrics_enabled=false"], &[]);
    let run = run_folder(folder.path());
    let spans = spans(&run);
    let logs = items(&file(&run, "logs"), ["resourceLogs", "scopeLogs"]);
    for way in ["by log", "by tracing"] {
        let mut said = BTreeMap::new();
        let scopes = logs.iter().filter(|scope| scope["scope"]["name"] == way);
        for record in scopes.flat_map(|scope| scope["logRecords"].as_array().unwrap()) {
            let ids = |item: &Value| [item["traceId"].clone(), item["spanId"].clone()];
            // An id that is no span's stays what it is.
            let span = spans.iter().find(|span| ids(span) == ids(record));
            let within = span.map_or(&record["spanId"], |span| &span["name"]);
            let [place, within] =
                [&record["body"]["stringValue"], within].map(|text| text.as_str().unwrap_or("no span"));
            *said.entry(format!("{place} in {within}")).or_insert(0) += 1;
        }
        let expected = [
            ("after in no span", 1),
            ("inner in inner", 3),
            ("outer in outer", 4),
            ("outside in no span", 1),
            ("task in no span", 1),
        ];
        assert_eq!(said, expected.map(|(line, count)| (line.to_owned(), count)).into(), "{way}");
    }
}

#[test]
fn log_lines_are_not_recorded_unless_asked() {
    let folder = folder_with(CONFIG);
    drive(folder.path(), "log", &["telemetry.metrics_enabled=false"], &[]);
    let files = std::fs::read_dir(run_folder(folder.path())).unwrap().count();
    assert_eq!(files, 2, "the configuration and the traces");
}

#[test]
fn the_effective_configuration_lies_beside_the_files() {
    let folder = folder_with(CONFIG);
    let arguments = ["++telemetry.metrics_enabled=false", "++telemetry.directory=elsewhere/deep"];
    drive(folder.path(), "train", &arguments, &[("SLURM_JOB_ID", "1234"), ("OTEL_SERVICE_NAME", "mine")]);
    let run = folder.path().join("elsewhere/deep/1234");
    let config = file(&run, "config");
    assert!(config.contains("# run: 1234 (variable SLURM_JOB_ID)"), "{config}");
    assert!(config.contains("service_name: \"mine\"         # variable OTEL_SERVICE_NAME"), "{config}");
    assert!(config.contains("span_groups: \"per_step\"      # run.yaml:4:16"), "{config}");
    assert!(config.contains("# override ++telemetry.metrics_enabled=false"), "{config}");
    let files = std::fs::read_dir(&run).unwrap().count();
    assert_eq!(files, 2, "the configuration and the traces: metrics are off");
}

#[test]
fn a_run_id_cannot_lead_out_of_the_directory() {
    let folder = folder_with(CONFIG);
    drive(folder.path(), "train", &[], &[("LENS_RUN_ID", "../../evil run")]);
    assert_eq!(run_folder(folder.path()).file_name().unwrap(), "_._.._evil_run");
}

#[test]
fn off_writes_nothing_and_says_so() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "train", &["telemetry.enabled=false"], &[]);
    assert_eq!(text(&output.stdout), "telemetry was off\n");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the configuration");
}

#[test]
fn the_report_tells_where_the_time_went_and_where_the_files_are() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "train", &[], &[("LENS_RUN_ID", "r")]);
    let report = text(&output.stdout);
    let rows: Vec<Vec<&str>> = report.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["phase", "calls", "total", "mean", "of", "step", "tokens", "tokens/s"]);
    assert_eq!(rows[1][..2], ["rl.test.step", "3"]);
    assert_eq!(rows[2][..2], ["rl.test.generate", "3"]);
    assert_eq!(rows[2][8], "24", "9 input and 15 output tokens: {report}");
    assert_eq!(rows[3][..2], ["rl.test.reward", "3"]);
    assert!(report.ends_with("telemetry of run r: 9 spans in runs/r\n"), "{report}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn the_report_comes_behind_what_the_console_printed() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "train", &["++telemetry.exporter=console"], &[("LENS_RUN_ID", "r")]);
    let printed = text(&output.stdout);
    let (_, report) = printed.rsplit_once("}\n").unwrap();
    let rows: Vec<_> = report.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(rows, ["phase", "rl.test.step", "rl.test.generate", "rl.test.reward", "telemetry"]);
    assert!(report.ends_with("telemetry of run r: 9 spans on the console\n"), "{report}");
}

/// What the console printed, the lines that are no JSON left out.
fn console_objects() -> Vec<Value> {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "train", &["++telemetry.exporter=console"], &[]);
    text(&output.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The keys of an object, in order, separated by spaces.
fn keys(object: &Value) -> String {
    object.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_console_prints_spans_as_the_ported_system_does() {
    let objects = console_objects();
    let spans: Vec<_> = objects.iter().filter(|object| object.get("parent_id").is_some()).collect();
    assert_eq!(spans.len(), 9);
    for span in &spans {
        assert_eq!(
            keys(span),
            "name context kind parent_id start_time end_time status attributes events links resource"
        );
        assert_eq!(keys(&span["context"]), "trace_id span_id trace_state");
        assert_eq!(span["context"]["trace_id"].as_str().unwrap().len(), "0x".len() + 32);
        assert_eq!(span["context"]["trace_state"], "[]");
        assert_eq!(span["kind"], "SpanKind.INTERNAL");
        assert_eq!(span["start_time"].as_str().unwrap().len(), "2026-11-29T18:01:14.156864Z".len());
        assert_eq!(keys(&span["resource"]), "attributes schema_url");
    }
    let status = |name: &str| &spans.iter().find(|span| span["name"] == name).unwrap()["status"];
    assert_eq!(*status("rl.test.step"), serde_json::json!({"status_code": "UNSET"}));
    assert_eq!(*status("rl.test.reward"), serde_json::json!({"status_code": "ERROR"}));
}

#[test]
fn the_console_prints_metrics_as_the_ported_system_does() {
    let objects = console_objects();
    let metrics = objects.iter().rfind(|object| object.get("resource_metrics").is_some()).unwrap();
    let resource = &metrics["resource_metrics"][0];
    assert_eq!(keys(resource), "resource scope_metrics schema_url");
    assert_eq!(keys(&resource["scope_metrics"][0]), "scope metrics schema_url");
    let metrics = resource["scope_metrics"][0]["metrics"].as_array().unwrap();
    let metric = |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap();

    let histogram = metric("rl.phase.duration");
    assert_eq!(keys(histogram), "name description unit data");
    assert_eq!(keys(&histogram["data"]), "data_points aggregation_temporality");
    assert_eq!(
        keys(&histogram["data"]["data_points"][0]),
        "attributes start_time_unix_nano time_unix_nano count sum bucket_counts explicit_bounds min max exemplars"
    );
    let gauge = &metric("rl.reward.mean")["data"]["data_points"][0];
    assert_eq!(keys(gauge), "attributes start_time_unix_nano time_unix_nano value exemplars");
    assert_eq!(gauge["value"], 1.0 / 3.0);
    assert_eq!(gauge["start_time_unix_nano"], Value::Null);
}

#[test]
fn the_console_prints_events_as_the_ported_system_does() {
    let objects = console_objects();
    let logs: Vec<_> = objects.iter().filter(|object| object.get("severity_number").is_some()).collect();
    assert_eq!(logs.len(), 3);
    assert_eq!(
        keys(logs[0]),
        "body severity_number severity_text attributes dropped_attributes timestamp observed_timestamp trace_id \
         span_id trace_flags resource event_name"
    );
    assert_eq!(logs[0]["event_name"], "rl.step.metrics");
    assert_eq!(logs[1]["attributes"]["rl.kl.divergence"], "Infinity");
}

#[test]
fn a_program_that_holds_its_standard_output_is_not_held_up() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "hold_stdout", &["++telemetry.exporter=console"], &[]);
    assert!(output.status.success());
    let stdout = text(&output.stdout);
    assert!(stdout.contains("still here\n"));
    assert_eq!(stdout.matches("\"parent_id\"").count(), 300);
}

#[test]
fn groups_can_be_switched_while_the_program_runs() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "switch", &[], &[]);
    assert!(text(&output.stdout).contains("set in code: unknown span group \"nonsense\""));
    assert_eq!(
        sorted_names(&spans(&run_folder(folder.path()))),
        [
            "rl.test.generate",
            "rl.test.generate",
            "rl.test.generate",
            "rl.test.reward",
            "rl.test.reward",
            "rl.test.step"
        ]
    );
}

/// databendlabs/databend#5533, tokio-rs/tracing#2144
#[test]
fn fault_89_a_call_is_recorded_or_not_by_what_was_on_when_it_began() {
    let folder = folder_with(CONFIG);
    assert!(drive(folder.path(), "switch_within", &[], &[]).status.success());
    let spans = spans(&run_folder(folder.path()));
    assert_eq!(sorted_names(&spans), ["rl.test.reward", "rl.test.reward", "seen"]);
    let seen = spans.iter().find(|span| span["name"] == "seen").unwrap();
    assert_eq!(attribute(seen, "rl.outcome").unwrap()["stringValue"], "ok");
    let parents: Vec<_> = spans
        .iter()
        .filter(|span| span["name"] == "rl.test.reward")
        .map(|span| &span["parentSpanId"])
        .collect();
    assert_eq!(parents, [&seen["spanId"], &Value::Null]);
}

#[test]
fn a_second_init_is_a_clear_error() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "twice", &[], &[("LENS_RUN_ID", "first")]);
    assert!(text(&output.stdout).contains(
        "Some((true, \"telemetry is already initialised for run first; shut it down before it is initialised again\"))"
    ));
}

#[test]
fn fault_80_after_a_shutdown_nothing_is_recorded_or_said_and_telemetry_can_begin_again() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "again", &[], &[("LENS_RUN_ID", "r")]);
    assert_eq!(text(&output.stderr), "");
    assert!(text(&output.stdout).ends_with("telemetry of run r: 3 spans in runs/r\n"));
    let mut steps: Vec<_> = spans(&folder.path().join("runs/r"))
        .iter()
        .filter(|span| span["name"] == "rl.test.step")
        .map(|span| attribute(span, "rl.iteration").unwrap()["intValue"].as_str().unwrap().to_owned())
        .collect();
    steps.sort_unstable();
    assert_eq!(steps, ["1", "3"], "what ran in between was off");
}

#[test]
fn a_killed_process_leaves_files_that_can_be_read() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "abort", &[], &[]);
    assert!(!output.status.success());
    let run = run_folder(folder.path());
    let traces = file(&run, "traces");
    let (whole, _cut) = traces.rsplit_once('\n').unwrap();
    let spans = items(whole, ["resourceSpans", "scopeSpans", "spans"]);
    assert!(spans.len() >= 3000, "all that was flushed is there: {}", spans.len());
}

#[test]
fn a_panic_of_the_trainer_loses_nothing() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "panic", &[], &[]);
    assert!(text(&output.stderr).contains("the trainer fell over"));
    assert_eq!(spans(&run_folder(folder.path())).len(), 3);
}

#[test]
fn a_burst_arrives_whole() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "burst", &[], &[("LENS_RUN_ID", "r")]);
    assert_eq!(text(&output.stderr), "");
    assert!(text(&output.stdout).ends_with("telemetry of run r: 100002 spans in runs/r\n"));
    // Read as text: to parse so many lines takes longer than to write them.
    let traces = file(&folder.path().join("runs/r"), "traces");
    let ids: HashSet<&str> = traces.split("\"spanId\":\"").skip(1).map(|rest| &rest[..16]).collect();
    assert_eq!(ids.len(), 100_002);
}

#[test]
fn no_line_is_longer_than_a_collector_takes() {
    let folder = folder_with(CONFIG);
    drive(folder.path(), "large", &[], &[]);
    let run = run_folder(folder.path());
    let longest = file(&run, "traces").lines().map(str::len).max().unwrap();
    assert!(longest < 1 << 20, "{longest}");
    assert!(longest > 1 << 19, "as few lines as possible: {longest}");
    assert_eq!(spans(&run).len(), 600);
}

#[test]
fn a_file_that_has_grown_large_is_followed_by_another() {
    let folder = folder_with(&CONFIG.replace("telemetry:\n", "telemetry:\n  file_mib: 1\n"));
    drive(folder.path(), "large", &[], &[]);
    let run = run_folder(folder.path());
    let sizes: Vec<_> =
        files(&run, "traces").iter().map(|path| std::fs::metadata(path).unwrap().len()).collect();
    assert!(sizes.len() > 2 && sizes.iter().all(|size| *size <= 1 << 20), "{sizes:?}");
    assert_eq!(spans(&run).len(), 600);
}

/// The limit of a file stands for the end of the disk: what is written before it is there, the rest is not.
#[test]
fn a_disk_that_is_full_leaves_whole_lines_and_exact_counts() {
    let folder = folder_with(CONFIG);
    let output = Command::new("/bin/sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 3000; exec \"$0\" large run.yaml"])
        .arg(env!("CARGO_BIN_EXE_driver"))
        .current_dir(folder.path())
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written = spans(&run_folder(folder.path())).len();
    assert!(written > 0 && written < 600, "{written}");
    let expected = format!("telemetry was lost: {} of 600 spans", 600 - written);
    assert!(text(&output.stdout).contains(&expected), "{}", text(&output.stdout));
}

#[test]
fn a_folder_that_vanishes_is_counted_and_told_and_not_fatal() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "lose_folder", &[], &[]);
    assert!(output.status.success());
    let expected =
        "telemetry was lost: 3 of 3 spans (refused 0, rejected 0, failed 3, in doubt 0, left at shutdown 0)";
    assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
}

#[test]
fn a_folder_that_cannot_be_written_ends_the_driver_before_it_trains() {
    let folder = folder_with(CONFIG);
    std::fs::write(folder.path().join("runs"), "in the way").unwrap();
    let output = drive(folder.path(), "train", &[], &[("LENS_RUN_ID", "r")]);
    assert!(!output.status.success());
    assert_eq!(text(&output.stdout), "");
    let stderr = text(&output.stderr);
    assert!(
        stderr.starts_with("write to the run folder runs/r (from telemetry.directory, default): "),
        "{stderr}"
    );
}

#[test]
fn a_configuration_that_means_nothing_ends_the_driver_before_it_trains() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "train", &["++telemetry.exporter=kafka"], &[]);
    assert!(!output.status.success());
    assert_eq!(
        text(&output.stderr),
        "override ++telemetry.exporter=kafka: unknown exporter \"kafka\" in telemetry.exporter; expected otlp, console or file\n"
    );
    assert!(!folder.path().join("runs").exists());
}

#[test]
fn fault_66_spans_of_other_libraries_nest_in_ours_and_ours_in_theirs() {
    let folder = folder_with(CONFIG);
    drive(folder.path(), "others", &[], &[]);
    let spans = spans(&run_folder(folder.path()));
    let named = |name: &str| spans.iter().find(|span| span["name"] == name).unwrap();
    let chain = ["rl.test.with_library", "library.outer", "rl.test.reward"];
    for pair in chain.windows(2) {
        let [outer, inner] = [named(pair[0]), named(pair[1])];
        assert_eq!(inner["parentSpanId"], outer["spanId"], "{pair:?}");
        assert_eq!(inner["traceId"], outer["traceId"]);
    }
    // The report is about the run's own phases.
    let metrics =
        items(&file(&run_folder(folder.path()), "metrics"), ["resourceMetrics", "scopeMetrics", "metrics"]);
    assert!(metrics.iter().any(|metric| metric["name"] == "library.requests"));
}

#[test]
fn a_library_that_is_told_the_global_propagator_passes_the_trace_on() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "others", &[], &[]);
    let printed = text(&output.stdout);
    let spans = spans(&run_folder(folder.path()));
    let span = spans.iter().find(|span| span["name"] == "rl.test.with_library").unwrap();
    let expected = format!(
        "traceparent: 00-{}-{}-01",
        span["traceId"].as_str().unwrap(),
        span["spanId"].as_str().unwrap()
    );
    assert!(printed.contains(&expected), "{printed}");
    assert!(printed.contains("baggage: rl.iteration=4"), "{printed}");
}

/// The only point of a metric of a scope, as it was collected last; a name that two metrics have is a fault.
fn last_point(run: &Path, scope: &str, metric: &str) -> Option<Value> {
    let lines = lines(&file(run, "metrics"));
    let scopes = |line: &Value| line["resourceMetrics"][0]["scopeMetrics"].as_array().unwrap().clone();
    let of_scope = lines.iter().rev().flat_map(scopes).find(|found| found["scope"]["name"] == scope)?;
    let metrics = of_scope["metrics"].as_array().unwrap();
    let mut named = metrics.iter().filter(|found| found["name"] == metric);
    let found = named.next()?;
    assert!(named.next().is_none(), "two of {metric} in {}", run.display());
    let kinds = ["sum", "gauge", "histogram"];
    let points = kinds.iter().find_map(|kind| found[kind]["dataPoints"].as_array()).unwrap();
    assert_eq!(points.len(), 1, "{metric} in {}", run.display());
    Some(points[0].clone())
}

/// dsx-ai-factory/infra-controller#4174, open-telemetry/opentelemetry-rust#2280
#[test]
fn fault_71_what_was_taken_early_records_into_the_telemetry_that_is_on_and_into_nothing_else() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "late", &["++telemetry.span_groups=all"], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    for (run, phase, libraries) in
        [("first", "1", &["early", "global"][..]), ("second", "3", &["early", "global", "off"][..])]
    {
        let run = folder.path().join("runs").join(run);
        let spans = spans(&run);
        let (mut made, annotated): (Vec<_>, Vec<_>) =
            spans.iter().partition(|span| span["name"] != "rl.test.annotated");
        made.retain(|span| span["name"] == format!("library.phase {phase}").as_str());
        assert_eq!((made.len(), annotated.len()), (libraries.len(), libraries.len()), "{spans:?}");
        assert_eq!(spans.len(), 2 * libraries.len());
        for span in annotated {
            assert_eq!(attribute(span, "phase").unwrap()["intValue"], phase);
            assert!(made.iter().any(|outer| outer["spanId"] == span["parentSpanId"]));
        }
        for library in libraries {
            let value = |metric: &str, key: &str| last_point(&run, library, metric).unwrap()[key].clone();
            let number: u32 = phase.parse().unwrap();
            assert_eq!(value("library.requests", "asInt"), 10_u64.pow(number).to_string());
            assert_eq!(value("library.load", "asDouble"), f64::from(number));
            assert_eq!(value("library.latency", "sum"), f64::from(number));
            assert_eq!(value("library.latency", "explicitBounds"), serde_json::json!([2.5]));
            assert_eq!(value("library.phase", "asInt"), phase);
        }
    }
    assert_eq!(last_point(&folder.path().join("runs/first"), "off", "library.requests"), None);
}

#[test]
fn fault_71_threads_that_record_while_telemetry_begins_and_ends_lose_nothing_that_it_was_on_for() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "late_race", &[], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // A span that ends in the very moment of the shutdown may be told as refused.
    let mut ids = std::collections::HashSet::new();
    for round in 0..5 {
        let run = folder.path().join(format!("runs/round-{round}"));
        let spans = spans(&run);
        let named = |name: &str| spans.iter().filter(|span| span["name"] == name).count();
        assert_eq!((named("on"), named("off")), (800, 0));
        assert_eq!(800 + named("racing"), spans.len());
        assert_eq!(last_point(&run, "race", "on").unwrap()["asInt"], "800");
        assert_eq!(last_point(&run, "race", "off"), None);
        assert!(spans.iter().all(|span| ids.insert(span["spanId"].to_string())), "a span of two runs");
    }
}

/// open-telemetry/opentelemetry-rust#3640
#[test]
fn fault_81_a_callback_that_panics_is_told_once_and_silences_nothing() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "late_panic", &[], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).matches("flushed: true").count(), 3);
    let told = "lens: a callback of an observable instrument panics, others go on: metrics: library.half\n";
    assert_eq!(text(&output.stderr).matches(told).count(), 1, "{}", text(&output.stderr));
    let run = folder.path().join("runs/r");
    let value = |metric: &str| last_point(&run, "library", metric).unwrap()["asInt"].clone();
    // Three flushes collect, and the shutdown, in which nothing but what is observed is recorded any more.
    assert_eq!(value("library.whole"), "3");
    assert_eq!(value("library.half"), "1");
    assert_eq!(value("library.calls"), "3");
    assert_eq!(value("library.taken"), "2", "it is there from the second collection on");
    assert_eq!(last_point(&run, "lens", "rl.learning_rate").unwrap()["asDouble"], 0.5);
}

/// Hanaasagi/tokio-metrics-collector#4, open-telemetry/opentelemetry-rust#3656, #3497
#[test]
fn fault_108_numbers_beyond_all_bounds_end_nothing() {
    let folder = folder_with(CONFIG);
    let output = drive(folder.path(), "absurd", &[], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let run = run_folder(folder.path());
    let spans = spans(&run);
    assert_eq!(spans.len(), 9);
    for span in spans.iter().filter(|span| span["name"] == "rl.test.tokens") {
        let attributes = span["attributes"].as_array().unwrap();
        let of = |key: &str| -> Vec<_> {
            attributes
                .iter()
                .filter(|pair| pair["key"] == key)
                .map(|pair| &pair["value"]["intValue"])
                .collect()
        };
        assert_eq!(of("gen_ai.usage.input_tokens"), [&i64::MAX.to_string()]);
        assert_eq!(of("gen_ai.usage.output_tokens"), ["1"]);
    }
    let backwards = spans.iter().find(|span| span["name"] == "rl.test.backwards").unwrap();
    assert_eq!(backwards["startTimeUnixNano"], backwards["endTimeUnixNano"]);
    let logs = file(&run, "logs");
    assert_eq!(logs.matches("rl.entropy").count(), 1, "of two values for one scalar the last: {logs}");
    assert!(logs.contains("{\"key\":\"rl.entropy\",\"value\":{\"doubleValue\":2.0}}"), "{logs}");
}

/// Dashboards, and who reads the files, know these. One that changes is told in CHANGELOG.
#[test]
fn fault_111_instruments_keep_their_names_units_and_bounds() {
    let folder = folder_with(CONFIG);
    drive(folder.path(), "train", &[], &[]);
    let lines = file(&run_folder(folder.path()), "metrics");
    let last = lines.lines().last().unwrap();
    // What the delivery tells of itself is there once it has something to tell.
    let mut found: Vec<_> = items(last, ["resourceMetrics", "scopeMetrics", "metrics"])
        .iter()
        .filter(|metric| !metric["name"].as_str().unwrap().starts_with("otel.sdk."))
        .map(|metric| {
            let bounds = &metric["histogram"]["dataPoints"][0]["explicitBounds"];
            let [name, unit] = ["name", "unit"].map(|key| metric[key].as_str().unwrap_or_default());
            format!(
                "{name} [{unit}] {}",
                if bounds.is_null() { "gauge".to_owned() } else { bounds.to_string() }
            )
        })
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            "gen_ai.client.operation.duration [s] \
             [0.01,0.02,0.04,0.08,0.16,0.32,0.64,1.28,2.56,5.12,10.24,20.48,40.96,81.92]",
            "gen_ai.client.token.usage [{token}] [1.0,4.0,16.0,64.0,256.0,1024.0,4096.0,16384.0,65536.0,262144.0,\
             1048576.0,4194304.0,16777216.0,67108864.0]",
            "rl.kl.divergence [] gauge",
            "rl.phase.duration [s] [0.001,0.002,0.005,0.01,0.02,0.05,0.1,0.2,0.5,1.0,2.0,5.0,10.0,20.0,50.0,100.0,\
             200.0,500.0,1000.0,2000.0,3600.0]",
            "rl.reward.mean [] gauge",
        ]
    );
}

#[test]
fn a_callback_that_hangs_holds_up_a_flush_and_a_shutdown_no_longer_than_their_deadline() {
    let folder = folder_with(CONFIG);
    let variables = [("DRIVER_DEADLINE_MS", "3000"), ("LENS_RUN_ID", "r")];
    let output = drive(folder.path(), "late_hang", &["++telemetry.span_groups=all"], &variables);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(spans(&folder.path().join("runs/r")).len(), 1, "half of the time is for delivery");
}
