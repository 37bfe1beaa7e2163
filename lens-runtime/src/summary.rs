//! Where did the time go? A table of the run's phases, made while its spans are delivered.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::SpanData;

use crate::semconv;

/// One row of the table: all spans of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// The spans' name.
    pub name: String,
    /// How many ended.
    pub calls: u64,
    /// How many of them did not end well: error, panic or cancelled.
    pub unsuccessful: u64,
    /// The sum of their durations. Spans that overlap count each.
    pub total: Duration,
    /// Input tokens that were counted.
    pub input_tokens: u64,
    /// Output tokens that were counted.
    pub output_tokens: u64,
    /// Whether these are the spans of training steps.
    pub is_step: bool,
    /// The part of `total` that passed within training steps.
    pub within_steps: Duration,
}

impl Phase {
    /// Mean duration of a span; zero if there is none.
    pub fn mean(&self) -> Duration {
        match self.calls {
            0 => Duration::ZERO,
            calls => Duration::from_secs_f64(self.total.as_secs_f64() / calls as f64),
        }
    }

    fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Tokens, both sides together, for each second of the phase; `None` if none were counted.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let tokens = self.tokens();
        (tokens > 0 && !self.total.is_zero()).then(|| tokens as f64 / self.total.as_secs_f64())
    }
}

/// The phases of a run, in the order in which their first spans began.
///
/// Made of the spans that Lens recorded in this process: a group that is off has no row. It is
/// written as a table, in which "of step" is the share of the time of all training steps that
/// passed in the phase:
///
/// ```text
/// phase                calls    total      mean  of step  tokens  tokens/s
/// rl.grpo.step           100  18.75 s  187.5 ms  100.0 %
/// rl.grpo.generation     100   5.77 s   57.7 ms   30.8 %
/// rl.engine.generate     100   5.75 s   57.5 ms   30.7 %  204800     35617
/// ```
#[derive(Clone, Debug, Default)]
pub struct Phases {
    rows: HashMap<String, Row>,
}

#[derive(Clone, Debug)]
struct Row {
    phase: Phase,
    /// When the first of its spans began.
    first: std::time::SystemTime,
}

impl Phases {
    /// Adds a call, as the phase of this name, or else of its span's.
    pub(crate) fn add(&mut self, span: &SpanData, phase: Option<&'static str>) {
        if span.instrumentation_scope.name() != semconv::SCOPE {
            return;
        }
        let number = |key: &str| match attribute(&span.attributes, key) {
            Some(Value::I64(number)) => u64::try_from(*number).unwrap_or(0),
            _ => 0,
        };
        let group = attribute(&span.attributes, semconv::GROUP).map(Value::as_str);
        let outcome = attribute(&span.attributes, semconv::OUTCOME).map(Value::as_str);
        let name = phase.unwrap_or(&span.name);
        let row = self.rows.entry(name.to_owned()).or_insert_with(|| Row {
            phase: Phase { name: name.to_owned(), ..Phase::default() },
            first: span.start_time,
        });
        row.first = row.first.min(span.start_time);
        let phase = &mut row.phase;
        phase.calls += 1;
        phase.unsuccessful += u64::from(outcome.as_deref() != Some("ok"));
        let duration = span.end_time.duration_since(span.start_time).unwrap_or_default();
        // Intervals are the program's, and may be as long as it says.
        phase.total = phase.total.saturating_add(duration);
        if attribute(&span.attributes, semconv::ITERATION).is_some() {
            phase.within_steps = phase.within_steps.saturating_add(duration);
        }
        for (sum, key) in [
            (&mut phase.input_tokens, semconv::GEN_AI_USAGE_INPUT_TOKENS),
            (&mut phase.output_tokens, semconv::GEN_AI_USAGE_OUTPUT_TOKENS),
        ] {
            *sum = sum.saturating_add(number(key));
        }
        phase.is_step |= group.as_deref() == Some(crate::groups::Step.name());
    }

    /// The phases, in the order in which their first spans began.
    pub fn rows(&self) -> Vec<Phase> {
        let mut rows: Vec<_> = self.rows.values().collect();
        rows.sort_by(|a, b| (a.first, &a.phase.name).cmp(&(b.first, &b.phase.name)));
        rows.into_iter().map(|row| row.phase.clone()).collect()
    }

    /// The phase of this name, if one of its spans ended.
    pub fn get(&self, name: &str) -> Option<&Phase> {
        self.rows.get(name).map(|row| &row.phase)
    }

    /// Whether no span ended.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEAD: [&str; 7] = ["phase", "calls", "total", "mean", "of step", "tokens", "tokens/s"];
        let rows = self.rows();
        let steps: f64 =
            rows.iter().filter(|phase| phase.is_step).map(|phase| phase.total.as_secs_f64()).sum();
        let mut table = vec![HEAD.map(str::to_owned)];
        table.extend(rows.iter().map(|phase| {
            let tokens = phase.tokens();
            [
                phase.name.clone(),
                phase.calls.to_string(),
                seconds(phase.total),
                seconds(phase.mean()),
                match phase.within_steps.as_secs_f64() {
                    within if within > 0.0 && steps > 0.0 => format!("{:.1} %", 100.0 * within / steps),
                    _ => String::new(),
                },
                if tokens > 0 { tokens.to_string() } else { String::new() },
                phase.tokens_per_second().map(|rate| format!("{rate:.0}")).unwrap_or_default(),
            ]
        }));
        let width = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 7] = std::array::from_fn(width);
        for row in &table {
            let mut line = format!("{:<width$}", row[0], width = widths[0]);
            for (cell, width) in row.iter().zip(widths).skip(1) {
                write!(line, "  {cell:>width$}")?;
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn attribute<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    // What was set last is what is exported.
    attributes.iter().rfind(|attribute| attribute.key.as_str() == key).map(|attribute| &attribute.value)
}

/// A duration in the unit in which it reads best.
fn seconds(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 0.001 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{:.1} µs", seconds * 1e6),
    }
}
