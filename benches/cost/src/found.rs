//! What did a case record, and is it what it should?

#![allow(dead_code, reason = "the metrics crate has no spans")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::work::{KIND, SHARE};

/// Children of the one span below a step.
pub const PROMPTS: i64 = 3;
/// Children of each of those.
pub const SAMPLES: i64 = 5;
/// Spans of a step, on four levels.
pub const SPANS: u64 = (1 + 1 + PROMPTS + PROMPTS * SAMPLES).cast_unsigned();

/// Where an exporter says what it got.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    spans: Arc<AtomicU64>,
    /// If anybody wants to know more than how many there are.
    found: Option<Arc<Mutex<Found>>>,
}

/// What was recorded.
#[derive(Debug, Default)]
pub struct Found {
    pub spans: Vec<Seen>,
    pub measurements: u64,
}

/// A span, as an exporter gets it.
#[derive(Debug)]
pub struct Seen {
    pub id: u64,
    /// 0 if it has none.
    pub parent: u64,
    pub name: String,
    /// As texts, because one of the peers has nothing else.
    pub attributes: BTreeMap<String, String>,
}

impl Kept {
    /// All of it is wanted.
    pub fn all() -> Self {
        Self { found: Some(Arc::default()), ..Self::default() }
    }

    /// So many more arrived.
    pub fn count(&self, spans: u64) {
        self.spans.fetch_add(spans, Ordering::AcqRel);
    }

    pub fn spans(&self) -> u64 {
        self.spans.load(Ordering::Acquire)
    }

    /// Where to put what arrived; `None` if nobody wants it.
    pub fn place(&self) -> Option<MutexGuard<'_, Found>> {
        self.found.as_ref().map(|found| found.lock().expect("no panic while it is held"))
    }

    pub fn take(&self) -> Found {
        self.place().map(|mut found| std::mem::take(&mut *found)).unwrap_or_default()
    }
}

/// A span and what is below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    name: String,
    has_attributes: bool,
    below: Vec<Shape>,
}

impl Shape {
    /// How many spans that is.
    pub fn spans(&self) -> u64 {
        1 + self.below.iter().map(Self::spans).sum::<u64>()
    }
}

/// The span of one call.
pub fn call(has_attributes: bool) -> Shape {
    Shape { name: "call".to_owned(), has_attributes, below: Vec::new() }
}

/// The tree of a step.
pub fn tree(has_attributes: bool) -> Shape {
    let over = |name: &str, number: i64, below: Shape| Shape {
        name: name.to_owned(),
        has_attributes,
        below: (0..number).map(|_| below.clone()).collect(),
    };
    over("step", 1, over("generate", PROMPTS, over("prompt", SAMPLES, call(has_attributes))))
}

/// The traces that spans make, from their roots on.
pub fn traces(spans: &[Seen]) -> Result<Vec<Shape>, String> {
    let is_root = |span: &&Seen| !spans.iter().any(|other| other.id == span.parent);
    spans.iter().filter(is_root).map(|root| shape(root, spans)).collect()
}

fn shape(span: &Seen, spans: &[Seen]) -> Result<Shape, String> {
    let below = spans.iter().filter(|other| other.parent == span.id).map(|child| shape(child, spans));
    Ok(Shape {
        name: span.name.clone(),
        has_attributes: has_attributes(&span.attributes)?,
        below: below.collect::<Result<_, _>>()?,
    })
}

/// Whether the three attributes are there: all of them, or none.
fn has_attributes(found: &BTreeMap<String, String>) -> Result<bool, String> {
    match ["kind", "index", "share"].map(|key| found.get(key).map(String::as_str)) {
        [None, None, None] => Ok(false),
        [Some(KIND), Some(index), Some(share)]
            if index.parse::<i64>().is_ok() && share.parse() == Ok(SHARE) =>
        {
            Ok(true)
        }
        _ => Err(format!("expected kind, index and share, got {found:?}")),
    }
}
