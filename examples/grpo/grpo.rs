//! What happens in one step of GRPO, phase by phase?

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::{D, DType, Device, Tensor};
use lens_runtime::{record_step, rl_span, scalars, semconv};

use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::engine::{Decoding, Engine, RolloutTensors, Rollouts};
use crate::model::{Policy, log_softmax};
use crate::optimizer::AdamW;
use crate::random::Random;
use crate::task::{Dataset, Prompt, Tokenizer, reward};

/// Everything that training changes, and everything it needs.
#[derive(Debug)]
pub struct Trainer {
    config: Config,
    tokenizer: Tokenizer,
    dataset: Dataset,
    policy: Policy,
    /// The policy as it was at the start, from which the KL term keeps it from straying.
    reference: Policy,
    engine: Engine,
    optimizer: AdamW,
    random: Random,
}

/// The log-probabilities of the sampled tokens before the step's updates, each `[rows, response]`.
#[derive(Debug)]
pub struct LogProbs {
    /// Under the policy that sampled them: the base of the probability ratio.
    pub old: Tensor,
    /// Under the reference policy.
    pub reference: Tensor,
}

/// What the updates of one step did, as means over its mini-batches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Update {
    /// The clipped surrogate, without the KL and entropy terms.
    pub policy_loss: f64,
    pub kl_divergence: f64,
    pub entropy: f64,
    /// Before clipping.
    pub grad_norm: f64,
    pub learning_rate: f64,
}

/// What came of one step.
#[derive(Debug)]
pub struct StepOutcome {
    pub stats: StepStats,
    /// The held-out accuracy, where it was due.
    pub accuracy: Option<f64>,
    /// The checkpoint, where it was due.
    pub checkpoint: Option<PathBuf>,
}

/// What one step tells about itself.
#[derive(Debug, Clone, Copy)]
pub struct StepStats {
    pub step: u64,
    pub reward_mean: f64,
    pub response_length_mean: f64,
    pub prompt_tokens: u64,
    pub response_tokens: u64,
    pub update: Update,
}

impl Trainer {
    pub fn new(
        config: Config,
        tokenizer: Tokenizer,
        dataset: Dataset,
        policy: Policy,
        random: Random,
    ) -> Result<Self> {
        Ok(Self {
            reference: policy.frozen_copy()?,
            engine: Engine::new(policy.clone(), config.rollout.max_response_tokens),
            optimizer: AdamW::new(config.optimizer, policy.parameters())?,
            config,
            tokenizer,
            dataset,
            policy,
            random,
        })
    }

    /// How many problems are held out.
    pub fn held_out(&self) -> usize {
        self.dataset.held_out.len()
    }

    /// Makes step number `step`, counted from 1, with an evaluation and a checkpoint where one is due.
    #[rl_span(group = Step, name = "rl.grpo.step", step = step)]
    pub fn step(&mut self, step: u64) -> Result<StepOutcome> {
        let stats = self.train(step)?;
        stats.record();
        let last = step == self.config.steps;
        let accuracy = (last || step.is_multiple_of(self.config.evaluate_every))
            .then(|| self.evaluate(step))
            .transpose()?;
        let checkpoint = (last || step.is_multiple_of(self.config.checkpoint_every))
            .then(|| self.checkpointing(step))
            .transpose()?;
        Ok(StepOutcome { stats, accuracy, checkpoint })
    }

    /// The phases of a step, one after the other.
    fn train(&mut self, step: u64) -> Result<StepStats> {
        let prompts = self.data_processing()?;
        let rollouts = self.generation(&prompts)?;
        let rewards = self.reward_calculation(&prompts, &rollouts);
        let log_probs = self.policy_and_reference_logprobs(&rollouts)?;
        let advantages = self.advantage_calculation(&rewards);
        let update = self.policy_training(step, &rollouts, &log_probs, &advantages)?;

        let response_tokens = rollouts.response_lengths().sum();
        Ok(StepStats {
            step,
            reward_mean: mean(&rewards),
            response_length_mean: response_tokens as f64 / rewards.len() as f64,
            prompt_tokens: rollouts.prompt_lengths().sum(),
            response_tokens,
            update,
        })
    }

    /// Draws distinct problems from the training set, and turns them into tokens.
    #[rl_span(group = DataProcessing, name = "rl.grpo.data_processing")]
    fn data_processing(&mut self) -> Result<Vec<Prompt>> {
        let mut order: Vec<usize> = (0..self.dataset.train.len()).collect();
        let count = self.config.rollout.prompts_per_step.min(order.len());
        // The first steps of a Fisher-Yates shuffle are enough for a sample without repetition.
        for index in 0..count {
            let other = index + self.random.below(order.len() - index);
            order.swap(index, other);
        }
        order[..count]
            .iter()
            .map(|&index| self.tokenizer.encode_problem(&self.dataset.train[index]))
            .collect()
    }

    /// Samples a group of responses to every prompt.
    #[rl_span(
        group = Rollout,
        name = "rl.grpo.generation",
        attributes(semconv::NUM_GENERATIONS_PER_PROMPT = self.config.rollout.samples_per_prompt),
    )]
    fn generation(&mut self, prompts: &[Prompt]) -> Result<Rollouts> {
        let rollout = self.config.rollout;
        let decoding = Decoding::Sample { temperature: rollout.temperature, random: &mut self.random };
        self.engine.generate(prompts, rollout.samples_per_prompt, decoding)
    }

    /// Verifies every response against the answer to its prompt.
    #[rl_span(group = Reward, name = "rl.grpo.reward_calculation")]
    fn reward_calculation(&self, prompts: &[Prompt], rollouts: &Rollouts) -> Vec<f64> {
        let groups = rollouts.rollouts.chunks(self.config.rollout.samples_per_prompt);
        prompts
            .iter()
            .zip(groups)
            .flat_map(|(prompt, group)| group.iter().map(|rollout| reward(prompt, &rollout.response)))
            .collect()
    }

    /// Scores the sampled tokens under the policy and under the reference.
    ///
    /// The old log-probabilities come from the same forward pass as those in training, and not from
    /// the sampler. So the ratio of the first update is 1, whatever the engine rounds or caches in a
    /// way of its own.
    #[rl_span(group = Logprob, name = "rl.grpo.policy_and_reference_logprobs")]
    fn policy_and_reference_logprobs(&self, rollouts: &Rollouts) -> Result<LogProbs> {
        let batch = rollouts.tensors(0..rollouts.rollouts.len())?;
        let score = |policy: &Policy| -> Result<Tensor> {
            let distribution = self.response_distribution(policy, &batch)?;
            Ok(sampled(&distribution, &batch)?.detach())
        };
        Ok(LogProbs { old: score(&self.policy)?, reference: score(&self.reference)? })
    }

    /// Compares every reward with the others of its group: the group's mean is the baseline that
    /// other methods learn a value function for, and its deviation sets the scale.
    #[rl_span(group = Advantage, name = "rl.grpo.advantage_calculation")]
    fn advantage_calculation(&self, rewards: &[f64]) -> Vec<f64> {
        rewards
            .chunks(self.config.rollout.samples_per_prompt)
            .flat_map(|group| {
                let mean = mean(group);
                let variance =
                    group.iter().map(|reward| (reward - mean).powi(2)).sum::<f64>() / group.len() as f64;
                // The small constant leaves a group of equal rewards with advantages of zero.
                group.iter().map(move |reward| (reward - mean) / (variance.sqrt() + 1e-4))
            })
            .collect()
    }

    /// Updates the policy once for every mini-batch of whole groups.
    #[rl_span(
        group = PolicyUpdate,
        name = "rl.grpo.policy_training",
        attributes(mini_batches = self.config.grpo.mini_batches),
    )]
    fn policy_training(
        &mut self,
        step: u64,
        rollouts: &Rollouts,
        log_probs: &LogProbs,
        advantages: &[f64],
    ) -> Result<Update> {
        let learning_rate = self.learning_rate(step);
        let rows = rollouts.rollouts.len();
        let parts = self.config.grpo.mini_batches;
        let mut total = Update { learning_rate, ..Update::default() };
        for part in 0..parts {
            let range = part * rows / parts..(part + 1) * rows / parts;
            let update = self.mini_batch_update(learning_rate, range, rollouts, log_probs, advantages)?;
            total.policy_loss += update.policy_loss / parts as f64;
            total.kl_divergence += update.kl_divergence / parts as f64;
            total.entropy += update.entropy / parts as f64;
            total.grad_norm += update.grad_norm / parts as f64;
        }
        Ok(total)
    }

    fn mini_batch_update(
        &mut self,
        learning_rate: f64,
        range: Range<usize>,
        rollouts: &Rollouts,
        log_probs: &LogProbs,
        advantages: &[f64],
    ) -> Result<Update> {
        let grpo = self.config.grpo;
        let batch = rollouts.tensors(range.clone())?;
        let (rows, length) = batch.mask.dims2()?;
        let rows_of =
            |tensor: &Tensor| tensor.narrow(0, range.start, rows)?.narrow(1, 0, length)?.contiguous();
        let old = rows_of(&log_probs.old)?;
        let reference = rows_of(&log_probs.reference)?;
        // Every token of a response shares the advantage of the whole response.
        let advantages = Tensor::from_slice(&advantages[range], (rows, 1), &Device::Cpu)?
            .to_dtype(DType::F32)?
            .broadcast_as((rows, length))?;

        let distribution = self.response_distribution(&self.policy, &batch)?;
        let log_prob = sampled(&distribution, &batch)?;

        // The clipped surrogate: the smaller of the two products never rewards moving a token's
        // probability further than the clipping range, but always punishes it.
        let ratio = (&log_prob - old)?.exp()?;
        let clipped = ratio.clamp(1.0 - grpo.clip_low, 1.0 + grpo.clip_high)?;
        let surrogate = (&ratio * &advantages)?.minimum(&(clipped * &advantages)?)?;
        let policy_loss = token_mean(&surrogate, &batch)?.neg()?;

        // The k3 estimator of KL(policy || reference): unbiased, never negative, and less noisy than
        // the plain log-ratio.
        let log_ratio = (reference - &log_prob)?;
        let kl = token_mean(&((log_ratio.exp()? - &log_ratio)? - 1.0)?, &batch)?;

        // The entropy of the whole distribution, not only of the sampled tokens.
        let entropy = (distribution.exp()? * &distribution)?.sum(D::Minus1)?.neg()?;
        let entropy = token_mean(&entropy, &batch)?;

        let loss = ((&policy_loss + (&kl * grpo.kl_coefficient)?)? - (&entropy * grpo.entropy_coefficient)?)?;
        let grad_norm = self.optimizer.update(&loss.backward()?, learning_rate)?;
        Ok(Update {
            policy_loss: scalar(&policy_loss)?,
            kl_divergence: scalar(&kl)?,
            entropy: scalar(&entropy)?,
            grad_norm,
            learning_rate,
        })
    }

    /// A linear warm-up, then constant.
    fn learning_rate(&self, step: u64) -> f64 {
        let optimizer = self.config.optimizer;
        let warmup = step as f64 / optimizer.warmup_steps.max(1) as f64;
        optimizer.learning_rate * warmup.min(1.0)
    }

    /// The log-probabilities of all tokens at every place of the responses,
    /// `[rows, response, vocabulary]`, at the temperature that the engine samples with.
    fn response_distribution(&self, policy: &Policy, batch: &RolloutTensors) -> Result<Tensor> {
        let length = batch.tokens.dim(1)?;
        let response = batch.responses.dim(1)?;
        // The scores at a position are for the token after it: the last token needs none, and the
        // first token of the response is scored at the last position of the prompt.
        let scores = policy.forward(&batch.tokens.narrow(1, 0, length - 1)?.contiguous()?)?.narrow(
            1,
            length - 1 - response,
            response,
        )?;
        log_softmax(&(scores / self.config.rollout.temperature)?)
    }

    /// The share of held-out problems that greedy decoding answers exactly after `step`.
    #[rl_span(
        group = Evaluate,
        name = "rl.grpo.evaluate",
        attributes(semconv::STEP = step, accuracy = |accuracy| *accuracy),
    )]
    pub fn evaluate(&self, step: u64) -> Result<f64> {
        let problems = self.dataset.held_out.iter();
        let prompts: Vec<Prompt> =
            problems.map(|problem| self.tokenizer.encode_problem(problem)).collect::<Result<_>>()?;
        let rollouts = self.engine.generate(&prompts, 1, Decoding::Greedy)?;
        let answers = prompts.iter().zip(&rollouts.rollouts);
        let right = answers.filter(|(prompt, rollout)| prompt.answer == rollout.response);
        Ok(right.count() as f64 / prompts.len() as f64)
    }

    /// Writes all that is needed to continue after `step`, and returns where.
    #[rl_span(group = Checkpoint, name = "rl.grpo.checkpointing", attributes(semconv::STEP = step))]
    pub fn checkpointing(&self, step: u64) -> Result<PathBuf> {
        let path = self.config.checkpoint_dir.join(format!("step-{step:06}.safetensors"));
        Checkpoint::new(step, &self.random, &self.policy, &self.reference, &self.optimizer)?.write(&path)?;
        Ok(path)
    }

    /// Continues from a checkpoint, and returns the step after which it was written.
    pub fn resume(&mut self, path: &Path) -> Result<u64> {
        let checkpoint = Checkpoint::read(path)?;
        self.policy.set_weights(&checkpoint.policy_weights())?;
        self.reference.set_weights(&checkpoint.reference_weights())?;
        let (moments, updates) = checkpoint.optimizer_state()?;
        self.optimizer.restore(&moments, updates)?;
        self.random = checkpoint.random()?;
        checkpoint.step()
    }
}

impl StepStats {
    /// Reports the step's scalars, once.
    fn record(&self) {
        record_step(
            self.step,
            &[
                (scalars::REWARD_MEAN, self.reward_mean),
                (scalars::KL_DIVERGENCE, self.update.kl_divergence),
                (scalars::POLICY_LOSS, self.update.policy_loss),
                (scalars::ENTROPY, self.update.entropy),
                (scalars::RESPONSE_LENGTH_MEAN, self.response_length_mean),
                (scalars::GRAD_NORM, self.update.grad_norm),
                (scalars::LEARNING_RATE, self.update.learning_rate),
            ],
        );
    }
}

/// The log-probabilities of the tokens that were sampled, `[rows, response]`.
fn sampled(distribution: &Tensor, batch: &RolloutTensors) -> Result<Tensor> {
    let index = batch.responses.unsqueeze(2)?;
    Ok(distribution.gather(&index, 2)?.squeeze(2)?)
}

/// The mean over all generated tokens of a batch: every token weighs the same, in a long response
/// as in a short one.
fn token_mean(values: &Tensor, batch: &RolloutTensors) -> Result<Tensor> {
    Ok(((values * &batch.mask)?.sum_all()? / scalar(&batch.mask.sum_all()?)?)?)
}

fn scalar(tensor: &Tensor) -> Result<f64> {
    Ok(f64::from(tensor.to_scalar::<f32>()?))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl fmt::Display for StepStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step {}: reward {:.3}, kl {:.3}, loss {:.4}, entropy {:.3}, response length {:.2}, \
             gradient norm {:.2}, learning rate {:.1e}, {} + {} tokens",
            self.step,
            self.reward_mean,
            self.update.kl_divergence,
            self.update.policy_loss,
            self.update.entropy,
            self.response_length_mean,
            self.update.grad_norm,
            self.update.learning_rate,
            self.prompt_tokens,
            self.response_tokens,
        )
    }
}
