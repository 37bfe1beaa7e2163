//! Which traces are recorded? `OTEL_TRACES_SAMPLER` and its argument.
//!
//! OpenTelemetry's SDKs record everything if these mean nothing, and say so to whoever listens. Here that is an error.

use super::{Environment, Origin, Setting};
use crate::error::{Error, did_you_mean};
use crate::sampling::{BuiltInSampler, Root, percent_hint};

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

/// The samplers that there are. The ratio is the argument's to say.
const KNOWN: [BuiltInSampler; 6] = {
    const fn sampler(parent_based: bool, root: Root) -> BuiltInSampler {
        BuiltInSampler { parent_based, root }
    }
    [
        sampler(false, Root::On),
        sampler(false, Root::Off),
        sampler(false, Root::Ratio(1.0)),
        sampler(true, Root::On),
        sampler(true, Root::Off),
        sampler(true, Root::Ratio(1.0)),
    ]
};

/// Those of OpenTelemetry's names that ask a service.
const UNSUPPORTED: [&str; 3] = ["jaeger_remote", "parentbased_jaeger_remote", "xray"];

/// What the variables say.
///
/// # Errors
/// If they mean nothing.
pub(super) fn resolve(environment: &Environment) -> Result<Setting<BuiltInSampler>, Error> {
    let argument = environment.get(ARGUMENT);
    let invalid = |name, problem| Err(Error::invalid(&Origin::Variable(name), problem));
    let Some(text) = environment.get(SAMPLER) else {
        return match argument {
            None => Ok(Setting::default_of(BuiltInSampler::DEFAULT)),
            Some(argument) => invalid(
                ARGUMENT,
                format!(
                    "expected {SAMPLER} beside it, such as parentbased_traceidratio, got {argument:?} alone"
                ),
            ),
        };
    };
    let word = text.to_lowercase();
    let names = KNOWN.map(BuiltInSampler::name);
    let Some(sampler) = KNOWN.into_iter().find(|sampler| sampler.name() == word) else {
        let problem = match UNSUPPORTED.contains(&word.as_str()) {
            true => format!("sampler {text:?} is not supported"),
            false => format!("unknown sampler {text:?}{}", did_you_mean(&text, names)),
        };
        return invalid(SAMPLER, format!("{problem}; expected one of {}", names.join(", ")));
    };
    let root = match (sampler.root, argument) {
        (Root::Ratio(_), Some(argument)) => Root::Ratio(ratio(&argument)?),
        (Root::Ratio(_), None) => {
            let problem = format!(
                "{word} needs a ratio: expected {ARGUMENT}=0.1 or the like beside it, which is not set"
            );
            return invalid(SAMPLER, problem);
        }
        (Root::On | Root::Off, Some(argument)) => {
            let problem =
                format!("expected nothing, because {SAMPLER}={word} takes no argument, got {argument:?}");
            return invalid(ARGUMENT, problem);
        }
        (root, None) => root,
    };
    Ok(Setting { value: BuiltInSampler { root, ..sampler }, origin: Origin::Variable(SAMPLER) })
}

fn ratio(text: &str) -> Result<f64, Error> {
    match text.parse() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err(Error::invalid(
            &Origin::Variable(ARGUMENT),
            format!("expected a ratio from 0 to 1, such as 0.1, got {text:?}{}", percent_hint(text)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sampler_of_the_specification_that_asks_nobody_is_known() {
        for (name, argument, expected) in [
            ("", "", "parentbased_always_on"),
            ("always_on", "", "always_on"),
            (" Always_Off ", "", "always_off"),
            ("TRACEIDRATIO", "0", "traceidratio 0"),
            ("parentbased_always_on", " ", "parentbased_always_on"),
            ("parentbased_always_off", "", "parentbased_always_off"),
            ("parentbased_traceidratio", " 1e-3 ", "parentbased_traceidratio 0.001"),
            ("parentbased_traceidratio", "1", "parentbased_traceidratio 1"),
        ] {
            let variables = Environment::of_pairs([(SAMPLER, name), (ARGUMENT, argument)]);
            let found = resolve(&variables).map(|found| (found.value.to_string(), found.origin));
            let origin = if name.is_empty() { Origin::Default } else { Origin::Variable(SAMPLER) };
            assert!(found.is_ok_and(|found| found == (expected.to_owned(), origin)), "{name} {argument}");
        }
    }
}
