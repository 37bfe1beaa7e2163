//! Who am I? The run and the process, as every record's resource tells it.

use opentelemetry::{Key, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

use crate::config::{Environment, Origin, TelemetryConfig};
use crate::error::Error;
use crate::semconv;

/// The identity of a process of a run.
pub(crate) struct Identity {
    pub(crate) run_id: String,
    pub(crate) run_id_origin: Origin,
    /// Unique for each process, so that files and series of two processes never mix.
    pub(crate) instance_id: Uuid,
    pub(crate) resource: Resource,
}

/// Variables that name the run, the first that is set wins.
const RUN_ID: [&str; 3] = ["LENS_RUN_ID", "NEMO_RL_OTEL_RUN_ID", "SLURM_JOB_ID"];

/// Variables that name the user, the first that is set wins.
const USER_ID: [&str; 2] = ["LENS_USER_ID", "NEMO_RL_OTEL_USER_ID"];

impl Identity {
    /// Looks at the configuration, the environment and the machine.
    ///
    /// Of two values for one key, the one of `OTEL_RESOURCE_ATTRIBUTES` wins over what was detected
    /// and over the default name of the service. The run, the user and a service's name that somebody
    /// gave win over it.
    ///
    /// # Errors
    /// If `OTEL_RESOURCE_ATTRIBUTES` is malformed.
    pub(crate) fn detect(config: &TelemetryConfig, environment: &Environment) -> Result<Self, Error> {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| environment.get(name).map(|value| (value, Origin::Variable(name))))
        };
        let (run_id, run_id_origin) = first(&RUN_ID).unwrap_or_else(|| (random_run_id(), Origin::Default));
        let user_id = first(&USER_ID).map(|(user, _)| KeyValue::new(semconv::USER_ID, user));
        let instance_id = Uuid::new_v4();
        let detected = [
            KeyValue::new("telemetry.distro.name", "lens"),
            KeyValue::new("telemetry.distro.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new(semconv::SERVICE_INSTANCE_ID, instance_id.to_string()),
            KeyValue::new(semconv::HOST_NAME, gethostname::gethostname().to_string_lossy().into_owned()),
            KeyValue::new(semconv::PROCESS_PID, i64::from(std::process::id())),
        ];
        let service_name = || KeyValue::new(semconv::SERVICE_NAME, config.service_name.value.clone());
        let is_named = config.service_name.origin != Origin::Default;
        let named =
            [is_named.then(service_name), Some(KeyValue::new(semconv::RUN_ID, run_id.clone())), user_id];
        // The SDK keeps the last of several values for a key.
        let resource = Resource::builder_empty()
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_attributes(detected)
            .with_attribute(service_name())
            .with_attributes(resource_attributes(environment)?)
            .with_attributes(named.into_iter().flatten())
            .build();
        Ok(Self { run_id, run_id_origin, instance_id, resource })
    }

    /// The run id as the name of a folder: what is no letter, digit, dash, dot or underscore
    /// becomes an underscore, and it never begins with a dot.
    pub(crate) fn folder_name(&self) -> String {
        let safe = |(index, c): (usize, char)| match c {
            '.' if index == 0 => '_',
            c if c.is_ascii_alphanumeric() || "-._".contains(c) => c,
            _ => '_',
        };
        self.run_id.chars().enumerate().map(safe).collect()
    }

    /// The process as part of a file's name.
    pub(crate) fn process_name(&self) -> String {
        let mut id = self.instance_id.simple().to_string();
        id.truncate(12);
        id
    }
}

/// Twelve hex digits. The first twelve of a version-4 UUID are all random.
fn random_run_id() -> String {
    let mut id = Uuid::new_v4().simple().to_string();
    id.truncate(12);
    id
}

/// `key=value,key=value`, values percent-encoded.
fn resource_attributes(environment: &Environment) -> Result<Vec<KeyValue>, Error> {
    const NAME: &str = "OTEL_RESOURCE_ATTRIBUTES";
    let text = environment.get(NAME).unwrap_or_default();
    text.split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            let malformed =
                || Error::invalid(&Origin::Variable(NAME), format!("expected key=value, got {entry:?}"));
            let (key, value) = entry.split_once('=').ok_or_else(malformed)?;
            let (key, value) = (key.trim(), percent_decode_str(value.trim()).decode_utf8());
            match (key.is_empty(), value) {
                (false, Ok(value)) => {
                    Ok(KeyValue::new(Key::from(key.to_owned()), Value::from(value.into_owned())))
                }
                _ => Err(malformed()),
            }
        })
        .collect()
}
