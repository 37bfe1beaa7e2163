//! Where is the `telemetry:` block in a run configuration?

use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};

use super::setting::{Origin, Raw};
use crate::error::{Error, Kind, did_you_mean};

/// The key of the block.
const BLOCK: &str = "telemetry";

/// The entries of the block, in order. No block, or an empty one, has none; whatever else the file
/// holds is not looked at.
pub(super) fn block(text: &str, name: &str) -> Result<Vec<(String, Raw)>, Error> {
    let documents = MarkedYaml::load_from_str(text).map_err(|error| Kind::Yaml {
        name: name.to_owned(),
        line: error.marker().line(),
        column: error.marker().col() + 1,
        problem: error.info().to_owned(),
    })?;
    let Some(document) = documents.first() else {
        return Ok(Vec::new());
    };
    let YamlData::Mapping(root) = &document.data else {
        return Ok(Vec::new());
    };
    let block = root.iter().find(|(key, _)| as_text(key) == Some(BLOCK));
    let entries = match block.map(|(_, value)| (value, &value.data)) {
        None => {
            misspelt_block(root.keys(), name)?;
            return Ok(Vec::new());
        }
        Some((_, YamlData::Value(Scalar::Null))) => return Ok(Vec::new()),
        Some((_, YamlData::Mapping(entries))) => entries,
        Some((value, _)) => {
            let problem = "telemetry: expected a mapping, such as `telemetry: {enabled: true}`";
            return Err(Error::invalid(&origin(value, name), problem));
        }
    };
    entries
        .iter()
        .map(|(key, value)| match as_text(key) {
            // An unknown key is told at the key, a wrong value at the value.
            Some(text) if super::KEYS.contains(&text) => {
                Ok((text.to_owned(), Raw::of_node(text, value, origin(value, name))))
            }
            Some(text) => Err(super::unknown_key(text, &origin(key, name))),
            None => Err(Error::invalid(&origin(key, name), "telemetry: expected keys that are words")),
        })
        .collect()
}

/// A block that is nearly called `telemetry` would be a run without telemetry and without a word.
fn misspelt_block<'a>(keys: impl Iterator<Item = &'a MarkedYaml<'a>>, name: &str) -> Result<(), Error> {
    for key in keys {
        let Some(text) = as_text(key) else { continue };
        let hint = did_you_mean(text, [BLOCK]);
        if !hint.is_empty() {
            return Err(Error::invalid(&origin(key, name), format!("unknown block {text:?}{hint}")));
        }
    }
    Ok(())
}

fn as_text<'a>(node: &'a MarkedYaml<'_>) -> Option<&'a str> {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => Some(text),
        _ => None,
    }
}

fn origin(node: &MarkedYaml<'_>, name: &str) -> Origin {
    let start = node.span.start;
    Origin::File { name: name.to_owned(), line: start.line(), column: start.col() + 1 }
}
