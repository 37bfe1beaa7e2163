//! Of which calls is there a span, and does everything else know of those that are left out?
//!
//! These are calls of a process whose telemetry is on, read from its files. A test whose name begins with `fault` shows
//! that Lens does not have a fault that users of other libraries met, by its number.

mod support;

#[path = "bin/prompts.rs"]
mod prompts;

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lens_runtime::opentelemetry::trace::{
    Link, SpanKind, TraceContextExt as _, TraceId, TraceState, Tracer as _,
};
use lens_runtime::opentelemetry::{Context, KeyValue};
use lens_runtime::opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};
use lens_runtime::propagation::{extract, inject};
use lens_runtime::{TelemetryConfig, groups, record_tokens, rl_span, semconv, set, span};
use proptest::prelude::*;
use serde_json::Value;
use support::run::{Left, Run};
use support::{attribute, attribute_text, folder_with, named, names, spans, text, tree};

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

#[rl_span(group = Step, name = "step", step = number)]
fn step(number: u64, prompts: u64) {
    (0..prompts).for_each(prompt);
}

#[rl_span(group = PerPrompt, name = "prompt", key = number, attributes(prompt = number))]
fn prompt(number: u64) {
    generate(number);
}

#[rl_span(group = Generation, name = "generate", model = "tiny", attributes(prompt = number))]
fn generate(number: u64) {
    record_tokens(1_u32, 2_u32);
    reward(number);
}

#[rl_span(group = Reward, name = "reward", attributes(prompt = number))]
fn reward(number: u64) {
    std::hint::black_box(number);
}

/// Step and prompt of the spans of this name.
fn kept(spans: &[Value], name: &str) -> BTreeSet<(u64, u64)> {
    let named = spans.iter().filter(|span| span["name"] == name);
    let number = |span: &Value, key: &str| attribute_text(span, key).unwrap().parse().unwrap();
    named.map(|span| (number(span, semconv::ITERATION), number(span, "prompt"))).collect()
}

/// What the `tracestate` says: the threshold, and what was drawn.
fn told(span: &Value) -> Option<(u64, Option<u64>)> {
    let state = span["traceState"].as_str()?;
    let entry = state.split(',').find_map(|entry| entry.strip_prefix("ot="))?;
    let sub_key = |key: &str| entry.split(';').find_map(|part| part.strip_prefix(key));
    let threshold = u64::from_str_radix(&format!("{:0<14}", sub_key("th:")?), 16).unwrap();
    Some((threshold, sub_key("rv:").map(|drawn| u64::from_str_radix(drawn, 16).unwrap())))
}

/// Asserts that this share is what the `tracestate` says, and that what was drawn is within it.
fn assert_share(span: &Value, ratio: f64) {
    let (threshold, drawn) = told(span).unwrap_or_else(|| panic!("no share in {span}"));
    let said = 1.0 - threshold as f64 / (1_u64 << 56) as f64;
    assert!((said - ratio).abs() < 1e-12, "{said} is not {ratio}");
    let of_trace = u64::from_str_radix(&span["traceId"].as_str().unwrap()[18..], 16).unwrap();
    assert!(drawn.unwrap_or(of_trace) >= threshold, "{span}");
}

const STEPS: u64 = 6;
const PROMPTS: u64 = 50;

/// Whether a text of `steps` includes a step, said in another way.
fn includes(steps: &str, number: u64) -> bool {
    match steps {
        "all" => true,
        "every 3" => number == 3 || number == 6,
        "1,4-5" => [1, 4, 5].contains(&number),
        "3-" => number > 2,
        other => panic!("{other}"),
    }
}

/// A run of all steps, of which `ratio` of one group is kept.
fn thinned(run_id: &str, group: &str, ratio: f64, steps: &str) -> Left {
    let lines = [&*format!("span_groups: \"all,{group}@{ratio}\""), &format!("steps: {steps:?}")];
    let run = Run::begin_as(&lines, &[("LENS_RUN_ID", run_id)], |config| config);
    (1..=STEPS).for_each(|number| step(number, PROMPTS));
    run.end()
}

#[test]
fn of_a_window_the_slowest_steps_are_kept_in_full_and_of_the_others_the_step() {
    let run = Run::begin(&["span_groups: all", "steps: slowest 1 of 4"]);
    let prompts = |number: u64| if [3, 6].contains(&number) { 3000 } else { 2 };
    // The last two are no whole window: nobody decides about them any more.
    (1..=10).for_each(|number| step(number, prompts(number)));
    let left = run.end();
    let ids: HashSet<_> = left.spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
    assert!(left.spans.iter().filter_map(|span| span["parentSpanId"].as_str()).all(|id| ids.contains(id)));
    assert_eq!(names(&left.spans).iter().filter(|name| **name == "step").count(), 10);
    let kept = kept(&left.spans, "reward");
    let of = |number: u64| kept.iter().filter(|(step, _)| *step == number).count() as u64;
    assert_eq!([of(3), of(6)], [3000, 3000]);
    // Of the last window the slower one.
    let (ninth, tenth) = (of(9), of(10));
    assert_eq!((ninth + tenth, ninth * tenth), (2, 0));
    assert_eq!(kept.len(), 6002);
    let calls: u64 = (1..=10).map(prompts).sum();
    assert_eq!(left.reported("reward"), calls, "the report knows of all");
    let traces = left.report.health.traces;
    let all = 10 + 3 * calls;
    assert_eq!((traces.made, traces.left_out), (10 + 3 * 6002, all - 10 - 3 * 6002));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn of_a_share_the_same_calls_are_kept_in_every_process_of_a_run_with_all_beneath_them(
        ratio in prop_oneof![Just(1.0), Just(1e-9), Just(0.5), 0.01..0.99_f64],
        more in 0.0..1.0_f64,
        // Prompts have keys, the others are counted.
        (group, name) in prop::sample::select(&[("per_prompt", "prompt"), ("generation", "generate"), ("reward", "reward")][..]),
        steps in prop::sample::select(&["all", "every 3", "1,4-5", "3-"][..]),
        run_id in "[a-z0-9]{1,8}",
    ) {
        let left = thinned(&run_id, group, ratio, steps);
        let spans = &left.spans;
        let of_steps: BTreeSet<_> = (1..=STEPS).filter(|number| includes(steps, *number)).collect();
        let all: BTreeSet<_> =
            of_steps.iter().flat_map(|step| (0..PROMPTS).map(|prompt| (*step, prompt))).collect();
        let of = |name: &str| kept(spans, name);

        // Above what is thinned everything is there, beneath it what is beneath what was kept.
        prop_assert!(!tree(spans).contains('?'), "{}", tree(spans));
        prop_assert_eq!(names(spans).iter().filter(|name| **name == "step").count(), of_steps.len());
        let order = ["prompt", "generate", "reward"];
        let thinned_at = order.iter().position(|known| *known == name).unwrap();
        for (place, known) in order.into_iter().enumerate() {
            prop_assert_eq!(of(known), if place < thinned_at { all.clone() } else { of(name) });
        }
        let (count, expected) = (of(name).len() as f64, all.len() as f64 * ratio);
        let deviation = (expected * (1.0 - ratio)).sqrt();
        prop_assert!((count - expected).abs() <= 6.0 * deviation + 1.0, "{count} kept, {expected} expected");

        // Each span says how likely it was.
        for span in spans {
            let is_thinned = order[thinned_at..].contains(&span["name"].as_str().unwrap()) && ratio < 1.0;
            match is_thinned {
                true => assert_share(span, ratio),
                false => prop_assert!(span["traceState"].is_null(), "{span}"),
            }
        }

        // Nothing else knows that something was left out.
        for (phase, calls) in [("step", STEPS), ("prompt", STEPS * PROMPTS), ("generate", STEPS * PROMPTS), ("reward", STEPS * PROMPTS)] {
            prop_assert_eq!((left.counted(phase), left.reported(phase)), (calls, calls), "{}", phase);
        }
        let traces = left.report.health.traces;
        prop_assert_eq!(traces.made, spans.len() as u64);
        prop_assert_eq!(traces.made + traces.left_out, STEPS * (1 + 3 * PROMPTS));

        // Another process of the run, and one that keeps more.
        prop_assert_eq!(kept(&thinned(&run_id, group, ratio, steps).spans, name), of(name));
        let greater = ratio + (1.0 - ratio) * more;
        prop_assert!(kept(&thinned(&run_id, group, greater, steps).spans, name).is_superset(&of(name)));
        if (0.1..0.9).contains(&ratio) {
            let other = thinned(&format!("{run_id}-2"), group, ratio, steps);
            prop_assert_ne!(kept(&other.spans, name), of(name), "another run keeps others");
        }
    }
}

#[test]
fn processes_that_know_nothing_of_one_another_keep_the_same_prompts() {
    let config =
        "telemetry:\n  enabled: true\n  exporter: file\n  span_groups: all,per_prompt@0.1\n  steps: 1,3\n";
    let folder = folder_with(config);
    let drive = |run_id: &str, directory: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_driver"))
            .args(["prompts", "run.yaml", &format!("++telemetry.directory={directory}")])
            .current_dir(folder.path())
            .env_clear()
            .env("LENS_RUN_ID", run_id)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let spans = spans(&folder.path().join(directory).join(run_id));
        let kept = ["prompt", "generate", "reward"].map(|name| kept(&spans, &format!("rl.test.{name}")));
        assert!(kept[0] == kept[1] && kept[1] == kept[2]);
        assert!(!tree(&spans).contains('?'));
        let [prompts, ..] = kept;
        prompts
    };
    let first = drive("a", "first");
    assert!((20..=110).contains(&first.len()), "of two times 300, a tenth: {}", first.len());
    assert_eq!(first, drive("a", "second"));
    assert_ne!(first, drive("b", "third"));
    let run =
        Run::begin_as(&["span_groups: per_prompt@0.1", "steps: 1,3"], &[("LENS_RUN_ID", "a")], |config| {
            config
        });
    (1..=3).for_each(|number| prompts::step(number, 300));
    assert_eq!(kept(&run.end().spans, "rl.test.prompt"), first, "whatever else is on");
}

/// Samplers that record each trace that has no parent.
const ALL_TRACES: [&[(&str, &str)]; 4] = [
    &[],
    &[(SAMPLER, "always_on")],
    &[(SAMPLER, "parentbased_traceidratio"), (ARGUMENT, "1")],
    &[(SAMPLER, "traceidratio"), (ARGUMENT, "1")],
];

/// What a call hands on.
fn traceparent() -> String {
    let mut headers = HashMap::new();
    inject(&mut headers);
    headers.remove("traceparent").unwrap()
}

#[test]
fn what_is_left_out_hands_on_that_it_is() {
    #[rl_span(group = PerPrompt, name = "prompt", key = number)]
    fn prompt(number: u64, handed_on: &mut Vec<(String, bool)>) {
        handed_on.push((traceparent(), Context::current().span().is_recording()));
        reward(handed_on);
    }
    #[rl_span(group = Reward, name = "reward")]
    fn reward(handed_on: &mut Vec<(String, bool)>) {
        handed_on.push((traceparent(), Context::current().span().is_recording()));
    }
    #[rl_span(group = Step, name = "step", step = 1)]
    fn step(handed_on: &mut Vec<(String, bool)>) {
        (0..50).for_each(|number| prompt(number, handed_on));
    }
    for variables in ALL_TRACES {
        let run = Run::begin_as(&["span_groups: all,per_prompt@0.5"], variables, |config| config);
        let mut handed_on = Vec::new();
        step(&mut handed_on);
        let left = run.end();
        let ids: HashSet<_> = left.spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
        let trace = left.spans[0]["traceId"].as_str().unwrap();
        for pair in handed_on.chunks(2) {
            assert_eq!(pair[0].1, pair[1].1, "{variables:?}");
            for (header, is_recording) in pair {
                let [_, of_trace, id, flags] = header.split('-').collect::<Vec<_>>()[..] else {
                    panic!("{header}")
                };
                assert_eq!(of_trace, trace);
                assert_eq!(flags, if *is_recording { "01" } else { "00" }, "{variables:?}");
                assert_eq!(ids.contains(id), *is_recording);
            }
        }
        assert!(!tree(&left.spans).contains('?'), "{variables:?}");
        let recording = handed_on.iter().filter(|(_, is_recording)| *is_recording).count();
        assert!((10..=90).contains(&recording) && left.spans.len() == 1 + recording);
        assert_eq!(left.report.health.traces.left_out, 100 - recording as u64);
    }
}

/// Asserts that so many steps with so many prompts were measured, whatever spans there are of them.
fn assert_measured(left: &Left, steps: u64, prompts: u64) {
    let all = steps * prompts;
    for (phase, calls) in [("step", steps), ("prompt", all), ("generate", all), ("reward", all)] {
        assert_eq!((left.counted(phase), left.reported(phase)), (calls, calls), "{phase}");
    }
    let tokens = left.report.phases.get("generate").unwrap();
    assert_eq!((tokens.input_tokens, tokens.output_tokens), (all, 2 * all));
    let sums: f64 = left.points(semconv::GEN_AI_CLIENT_TOKEN_USAGE).iter().map(|point| point.sum).sum();
    assert_eq!(sums.to_bits(), (3.0 * all as f64).to_bits());
    let traces = left.report.health.traces;
    assert_eq!((traces.made, traces.made + traces.left_out), (left.spans.len() as u64, steps + 3 * all));
}

#[test]
fn whatever_leaves_spans_out_every_call_is_measured_and_reported() {
    let of_step = ["all,per_prompt@0.3", "all@0.3", "all,generation@1e-9", "step@0.5,all", "all"];
    let samplers: [&[(&str, &str)]; 5] = [
        &[],
        &[(SAMPLER, "always_on")],
        &[(SAMPLER, "always_off")],
        &[(SAMPLER, "parentbased_always_off")],
        &[(SAMPLER, "traceidratio"), (ARGUMENT, "0.5")],
    ];
    for span_groups in of_step {
        for (variables, steps) in samplers.into_iter().zip(["all", "every 2", "all", "2-", "3"]) {
            let lines = [&*format!("span_groups: {span_groups:?}"), &format!("steps: {steps:?}")];
            let run = Run::begin_as(&lines, variables, |config| config);
            (1..=4).for_each(|number| step(number, 10));
            let left = run.end();
            assert_measured(&left, 4, 10);
            assert!(!tree(&left.spans).contains('?'), "{span_groups} {variables:?}");
            let is_off = variables.first().is_some_and(|(_, name)| name.ends_with("always_off"));
            assert!(left.spans.is_empty() || !is_off);
        }
    }
}

#[test]
fn of_a_step_that_is_not_recorded_nothing_is_and_what_is_in_no_step_is() {
    let run = Run::begin(&["span_groups: all", "steps: 2,4-"]);
    prompt(100);
    (1..=5).for_each(|number| step(number, 1));
    prompt(101);
    let left = run.end();
    let whole = "step\n  prompt\n    generate\n      reward\n";
    let outside = "prompt\n  generate\n    reward\n";
    assert_eq!(tree(&left.spans), format!("{outside}{whole}{whole}{whole}{outside}"));
    let steps: Vec<_> = left
        .spans
        .iter()
        .filter(|span| span["name"] == "step")
        .map(|span| attribute(span, semconv::ITERATION).unwrap()["intValue"].as_str().unwrap())
        .collect();
    assert_eq!(steps, ["2", "4", "5"]);
    assert_eq!(left.report.health.traces.left_out, 2 * 4);
}

#[test]
fn outside_of_a_step_traces_are_kept_whole() {
    #[rl_span(group = Setup, name = "root", attributes(number = number))]
    fn root(number: u64) {
        for _ in 0..2 {
            rollout(number);
            reward(number);
        }
    }
    #[rl_span(group = Rollout, name = "rollout", attributes(number = number))]
    fn rollout(number: u64) {
        reward(number);
    }
    for (variables, of_root) in [(ALL_TRACES[0], 1.0), (ALL_TRACES[1], 1.0)] {
        let run = Run::begin_as(&["span_groups: setup,rollout@0.5,reward@0.5"], variables, |config| config);
        (0..400).for_each(root);
        let left = run.end();
        let mut by_trace: HashMap<&str, Vec<&Value>> = HashMap::new();
        for span in &left.spans {
            by_trace.entry(span["traceId"].as_str().unwrap()).or_default().push(span);
        }
        assert_eq!(by_trace.len(), 400, "the roots are not thinned");
        let whole = by_trace.values().filter(|spans| spans.len() == 7).count();
        assert!(by_trace.values().all(|spans| [1, 7].contains(&spans.len())), "all or none beneath the root");
        assert!((120..=280).contains(&whole), "{whole}");
        for span in left.spans.iter().filter(|span| span["name"] != "root") {
            assert_share(span, of_root * 0.5);
            assert_eq!(told(span).unwrap().1, None, "what was drawn shows from the id");
        }
        assert_eq!(left.report.health.traces.left_out, (400 - whole as u64) * 6);
    }
}

#[test]
fn a_share_of_a_share_is_told_as_what_is_left_of_both() {
    let run = Run::begin(&["span_groups: step,per_prompt@0.5,generation@0.5,reward"]);
    (1..=4).for_each(|number| step(number, 100));
    let left = run.end();
    let count = |name: &str| left.spans.iter().filter(|span| span["name"] == name).count();
    for span in &left.spans {
        match span["name"].as_str().unwrap() {
            "step" => assert_eq!(told(span), None),
            "prompt" => assert_share(span, 0.5),
            _ => assert_share(span, 0.25),
        }
    }
    assert!((120..=280).contains(&count("prompt")), "{}", count("prompt"));
    assert!((40..=160).contains(&count("generate")) && count("generate") == count("reward"));
}

/// A remote parent that is not recorded, fast/fastrace#90, #104.
#[test]
fn fault_70_what_a_parent_elsewhere_decided_is_kept_and_handed_on() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
    for (name, argument, when_sampled, when_not) in [
        ("", "", true, false),
        ("parentbased_always_on", "", true, false),
        ("parentbased_always_off", "", true, false),
        ("parentbased_traceidratio", "0", true, false),
        ("parentbased_traceidratio", "1", true, false),
        ("always_on", "", true, true),
        ("always_off", "", false, false),
        ("traceidratio", "1", true, true),
        ("traceidratio", "0", false, false),
    ] {
        let variables = [(SAMPLER, name), (ARGUMENT, argument)];
        for (flags, is_kept) in [("01", when_sampled), ("00", when_not)] {
            let run = Run::begin_as(&["span_groups: reward,generation"], &variables, |config| config);
            let headers = HashMap::from([
                ("traceparent".to_owned(), format!("{PARENT}-{flags}")),
                ("tracestate".to_owned(), "vendor=1".to_owned()),
            ]);
            let attached = extract(&headers).attach();
            let seen = lens_runtime::span(&lens_runtime::groups::Generation, "outer").run(|| {
                reward(1);
                lens_runtime::tracer("library").in_span("raw", |_| ());
                let context = Context::current();
                (context.span().is_recording(), context.span().span_context().clone(), traceparent())
            });
            drop(attached);
            let left = run.end();
            let (is_recording, ids, header) = seen;
            assert_eq!((is_recording, ids.is_sampled()), (is_kept, is_kept), "{name} {argument} {flags}");
            assert_eq!(ids.trace_id().to_string(), PARENT[3..35]);
            assert_eq!(ids.trace_state().header(), "vendor=1");
            let of_kept = if is_kept { "01" } else { "00" };
            assert_eq!(header, format!("{}-{}-{of_kept}", &PARENT[..35], ids.span_id()));
            let expected = if is_kept { "? outer\n  reward\n  raw\n" } else { "" };
            assert_eq!(tree(&left.spans), expected, "{name} {argument} {flags}");
            for span in &left.spans {
                assert_eq!(span["traceState"], "vendor=1");
            }
            if is_kept {
                assert_eq!(named(&left.spans, "outer")["parentSpanId"], PARENT[36..]);
            }
            assert_eq!((left.counted("outer"), left.counted("reward")), (1, 1));
        }
    }
}

/// What a sampler of the program's is asked, and answers.
type Ask = dyn Fn(&Question<'_>) -> SamplingResult + Send + Sync;

struct Question<'a> {
    parent: &'a Context,
    trace_id: TraceId,
    name: &'a str,
    kind: &'a SpanKind,
    attributes: &'a [KeyValue],
    links: &'a [Link],
}

#[derive(Clone)]
struct Own(Arc<Ask>);

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Own")
    }
}

impl ShouldSample for Own {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        self.0(&Question { parent: parent.unwrap(), trace_id, name, kind, attributes, links })
    }
}

fn answer(decision: SamplingDecision) -> SamplingResult {
    SamplingResult { decision, attributes: Vec::new(), trace_state: TraceState::NONE }
}

fn by(
    sampler: impl Fn(&Question<'_>) -> SamplingResult + Send + Sync + 'static,
) -> impl FnOnce(TelemetryConfig) -> TelemetryConfig {
    move |config| config.with_sampler(Own(Arc::new(sampler)))
}

mod the_programs_own_sampler {
    use super::*;

    #[test]
    fn is_asked_first_of_every_span_that_would_be_and_is_told_what_is_known() {
        #[rl_span(
            group = Generation,
            name = "linked",
            kind = Client,
            model = "tiny",
            attributes(prompt = 7),
            links = [Context::current()]
        )]
        fn linked() {
            reward(7);
        }
        let asked = Arc::new(Mutex::new(Vec::new()));
        let sampler = {
            let asked = Arc::clone(&asked);
            move |question: &Question<'_>| {
                let mut attributes: Vec<_> =
                    question.attributes.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect();
                attributes.sort();
                let span = question.parent.span().span_context().clone();
                assert!(!span.is_valid() || span.trace_id() == question.trace_id);
                asked.lock().unwrap().push((
                    question.name.to_owned(),
                    question.kind.clone(),
                    attributes.join(" "),
                    question.links.len(),
                ));
                answer(SamplingDecision::RecordAndSample)
            }
        };
        let run = Run::begin_as(&["span_groups: step,generation,reward@1e-12", "steps: 1"], &[], by(sampler));
        let of_step =
            |number: u64| lens_runtime::span(&lens_runtime::groups::Step, "step").step(number).run(linked);
        of_step(1);
        of_step(2);
        let left = run.end();
        assert_eq!(tree(&left.spans), "step\n  linked\n");
        let asked = asked.lock().unwrap();
        let of = |number: u32| {
            [
                ("step".to_owned(), SpanKind::Internal, format!("rl.group=step rl.iteration={number}"), 0),
                (
                    "linked".to_owned(),
                    SpanKind::Client,
                    format!(
                        "gen_ai.request.model=tiny prompt=7 rl.bucket=productive rl.group=generation rl.iteration={number}"
                    ),
                    1,
                ),
                (
                    "reward".to_owned(),
                    SpanKind::Internal,
                    format!("prompt=7 rl.bucket=productive rl.group=reward rl.iteration={number}"),
                    0,
                ),
            ]
        };
        // A share and a choice of steps speak after it; beneath what they left out it is not asked.
        assert_eq!(asked[..3], of(1));
        assert_eq!(asked[3..], of(2)[..1]);
    }

    #[test]
    fn drops_for_good() {
        let asked = Arc::new(AtomicU64::new(0));
        let sampler = {
            let asked = Arc::clone(&asked);
            move |question: &Question<'_>| {
                asked.fetch_add(1, Ordering::Relaxed);
                answer(match question.name {
                    "generate" => SamplingDecision::Drop,
                    _ => SamplingDecision::RecordAndSample,
                })
            }
        };
        let run = Run::begin_as(&["span_groups: all"], &[], by(sampler));
        (1..=2).for_each(|number| step(number, 3));
        let left = run.end();
        let of_step = "step\n  prompt\n  prompt\n  prompt\n";
        assert_eq!(tree(&left.spans), format!("{of_step}{of_step}"));
        assert_measured(&left, 2, 3);
        assert_eq!(asked.load(Ordering::Relaxed), 2 * (1 + 3 + 3), "nobody is asked of what is beneath");
    }

    #[test]
    fn may_have_a_span_recorded_and_not_exported() {
        let sampler = |question: &Question<'_>| {
            answer(match question.name {
                "looked at" => SamplingDecision::RecordOnly,
                _ => SamplingDecision::RecordAndSample,
            })
        };
        let run = Run::begin_as(&["span_groups: generation,reward"], &[], by(sampler));
        let (is_recording, is_sampled, header) =
            lens_runtime::span(&lens_runtime::groups::Generation, "looked at").model("tiny").run(|| {
                set("heard", 1);
                record_tokens(1_u32, 1_u32);
                let context = Context::current();
                (context.span().is_recording(), context.span().span_context().is_sampled(), traceparent())
            });
        reward(1);
        let left = run.end();
        assert_eq!((is_recording, is_sampled), (true, false));
        assert!(header.ends_with("-00"));
        assert_eq!(names(&left.spans), ["reward"]);
        assert_eq!((left.counted("looked at"), left.reported("looked at")), (1, 1));
        assert_eq!(left.report.phases.get("looked at").unwrap().output_tokens, 1);
        let traces = left.report.health.traces;
        assert_eq!((traces.made, traces.left_out), (1, 1));
    }

    #[test]
    fn has_its_attributes_and_its_tracestate_recorded() {
        let sampler = |question: &Question<'_>| SamplingResult {
            decision: SamplingDecision::RecordAndSample,
            attributes: vec![KeyValue::new("rule", "whole"), KeyValue::new("prompt", 99)],
            trace_state: TraceState::from_key_value([
                ("vendor", "1"),
                ("ot", if question.name == "reward" { "x:y" } else { "" }),
            ])
            .unwrap_or_else(|_| TraceState::from_key_value([("vendor", "1")]).unwrap()),
        };
        let run = Run::begin_as(&["span_groups: step,per_prompt@0.5,reward"], &[], by(sampler));
        step(1, 40);
        let left = run.end();
        assert!(left.spans.len() > 10, "{}", left.spans.len());
        for span in &left.spans {
            assert_eq!(attribute_text(span, "rule").unwrap(), "whole");
            let keys = support::attribute_keys(span);
            assert_eq!(keys.iter().filter(|key| **key == "prompt").count(), 1, "{keys:?}");
            let state = span["traceState"].as_str().unwrap();
            match span["name"].as_str().unwrap() {
                "prompt" => {
                    assert_share(span, 0.5);
                    assert!(state.ends_with(",vendor=1"), "{state}");
                    assert_eq!(attribute_text(span, "prompt").unwrap(), "99");
                }
                "reward" => assert!(state.contains("vendor=1") && state.contains("ot=x:y"), "{state}"),
                _ => assert!(state.contains("vendor=1"), "{state}"),
            }
        }
    }

    #[test]
    fn that_panics_leaves_the_span_out_and_ends_nothing() {
        let sampler = |question: &Question<'_>| {
            assert!(question.name != "generate", "a sampler fell over");
            answer(SamplingDecision::RecordAndSample)
        };
        let run = Run::begin_as(&["span_groups: all"], &[], by(sampler));
        step(1, 2);
        let left = run.end();
        assert_eq!(tree(&left.spans), "step\n  prompt\n  prompt\n");
        assert_measured(&left, 1, 2);
    }

    #[test]
    fn may_use_all_of_telemetry_itself() {
        thread_local! {
            static IS_ASKED: Cell<bool> = const { Cell::new(false) };
        }
        #[rl_span(group = DataProcessing, name = "sampler", attributes(own = 1))]
        fn think() {
            lens_runtime::tracer("library").in_span("sampler's raw", |_| set("heard", 1));
        }
        let sampler = |_: &Question<'_>| {
            if !IS_ASKED.replace(true) {
                let _context = Context::current();
                set("from the sampler", 1);
                record_tokens(0_u32, 1_u32);
                think();
                IS_ASKED.set(false);
            }
            answer(SamplingDecision::RecordAndSample)
        };
        let run = Run::begin_as(&["span_groups: all"], &[], by(sampler));
        step(1, 1);
        let left = run.end();
        let of_sampler = |depth: usize| {
            let indent = "  ".repeat(depth);
            format!("{indent}sampler\n{indent}  sampler's raw\n")
        };
        let [zero, one, two, three] = [0, 1, 2, 3].map(of_sampler);
        // A call begins before its sampler is asked, and is current only after that.
        let mut found: Vec<_> = left.spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
        found.sort_unstable();
        let expected = format!("{zero}step\n{one}  prompt\n{two}    generate\n{three}      reward\n");
        let mut lines: Vec<_> = expected.lines().map(str::trim).collect();
        lines.sort_unstable();
        assert_eq!(found, lines);
        assert!(!tree(&left.spans).contains('?'), "{}", tree(&left.spans));
        for (name, parents) in [("prompt", "step"), ("generate", "prompt"), ("reward", "generate")] {
            assert_eq!(named(&left.spans, name)["parentSpanId"], named(&left.spans, parents)["spanId"]);
        }
        // What the sampler says is said of the call around.
        for name in ["step", "prompt", "generate"] {
            assert_eq!(attribute_text(named(&left.spans, name), "from the sampler").unwrap(), "1");
        }
        assert_eq!(attribute(named(&left.spans, "reward"), "from the sampler"), None);
    }

    #[test]
    fn decides_in_each_process_of_a_run_before_the_share_does() {
        // Every other prompt, and of these a share by their keys.
        let sampler = |question: &Question<'_>| {
            let is_odd = question.attributes.iter().any(|pair| {
                pair.key.as_str() == "prompt" && pair.value.to_string().ends_with(['1', '3', '5', '7', '9'])
            });
            answer(if is_odd { SamplingDecision::Drop } else { SamplingDecision::RecordAndSample })
        };
        let keep = |with_sampler: bool| {
            let lines = ["span_groups: all,per_prompt@0.5"];
            let run = match with_sampler {
                true => Run::begin_as(&lines, &[], by(sampler)),
                false => Run::begin(&lines),
            };
            (1..=3).for_each(|number| step(number, 100));
            let left = run.end();
            assert_measured(&left, 3, 100);
            kept(&left.spans, "prompt")
        };
        let of_share = keep(false);
        let expected: BTreeSet<_> = of_share.into_iter().filter(|(_, prompt)| prompt % 2 == 0).collect();
        assert!(!expected.is_empty());
        assert_eq!(keep(true), expected);
    }
}

mod beneath_what_is_left_out {
    use super::*;

    const ALMOST_NOTHING: &str = "span_groups: per_prompt@1e-12,reward";

    #[test]
    fn nothing_is_recorded_within_a_call_whose_group_is_off() {
        for variables in ALL_TRACES {
            let run = Run::begin_as(&[ALMOST_NOTHING], variables, |config| config);
            // `generate`, between the two, is off.
            prompt(1);
            assert_eq!(tree(&run.end().spans), "", "{variables:?}");
        }
    }

    #[test]
    fn nothing_is_recorded_whose_parent_is_named() {
        for variables in ALL_TRACES {
            let run = Run::begin_as(&[ALMOST_NOTHING], variables, |config| config);
            span(&groups::PerPrompt, "prompt").run(|| {
                let parent = Context::current();
                span(&groups::Reward, "reward").parent(&parent).run(|| ());
            });
            assert_eq!(tree(&run.end().spans), "", "{variables:?}");
        }
    }

    #[test]
    fn nothing_is_recorded_by_other_libraries() {
        for variables in ALL_TRACES {
            let run = Run::begin_as(&[ALMOST_NOTHING], variables, |config| config);
            span(&groups::PerPrompt, "prompt").run(|| lens_runtime::tracer("library").in_span("raw", |_| ()));
            assert_eq!(tree(&run.end().spans), "", "{variables:?}");
        }
    }

    #[test]
    fn tokens_are_counted_within_a_span_of_another_library() {
        for (line, variables) in
            [(ALMOST_NOTHING, &[][..]), ("span_groups: per_prompt", &[(SAMPLER, "always_off")])]
        {
            let run = Run::begin_as(&[line], variables, |config| config);
            span(&groups::PerPrompt, "prompt")
                .run(|| lens_runtime::tracer("library").in_span("raw", |_| record_tokens(0_u32, 7_u32)));
            let left = run.end();
            assert_eq!(left.report.phases.get("prompt").unwrap().output_tokens, 7, "{line} {variables:?}");
        }
    }

    #[test]
    fn a_call_is_in_the_report_also_where_no_room_is_left() {
        const CALLS: u64 = 60_000;
        let run = Run::begin(&["span_groups: all@1e-12", "queue_mib: 1"]);
        (0..CALLS).for_each(reward);
        let left = run.end();
        assert_eq!((left.counted("reward"), left.report.health.traces.left_out), (CALLS, CALLS));
        assert_eq!(left.reported("reward"), CALLS);
    }

    #[test]
    fn a_call_is_in_the_same_row_as_one_that_was_kept() {
        let run = Run::begin(&["span_groups: reward@0.5"]);
        for number in 0..100_u32 {
            span(&groups::Reward, "reward")
                .key(number)
                .run(|| Context::current().span().update_name("renamed"));
        }
        let left = run.end();
        assert_eq!(left.counted("reward"), 100);
        assert_eq!(left.reported("reward"), 100, "{}", left.report);
    }
}

mod a_sampler {
    use super::*;

    #[test]
    fn that_panics_ends_no_library_that_makes_a_span() {
        let sampler = |question: &Question<'_>| {
            assert!(question.name != "raw", "a sampler fell over");
            answer(SamplingDecision::RecordAndSample)
        };
        let run = Run::begin_as(&["span_groups: all"], &[], by(sampler));
        let made = std::panic::catch_unwind(|| lens_runtime::tracer("library").in_span("raw", |_| 1));
        let left = run.end();
        assert_eq!(made.ok(), Some(1));
        assert!(left.spans.is_empty());
    }

    #[test]
    fn is_asked_of_what_begins_beneath_a_span_that_was_recorded_only_and_has_ended() {
        let sampler = |question: &Question<'_>| {
            answer(match question.name {
                "looked at" => SamplingDecision::RecordOnly,
                _ => SamplingDecision::RecordAndSample,
            })
        };
        let run = Run::begin_as(&["span_groups: generation,reward"], &[], by(sampler));
        let context = span(&groups::Generation, "looked at").run(|| {
            reward(1);
            Context::current()
        });
        let attached = context.attach();
        reward(2);
        drop(attached);
        assert_eq!(names(&run.end().spans), ["reward", "reward"]);
    }
}
