//! Does every argument of the annotation say what it should?

use std::fmt;
use std::time::Duration;

use lens_runtime::opentelemetry::Context;
use lens_runtime::opentelemetry::trace::{SpanContext, SpanKind, Status, TraceContextExt as _};
use lens_runtime::testing::{Capture, CapturedSpan};
use lens_runtime::{Usage, rl_span};

fn text(span: &CapturedSpan, key: &str) -> Option<String> {
    span.attribute(key).map(ToString::to_string)
}

#[test]
fn kind_is_the_spans_kind() {
    #[rl_span(group = Reward, name = "calls", kind = client)]
    fn calls() {}
    #[rl_span(group = Reward, name = "serves", kind = Server)]
    fn serves() {}
    #[rl_span(group = Reward, name = "neither")]
    fn neither() {}
    let capture = Capture::new("reward");
    capture.run(|| {
        calls();
        serves();
        neither();
    });
    assert_eq!(capture.span("calls").kind(), &SpanKind::Client);
    assert_eq!(capture.span("serves").kind(), &SpanKind::Server);
    assert_eq!(capture.span("neither").kind(), &SpanKind::Internal);
}

#[test]
fn bucket_and_umbrella_overrule_the_group() {
    #[rl_span(group = Reward, name = "waits", bucket = idle)]
    fn waits() {}
    #[rl_span(group = Reward, name = "encloses", umbrella)]
    fn encloses() {
        plain();
    }
    #[rl_span(group = Reward, name = "plain")]
    fn plain() {}
    let capture = Capture::new("reward");
    capture.run(|| {
        waits();
        encloses();
    });
    assert_eq!(text(&capture.span("waits"), "rl.bucket").as_deref(), Some("idle"));
    assert_eq!(text(&capture.span("encloses"), "rl.bucket"), None);
    assert_eq!(text(&capture.span("plain"), "rl.bucket").as_deref(), Some("productive"));
}

#[test]
fn fault_65_a_parent_elsewhere_takes_the_place_of_the_current_one() {
    #[rl_span(group = Rollout, name = "origin")]
    fn origin() -> Context {
        Context::current()
    }
    #[rl_span(group = Rollout, name = "current")]
    fn current(elsewhere: Option<&Context>) {
        child(elsewhere);
    }
    #[rl_span(group = Reward, name = "child", parent = elsewhere)]
    fn child(elsewhere: Option<&Context>) {
        grandchild();
    }
    #[rl_span(group = Reward, name = "grandchild")]
    fn grandchild() {}
    let capture = Capture::new("per_step");
    capture.run(|| {
        let context = origin();
        current(Some(&context));
    });
    assert_eq!(capture.span("child").parent_id(), capture.span("origin").id());
    assert_eq!(capture.span("child").trace_id(), capture.span("origin").trace_id());
    assert_eq!(capture.span("grandchild").parent_id(), capture.span("child").id());
    let capture = Capture::new("per_step");
    capture.run(|| current(None));
    assert_eq!(capture.span("child").parent_id(), capture.span("current").id());
}

#[test]
fn links_name_the_spans_that_one_has_to_do_with() {
    #[rl_span(group = Rollout, name = "rollout")]
    fn rollout() -> SpanContext {
        Context::current().span().span_context().clone()
    }
    #[rl_span(group = PolicyUpdate, name = "train", links = rollouts)]
    fn train(rollouts: &[SpanContext]) {}
    let capture = Capture::new("per_step");
    let made = capture.run(|| {
        let made = [rollout(), rollout(), SpanContext::NONE];
        train(&made);
        made
    });
    let train = capture.span("train");
    let links: Vec<_> = train.links().iter().map(|link| link.span_context.clone()).collect();
    assert_eq!(links, made[..2]);
}

/// An error that has a cause.
#[derive(Debug)]
struct Refused(std::num::ParseIntError);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

fn refuse() -> Result<(), Refused> {
    "x".parse::<u8>().map(drop).map_err(Refused)
}

#[test]
fn fault_36_how_much_of_an_error_is_told_is_a_matter_of_the_annotation() {
    #[rl_span(group = Reward, name = "off", err = off)]
    fn off() -> Result<(), Refused> {
        refuse()
    }
    #[rl_span(group = Reward, name = "status", err = status)]
    fn status() -> Result<(), Refused> {
        refuse()
    }
    #[rl_span(group = Reward, name = "message", err = message)]
    fn message() -> Result<(), Refused> {
        refuse()
    }
    #[rl_span(group = Reward, name = "chain", err = chain)]
    async fn chain() -> Result<(), Refused> {
        refuse()
    }
    #[rl_span(group = Reward, name = "fine", err = message)]
    fn fine() -> Result<u32, Refused> {
        Ok(1)
    }
    #[rl_span(group = Reward, name = "cannot", err = message)]
    fn cannot() -> u32 {
        1
    }
    let capture = Capture::new("reward");
    capture.run(|| {
        let _refused = (off(), status(), message(), fine(), cannot());
    });
    let _refused =
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(capture.run_async(chain()));
    let type_name = Some(std::any::type_name::<Refused>().to_owned());
    for (name, status, outcome, error_type) in [
        ("off", Status::Unset, "error", None),
        ("status", Status::error(""), "error", type_name.clone()),
        ("message", Status::error("refused"), "error", type_name.clone()),
        ("chain", Status::error("refused: invalid digit found in string"), "error", type_name),
        ("fine", Status::Unset, "ok", None),
        ("cannot", Status::Unset, "ok", None),
    ] {
        let span = capture.span(name);
        assert_eq!(span.status(), &status, "{name}");
        assert_eq!(span.outcome().as_deref(), Some(outcome), "{name}");
        assert_eq!(text(&span, "error.type"), error_type, "{name}");
    }
}

#[test]
fn tokens_may_be_given_for_both_sides_at_once() {
    struct Answer {
        usage: Usage,
    }
    #[rl_span(group = Generation, name = "usage", tokens = |out| out.usage)]
    fn usage() -> Result<Answer, fmt::Error> {
        Ok(Answer { usage: Usage { input: 3, output: 5 } })
    }
    #[rl_span(group = Generation, name = "pair", tokens = (prompts.iter().copied(), 2_u32))]
    fn pair(prompts: &[u64]) {}
    let capture = Capture::new("generation");
    capture.run(|| {
        usage().unwrap();
        pair(&[10, 20]);
    });
    let sums = |name: &str| {
        let span = capture.span(name);
        (
            text(&span, "gen_ai.usage.input_tokens").unwrap(),
            text(&span, "gen_ai.usage.output_tokens").unwrap(),
        )
    };
    assert_eq!(sums("usage"), ("3".to_owned(), "5".to_owned()));
    assert_eq!(sums("pair"), ("30".to_owned(), "2".to_owned()));
}

#[test]
fn the_duration_of_an_operation_is_that_of_each_request_where_those_are_known() {
    #[rl_span(group = Generation, name = "batch", latencies = |out| out.iter().copied())]
    fn batch() -> Vec<Duration> {
        vec![Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)]
    }
    #[rl_span(group = Generation, name = "single", operation = "chat")]
    fn single() {}
    let capture = Capture::new("generation");
    capture.run(|| {
        batch();
        single();
    });
    let points = capture.points("gen_ai.client.operation.duration");
    let of = |operation: &str| {
        points.iter().find(|point| point.attributes["gen_ai.operation.name"] == operation).unwrap()
    };
    assert_eq!((of("text_completion").count, of("text_completion").sum.to_bits()), (3, 7.0_f64.to_bits()));
    assert_eq!(of("chat").count, 1);
}

#[test]
fn nothing_is_evaluated_for_a_span_that_is_off() {
    fn never<T>() -> T {
        unreachable!("the group is off")
    }
    #[rl_span(
        group = PerPrompt,
        name = "off",
        parent = never::<Context>(),
        links = never::<Vec<SpanContext>>(),
        attributes(a = never::<u32>(), b = |()| never::<u32>()),
    )]
    fn off() {}
    let capture = Capture::new("reward");
    capture.run(off);
    assert_eq!(capture.tree(), "");
}
