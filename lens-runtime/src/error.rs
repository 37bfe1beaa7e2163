//! What can go wrong before training starts?
//!
//! Lens fails in one place, at set-up on the driver, and there loudly. What happens later is
//! counted (see [`Health`](crate::Health)) and never an error of the program's.

use std::fmt;
use std::path::PathBuf;

use crate::config::Origin;

/// Why telemetry could not be set up.
///
/// # Design
/// One opaque type: a program prints it and ends, or it trains without telemetry. Its text names
/// the thing, the value, where it came from and what was expected, in one line; the cause, if the
/// system gave one, is its [`source`](std::error::Error::source). The predicates tell the few kinds
/// apart that a program may want to treat differently.
///
/// ```
/// use lens_runtime::TelemetryConfig;
///
/// let error = TelemetryConfig::from_yaml("telemetry: {enabeld: true}", "run.yaml").unwrap_err();
/// assert!(error.is_configuration());
/// assert!(error.to_string().starts_with(
///     "run.yaml:1:13: unknown key telemetry.enabeld; did you mean \"enabled\"?"
/// ));
/// ```
pub struct Error(Box<Kind>);

pub(crate) enum Kind {
    /// A value of the configuration that means nothing.
    Invalid { origin: Origin, problem: String },
    /// A run configuration that is not YAML.
    Yaml { name: String, line: usize, column: usize, problem: String },
    /// A run configuration that cannot be read.
    Read { path: PathBuf, source: std::io::Error },
    /// A run folder that cannot be written.
    Folder { path: PathBuf, origin: Origin, source: std::io::Error },
    /// The system gave no thread.
    Thread { source: std::io::Error },
    /// Telemetry is on already.
    AlreadyInitialized { run_id: String },
}

impl Error {
    /// Whether the configuration is at fault.
    pub fn is_configuration(&self) -> bool {
        matches!(*self.0, Kind::Invalid { .. } | Kind::Yaml { .. } | Kind::Read { .. })
    }

    /// Whether telemetry was on already.
    pub fn is_already_initialized(&self) -> bool {
        matches!(*self.0, Kind::AlreadyInitialized { .. })
    }

    pub(crate) fn invalid(origin: &Origin, problem: impl Into<String>) -> Self {
        Kind::Invalid { origin: origin.clone(), problem: problem.into() }.into()
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self(Box::new(kind))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Invalid { origin, problem } => write!(f, "{origin}: {problem}"),
            Kind::Yaml { name, line, column, problem } => {
                write!(f, "{name}:{line}:{column}: not valid YAML: {problem}")
            }
            Kind::Read { path, .. } => write!(f, "read the run configuration {}", path.display()),
            Kind::Folder { path, origin, .. } => {
                write!(f, "write to the run folder {} (from telemetry.directory, {origin})", path.display())
            }
            Kind::Thread { .. } => write!(f, "start the delivery thread"),
            Kind::AlreadyInitialized { run_id } => write!(
                f,
                "telemetry is already initialised for run {run_id}; shut it down before it is initialised again"
            ),
        }
    }
}

impl fmt::Debug for Error {
    /// The text and its cause: `fn main() -> Result<(), Error>` prints an error by its `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::error::Error::source(self) {
            Some(source) => write!(f, "{self}: {source}"),
            None => write!(f, "{self}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Read { source, .. } | Kind::Folder { source, .. } | Kind::Thread { source } => Some(source),
            Kind::Invalid { .. } | Kind::Yaml { .. } | Kind::AlreadyInitialized { .. } => None,
        }
    }
}

/// `; did you mean "…"?` for the word among `known` that is nearest to `word`, if one is near.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let word = word.to_lowercase();
    let nearest =
        known.into_iter().map(|candidate| (strsim::damerau_levenshtein(&word, candidate), candidate)).min();
    match nearest {
        Some((distance, candidate)) if distance <= 1 + candidate.len() / 4 => {
            format!("; did you mean \"{candidate}\"?")
        }
        _ => String::new(),
    }
}
