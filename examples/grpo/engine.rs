//! How are responses generated from the policy?

use std::ops::Range;

use anyhow::{Context, Result};
use candle_core::{Device, Tensor};
use lens_runtime::rl_span;

use crate::model::{Policy, log_softmax};
use crate::random::Random;
use crate::task::{END_TOKEN, Prompt};

/// Generates with the current weights of a policy.
#[derive(Debug)]
pub struct Engine {
    policy: Policy,
    max_response_tokens: usize,
}

/// How the next token is chosen.
#[derive(Debug)]
pub enum Decoding<'r> {
    /// The likeliest one.
    Greedy,
    /// One drawn at random, by the probabilities at this temperature.
    Sample { temperature: f64, random: &'r mut Random },
}

/// What a prompt was answered with.
#[derive(Debug, Clone)]
pub struct Rollout {
    pub prompt: Vec<u32>,
    /// The generated tokens up to and including the end token, or up to the limit without one.
    pub response: Vec<u32>,
}

/// The answers to all prompts, sample by sample, those to the same prompt next to each other.
#[derive(Debug, Clone)]
pub struct Rollouts {
    pub rollouts: Vec<Rollout>,
}

/// Rollouts as tensors, all padded to the length of the longest.
#[derive(Debug)]
pub struct RolloutTensors {
    /// Prompt and response, `[rows, prompt + response]`.
    pub tokens: Tensor,
    /// Only the response, `[rows, response]`.
    pub responses: Tensor,
    /// 1 for a generated token and 0 for padding, `[rows, response]`.
    pub mask: Tensor,
}

impl Engine {
    pub fn new(policy: Policy, max_response_tokens: usize) -> Self {
        Self { policy, max_response_tokens }
    }

    /// Answers every prompt `samples` times. The prompts must be equally long.
    ///
    /// The whole sequence goes through the policy again for every new token. A cache of keys and
    /// values would save work, but not enough at ten tokens to be worth its code here.
    #[rl_span(
        group = Generation,
        name = "rl.engine.generate",
        tokens(input = |out| out.prompt_lengths(), output = |out| out.response_lengths()),
        model = "tiny-transformer",
        provider = "candle",
    )]
    pub fn generate(
        &self,
        prompts: &[Prompt],
        samples: usize,
        mut decoding: Decoding<'_>,
    ) -> Result<Rollouts> {
        let mut rollouts: Vec<Rollout> = prompts
            .iter()
            .flat_map(|prompt| std::iter::repeat_n(prompt, samples))
            .map(|prompt| Rollout {
                prompt: prompt.tokens.clone(),
                response: Vec::with_capacity(self.max_response_tokens),
            })
            .collect();

        let mut unfinished: Vec<usize> = (0..rollouts.len()).collect();
        for _ in 0..self.max_response_tokens {
            if unfinished.is_empty() {
                break;
            }
            // Only the sequences that go on are computed. All of them are equally long.
            let sequences: Vec<Vec<u32>> = unfinished
                .iter()
                .map(|&index| [&rollouts[index].prompt[..], &rollouts[index].response[..]].concat())
                .collect();
            let scores = self.policy.forward(&Tensor::new(sequences, &Device::Cpu)?)?;
            let length = scores.dim(1)?;
            let scores = scores.narrow(1, length - 1, 1)?.squeeze(1)?.detach();
            for (&index, token) in unfinished.iter().zip(decoding.choose(&scores)?) {
                rollouts[index].response.push(token);
            }
            unfinished.retain(|&index| rollouts[index].response.last() != Some(&END_TOKEN));
        }
        Ok(Rollouts { rollouts })
    }
}

impl Decoding<'_> {
    /// Chooses one token for every row of scores `[rows, vocabulary]`.
    fn choose(&mut self, scores: &Tensor) -> Result<Vec<u32>> {
        match self {
            Self::Greedy => Ok(scores.argmax(1)?.to_vec1()?),
            Self::Sample { temperature, random } => {
                let probabilities = log_softmax(&(scores / *temperature)?)?.exp()?;
                let rows: Vec<Vec<f32>> = probabilities.to_vec2()?;
                rows.iter().map(|row| draw(row, random)).collect()
            }
        }
    }
}

/// Draws an index with the given probabilities: the first at which their running sum exceeds a
/// uniform number.
fn draw(probabilities: &[f32], random: &mut Random) -> Result<u32> {
    let threshold = random.uniform();
    let mut sum = 0.0;
    let index = probabilities.iter().position(|probability| {
        sum += probability;
        sum > threshold
    });
    // The sum may end a rounding error below 1, and the threshold above it.
    Ok(u32::try_from(index.unwrap_or(probabilities.len() - 1))?)
}

impl Rollouts {
    /// The number of prompt tokens of every request.
    pub fn prompt_lengths(&self) -> impl Iterator<Item = u64> {
        self.rollouts.iter().map(|rollout| rollout.prompt.len() as u64)
    }

    /// The number of generated tokens of every request, with the end token.
    pub fn response_lengths(&self) -> impl Iterator<Item = u64> {
        self.rollouts.iter().map(|rollout| rollout.response.len() as u64)
    }

    /// The rollouts in `range`, as tensors.
    pub fn tensors(&self, range: Range<usize>) -> Result<RolloutTensors> {
        let rollouts = self.rollouts.get(range).context("no such rollouts")?;
        let longest = rollouts.iter().map(|rollout| rollout.response.len()).max();
        let longest = longest.context("no rollouts")?;
        let mut tokens = Vec::with_capacity(rollouts.len());
        let mut responses = Vec::with_capacity(rollouts.len());
        let mut mask = Vec::with_capacity(rollouts.len());
        for Rollout { prompt, response } in rollouts {
            let mut padded = response.clone();
            padded.resize(longest, END_TOKEN);
            tokens.push([&prompt[..], &padded[..]].concat());
            responses.push(padded);
            let mut row = vec![1_f32; response.len()];
            row.resize(longest, 0.0);
            mask.push(row);
        }
        Ok(RolloutTensors {
            tokens: Tensor::new(tokens, &Device::Cpu)?,
            responses: Tensor::new(responses, &Device::Cpu)?,
            mask: Tensor::new(mask, &Device::Cpu)?,
        })
    }
}
