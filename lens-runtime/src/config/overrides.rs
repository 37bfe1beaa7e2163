//! Which arguments of the command line are overrides of the telemetry?

use super::setting::{Origin, Raw};
use crate::error::Error;

/// Overrides in Hydra's grammar, taken from a program's arguments.
///
/// `++telemetry.exporter=console`, `+telemetry.exporter=console` and `telemetry.exporter=console`
/// all set one value; a value is read as YAML reads one, so that quotes make a string. Later ones
/// win. Everything else is left to the program, in order, and so is all that stands behind `--`.
///
/// # Example
///
/// ```
/// use lens_runtime::Overrides;
///
/// let mut args: Vec<String> = ["--seed", "3", "++telemetry.enabled=true"].map(String::from).into();
/// let overrides = Overrides::take_from(&mut args)?;
/// assert_eq!(args, ["--seed", "3"]);
/// assert_eq!(overrides.arguments().collect::<Vec<_>>(), ["++telemetry.enabled=true"]);
/// # Ok::<(), lens_runtime::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Overrides(Vec<Override>);

#[derive(Clone, Debug)]
struct Override {
    argument: String,
    key: String,
    value: Raw,
}

impl Overrides {
    /// Takes the overrides out of `arguments`.
    ///
    /// # Errors
    /// If an argument begins like an override and is none, such as `++telemetry.enabled`.
    pub fn take_from(arguments: &mut Vec<String>) -> Result<Self, Error> {
        let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
        let own = arguments.split_off(end);
        let mut overrides = Vec::new();
        let mut rest = Vec::new();
        for argument in arguments.drain(..) {
            match Override::parse(&argument)? {
                Some(found) => overrides.push(found),
                None => rest.push(argument),
            }
        }
        rest.extend(own);
        *arguments = rest;
        Ok(Self(overrides))
    }

    /// The arguments that were taken, as they were.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|found| found.argument.as_str())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Raw)> {
        self.0.iter().map(|found| (found.key.as_str(), &found.value))
    }
}

impl Override {
    fn parse(argument: &str) -> Result<Option<Self>, Error> {
        let path = argument.trim_start_matches('+');
        let pluses = argument.len() - path.len();
        let origin = Origin::Override(argument.to_owned());
        let malformed = || {
            Err(Error::invalid(
                &origin,
                "expected ++telemetry.<key>=<value>, such as ++telemetry.enabled=true",
            ))
        };
        if argument.starts_with("~telemetry") {
            return Err(Error::invalid(&origin, "values cannot be removed; set another one"));
        }
        // A word such as `telemetry.json` without plus and equals sign is the program's.
        let is_meant =
            path == "telemetry" || path.starts_with("telemetry.") || path.starts_with("telemetry=");
        match (is_meant, pluses, path.split_once('=')) {
            (false, _, _) | (true, 0, None) => Ok(None),
            (true, 0..=2, Some((path, value))) => match path.strip_prefix("telemetry.") {
                Some(key) => Ok(Some(Self {
                    argument: argument.to_owned(),
                    key: key.to_owned(),
                    value: Raw::of_argument(key, value, origin),
                })),
                None => malformed(),
            },
            (true, _, _) => malformed(),
        }
    }
}
