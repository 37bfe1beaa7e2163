//! What do tests of a run have in common? A folder with a configuration, and what the run has left in it.

#![expect(dead_code, reason = "no test needs all of it")]

pub mod run;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with a run configuration.
pub fn folder_with(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.yaml"), config).unwrap();
    folder
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The files of a kind, such as `traces`, in the folder of a run, by name.
pub fn files(run: &Path, kind: &str) -> Vec<PathBuf> {
    let named = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{kind}-"));
    let mut files: Vec<_> =
        std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path()).filter(named).collect();
    files.sort();
    files
}

/// The text of the only file of a kind.
pub fn file(run: &Path, kind: &str) -> String {
    let files = files(run, kind);
    assert_eq!(files.len(), 1, "{kind} in {}", run.display());
    std::fs::read_to_string(&files[0]).unwrap()
}

pub fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The items at a path such as `outer[].inner[].items[]` of all lines.
pub fn items<const DEPTH: usize>(text: &str, path: [&str; DEPTH]) -> Vec<Value> {
    path.into_iter().fold(lines(text), |outer, key| {
        let each = |mut value: Value| match value[key].take() {
            Value::Array(elements) => elements,
            other => panic!("expected a list of {key}, found {other}"),
        };
        outer.into_iter().flat_map(each).collect()
    })
}

/// The lines of all files of a kind.
pub fn lines_of(run: &Path, kind: &str) -> Vec<Value> {
    files(run, kind).iter().flat_map(|path| lines(&std::fs::read_to_string(path).unwrap())).collect()
}

fn items_of<const DEPTH: usize>(run: &Path, kind: &str, path: [&str; DEPTH]) -> Vec<Value> {
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    items(&files(run, kind).into_iter().map(read).collect::<String>(), path)
}

pub fn spans(run: &Path) -> Vec<Value> {
    items_of(run, "traces", ["resourceSpans", "scopeSpans", "spans"])
}

pub fn log_records(run: &Path) -> Vec<Value> {
    items_of(run, "logs", ["resourceLogs", "scopeLogs", "logRecords"])
}

/// The value of an attribute in OTLP-JSON, such as `{"intValue":"1"}`.
pub fn attribute<'a>(item: &'a Value, key: &str) -> Option<&'a Value> {
    item["attributes"].as_array()?.iter().find(|pair| pair["key"] == key).map(|pair| &pair["value"])
}

/// The same as text, whatever its type.
pub fn attribute_text(item: &Value, key: &str) -> Option<String> {
    let (_, value) = attribute(item, key)?.as_object()?.iter().next()?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// The keys of the attributes, in order.
pub fn attribute_keys(item: &Value) -> Vec<&str> {
    let attributes = item["attributes"].as_array().map_or(&[][..], Vec::as_slice);
    attributes.iter().map(|pair| pair["key"].as_str().unwrap()).collect()
}

/// The names, in order.
pub fn names(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["name"].as_str().unwrap()).collect()
}

/// The only span of this name.
pub fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let mut named = spans.iter().filter(|span| span["name"] == name);
    match (named.next(), named.next()) {
        (Some(span), None) => span,
        _ => panic!("expected one span {name:?} in {:?}", names(spans)),
    }
}

/// The spans as an indented tree; those with a parent that is not among them behind `?`.
pub fn tree(spans: &[Value]) -> String {
    fn branch(tree: &mut String, spans: &[&Value], parent: &Value, depth: usize) {
        for span in spans.iter().filter(|span| span["parentSpanId"] == *parent) {
            writeln!(tree, "{}{}", "  ".repeat(depth), span["name"].as_str().unwrap()).unwrap();
            branch(tree, spans, &span["spanId"], depth + 1);
        }
    }
    let start = |span: &&Value| span["startTimeUnixNano"].as_str().unwrap().parse::<u64>().unwrap();
    let mut sorted: Vec<_> = spans.iter().collect();
    sorted.sort_by_key(start);
    let ids: HashSet<_> = spans.iter().map(|span| &span["spanId"]).collect();
    let mut tree = String::new();
    branch(&mut tree, &sorted, &Value::Null, 0);
    for orphan in
        sorted.iter().filter(|span| !span["parentSpanId"].is_null() && !ids.contains(&span["parentSpanId"]))
    {
        writeln!(tree, "? {}", orphan["name"].as_str().unwrap()).unwrap();
        branch(&mut tree, &sorted, &orphan["spanId"], 1);
    }
    tree
}

/// A point of a histogram.
#[derive(Clone, Debug)]
pub struct Point {
    /// As text.
    pub attributes: BTreeMap<String, String>,
    pub count: u64,
    pub sum: f64,
}

/// The points of a histogram, as they were collected last.
pub fn points(run: &Path, metric: &str) -> Vec<Point> {
    let metrics = items_of(run, "metrics", ["resourceMetrics", "scopeMetrics", "metrics"]);
    let Some(last) = metrics.into_iter().rfind(|found| found["name"] == metric) else { return Vec::new() };
    let point = |point: &Value| Point {
        attributes: attribute_keys(point)
            .into_iter()
            .map(|key| (key.to_owned(), attribute_text(point, key).unwrap()))
            .collect(),
        count: point["count"].as_str().unwrap().parse().unwrap(),
        sum: point["sum"].as_f64().unwrap(),
    };
    last["histogram"]["dataPoints"].as_array().unwrap().iter().map(point).collect()
}
