//! Whatever a program records, a file holds it on one line, and it is read back as it was.

#![no_main]

use std::fs::File;
use std::io::Read as _;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use arbitrary::Arbitrary;
use lens_runtime::files::{Line, read_line};
use lens_runtime::opentelemetry::trace::{Span as _, Status, Tracer as _};
use lens_runtime::opentelemetry::{Array, KeyValue, Value};
use lens_runtime::opentelemetry_proto::tonic::common::v1::any_value::Value as Read;
use lens_runtime::opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue};
use lens_runtime::{Environment, Telemetry, TelemetryConfig};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const CONFIG: &str = "telemetry: {enabled: true, exporter: file, metrics_enabled: false, file_mib: 1048576}";

#[derive(Arbitrary, Clone, Debug)]
enum Plain {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    Bools(Vec<bool>),
    Ints(Vec<i64>),
    Doubles(Vec<f64>),
    Texts(Vec<String>),
}

impl From<Plain> for Value {
    fn from(plain: Plain) -> Self {
        match plain {
            Plain::Bool(value) => value.into(),
            Plain::Int(value) => value.into(),
            Plain::Double(value) => value.into(),
            Plain::Text(value) => value.into(),
            Plain::Bools(list) => Self::Array(Array::Bool(list)),
            Plain::Ints(list) => Self::Array(Array::I64(list)),
            Plain::Doubles(list) => Self::Array(Array::F64(list)),
            Plain::Texts(list) => Self::Array(Array::String(list.into_iter().map(Into::into).collect())),
        }
    }
}

impl Plain {
    fn is(self, read: Option<AnyValue>) -> bool {
        let each = |list: ArrayValue, own: Vec<Plain>| {
            list.values.len() == own.len()
                && own.into_iter().zip(list.values).all(|(own, read)| own.is(Some(read)))
        };
        match (self, read.and_then(|read| read.value)) {
            (Self::Bool(own), Some(Read::BoolValue(read))) => own == read,
            (Self::Int(own), Some(Read::IntValue(read))) => own == read,
            (Self::Double(own), Some(Read::DoubleValue(read))) => {
                own.to_bits() == read.to_bits() || (own.is_nan() && read.is_nan())
            }
            (Self::Text(own), Some(Read::StringValue(read))) => own == read,
            (Self::Bools(own), Some(Read::ArrayValue(read))) => {
                each(read, own.into_iter().map(Self::Bool).collect())
            }
            (Self::Ints(own), Some(Read::ArrayValue(read))) => {
                each(read, own.into_iter().map(Self::Int).collect())
            }
            (Self::Doubles(own), Some(Read::ArrayValue(read))) => {
                each(read, own.into_iter().map(Self::Double).collect())
            }
            (Self::Texts(own), Some(Read::ArrayValue(read))) => {
                each(read, own.into_iter().map(Self::Text).collect())
            }
            _ => false,
        }
    }
}

/// A run whose file grows by a line for each input.
struct Run {
    telemetry: Telemetry,
    traces: Option<File>,
    _folder: TempDir,
}

static RUN: LazyLock<Mutex<Run>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder for the run");
    let config = TelemetryConfig::from_yaml(CONFIG, "fuzz").expect("a configuration that is right");
    let config = config.with_directory(folder.path());
    let telemetry = Telemetry::init_driver_in(config, &Environment::of_pairs([("", "")]))
        .expect("a folder that can be written");
    Mutex::new(Run { telemetry, traces: None, _folder: folder })
});

impl Run {
    fn new_line(&mut self) -> String {
        assert!(self.telemetry.flush(Duration::from_secs(60)));
        let file = self.traces.get_or_insert_with(|| {
            let folder = self.telemetry.folder().expect("files");
            let files = std::fs::read_dir(folder).expect("the run's folder").flatten();
            let is_traces = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("traces-");
            let mut traces = files.filter(|file| is_traces(&file.file_name()));
            File::open(traces.next().expect("a file of traces").path()).expect("it can be read")
        });
        let mut text = String::new();
        file.read_to_string(&mut text).expect("UTF-8");
        text
    }
}

type Input = (String, Vec<Plain>, Option<String>);

fuzz_target!(|input: Input| {
    let (name, values, error) = input;
    // More than these are cut, which is told by a count.
    let values: Vec<_> = values.into_iter().take(128).collect();
    let mut run = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut span = lens_runtime::tracer("fuzz").start(name.clone());
    for (number, value) in values.iter().cloned().enumerate() {
        span.set_attribute(KeyValue::new(number.to_string(), Value::from(value)));
    }
    if let Some(text) = &error {
        span.set_status(Status::error(text.clone()));
    }
    span.end();
    let text = run.new_line();
    let line = text.strip_suffix('\n').expect("a whole line");
    assert!(!line.contains('\n'), "one line");
    let Ok(Line::Traces(mut traces)) = read_line(line) else { panic!("not read: {line}") };
    let mut spans = std::mem::take(&mut traces.resource_spans[0].scope_spans[0].spans);
    let [read] = spans.as_mut_slice() else { panic!("not one span: {line}") };
    assert_eq!(read.name, name);
    assert_eq!(
        read.status.take().map(|status| status.message).unwrap_or_default(),
        error.unwrap_or_default()
    );
    assert_eq!(read.attributes.len(), values.len());
    for (attribute, own) in read.attributes.drain(..).zip(values) {
        assert!(own.is(attribute.value), "{line}");
    }
});
