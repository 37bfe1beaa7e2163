//! How does one train a small transformer with GRPO, from the command line to the checkpoint?

#![expect(unreachable_pub, reason = "a program's modules mark what other modules use by a plain `pub`")]

mod checkpoint;
mod config;
mod engine;
mod grpo;
mod model;
mod optimizer;
mod random;
mod task;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use lens_runtime::{Overrides, Telemetry, TelemetryConfig, rl_span};

use crate::config::Config;
use crate::grpo::{StepOutcome, StepStats, Trainer};
use crate::model::Policy;
use crate::random::Random;
use crate::task::{DIGITS, Dataset, Tokenizer};

/// Trains a small transformer with GRPO on a task with a verifiable reward.
#[derive(Debug, Parser)]
#[command(name = "grpo")]
struct Args {
    /// The run's configuration; the default is found from the workspace root.
    #[arg(long, value_name = "FILE", default_value = "examples/configs/grpo.yaml")]
    config: PathBuf,
    /// Overrides the configuration's seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Overrides the step at which training ends.
    #[arg(long)]
    steps: Option<u64>,
    /// Continues the run that wrote this checkpoint.
    #[arg(long, value_name = "CHECKPOINT")]
    resume: Option<PathBuf>,
    /// Overrides where checkpoints go.
    #[arg(long, value_name = "DIR")]
    checkpoint_dir: Option<PathBuf>,
    /// Only evaluates this checkpoint.
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "resume")]
    evaluate: Option<PathBuf>,
    /// Writes the mean reward and the tokens of every step, as one JSON object a line.
    #[arg(long, value_name = "FILE")]
    rewards: Option<PathBuf>,
}

fn main() -> Result<()> {
    // Overrides of the telemetry may stand anywhere; clap sees what is left.
    let mut arguments: Vec<String> = std::env::args().collect();
    let overrides = Overrides::take_from(&mut arguments)?;
    let args = Args::parse_from(arguments);
    let telemetry = TelemetryConfig::from_file(&args.config)?.with_overrides(&overrides)?;
    let mut config = Config::read(&args.config)?;
    config.seed = args.seed.unwrap_or(config.seed);
    config.steps = args.steps.unwrap_or(config.steps);
    config.checkpoint_dir = args.checkpoint_dir.clone().unwrap_or(config.checkpoint_dir);
    if let Some(checkpoint) = &args.evaluate {
        return evaluate(&config, checkpoint);
    }

    let telemetry = Telemetry::init_driver(telemetry)?;
    if let Some(effective) = telemetry.config() {
        eprintln!("{effective}");
    }
    let outcome = run(&config, args.resume.as_deref(), args.rewards.as_deref());
    println!("\n{}", telemetry.shutdown(Duration::from_secs(5)));
    outcome
}

/// Trains, and tells how much that helped.
fn run(config: &Config, resume: Option<&Path>, rewards: Option<&Path>) -> Result<()> {
    let mut trainer = setup(config)?;
    let done = match resume {
        Some(checkpoint) => trainer.resume(checkpoint)?,
        None => 0,
    };
    let held_out = trainer.held_out();
    let (before, after) = train(&mut trainer, config, done, rewards)?;
    println!("before training: greedy accuracy on {held_out} held-out prompts: {before:.3}");
    println!("after training: greedy accuracy on {held_out} held-out prompts: {after:.3}");
    Ok(())
}

/// Tells how good a checkpoint is.
fn evaluate(config: &Config, checkpoint: &Path) -> Result<()> {
    let mut trainer = setup(config)?;
    let step = trainer.resume(checkpoint)?;
    let accuracy = trainer.evaluate(step)?;
    println!("greedy accuracy on {} held-out prompts: {accuracy:.3}", trainer.held_out());
    Ok(())
}

/// Makes all steps after `done`; returns the accuracy before and after them.
#[rl_span(group = Job, name = "rl.grpo.job")]
fn train(trainer: &mut Trainer, config: &Config, done: u64, rewards: Option<&Path>) -> Result<(f64, f64)> {
    let mut rewards = rewards.map(RewardLog::create).transpose()?;
    let before = trainer.evaluate(done)?;
    let mut accuracy = before;
    let bar = progress_bar(done, config.steps)?;
    for step in done + 1..=config.steps {
        let StepOutcome { stats, accuracy: evaluated, checkpoint } = trainer.step(step)?;
        if let Some(rewards) = &mut rewards {
            rewards.write(&stats)?;
        }
        if let Some(evaluated) = evaluated {
            accuracy = evaluated;
            bar.suspend(|| eprintln!("{stats}, held-out accuracy {accuracy:.3}"));
        }
        if let Some(path) = checkpoint {
            bar.suspend(|| eprintln!("step {step}: wrote {}", path.display()));
        }
        bar.set_message(format!("reward {:.3}, held-out accuracy {accuracy:.3}", stats.reward_mean));
        bar.set_position(step);
    }
    bar.finish_and_clear();
    Ok((before, accuracy))
}

/// A bar on the standard error stream. It hides itself where that is not a terminal.
fn progress_bar(done: u64, steps: u64) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("step {pos}/{len} {wide_bar} {msg} [{elapsed}]")?;
    Ok(ProgressBar::new(steps).with_position(done).with_style(style))
}

/// What every step earned and used, with all digits, for comparing runs.
struct RewardLog(File);

impl RewardLog {
    fn create(path: &Path) -> Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write the rewards to {}", path.display()))?;
        Ok(Self(file))
    }

    fn write(&mut self, stats: &StepStats) -> Result<()> {
        let StepStats { step, reward_mean, prompt_tokens, response_tokens, .. } = stats;
        writeln!(
            self.0,
            r#"{{"step":{step},"reward":{reward_mean},"prompt_tokens":{prompt_tokens},"response_tokens":{response_tokens}}}"#
        )?;
        Ok(())
    }
}

/// Everything that has to be there before the first step.
#[rl_span(group = Setup, name = "rl.startup")]
fn setup(config: &Config) -> Result<Trainer> {
    let mut random = Random::new(config.seed);
    let tokenizer = setup_tokenizer();
    let dataset = setup_data(config);
    let policy = setup_policy(config, &tokenizer, &mut random)?;
    Trainer::new(config.clone(), tokenizer, dataset, policy, random)
}

#[rl_span(group = Setup, name = "rl.setup.tokenizer")]
fn setup_tokenizer() -> Tokenizer {
    Tokenizer::new()
}

#[rl_span(group = Setup, name = "rl.setup.data")]
fn setup_data(config: &Config) -> Dataset {
    Dataset::new(config.task)
}

#[rl_span(group = ModelInit, name = "rl.policy.load_model", attributes(rl.backend = "candle"))]
fn setup_policy(config: &Config, tokenizer: &Tokenizer, random: &mut Random) -> Result<Policy> {
    // The longest sequence is a question, its equals sign and the longest response.
    let context = DIGITS + 1 + config.rollout.max_response_tokens;
    Policy::new(config.model, tokenizer.vocabulary_size(), context, random)
}
