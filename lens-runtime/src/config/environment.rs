//! From where are environment variables read?

use std::collections::HashMap;
use std::fmt;

/// The environment variables that Lens reads, of the process or given.
///
/// Values are trimmed, and an empty one is as good as none: that is how OpenTelemetry treats them.
#[derive(Clone)]
pub struct Environment(Option<HashMap<String, String>>);

impl fmt::Debug for Environment {
    /// The names alone: a value may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("Environment of the process"),
            Some(pairs) => {
                let mut names: Vec<_> = pairs.keys().collect();
                names.sort_unstable();
                write!(f, "Environment of {names:?}")
            }
        }
    }
}

impl Environment {
    /// The variables of the process.
    pub fn of_process() -> Self {
        Self(None)
    }

    /// These variables and no others.
    ///
    /// ```
    /// let environment = lens_runtime::Environment::of_pairs([("LENS_RUN_ID", "run-7")]);
    /// ```
    pub fn of_pairs<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self(Some(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let value = match &self.0 {
            Some(pairs) => pairs.get(name).cloned(),
            None => std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()),
        }?;
        Some(value.trim().to_owned()).filter(|value| !value.is_empty())
    }
}
