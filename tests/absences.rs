//! What must not stand where? The absences of ARCHITECTURE.md, read off the sources.

use std::path::{Path, PathBuf};

/// The code of a source file, without comments and documentation.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn sources(folder: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, found),
                false => found.push(path),
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    assert!(!found.is_empty());
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files below `folder` whose code holds one of `words`, without those that may.
fn holders(folder: &str, words: &[&str], may: &[&str]) -> Vec<PathBuf> {
    sources(folder)
        .into_iter()
        .filter(|path| !may.iter().any(|end| path.ends_with(end)))
        .filter(|path| words.iter().any(|word| code(path).contains(word)))
        .collect()
}

const NONE: [PathBuf; 0] = [];

#[test]
fn the_macro_knows_no_opentelemetry_and_no_names() {
    let words =
        ["opentelemetry", "gen_ai.", "\"rl.bucket", "\"rl.group", "\"rl.outcome", "PolicyUpdate", "Rollout"];
    assert_eq!(holders("lens-macros/src", &words, &[]), NONE);
}

#[test]
fn the_hot_path_knows_no_configuration_and_no_exporter() {
    for room in [
        "group.rs",
        "sampling/mod.rs",
        "sampling/key.rs",
        "sampling/sampler.rs",
        "sampling/steps.rs",
        "sampling/trace_state.rs",
        "span/mod.rs",
        "span/entry.rs",
        "span/settle.rs",
        "span/follow.rs",
        "block.rs",
        "current.rs",
        "outcome.rs",
        "value.rs",
        "step.rs",
        "pipeline.rs",
        "late/mod.rs",
        "late/tracer.rs",
        "late/meter.rs",
    ] {
        let code = code(&root().join("lens-runtime/src").join(room));
        for word in ["crate::config", "crate::export", "crate::delivery", "crate::telemetry", "otlp", "serde"]
        {
            assert!(!code.contains(word), "{room} knows {word}");
        }
    }
}

#[test]
fn the_environment_is_read_in_one_place() {
    let words = ["env::var", "env::vars", "std::env"];
    assert_eq!(holders("lens-runtime/src", &words, &["config/environment.rs"]), NONE);
}

#[test]
fn only_the_telemetry_sets_something_global() {
    let words = ["pipeline::activate(", "group::select(", "global::set_"];
    assert_eq!(holders("lens-runtime/src", &words, &["telemetry.rs"]), NONE);
}

#[test]
fn only_the_wire_opens_connections_and_only_with_clients_that_are_named() {
    let words = ["hyper_util", "hyper_rustls", "tonic::", "tokio::net", "std::net"];
    assert_eq!(
        holders(
            "lens-runtime/src",
            &words,
            &["export/wire.rs", "export/otlp_protobuf/mod.rs", "export/otlp_protobuf/span.rs", "files.rs"]
        ),
        NONE,
        "opentelemetry_proto::tonic are messages"
    );
    let manifest = std::fs::read_to_string(root().join("lens-runtime/Cargo.toml")).unwrap();
    assert!(!manifest.contains("reqwest") && !manifest.contains("opentelemetry-otlp"));
}

#[test]
fn only_one_room_is_unsafe() {
    assert_eq!(holders("lens-macros/src", &["unsafe {", "unsafe_code"], &[]), NONE);
    assert_eq!(holders("lens-runtime/src", &["unsafe {", "unsafe_code"], &["process.rs"]), NONE);
}

#[test]
fn names_of_attributes_and_metrics_stand_once() {
    let words = ["\"rl.", "\"gen_ai.", "\"nemo.", "\"error.type"];
    assert_eq!(holders("lens-runtime/src", &words, &["semconv.rs"]), NONE);
}

#[test]
fn fault_40_nothing_is_switched_by_a_cargo_feature() {
    for krate in ["lens-macros", "lens-runtime"] {
        assert_eq!(holders(&format!("{krate}/src"), &["feature ="], &[]), NONE);
        let manifest = std::fs::read_to_string(root().join(krate).join("Cargo.toml")).unwrap();
        assert!(!manifest.contains("[features]"));
    }
}
