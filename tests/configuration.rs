//! What does a configuration mean, and what is said of one that means nothing?
//!
//! Nothing here reads the real environment, and nothing switches telemetry on: a configuration is
//! checked in full even if it is off.

use lens_runtime::{Environment, ExporterKind, Overrides, Telemetry, TelemetryConfig};

/// A run configuration with other things in it, as trainers have them.
const RUN: &str = "\
defaults: [base, _self_]
grpo:
  num_prompts_per_step: 32
policy: {model_name: tiny, 1: one, \"yes\": no}
telemetry:
  enabled: true
  span_groups: Per_Step
  metrics_enabled: true
  logs_enabled: false
  vllm_native_tracing: false
";

fn overrides(arguments: &[&str]) -> (Overrides, Vec<String>) {
    let mut arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let overrides = Overrides::take_from(&mut arguments).unwrap();
    (overrides, arguments)
}

/// The error of a configuration that is checked as a driver does, without switching it on.
fn error(yaml: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let checked = Overrides::take_from(&mut arguments)
        .and_then(|overrides| TelemetryConfig::from_yaml(yaml, "run.yaml")?.with_overrides(&overrides))
        .and_then(|config| {
            let variables = Environment::of_pairs(variables.iter().copied());
            Telemetry::init_driver_in(config.with_enabled(false), &variables)
        });
    match checked {
        Ok(_) => panic!("expected an error of {yaml:?} {arguments:?} {variables:?}"),
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn the_block_is_found_in_a_larger_file() {
    let config = TelemetryConfig::from_yaml(RUN, "run.yaml").unwrap();
    assert!(config.is_enabled());
    assert_eq!(
        config.to_string(),
        "\
telemetry:
  enabled: true               # run.yaml:6:12
  service_name: \"rl-trainer\"  # default
  span_groups: \"Per_Step\"     # run.yaml:7:16
  steps: \"all\"                # default
  traces_enabled: true        # default
  metrics_enabled: true       # run.yaml:8:20
  logs_enabled: false         # run.yaml:9:17
  exporter: \"otlp\"            # default
  directory: \"runs\"           # default
  file_mib: 256               # default
  queue_mib: 128              # default
  announce_after_s: 60        # default
  vllm_native_tracing: false  # run.yaml:10:24
"
    );
}

#[test]
fn the_block_that_users_of_nemo_rl_know_is_accepted() {
    let yaml = "\
telemetry:
  enabled: true
  span_groups: default        # start coarse; raise to per_step / all as needed
  metrics_enabled: true
  logs_enabled: true
  vllm_native_tracing: false  # gRPC by default, one span per request; leave off outside debugging
";
    let config = TelemetryConfig::from_yaml(yaml, "run.yaml").unwrap();
    assert!(config.is_enabled());
    assert!(
        Telemetry::init_driver_in(config.with_enabled(false), &Environment::of_pairs([("", "")])).is_ok()
    );
}

#[test]
fn the_effective_configuration_can_be_read_back() {
    let config = TelemetryConfig::from_yaml(RUN, "run.yaml")
        .unwrap()
        .with_steps("1,5,10-20,100-")
        .with_service_name("a \"quoted\" name: # with all that YAML knows")
        .with_exporter(ExporterKind::Console);
    let values = |config: &TelemetryConfig| -> Vec<String> {
        let text = config.to_string();
        text.lines().filter_map(|line| line.rsplit_once("  # ")).map(|(value, _)| value.to_owned()).collect()
    };
    let again = TelemetryConfig::from_yaml(&config.to_string(), "effective.yaml").unwrap();
    assert_eq!(values(&again), values(&config));
}

#[test]
fn a_file_without_a_block_or_with_an_empty_one_has_telemetry_off() {
    for yaml in ["", "policy: {}\n", "telemetry:\n", "telemetry: {}\n", "# nothing\n", "just text"] {
        assert!(!TelemetryConfig::from_yaml(yaml, "run.yaml").unwrap().is_enabled(), "{yaml:?}");
    }
}

#[test]
fn overrides_are_taken_out_of_the_arguments_and_the_rest_stays_in_order() {
    let (overrides, rest) = overrides(&[
        "grpo",
        "++telemetry.enabled=true",
        "--seed",
        "3",
        "+telemetry.exporter=console",
        "telemetry.span_groups=default,generation",
        "telemetry.json",
        "trainer.telemetry.enabled=true",
        "--",
        "++telemetry.enabled=false",
    ]);
    assert_eq!(
        rest,
        [
            "grpo",
            "--seed",
            "3",
            "telemetry.json",
            "trainer.telemetry.enabled=true",
            "--",
            "++telemetry.enabled=false"
        ]
    );
    let config = TelemetryConfig::from_yaml(RUN, "run.yaml").unwrap().with_overrides(&overrides).unwrap();
    let text = config.to_string();
    assert!(text.contains("# override ++telemetry.enabled=true"), "{text}");
    assert!(text.contains("span_groups: \"default,generation\""), "{text}");
    assert_eq!(config.exporter(), ExporterKind::Console);
}

#[test]
fn the_last_override_of_a_key_wins_and_quotes_make_a_string() {
    let (overrides, _) = overrides(&[
        "telemetry.service_name=a",
        "++telemetry.service_name='true'",
        "telemetry.directory=/x y",
    ]);
    let config = TelemetryConfig::default().with_overrides(&overrides).unwrap();
    let text = config.to_string();
    assert!(text.contains("service_name: \"true\""), "{text}");
    assert!(text.contains("directory: \"/x y\""), "{text}");
}

#[test]
fn errors_name_the_thing_the_value_its_origin_and_what_was_expected() {
    let block = |entry: &str| format!("policy: {{}}\ntelemetry:\n  {entry}\n");
    let expect = |entry: &str, expected: &str| {
        assert_eq!(error(&block(entry), &[], &[]), expected);
    };
    expect(
        "span_group: all",
        "run.yaml:3:3: unknown key telemetry.span_group; did you mean \"span_groups\"?; expected one of enabled, \
         service_name, span_groups, steps, traces_enabled, metrics_enabled, logs_enabled, exporter, directory, \
         file_mib, queue_mib, announce_after_s, vllm_native_tracing",
    );
    expect(
        "span_groups: default, rolout",
        "run.yaml:3:16: unknown span group \"rolout\" in telemetry.span_groups; did you mean \"rollout\"?; expected \
         presets and groups out of default, per_step, all, advantage, checkpoint, data_plane, data_processing, \
         efficiency, evaluate, generation, job, logprob, model_init, per_prompt, policy_update, reward, rollout, \
         setup, step",
    );
    expect(
        "exporter: consle",
        "run.yaml:3:13: unknown exporter \"consle\" in telemetry.exporter; did you mean \"console\"?; expected otlp, \
         console or file",
    );
    expect(
        "enabled: \"yes\"",
        "run.yaml:3:12: telemetry.enabled: expected true or false, got the string \"yes\"",
    );
    expect("enabled: 1", "run.yaml:3:12: telemetry.enabled: expected true or false, got the number 1");
    expect("enabled:", "run.yaml:3:10: telemetry.enabled: expected true or false, got nothing");
    expect(
        "span_groups: [job, step]",
        "run.yaml:3:16: telemetry.span_groups: expected presets and groups, such as per_step, as a string, got a list",
    );
    expect(
        "service_name: 5",
        "run.yaml:3:17: telemetry.service_name: expected a name, as a string, got the number 5",
    );
    for (entry, got) in [
        ("queue_mib: 0", "the number 0"),
        ("queue_mib: -1", "the number -1"),
        ("queue_mib: 64MiB", "the string \"64MiB\""),
        ("queue_mib: 1.5", "the number 1.5"),
    ] {
        let expected = "run.yaml:3:14: telemetry.queue_mib: expected MiB of memory, 1 to 65536, got ";
        expect(entry, &format!("{expected}{got}"));
    }
    expect(
        "vllm_native_tracing: true",
        "run.yaml:3:24: telemetry.vllm_native_tracing is true, but this version starts no engines; expected false",
    );
    expect(
        "export_strategy: all_ranks",
        "run.yaml:3:3: telemetry.export_strategy was retired: every process that enables telemetry exports. Remove the \
         key, and thin out processes behind the exporter",
    );
}

#[test]
fn a_word_of_span_groups_that_means_nothing_is_told() {
    let expect = |text: &str, expected: &str| {
        let found = error(&format!("telemetry:\n  span_groups: {text:?}\n"), &[], &[]);
        let list = "; expected presets and groups out of default, per_step, all, advantage, checkpoint, data_plane, \
                    data_processing, efficiency, evaluate, generation, job, logprob, model_init, per_prompt, \
                    policy_update, reward, rollout, setup, step";
        let found = found.strip_prefix("run.yaml:2:16: ").unwrap_or(&found).replace(list, "; expected …");
        assert_eq!(found, expected, "{text}");
    };
    let unknown = |name: &str, within: &str, hint: &str| {
        format!("unknown span group {name:?}{within} in telemetry.span_groups{hint}; expected …")
    };
    expect("all,-rolout", &unknown("rolout", " of \"-rolout\"", "; did you mean \"rollout\"?"));
    expect("Rolout@0.1", &unknown("rolout", " of \"rolout@0.1\"", "; did you mean \"rollout\"?"));
    expect("all@0.5,x@2", &unknown("x", " of \"x@2\"", ""));
    expect("default,,job", &unknown("", "", ""));
    expect("all,-", &unknown("", " of \"-\"", ""));
    expect("@0.5", &unknown("", " of \"@0.5\"", ""));
    expect("all,--job", &unknown("-job", " of \"--job\"", "; did you mean \"job\"?"));
    expect("generation@1,5", &unknown("5", "", ""));
    // What is no share never counts as a share of 1.
    for (ratio, got) in [
        ("", "nothing"),
        ("x", "\"x\""),
        ("nan", "\"nan\""),
        ("inf", "\"inf\""),
        ("1.5", "\"1.5\""),
        ("1.0000001", "\"1.0000001\""),
        ("10", "\"10\""),
        ("1/10", "\"1/10\""),
        ("0.1@0.1", "\"0.1@0.1\""),
        ("50%", "\"50%\"; 50% is 0.5"),
        ("0.5 %", "\"0.5 %\"; 0.5 % is 0.005"),
        ("500%", "\"500%\""),
        ("0", "\"0\"; \"-generation\" switches it off"),
        ("-0.1", "\"-0.1\"; \"-generation\" switches it off"),
        ("1e-400", "\"1e-400\"; \"-generation\" switches it off"),
        ("0,1", "\"0\"; with a point it is generation@0.1"),
        ("0,job", "\"0\"; \"-generation\" switches it off"),
    ] {
        let word = format!("generation@{}", ratio.split(',').next().unwrap());
        expect(
            &format!("job,generation@{ratio}"),
            &format!(
                "span group {word:?} in telemetry.span_groups: expected a share of more than 0 and at most 1, such as \
                 generation@0.1, got {got}"
            ),
        );
    }
    expect(
        "all,-per_step@0.5",
        "span group \"-per_step@0.5\" in telemetry.span_groups: expected \"-per_step\", which switches it off, or \
         \"per_step@0.5\", which keeps a share of it",
    );
    expect(
        "-per_prompt",
        "span group \"-per_prompt\" in telemetry.span_groups: expected words in front of it to take it away from, such \
         as \"all,-per_prompt\"",
    );
    assert_eq!(
        error("telemetry: {span_groups: ''}", &[], &[]),
        "run.yaml:1:26: telemetry.span_groups: expected presets and groups, such as per_step, as a string, got the \
         string \"\""
    );
}

#[test]
fn steps_may_be_a_number_a_list_or_words() {
    for text in ["all", "5", "0-", "1,5,10-20,100-", "every 10", "EVERY  10", "slowest 3 of 100", "'5'"] {
        let config = TelemetryConfig::from_yaml(&format!("telemetry: {{steps: {text:?}}}"), "run.yaml");
        let config = config.and_then(|config| {
            let (overrides, _) = overrides(&[&format!("++telemetry.steps={text}")]);
            config.with_overrides(&overrides)
        });
        let config = config.unwrap().with_enabled(false);
        let shown = format!("steps: {:?}", text.trim_matches('\''));
        assert!(config.to_string().contains(&shown), "{config}");
        assert!(Telemetry::init_driver_in(config, &Environment::of_pairs([("", "")])).is_ok(), "{text}");
    }
    assert!(
        TelemetryConfig::from_yaml("telemetry:\n  steps: 5\n", "")
            .unwrap()
            .to_string()
            .contains("steps: \"5\"")
    );
}

#[test]
fn steps_that_mean_nothing_are_told() {
    let expect = |text: &str, expected: &str| {
        assert_eq!(
            error(&format!("telemetry:\n  steps: {text}\n"), &[], &[]),
            format!("run.yaml:2:10: telemetry.steps: {expected}")
        );
    };
    let any = "expected all, steps and ranges such as \"1,5,10-20,100-\", \"every 10\" or \"slowest 3 of 100\", got";
    expect("evry 10", &format!("{any} \"evry 10\"; did you mean \"every\"?"));
    expect("all,1", &format!("{any} \"all,1\""));
    expect("some", &format!("{any} \"some\""));
    let every = "expected a whole number of at least 1 behind \"every\", such as \"every 10\", got";
    expect("every", &format!("{every} nothing"));
    expect("every 0", &format!("{every} \"0\""));
    expect("every 1.5", &format!("{every} \"1.5\""));
    expect("every 10 steps", &format!("{every} \"10 steps\""));
    expect("every 99999999999999999999", &format!("{every} \"99999999999999999999\""));
    let list = "expected a step or a range, such as 5, 10-20 or 100-, got";
    expect("1,x", &format!("{list} \"x\""));
    expect("1,,2", &format!("{list} nothing"));
    expect("20-10", &format!("{list} \"20-10\", which ends before it begins"));
    expect("'-5'", &format!("{list} \"-5\"; all up to 5 are 0-5"));
    expect("-5", &format!("{list} \"-5\"; all up to 5 are 0-5"));
    expect("'+5'", &format!("{list} \"+5\""));
    expect("1-2-3", &format!("{list} \"1-2-3\""));
    expect("10%", &format!("{list} \"10%\""));
    let slowest = "expected two whole numbers behind \"slowest\", the first at least 1 and less than the second, such as \
                   \"slowest 3 of 100\", got";
    expect("slowest", &format!("{slowest} nothing"));
    expect("slowest 3", &format!("{slowest} \"3\""));
    expect("slowest 0 of 100", &format!("{slowest} \"0 of 100\""));
    expect("slowest 100 of 100", &format!("{slowest} \"100 of 100\""));
    expect("slowest 3 in 100", &format!("{slowest} \"3 in 100\""));
    expect("slowest 1 of 4294967296", &format!("{slowest} \"1 of 4294967296\""));
    expect("[1, 5]", "expected steps, such as \"every 10\", as a string, got a list");
    expect("1.5", "expected steps, such as \"every 10\", as a string, got the number 1.5");
    assert_eq!(
        error("", &["++telemetry.steps=every 0"], &[]),
        format!("override ++telemetry.steps=every 0: telemetry.steps: {every} \"0\"")
    );
}

/// The error of variables that matter only while telemetry is on.
fn error_while_on(variables: &[(&str, &str)]) -> String {
    let config = TelemetryConfig::default().with_enabled(true);
    match Telemetry::init_driver_in(config, &Environment::of_pairs(variables.iter().copied())) {
        Ok(_) => panic!("expected an error of {variables:?}"),
        Err(error) => error.to_string(),
    }
}

/// open-telemetry/opentelemetry-rust#730, #3283
#[test]
fn fault_98_a_sampler_that_means_nothing_is_told() {
    const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
    const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
    let known = "; expected one of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, \
                 parentbased_traceidratio";
    for (name, problem) in [
        (
            "parentbased_traceidrato",
            "unknown sampler \"parentbased_traceidrato\"; did you mean \"parentbased_traceidratio\"?",
        ),
        ("on", "unknown sampler \"on\""),
        ("jaeger_remote", "sampler \"jaeger_remote\" is not supported"),
        ("parentbased_jaeger_remote", "sampler \"parentbased_jaeger_remote\" is not supported"),
        ("XRay", "sampler \"XRay\" is not supported"),
    ] {
        assert_eq!(
            error_while_on(&[(SAMPLER, name), (ARGUMENT, "0.1")]),
            format!("variable OTEL_TRACES_SAMPLER: {problem}{known}")
        );
    }
    assert_eq!(
        error_while_on(&[(SAMPLER, " TraceIdRatio ")]),
        "variable OTEL_TRACES_SAMPLER: traceidratio needs a ratio: expected OTEL_TRACES_SAMPLER_ARG=0.1 or the like \
         beside it, which is not set"
    );
    for (text, hint) in [
        ("0,1", ""),
        ("10%", "; 10% is 0.1"),
        ("nan", ""),
        ("inf", ""),
        ("-0.1", ""),
        ("1.01", ""),
        ("half", ""),
    ] {
        assert_eq!(
            error_while_on(&[(SAMPLER, "parentbased_traceidratio"), (ARGUMENT, text)]),
            format!(
                "variable OTEL_TRACES_SAMPLER_ARG: expected a ratio from 0 to 1, such as 0.1, got {text:?}{hint}"
            )
        );
    }
    assert_eq!(
        error_while_on(&[(SAMPLER, "Always_On"), (ARGUMENT, "0.1")]),
        "variable OTEL_TRACES_SAMPLER_ARG: expected nothing, because OTEL_TRACES_SAMPLER=always_on takes no argument, \
         got \"0.1\""
    );
    assert_eq!(
        error_while_on(&[(ARGUMENT, "0.1")]),
        "variable OTEL_TRACES_SAMPLER_ARG: expected OTEL_TRACES_SAMPLER beside it, such as parentbased_traceidratio, \
         got \"0.1\" alone"
    );
}

#[test]
fn a_limit_that_is_no_number_is_told() {
    for name in [
        "OTEL_ATTRIBUTE_COUNT_LIMIT",
        "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
        "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
        "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
        "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
        "OTEL_SPAN_EVENT_COUNT_LIMIT",
        "OTEL_SPAN_LINK_COUNT_LIMIT",
    ] {
        for value in ["-1", "+1", "many", "1.5", "4294967296"] {
            assert_eq!(
                error_while_on(&[(name, value)]),
                format!("variable {name}: expected a whole number, 0 to 4294967295, got {value:?}")
            );
        }
    }
}

#[test]
fn variables_for_spans_do_not_end_a_run_that_makes_none() {
    let variables =
        Environment::of_pairs([("OTEL_TRACES_SAMPLER", "xray"), ("OTEL_SPAN_LINK_COUNT_LIMIT", "x")]);
    let off = TelemetryConfig::default().with_enabled(false);
    assert!(Telemetry::init_driver_in(off, &variables).is_ok());
}

#[test]
fn a_broken_file_is_told_with_its_line() {
    assert_eq!(
        error("policy: {}\ntelemetry:\n  enabled: [true\nother: 1\n", &[], &[]),
        "run.yaml:4:6: not valid YAML: illegal placement of ':' indicator"
    );
    assert_eq!(
        error("telemetry: true\n", &[], &[]),
        "run.yaml:1:12: telemetry: expected a mapping, such as `telemetry: {enabled: true}`"
    );
    assert_eq!(
        error("telemetry:\n  enabled: true\n  enabled: false\n", &[], &[]),
        "run.yaml:3:3: not valid YAML: duplicated key in mapping"
    );
}

#[test]
fn a_block_that_is_nearly_called_telemetry_is_not_passed_over() {
    assert_eq!(
        error("telemtry:\n  enabled: true\n", &[], &[]),
        "run.yaml:1:1: unknown block \"telemtry\"; did you mean \"telemetry\"?"
    );
}

#[test]
fn a_broken_override_is_told_whole() {
    let expect = |argument: &str, expected: &str| assert_eq!(error("", &[argument], &[]), expected);
    expect(
        "++telemetry.exportr=file",
        "override ++telemetry.exportr=file: unknown key telemetry.exportr; did you mean \"exporter\"?; expected one of \
         enabled, service_name, span_groups, steps, traces_enabled, metrics_enabled, logs_enabled, exporter, directory, \
         file_mib, queue_mib, announce_after_s, vllm_native_tracing",
    );
    for argument in ["++telemetry.enabled", "+++telemetry.enabled=true", "++telemetry={enabled: true}"] {
        let expected = "expected ++telemetry.<key>=<value>, such as ++telemetry.enabled=true";
        expect(argument, &format!("override {argument}: {expected}"));
    }
    expect("~telemetry.enabled", "override ~telemetry.enabled: values cannot be removed; set another one");
    expect(
        "telemetry.enabled=",
        "override telemetry.enabled=: telemetry.enabled: expected true or false, got nothing",
    );
}

#[test]
fn a_broken_variable_is_told_by_its_name() {
    assert_eq!(
        error("", &[], &[("OTEL_METRIC_EXPORT_INTERVAL", "5s")]),
        "variable OTEL_METRIC_EXPORT_INTERVAL: expected a positive number of milliseconds, got \"5s\""
    );
    assert_eq!(
        error("", &[], &[("OTEL_RESOURCE_ATTRIBUTES", "a=1,b")]),
        "variable OTEL_RESOURCE_ATTRIBUTES: expected key=value, got \"b\""
    );
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let error = TelemetryConfig::from_file("no/such/run.yaml").unwrap_err();
    assert!(error.is_configuration());
    assert_eq!(error.to_string(), "read the run configuration no/such/run.yaml");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn what_may_be_secret_is_shown_nowhere() {
    let config = TelemetryConfig::default()
        .with_endpoint("https://me:s3cret@collector/?key=s3cret")
        .with_header("authorization", "Bearer s3cret");
    let variables = Environment::of_pairs([("OTEL_EXPORTER_OTLP_HEADERS", "x-key=s3cret")]);
    let shown = format!("{config} {config:?} {variables:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert_eq!(format!("{variables:?}"), "Environment of [\"OTEL_EXPORTER_OTLP_HEADERS\"]");
    let error = Telemetry::init_driver_in(config.with_enabled(true), &variables).err().unwrap();
    let shown = format!("{error} {error:?}");
    assert!(shown.starts_with("set in code: expected a URL without user and password"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}
