//! What is left of a run, whatever ends its process, or makes two of it?

mod support;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use support::{attribute_text as attribute, folder_with, lines_of, log_records, names, text};
use tempfile::TempDir;

const CONFIG: &str = "\
telemetry:
  enabled: true
  span_groups: all
  exporter: file
";

/// What runs a command as a shell in the foreground does: in the background, and under some CI, signals are ignored,
/// and stay so.
const WITH_SIGNALS: [&str; 2] = ["/usr/bin/env", "--default-signal=TERM,INT"];

/// The driver in a folder, with what stands before it on the command line.
fn driver(folder: &Path, before: &[&str], scenario: &str) -> Command {
    let mut words = before.iter().copied().chain([env!("CARGO_BIN_EXE_driver"), scenario, "run.yaml"]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).current_dir(folder).env_clear().env("LENS_RUN_ID", "r");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn drive(config: &str, scenario: &str) -> (TempDir, Output) {
    let folder = folder_with(config);
    let output = driver(folder.path(), &WITH_SIGNALS, scenario).output().unwrap();
    (folder, output)
}

/// A driver that has said that it is ready.
struct Ready {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Ready {
    fn wait(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, stdout }
    }

    fn send(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    fn say(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// What it prints until its end.
    fn end(mut self) -> Output {
        let mut stdout = Vec::new();
        self.stdout.read_to_end(&mut stdout).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Output { stdout, ..output }
    }
}

/// The folder of the run.
fn run(folder: &Path) -> PathBuf {
    folder.join("runs/r")
}

fn spans(folder: &Path) -> Vec<Value> {
    support::spans(&run(folder))
}

fn announced(folder: &Path) -> Vec<Value> {
    let mut records = log_records(&run(folder));
    records.retain(|record| record["eventName"] == "rl.span.open");
    records
}

/// The two spans that were open, which ended for this reason, the inner one first.
fn assert_truncated(spans: &[Value], reason: &str) {
    assert_eq!(names(spans), ["inner", "outer"]);
    for span in spans {
        assert_eq!(attribute(span, "nemo.span.truncated").as_deref(), Some("true"));
        assert_eq!(attribute(span, "rl.outcome"), None, "it has not ended by itself");
        assert!(span["status"]["code"].is_null(), "it has not failed");
        let [event] = span["events"].as_array().unwrap().as_slice() else { panic!("{span}") };
        assert_eq!(event["name"], "nemo.span.truncated");
        assert_eq!(attribute(event, "nemo.span.truncated.reason").as_deref(), Some(reason));
    }
    assert_eq!(spans[0]["parentSpanId"], spans[1]["spanId"]);
}

#[test]
fn spans_that_are_open_at_a_shutdown_are_ended_by_it_the_youngest_first() {
    let (folder, output) = drive(CONFIG, "open");
    assert_eq!(text(&output.stderr), "", "nothing is lost");
    assert_truncated(&spans(folder.path()), "shutdown");
}

#[test]
fn fault_78_an_exit_loses_nothing_of_a_handle_that_is_never_dropped() {
    let (folder, output) = drive(CONFIG, "exit");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(3), String::new()));
    assert_truncated(&spans(folder.path()), "exit");

    let (folder, output) = drive(CONFIG, "returns");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert_eq!(names(&spans(folder.path())), ["rl.test.generate", "rl.test.reward", "rl.test.step"]);
}

#[test]
fn a_signal_that_nobody_handles_ends_the_process_once_telemetry_is_written() {
    for (name, number) in [("TERM", 15), ("INT", 2)] {
        let folder = folder_with(CONFIG);
        let driver = Ready::wait(driver(folder.path(), &WITH_SIGNALS, "killed"));
        driver.send(name);
        let output = driver.end();
        assert_eq!(output.status.signal(), Some(number), "as if nobody had listened");
        assert_eq!(text(&output.stderr), "");
        assert_truncated(&spans(folder.path()), "signal");
    }
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let folder = folder_with(CONFIG);
    let mut driver =
        Ready::wait(driver(folder.path(), &["sh", "-c", "trap '' TERM; exec \"$0\" \"$@\""], "ignores"));
    driver.send("TERM");
    driver.say("go on\n");
    let output = driver.end();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(spans(folder.path()).len(), 3);
}

#[test]
fn a_trainer_that_writes_a_checkpoint_on_a_signal_is_let_to_and_flushed_meanwhile() {
    for scenario in ["takes_over", "takes_over_and_flushes", "takes_over_first"] {
        let folder = folder_with(CONFIG);
        let driver = Ready::wait(driver(folder.path(), &WITH_SIGNALS, scenario));
        driver.send("TERM");
        let output = driver.end();
        assert!(output.status.success(), "{scenario}: {output:?}");
        assert!(text(&output.stdout).starts_with("checkpoint\n"), "{scenario}: {output:?}");
        let spans = spans(folder.path());
        assert!(spans.iter().all(|span| attribute(span, "nemo.span.truncated").is_none()), "{scenario}");
        let steps = spans.iter().filter(|span| span["name"] == "rl.test.step").count();
        assert_eq!(steps, if scenario == "takes_over_first" { 1 } else { 2 }, "{scenario}");
    }
}

#[test]
fn every_span_of_a_process_that_died_has_its_parent_among_the_spans_or_the_announced() {
    let (folder, output) = drive(&format!("{CONFIG}  announce_after_s: 0\n"), "announced");
    assert!(!output.status.success());
    let (spans, announced) = (spans(folder.path()), announced(folder.path()));
    let ids = |items: &[Value]| -> HashSet<String> {
        items.iter().map(|item| item["spanId"].as_str().unwrap().to_owned()).collect()
    };
    let known: HashSet<String> = ids(&spans).union(&ids(&announced)).cloned().collect();
    assert_eq!(names(&spans), ["rl.test.generate", "rl.test.reward", "rl.test.step"]);
    for span in &spans {
        assert!(known.contains(span["parentSpanId"].as_str().unwrap()), "{span}");
    }

    let [outer, inner] = announced.as_slice() else { panic!("{announced:?}") };
    assert_eq!(attribute(outer, "rl.phase").as_deref(), Some("outer"));
    assert_eq!(attribute(outer, "rl.span.parent_id"), None);
    assert_eq!(attribute(inner, "rl.phase").as_deref(), Some("inner"));
    assert_eq!(attribute(inner, "rl.group").as_deref(), Some("rollout"));
    assert_eq!(attribute(inner, "rl.span.parent_id").as_deref(), outer["spanId"].as_str());
    assert_eq!(inner["traceId"], spans[0]["traceId"]);
    let began = attribute(inner, "rl.span.start_time_unix_nano").unwrap();
    assert!(began.as_str() <= spans[0]["startTimeUnixNano"].as_str().unwrap());
}

#[test]
fn a_span_that_is_open_for_long_is_announced_without_a_flush() {
    let folder = folder_with(&format!("{CONFIG}  announce_after_s: 0\n"));
    let mut driver = Ready::wait(driver(folder.path(), &[], "announced_in_time"));
    while announced(folder.path()).len() < 2 {
        std::thread::yield_now();
    }
    driver.say("die\n");
    assert!(!driver.end().status.success());
}

#[test]
fn a_process_that_is_killed_at_any_moment_leaves_whole_lines_and_at_most_one_that_is_cut() {
    for size in [1, 300_000, 3_000_000] {
        let folder = folder_with(CONFIG);
        let mut child = driver(folder.path(), &[], "endless").spawn().unwrap();
        let written = || -> Vec<(PathBuf, String)> {
            let entries = std::fs::read_dir(folder.path().join("runs/r")).into_iter().flatten();
            let paths = entries.map(|entry| entry.unwrap().path());
            let files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
            files.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap_or_default())).collect()
        };
        while written().iter().map(|(_, text)| text.len()).sum::<usize>() < size {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for (path, text) in written() {
            let whole = text.rsplit_once('\n').map_or("", |(whole, _cut)| whole);
            for line in whole.lines() {
                assert!(serde_json::from_str::<Value>(line).is_ok(), "{}: {line}", path.display());
            }
        }
    }
}

#[test]
fn fault_83_a_forked_process_records_nothing_and_ends_at_once() {
    let (folder, output) = drive(CONFIG, "fork");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stderr), "");
    let spans = spans(folder.path());
    assert_eq!(names(&spans), ["rl.test.generate", "rl.test.reward", "rl.test.step", "inner", "outer"]);

    let (folder, output) = drive(CONFIG, "fork_and_exit");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(self::spans(folder.path()).len(), 3, "once");
}

#[test]
fn fault_83_a_forked_process_may_begin_again_with_ids_of_its_own() {
    let (folder, output) = drive(CONFIG, "fork_and_begin_again");
    assert!(output.status.success(), "{output:?}");
    let spans = spans(folder.path());
    let by_id: HashMap<&str, &Value> =
        spans.iter().map(|span| (span["spanId"].as_str().unwrap(), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "no id twice");
    assert_eq!(spans.len(), 3 + 3 + 2, "of the child, of the parent, and those around both");
    let inner = spans.iter().find(|span| span["name"] == "inner").unwrap();
    for step in spans.iter().filter(|span| span["name"] == "rl.test.step") {
        assert_eq!(step["parentSpanId"], inner["spanId"]);
    }
    let of_whom: HashSet<String> = lines_of(&run(folder.path()), "traces")
        .iter()
        .map(|line| attribute(&line["resourceSpans"][0]["resource"], "process.pid").unwrap())
        .collect();
    assert_eq!(of_whom.len(), 2);
}
