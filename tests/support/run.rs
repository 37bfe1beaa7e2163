//! A run within the process of a test.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lens_runtime::{Environment, RunReport, Telemetry, TelemetryConfig};
use serde_json::Value;
use tempfile::TempDir;

use super::{Point, points, spans};

/// As long as it takes on a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// A process has one telemetry at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The telemetry of this process, which writes files into a folder of its own. Tests that have one wait for each
/// other; what they call meanwhile, outside of a capture, is recorded.
pub struct Run {
    telemetry: Telemetry,
    folder: TempDir,
    turn: MutexGuard<'static, ()>,
}

/// What a run has left.
pub struct Left {
    pub report: RunReport,
    /// Of each library in the order in which they ended.
    pub spans: Vec<Value>,
    run: PathBuf,
    folder: TempDir,
}

impl Run {
    /// Begins with these lines in the block of telemetry, such as `span_groups: all`.
    pub fn begin(lines: &[&str]) -> Self {
        Self::begin_as(lines, &[], |config| config)
    }

    /// The same with variables, and with what is set in code.
    pub fn begin_as(
        lines: &[&str],
        variables: &[(&str, &str)],
        in_code: impl FnOnce(TelemetryConfig) -> TelemetryConfig,
    ) -> Self {
        // A test that failed leaves nothing behind that others would see.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs").display().to_string();
        let mut yaml = format!("telemetry:\n  enabled: true\n  exporter: file\n  directory: {runs:?}\n");
        for line in lines {
            writeln!(yaml, "  {line}").unwrap();
        }
        let config = in_code(TelemetryConfig::from_yaml(&yaml, "run.yaml").unwrap());
        let run_id = [("LENS_RUN_ID", "r")];
        let is_given = variables.iter().any(|(name, _)| *name == "LENS_RUN_ID");
        let all = variables.iter().copied().chain(run_id.into_iter().filter(|_| !is_given));
        let telemetry = Telemetry::init_driver_in(config, &Environment::of_pairs(all)).unwrap();
        Self { telemetry, folder, turn }
    }

    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Ends it, without a loss.
    pub fn end(self) -> Left {
        let run = self.telemetry.folder().unwrap().to_owned();
        let report = self.telemetry.shutdown(DEADLINE);
        let traces = report.health.traces;
        assert_eq!(traces.exported, traces.made, "{report}");
        Left { report, spans: spans(&run), run, folder: self.folder }
    }
}

impl Left {
    pub fn points(&self, metric: &str) -> Vec<Point> {
        points(&self.run, metric)
    }

    /// How many calls of a phase the metrics counted.
    pub fn counted(&self, phase: &str) -> u64 {
        let points = self.points(lens_runtime::semconv::PHASE_DURATION);
        points.iter().filter(|point| point.attributes["rl.phase"] == phase).map(|point| point.count).sum()
    }

    /// How many calls of a phase the report counted.
    pub fn reported(&self, phase: &str) -> u64 {
        self.report.phases.get(phase).map_or(0, |phase| phase.calls)
    }
}
