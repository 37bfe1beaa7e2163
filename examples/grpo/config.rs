//! What can be set for a run, and where do the values come from?

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::task::Task;

/// One run, as the YAML file describes it. Unknown names are refused, so that a typing mistake does
/// not silently leave a default in force.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub seed: u64,
    pub task: Task,
    /// The step at which training ends, counted from the first run also after a resume.
    pub steps: u64,
    pub model: ModelConfig,
    pub rollout: RolloutConfig,
    pub grpo: GrpoConfig,
    pub optimizer: OptimizerConfig,
    pub evaluate_every: u64,
    pub checkpoint_every: u64,
    pub checkpoint_dir: PathBuf,
    /// The same file configures the instrumentation, which reads this block by itself.
    #[serde(default, rename = "telemetry")]
    _telemetry: IgnoredAny,
}

/// The shape of the policy.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
}

/// How much experience a step collects.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutConfig {
    pub prompts_per_step: usize,
    /// The size of a group, within which rewards are compared.
    pub samples_per_prompt: usize,
    pub max_response_tokens: usize,
    pub temperature: f64,
}

/// The objective.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpoConfig {
    /// The probability ratio is clipped to `1 - clip_low ..= 1 + clip_high`.
    pub clip_low: f64,
    pub clip_high: f64,
    pub kl_coefficient: f64,
    pub entropy_coefficient: f64,
    /// Into how many parts a step's rollouts are cut, with one optimiser update for each.
    pub mini_batches: usize,
}

/// `AdamW` and its learning rate.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerConfig {
    pub learning_rate: f64,
    pub warmup_steps: u64,
    pub beta1: f64,
    pub beta2: f64,
    pub weight_decay: f64,
    /// Longer gradients are scaled down to this length.
    pub max_gradient_norm: f64,
}

impl Config {
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        let config: Self = serde_saphyr::from_str(&text)
            .with_context(|| format!("cannot understand the configuration {}", path.display()))?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.model.heads > 0 && self.model.width.is_multiple_of(self.model.heads),
            "model.width must be a multiple of model.heads"
        );
        ensure!(
            self.rollout.samples_per_prompt >= 2,
            "rollout.samples_per_prompt must be at least 2: a single sample has nothing to be compared with"
        );
        ensure!(
            self.grpo.mini_batches > 0
                && self.rollout.prompts_per_step.is_multiple_of(self.grpo.mini_batches),
            "rollout.prompts_per_step must be a multiple of grpo.mini_batches"
        );
        ensure!(
            self.evaluate_every > 0 && self.checkpoint_every > 0,
            "evaluate_every and checkpoint_every must be at least 1"
        );
        Ok(())
    }
}
