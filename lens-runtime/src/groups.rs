//! Which span groups and presets come with Lens?
//!
//! The names, presets and buckets are those of NeMo-RL. A group is a plain `static`; a library
//! declares its own in the same way, see [`SpanGroup`].
//!
//! ```
//! use lens_runtime::{Bucket, groups};
//!
//! assert_eq!(groups::PolicyUpdate.name(), "policy_update");
//! assert_eq!(groups::PolicyUpdate.bucket(), Some(Bucket::Productive));
//! ```

use crate::group::{Bucket, SpanGroup};

/// Declares the built-in groups and the list of them all.
macro_rules! groups {
    ($($(#[doc = $doc:literal])+ $group:ident = $make:expr;)+) => {
        $(
            $(#[doc = $doc])+
            #[expect(non_upper_case_globals, reason = "a group reads as a name in an annotation")]
            pub static $group: SpanGroup = $make;
        )+

        /// Every built-in group.
        pub(crate) static BUILT_IN: &[&SpanGroup] = &[$(&$group),+];
    };
}

groups! {
    /// A whole run, `rl.<algo>.job`.
    Job = SpanGroup::umbrella("job");
    /// One training step, `rl.<algo>.step`. Give its number with `step = n`.
    Step = SpanGroup::umbrella("step");
    /// What happens before the first step, `rl.setup.*`.
    Setup = SpanGroup::umbrella("setup");
    /// Loading of weights, `rl.policy.load_model` and the like.
    ModelInit = SpanGroup::umbrella("model_init");
    /// A validation pass, `rl.<algo>.evaluate`. Leaf spans beneath it count as overhead, whatever
    /// their group says: the tokens of a validation are thrown away.
    Evaluate = SpanGroup::umbrella("evaluate").with_scope(Bucket::Overhead);
    /// The rollout phase of a step, `rl.<algo>.generation`.
    Rollout = SpanGroup::umbrella("rollout");
    /// Spans whose number grows with the prompts, not with the steps. In no preset but `all`.
    PerPrompt = SpanGroup::umbrella("per_prompt");
    /// A call to an engine, `rl.vllm.generate`.
    Generation = SpanGroup::leaf("generation", Bucket::Productive);
    /// Computation of rewards, `rl.<algo>.reward_calculation`.
    Reward = SpanGroup::leaf("reward", Bucket::Productive);
    /// Updates of the policy or the critic, `rl.<algo>.policy_training`.
    PolicyUpdate = SpanGroup::leaf("policy_update", Bucket::Productive);
    /// Log-probabilities, `rl.<algo>.policy_and_reference_logprobs`.
    Logprob = SpanGroup::leaf("logprob", Bucket::Overhead);
    /// Advantages, `rl.<algo>.advantage_calculation`.
    Advantage = SpanGroup::leaf("advantage", Bucket::Overhead);
    /// Reading and batching of prompts, `rl.<algo>.data_processing`.
    DataProcessing = SpanGroup::leaf("data_processing", Bucket::Overhead);
    /// Transfers between processes, `rl.data_plane.*`, in batches.
    DataPlane = SpanGroup::leaf("data_plane", Bucket::Overhead);
    /// Writing of checkpoints, `rl.<algo>.checkpointing`.
    Checkpoint = SpanGroup::leaf("checkpoint", Bucket::Overhead);
    /// Waits, `rl.idle.*`.
    Efficiency = SpanGroup::leaf("efficiency", Bucket::Idle);
}

/// The preset that selects every group of the process, those of other libraries included.
pub(crate) const ALL: &str = "all";

/// The other presets, each with its groups.
pub(crate) const PRESETS: &[(&str, &[&str])] = &[
    ("default", &["job", "checkpoint", "evaluate", "setup", "model_init"]),
    (
        "per_step",
        &[
            "job",
            "step",
            "checkpoint",
            "evaluate",
            "setup",
            "model_init",
            "rollout",
            "generation",
            "logprob",
            "reward",
            "advantage",
            "policy_update",
            "data_processing",
            "data_plane",
            "efficiency",
        ],
    ),
];
