//! Do rustc and clippy say of an annotated function what they say of a bare one?
//!
//! `lints/corpus.rs` is checked twice: as it stands, and with the annotation in the place of each
//! `// recorded`. Nothing else moves, so that warnings can be compared by their place.
//!
//! `cargo test -p lens-tests --test lints -- --nocapture` tells what was compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

const CORPUS: &str = include_str!("lints/corpus.rs");

/// What stands above each function, on a line of its own. Arguments of the annotation may follow.
const PLACEHOLDER: &str = "// recorded";

/// They differ in what a block's tail, `unsafe` and `impl Trait` mean.
const EDITIONS: [&str; 2] = ["2021", "2024"];

/// rustc's lints that are allowed by default and say something of functions. One that is an error by
/// default is a warning here, so that the corpus compiles. Of clippy every group is on.
const OF_RUSTC: &str = "
    absolute_paths_not_starting_with_crate ambiguous_negative_literals closure_returning_async_block
    deprecated_in_future elided_lifetimes_in_paths explicit_outlives_requirements ffi_unwind_calls
    impl_trait_redundant_captures let_underscore_drop let_underscore_lock missing_docs missing_unsafe_on_extern
    non_ascii_idents redundant_imports redundant_lifetimes single_use_lifetimes trivial_casts
    trivial_numeric_casts unit_bindings unnameable_types unreachable_pub unsafe_code unsafe_op_in_unsafe_fn
    unused_import_braces unused_lifetimes unused_qualifications unused_results variant_size_differences
";

/// What is not said of the annotated function, or not in the same words, and cannot be.
const DIFFERENT: &[Different] = &[
    Different {
        tool: Tool::Clippy,
        lint: "clippy::missing_const_for_fn",
        line: "fn ",
        reason: "a `const fn` cannot be annotated, so that the advice would be a compile error",
    },
    Different {
        tool: Tool::Clippy,
        lint: "clippy::manual_async_fn",
        line: "-> impl Future<",
        reason: "it looks for a body that is one `async` block and nothing else, beside which the annotation's \
                 expressions have no place",
    },
    Different {
        tool: Tool::Clippy,
        lint: "clippy::allow_attributes",
        line: "#[cfg_attr(",
        reason: "what a `cfg_attr` holds counts as written by a macro, once a macro has handed it on",
    },
    Different {
        tool: Tool::Clippy,
        lint: "clippy::allow_attributes_without_reason",
        line: "#[cfg_attr(",
        reason: "as above",
    },
    Different {
        tool: Tool::Rustc,
        lint: "unconditional_recursion",
        line: "fn for_ever(",
        reason: "it follows calls within one function, and the body stands in a closure; clippy sees and tells it",
    },
];

/// A lint, on the lines of the corpus that contain a text.
struct Different {
    tool: Tool,
    lint: &'static str,
    line: &'static str,
    reason: &'static str,
}

/// What lints. rustc by itself sees what will run; to clippy the expansion shows the function as it was
/// written, so that one says nothing of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tool {
    Rustc,
    Clippy,
}

#[test]
fn faults_48_to_52_warnings_of_annotated_functions_are_those_of_bare_ones() {
    let twins = Twins::write();
    let mut differences = String::new();
    let mut seen = vec![false; DIFFERENT.len()];
    for tool in [Tool::Rustc, Tool::Clippy] {
        let warnings = twins.check(tool);
        for edition in EDITIONS {
            let bare = &warnings[&package("bare", edition)];
            let annotated = &warnings[&package("annotated", edition)];
            let lints: BTreeSet<_> = bare.keys().map(|warning| &warning.lint).collect();
            let (functions, count) = (functions(), bare.values().sum::<usize>());
            println!("{tool:?}, {edition}: {functions} functions, {} lints, {count} warnings", lints.len());
            assert!(functions >= 80, "{functions} functions in the corpus");
            assert!(lints.len() >= if tool == Tool::Clippy { 200 } else { 20 }, "only {lints:?}");
            let missing = more(bare, annotated).map(|warning| ("missing", warning));
            let too_many = more(annotated, bare).map(|warning| ("too many", warning));
            for (what, warning) in missing.chain(too_many) {
                match DIFFERENT.iter().position(|different| different.covers(tool, warning)) {
                    Some(index) => seen[index] = true,
                    None => tell(&mut differences, &format!("{tool:?}, {edition}: {what}"), warning),
                }
            }
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
    for (different, seen) in DIFFERENT.iter().zip(seen) {
        assert!(seen, "{} is no different any more, though {}", different.lint, different.reason);
    }
}

/// A warning, as far as it is compared.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Warning {
    /// Lines and columns of where it begins and ends, or nothing.
    place: Option<[u64; 4]>,
    lint: String,
    level: String,
    message: String,
    /// What is proposed instead, with its places.
    proposals: Vec<String>,
}

/// Warnings, and how often each was given.
type Warnings = BTreeMap<Warning, usize>;

/// Those that are more in one list than in the other.
fn more<'a>(these: &'a Warnings, than: &'a Warnings) -> impl Iterator<Item = &'a Warning> {
    let is_more = |(warning, count): &(&Warning, &usize)| **count > than.get(*warning).copied().unwrap_or(0);
    these.iter().filter(is_more).map(|(warning, _)| warning)
}

fn tell(report: &mut String, what: &str, warning: &Warning) {
    let Warning { lint, level, message, proposals, .. } = warning;
    let [line, column, ..] = warning.place.unwrap_or_default();
    let _ = writeln!(report, "{what} {level} of {lint} at {line}:{column}: {message} {proposals:?}");
    let _ = writeln!(report, "    {}", warning.line().trim());
}

impl Warning {
    fn of(message: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = |span: &Value| {
            ["line_start", "column_start", "line_end", "column_end"].map(|key| span[key].as_u64().unwrap())
        };
        let spans = |message: &Value| message["spans"].as_array().unwrap().clone();
        let proposals = message["children"].as_array().unwrap().iter().flat_map(spans).filter_map(|span| {
            let replacement = span["suggested_replacement"].as_str()?;
            Some(format!("{:?} {replacement}", place(&span)))
        });
        Self {
            place: spans(message).iter().find(|span| span["is_primary"] == true).map(place),
            lint: text(&message["code"]["code"]),
            level: text(&message["level"]),
            message: text(&message["message"]),
            proposals: proposals.collect(),
        }
    }

    /// The line of the corpus.
    fn line(&self) -> &'static str {
        let number = self.place.map_or(0, |[line, ..]| usize::try_from(line).unwrap());
        number.checked_sub(1).and_then(|index| CORPUS.lines().nth(index)).unwrap_or_default()
    }
}

impl Different {
    fn covers(&self, tool: Tool, warning: &Warning) -> bool {
        self.tool == tool && self.lint == warning.lint && warning.line().contains(self.line)
    }
}

/// How many functions take part.
fn functions() -> usize {
    CORPUS.lines().filter(|line| line.trim_start().starts_with(PLACEHOLDER)).count()
}

/// The corpus, annotated.
fn annotated() -> String {
    let mut annotated = String::new();
    for line in CORPUS.lines() {
        let _ = match line.split_once(PLACEHOLDER) {
            Some((indent, arguments)) if indent.trim().is_empty() => {
                let annotation = format!("::lens_runtime::rl_span(group = Reward, name = \"x\"{arguments})");
                writeln!(annotated, "{indent}#[{annotation}]")
            }
            _ => writeln!(annotated, "{line}"),
        };
    }
    annotated
}

/// A workspace of its own, with one package for each twin in each edition.
struct Twins {
    folder: PathBuf,
}

fn package(twin: &str, edition: &str) -> String {
    format!("{twin}_{edition}")
}

impl Twins {
    fn write() -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tests").join("lints");
        let corpora = [("bare", CORPUS.to_owned()), ("annotated", annotated())];
        let mut members = Vec::new();
        for edition in EDITIONS {
            for (twin, corpus) in &corpora {
                let package = package(twin, edition);
                let manifest = format!(
                    "[package]\nname = \"{package}\"\nedition = \"{edition}\"\n\n\
                     [dependencies]\nfutures-core.workspace = true\nlens-runtime.workspace = true\n\n[lints]\nworkspace = true\n"
                );
                write(&folder.join(&package).join("Cargo.toml"), &manifest);
                write(&folder.join(&package).join("src/lib.rs"), corpus);
                members.push(package);
            }
        }
        let of_rustc =
            OF_RUSTC.split_whitespace().fold(String::new(), |lints, lint| lints + lint + " = \"warn\"\n");
        let of_clippy: String = ["all", "pedantic", "nursery", "restriction"]
            .map(|group| format!("{group} = {{ level = \"warn\", priority = -1 }}\n"))
            .concat();
        // The last one is about those groups, not about code.
        let workspace = format!(
            "[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n\
             [workspace.dependencies]\nfutures-core = {{ version = \"0.3\", default-features = false }}\n\
             lens-runtime.path = '{}'\n\n[workspace.lints.rust]\n{of_rustc}\n\
             [workspace.lints.clippy]\n{of_clippy}blanket_clippy_restriction_lints = \"allow\"\n",
            tests.with_file_name("lens-runtime").display(),
        );
        write(&folder.join("Cargo.toml"), &workspace);
        write(&folder.join("clippy.toml"), include_str!("lints/clippy.toml"));
        // The versions that are here already.
        fs::copy(tests.with_file_name("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
        Self { folder }
    }

    /// What a tool says, by package.
    fn check(&self, tool: Tool) -> BTreeMap<String, Warnings> {
        let command = match tool {
            Tool::Rustc => "check",
            Tool::Clippy => "clippy",
        };
        let output = Command::new(env::var_os("CARGO").unwrap())
            .args([command, "--offline", "--workspace", "--message-format=json", "--target-dir"])
            .arg(self.folder.join("target"))
            .current_dir(&self.folder)
            // What is checked once gains nothing by it.
            .env("CARGO_INCREMENTAL", "0")
            .output()
            .unwrap();
        let mut warnings = BTreeMap::<_, Warnings>::new();
        let mut errors = String::from_utf8_lossy(&output.stderr).into_owned();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let message = &line["message"];
            if line["reason"] != "compiler-message" {
                continue;
            }
            if message["level"] == "error" {
                errors.push_str(message["rendered"].as_str().unwrap());
            }
            // Without a code: how many warnings there were.
            if message["code"].is_object() {
                let package = line["target"]["name"].as_str().unwrap().to_owned();
                *warnings.entry(package).or_default().entry(Warning::of(message)).or_default() += 1;
            }
        }
        assert!(output.status.success(), "{command} failed:\n{errors}");
        warnings
    }
}

/// Leaves a file alone that is as it should be, so that what was checked is not checked again.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|before| before == text) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
