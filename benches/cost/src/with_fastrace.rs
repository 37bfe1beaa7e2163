//! The program as it is with `fastrace`, and a reporter that does nothing.

mod found;
mod measure;
mod work;

use std::process::ExitCode;

use fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
use fastrace::{Span, trace};
use found::{Kept, PROMPTS, SAMPLES, Seen};
use measure::{Case, OFF_ASYNC, OFF_SYNC, ON_ASYNC, ON_TREE, Recorder, case};
use work::{KIND, SHARE, async_calls, async_work, calls, each, work};

const CASES: &[Case] = &[
    case(OFF_SYNC, "no_root.a0", spans, |number| calls(number, a0::call)),
    case(OFF_SYNC, "no_root.a3", spans, |number| calls(number, a3::call)),
    case(OFF_ASYNC, "no_root.a0", spans, |number| async_calls(number, a0::async_call)),
    case(OFF_ASYNC, "no_root.a3", spans, |number| async_calls(number, a3::async_call)),
    case(ON_TREE, "fastrace.a0", spans, |number| calls(number, a0::step)),
    case(ON_TREE, "fastrace.a3", spans, |number| calls(number, a3::step)),
    case(ON_ASYNC, "fastrace.a0", spans, |number| async_calls(number, a0::async_root)),
    case(ON_ASYNC, "fastrace.a3", spans, |number| async_calls(number, a3::async_root)),
];

fn main() -> ExitCode {
    measure::main(&[work::CASES, CASES])
}

mod a0 {
    use fastrace::future::FutureExt as _;

    use super::{PROMPTS, SAMPLES, Span, SpanContext, async_work, each, trace, work};

    #[trace(name = "call")]
    #[inline(never)]
    pub(super) fn call(index: i64) -> i64 {
        work(index)
    }

    #[trace(name = "call")]
    #[inline(never)]
    pub(super) async fn async_call(index: i64) -> i64 {
        async_work(index).await
    }

    /// The attribute makes no roots.
    #[inline(never)]
    pub(super) async fn async_root(index: i64) -> i64 {
        async_work(index).in_span(Span::root("call", SpanContext::random())).await
    }

    #[inline(never)]
    pub(super) fn step(index: i64) -> i64 {
        let root = Span::root("step", SpanContext::random());
        let _current = root.set_local_parent();
        generate(index)
    }

    #[trace(name = "generate")]
    #[inline(never)]
    fn generate(index: i64) -> i64 {
        each(PROMPTS, |number| prompt(index + number))
    }

    #[trace(name = "prompt")]
    #[inline(never)]
    fn prompt(index: i64) -> i64 {
        each(SAMPLES, |number| call(index + number))
    }
}

mod a3 {
    use fastrace::future::FutureExt as _;

    use super::{
        KIND, PROMPTS, SAMPLES, SHARE, Span, SpanContext, async_work, each, properties, trace, work,
    };

    #[trace(name = "call", properties = { "kind": "{KIND}", "index": "{index}", "share": "{SHARE}" })]
    #[inline(never)]
    pub(super) fn call(index: i64) -> i64 {
        work(index)
    }

    #[trace(name = "call", properties = { "kind": "{KIND}", "index": "{index}", "share": "{SHARE}" })]
    #[inline(never)]
    pub(super) async fn async_call(index: i64) -> i64 {
        async_work(index).await
    }

    /// The attribute makes no roots.
    #[inline(never)]
    pub(super) async fn async_root(index: i64) -> i64 {
        let root = Span::root("call", SpanContext::random());
        async_work(index).in_span(root.with_properties(|| properties(index))).await
    }

    #[inline(never)]
    pub(super) fn step(index: i64) -> i64 {
        let root = Span::root("step", SpanContext::random());
        let root = root.with_properties(|| properties(index));
        let _current = root.set_local_parent();
        generate(index)
    }

    #[trace(name = "generate", properties = { "kind": "{KIND}", "index": "{index}", "share": "{SHARE}" })]
    #[inline(never)]
    fn generate(index: i64) -> i64 {
        each(PROMPTS, |number| prompt(index + number))
    }

    #[trace(name = "prompt", properties = { "kind": "{KIND}", "index": "{index}", "share": "{SHARE}" })]
    #[inline(never)]
    fn prompt(index: i64) -> i64 {
        each(SAMPLES, |number| call(index + number))
    }
}

/// As the attribute has them.
fn properties(index: i64) -> [(&'static str, String); 3] {
    [("kind", KIND.to_owned()), ("index", index.to_string()), ("share", SHARE.to_string())]
}

fn spans(kept: Kept) -> Box<dyn Recorder> {
    fastrace::set_reporter(Nowhere(kept), Config::default());
    Box::new(Collector)
}

struct Collector;

impl Recorder for Collector {
    fn let_go(&self) {
        fastrace::flush();
    }
}

struct Nowhere(Kept);

impl Reporter for Nowhere {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        self.0.count(spans.len() as u64);
        if let Some(mut place) = self.0.place() {
            place.spans.extend(spans.into_iter().map(seen));
        }
    }
}

fn seen(span: SpanRecord) -> Seen {
    let text = |(key, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| {
        (key.into_owned(), value.into_owned())
    };
    Seen {
        id: span.span_id.0,
        parent: span.parent_id.0,
        name: span.name.into_owned(),
        attributes: span.properties.into_iter().map(text).collect(),
    }
}
