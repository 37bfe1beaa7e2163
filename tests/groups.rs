//! Which words select which span groups?

use lens_runtime::testing::Capture;
use lens_runtime::{Bucket, SpanGroup, rl_span};

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
#[should_panic(expected = "unknown span group \"rolout\"")]
fn an_unknown_group_is_told() {
    let _capture = Capture::new("rolout");
}
