//! Which words select which span groups?

use lens_runtime::testing::Capture;
use lens_runtime::{Bucket, SpanGroup, rl_span};
use proptest::prelude::*;

/// One call for each built-in group, in the order of this list.
macro_rules! one_call_each {
    ($($group:ident = $name:literal,)+) => {
        fn call_each() {
            $(
                #[rl_span(group = $group, name = $name)]
                #[expect(non_snake_case, reason = "named after the group")]
                fn $group() {}
                $group();
            )+
        }

        const NAMES: &[&str] = &[$($name),+];
    };
}

one_call_each! {
    Job = "job",
    Step = "step",
    Setup = "setup",
    ModelInit = "model_init",
    Evaluate = "evaluate",
    Rollout = "rollout",
    PerPrompt = "per_prompt",
    Generation = "generation",
    Reward = "reward",
    PolicyUpdate = "policy_update",
    Logprob = "logprob",
    Advantage = "advantage",
    DataProcessing = "data_processing",
    DataPlane = "data_plane",
    Checkpoint = "checkpoint",
    Efficiency = "efficiency",
}

fn selected(span_groups: &str) -> Vec<String> {
    let capture = Capture::new(span_groups);
    capture.run(call_each);
    capture.spans().iter().map(|span| span.name().to_owned()).collect()
}

fn check(span_groups: &str, expected: &[&str]) {
    assert_eq!(selected(span_groups), expected, "{span_groups}");
}

#[test]
fn default_is_what_happens_once_or_rarely() {
    check("default", &["job", "setup", "model_init", "evaluate", "checkpoint"]);
}

#[test]
fn per_step_is_everything_whose_cost_does_not_grow_with_the_prompts() {
    let expected: Vec<_> = NAMES.iter().copied().filter(|name| *name != "per_prompt").collect();
    check("per_step", &expected);
}

#[test]
fn all_is_everything() {
    check("all", NAMES);
}

#[test]
fn presets_and_groups_are_united_in_any_case_and_spacing() {
    check("Generation", &["generation"]);
    check(" reward ,LOGPROB", &["reward", "logprob"]);
    check("default,per_prompt", &["job", "setup", "model_init", "evaluate", "per_prompt", "checkpoint"]);
}

#[test]
fn a_minus_takes_away_and_the_last_word_that_names_a_group_decides_about_it() {
    let but = |without: &str| -> Vec<_> { NAMES.iter().copied().filter(|name| *name != without).collect() };
    check("all,-per_prompt", &but("per_prompt"));
    check("ALL, - Per_Prompt ", &but("per_prompt"));
    check("all,-per_step", &["per_prompt"]);
    check("default,-setup,-job,job", &["job", "model_init", "evaluate", "checkpoint"]);
    check("reward,-all,generation", &["generation"]);
    check("generation,-generation", &[]);
}

#[test]
fn a_group_of_which_a_share_is_kept_is_on() {
    check("all@1", NAMES);
    check("reward@1.0,generation@1", &["generation", "reward"]);
    check("default@0.1,-default", &[]);
    check("reward,-reward,reward @ 1", &["reward"]);
}

/// What a text selects, said in another way: each word is asked for each group.
fn model(words: &[(usize, usize)]) -> Vec<&'static str> {
    let decides = |name: &str, word: &str| match word {
        "all" => true,
        "per_step" => name != "per_prompt",
        "default" => ["job", "setup", "model_init", "evaluate", "checkpoint"].contains(&name),
        word => word == name,
    };
    let is_on = |name: &&&str| {
        let last = words.iter().rev().find(|(word, _)| decides(name, WORDS[*word]));
        last.is_some_and(|(_, form)| FORMS[*form] != "-")
    };
    NAMES.iter().filter(is_on).copied().collect()
}

const WORDS: &[&str] =
    &["all", "per_step", "default", "job", "per_prompt", "generation", "reward", "checkpoint", "efficiency"];
const FORMS: &[&str] = &["", "-", "@1"];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn words_are_read_from_left_to_right(
        mut words in prop::collection::vec((0..WORDS.len(), 0..FORMS.len()), 1..6),
    ) {
        // The first word cannot take away.
        words[0].1 = 0;
        let text: Vec<_> = words
            .iter()
            .map(|(word, form)| match FORMS[*form] {
                "-" => format!("-{}", WORDS[*word]),
                behind => format!("{}{behind}", WORDS[*word]),
            })
            .collect();
        prop_assert_eq!(selected(&text.join(",")), model(&words));
    }
}

#[test]
fn a_group_of_the_users_own_joins_by_its_first_use() {
    static TOOLS: SpanGroup = SpanGroup::leaf("groups_tools", Bucket::Productive);
    #[rl_span(group = TOOLS, name = "tool")]
    fn tool() {}

    tool();
    let capture = Capture::new("groups_tools");
    capture.run(|| {
        tool();
        call_each();
    });
    assert_eq!(capture.tree(), "tool (ok)\n");
}

#[test]
fn a_group_that_is_first_used_later_follows_the_selection() {
    static LATE: SpanGroup = SpanGroup::umbrella("groups_late");
    #[rl_span(group = LATE, name = "late")]
    fn late() {}

    let capture = Capture::new("all");
    capture.run(late);
    assert_eq!(capture.tree(), "late (ok)\n");
}

#[test]
fn a_group_that_is_first_used_later_follows_a_minus_behind_all() {
    static LATE: SpanGroup = SpanGroup::umbrella("groups_later");
    #[rl_span(group = LATE, name = "late")]
    fn late() {}

    let capture = Capture::new("all,-all,reward");
    capture.run(late);
    assert_eq!(capture.tree(), "");
}

#[test]
#[should_panic(expected = "unknown span group \"rolout\"")]
fn an_unknown_group_is_told() {
    let _capture = Capture::new("rolout");
}
