//! Which numbers do calls and steps leave behind?
//!
//! A test whose name begins with `fault` is about a fault that users of other libraries met.

use std::time::{Duration, Instant, SystemTime};

use lens_runtime::opentelemetry::logs::AnyValue;
use lens_runtime::testing::{Capture, Point};
use lens_runtime::{Phase, Scalar, groups, record_step, rl_span, scalars, semconv, span};

#[rl_span(
    group = Generation,
    name = "rl.engine.generate",
    tokens(input = prompts.iter().copied(), output = |out| out.iter()),
    model = "tiny",
    provider = "vllm",
)]
fn generate(
    prompts: &[u64],
    answers: Result<Vec<u64>, std::fmt::Error>,
) -> Result<Vec<u64>, std::fmt::Error> {
    answers
}

#[rl_span(group = Reward, name = "rl.grpo.reward_calculation")]
fn reward() {}

fn attributes(point: &Point) -> Vec<(&str, &str)> {
    point.attributes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[test]
fn every_call_records_its_duration_by_phase_group_and_outcome() {
    let capture = Capture::new("job");
    capture.run(|| {
        reward();
        reward();
        generate(&[1], Err(std::fmt::Error)).unwrap_err();
    });
    let mut points = capture.points(semconv::PHASE_DURATION);
    points.sort_by_key(|point| point.count);
    assert_eq!(
        attributes(&points[0]),
        [("rl.group", "generation"), ("rl.outcome", "error"), ("rl.phase", "rl.engine.generate")]
    );
    assert_eq!(
        attributes(&points[1]),
        [("rl.group", "reward"), ("rl.outcome", "ok"), ("rl.phase", "rl.grpo.reward_calculation")]
    );
    assert_eq!(points[1].count, 2);
    assert_eq!(points.len(), 2);
}

#[test]
fn an_iterable_of_token_counts_is_one_request_each() {
    let capture = Capture::new("job");
    capture.run(|| generate(&[3, 4, 5], Ok(vec![10, 20, 30]))).unwrap();
    let points = capture.points(semconv::GEN_AI_CLIENT_TOKEN_USAGE);
    let of_type = |kind: &str| {
        let mut of_type = points.iter().filter(|point| point.attributes[semconv::GEN_AI_TOKEN_TYPE] == kind);
        let point = of_type.next().unwrap();
        assert!(of_type.next().is_none());
        (point.count, point.sum)
    };
    assert_eq!(of_type("input"), (3, 12.0));
    assert_eq!(of_type("output"), (3, 60.0));
    for point in &points {
        assert_eq!(point.attributes[semconv::GEN_AI_OPERATION_NAME], "text_completion");
        assert_eq!(point.attributes[semconv::GEN_AI_PROVIDER_NAME], "vllm");
        assert_eq!(point.attributes[semconv::GEN_AI_REQUEST_MODEL], "tiny");
    }
}

#[test]
fn a_single_number_is_one_request() {
    #[rl_span(group = Generation, name = "one", tokens(input = 5_u32, output = |n| n))]
    fn one() -> usize {
        7
    }
    let capture = Capture::new("all");
    capture.run(one);
    let counts: Vec<_> = capture
        .points(semconv::GEN_AI_CLIENT_TOKEN_USAGE)
        .into_iter()
        .map(|point| (point.count, point.sum))
        .collect();
    assert_eq!(counts.len(), 2);
    assert!(counts.contains(&(1, 5.0)) && counts.contains(&(1, 7.0)));
}

#[test]
fn the_duration_of_an_operation_tells_its_error() {
    let capture = Capture::new("job");
    capture.run(|| generate(&[1], Err(std::fmt::Error))).unwrap_err();
    let points = capture.points(semconv::GEN_AI_CLIENT_OPERATION_DURATION);
    assert_eq!(points[0].attributes[semconv::ERROR_TYPE], "core::fmt::Error");
    assert_eq!(points[0].count, 1);
}

#[test]
fn an_operation_alone_makes_a_call_to_a_model() {
    #[rl_span(group = Generation, name = "embed", operation = "embeddings")]
    fn embed() {}
    let capture = Capture::new("all");
    capture.run(embed);
    let points = capture.points(semconv::GEN_AI_CLIENT_OPERATION_DURATION);
    assert_eq!(points[0].attributes[semconv::GEN_AI_OPERATION_NAME], "embeddings");
    assert!(capture.points(semconv::GEN_AI_CLIENT_TOKEN_USAGE).is_empty());
}

#[test]
fn what_is_no_call_to_a_model_has_no_gen_ai_metrics() {
    let capture = Capture::new("all");
    capture.run(reward);
    assert!(capture.points(semconv::GEN_AI_CLIENT_OPERATION_DURATION).is_empty());
    assert!(capture.points(semconv::GEN_AI_CLIENT_TOKEN_USAGE).is_empty());
}

#[test]
fn fault_106_a_span_attribute_never_becomes_a_metric_attribute() {
    #[rl_span(group = PerPrompt, name = "request", attributes(request.id = id), tokens(input = 1_u32))]
    fn request(id: u64) {}
    let capture = Capture::new("all");
    capture.run(|| (0..3000).for_each(request));
    assert_eq!(capture.points(semconv::PHASE_DURATION).len(), 1);
    assert_eq!(capture.points(semconv::GEN_AI_CLIENT_TOKEN_USAGE)[0].count, 3000);
}

#[test]
fn the_scalars_of_every_step_are_kept_exactly_with_its_number() {
    let capture = Capture::new("job");
    capture.run(|| {
        for step in 1..=3_u32 {
            record_step(step.into(), &[(scalars::REWARD_MEAN, f64::from(step) / 3.0)]);
        }
    });
    let events = capture.events();
    assert_eq!(events.len(), 3);
    for (event, step) in events.iter().zip(1_u32..) {
        assert_eq!(event.name, semconv::STEP_METRICS_EVENT);
        assert_eq!(event.attributes[semconv::ITERATION], AnyValue::Int(step.into()));
        assert_eq!(event.attributes["rl.reward.mean"], AnyValue::Double(f64::from(step) / 3.0));
    }
    assert_eq!(capture.gauge("rl.reward.mean"), Some(1.0));
}

#[test]
fn the_scalars_of_a_step_lie_in_its_span() {
    #[rl_span(group = Step, name = "step", step = n)]
    fn step(n: u64) {
        record_step(n, &[(scalars::POLICY_LOSS, 0.5)]);
    }
    let capture = Capture::new("per_step");
    capture.run(|| step(1));
    assert_eq!(capture.events()[0].span_id, Some(capture.span("step").id()));
}

#[test]
fn a_value_that_is_not_finite_is_told_and_not_hidden_behind_the_last_finite_one() {
    let capture = Capture::new("job");
    capture.run(|| record_step(1, &[(scalars::KL_DIVERGENCE, f64::NAN), (scalars::ENTROPY, 2.0)]));
    let events = capture.events();
    assert_eq!(events[0].severity, "WARN");
    assert!(matches!(events[0].attributes["rl.kl.divergence"], AnyValue::Double(value) if value.is_nan()));
    assert_eq!(capture.gauge("rl.kl.divergence"), None);
    assert_eq!(capture.gauge("rl.entropy"), Some(2.0));
}

#[test]
fn instruments_taken_outside_of_a_test_record_into_the_test_that_measures() {
    let meter = lens_runtime::meter("library");
    let requests = meter.u64_counter("library.requests").build();
    requests.add(1, &[]);
    let [one, other] = [Capture::new("job"), Capture::new("job")];
    one.run(|| requests.add(10, &[]));
    other.run(|| requests.add(100, &[]));
    one.run(|| {
        requests.add(1000, &[]);
        let observed = meter.i64_observable_gauge("library.phase");
        observed.with_callback(|phase| phase.observe(-1, &[])).build();
    });
    assert_eq!(one.gauge("library.requests"), Some(1010.0));
    assert_eq!(other.gauge("library.requests"), Some(100.0));
    assert_eq!(one.gauge("library.phase"), Some(-1.0));
    assert_eq!(other.gauge("library.phase"), None);
}

/// open-telemetry/opentelemetry-rust#2185
#[test]
fn fault_107_an_instrument_that_is_taken_for_each_measurement_is_one_instrument() {
    let capture = Capture::new("job");
    capture.run(|| {
        for description in ["as one says", "as the other says"].repeat(1000) {
            let meter = lens_runtime::meter("taken each time");
            meter.u64_counter("taken.each.time").with_description(description).build().add(1, &[]);
        }
    });
    assert_eq!(capture.gauge("taken.each.time"), Some(2000.0));
}

/// open-telemetry/opentelemetry-rust#2185
#[test]
fn fault_107_what_is_called_the_same_is_one_instrument() {
    #[rl_span(group = Reward, name = "rl.grpo.reward_calculation")]
    fn reward_elsewhere() {}
    const HERE: Scalar = Scalar::new("rl.clip.fraction", "1", "Share of clipped tokens");
    const ELSEWHERE: Scalar = Scalar::new("rl.clip.fraction", "1", "Clipped tokens");
    let capture = Capture::new("job");
    capture.run(|| {
        for step in 0..1000 {
            reward();
            reward_elsewhere();
            record_step(step, &[(HERE, 1.0), (ELSEWHERE, 2.0)]);
            record_step(step, &[(HERE, 3.0)]);
        }
    });
    // Where there are two instruments, the second stands in the place of the first.
    let points = capture.points(semconv::PHASE_DURATION);
    assert_eq!((points.len(), points[0].count), (1, 2000));
    assert_eq!(capture.gauge("rl.clip.fraction"), Some(3.0));
}

/// open-telemetry/opentelemetry-rust#3656
#[test]
fn fault_108_what_is_no_number_spoils_no_sum() {
    #[rl_span(group = Generation, name = "count", tokens(input = input, output = output.iter()))]
    fn count(input: usize, output: &[u64]) {}
    let capture = Capture::new("all");
    capture.run(|| {
        count(3_usize.wrapping_sub(5), &[7, u64::MAX, 1]);
        count(0, &[u64::MAX, u64::MAX]);
        record_step(1, &[(scalars::ENTROPY, f64::INFINITY), (scalars::POLICY_LOSS, -2.0)]);
    });
    let mut counted: Vec<_> = capture
        .points(semconv::GEN_AI_CLIENT_TOKEN_USAGE)
        .into_iter()
        .map(|point| (point.attributes[semconv::GEN_AI_TOKEN_TYPE].clone(), point.count, point.sum))
        .collect();
    counted.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(counted, [("input".to_owned(), 1, 0.0), ("output".to_owned(), 2, 8.0)]);
    let first = &capture.spans()[0];
    assert_eq!(first.attribute(semconv::GEN_AI_USAGE_INPUT_TOKENS), None);
    assert_eq!(first.attribute(semconv::GEN_AI_USAGE_OUTPUT_TOKENS).unwrap().to_string(), "8");
    assert_eq!((capture.gauge("rl.entropy"), capture.gauge("rl.policy.loss")), (None, Some(-2.0)));
    // A rate over no time is none.
    let at_once = Phase { calls: 1, output_tokens: 8, ..Phase::default() };
    assert_eq!(at_once.tokens_per_second(), None);
}

/// restatedev/restate#633, openobserve/openobserve#14367
#[test]
fn fault_110_durations_are_those_of_the_steady_clock() {
    let capture = Capture::new("per_step");
    let began = Instant::now();
    let within = capture.run(|| {
        span(&groups::Reward, "work").run(|| {
            let began = Instant::now();
            reward();
            began.elapsed()
        })
    });
    let around = began.elapsed();
    let duration = capture.span("work").duration();
    assert!(within <= duration && duration <= around, "{within:?} {duration:?} {around:?}");
    let seconds_of = |phase: &str| {
        let points = capture.points(semconv::PHASE_DURATION);
        points.iter().find(|point| point.attributes[semconv::PHASE] == phase).unwrap().sum
    };
    assert_eq!(seconds_of("work").to_bits(), duration.as_secs_f64().to_bits());
    // Of another program's interval both ends are by the wall clock, which may have been set between them.
    let now = SystemTime::now();
    capture.run(|| span(&groups::Reward, "set_back").interval(now, now - Duration::from_secs(3600)));
    assert_eq!(capture.span("set_back").duration(), Duration::ZERO);
    assert_eq!(seconds_of("set_back").to_bits(), 0.0_f64.to_bits());
}
