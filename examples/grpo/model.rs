//! What is the policy, and how does it turn tokens into scores for the next one?

use std::collections::HashMap;

use anyhow::{Context, Result};
use candle_core::{D, Device, Tensor, Var};

use crate::config::ModelConfig;
use crate::random::Random;

/// A decoder-only transformer: learned positions, RMS norms before every block, no biases.
///
/// A clone shares the weights with its original, and sees every later update of them.
#[derive(Debug, Clone)]
pub struct Policy {
    config: ModelConfig,
    /// All weights by name, in a fixed order.
    parameters: Vec<(String, Var)>,
    token_embedding: Tensor,
    position_embedding: Tensor,
    layers: Vec<Layer>,
    final_norm: Tensor,
    head: Tensor,
}

#[derive(Debug, Clone)]
struct Layer {
    attention_norm: Tensor,
    query_key_value: Tensor,
    projection: Tensor,
    mlp_norm: Tensor,
    up: Tensor,
    down: Tensor,
}

/// How a weight begins.
#[derive(Debug, Clone, Copy)]
enum Init {
    Ones,
    Normal(f32),
}

impl Policy {
    /// Draws fresh weights.
    pub fn new(config: ModelConfig, vocabulary: usize, context: usize, random: &mut Random) -> Result<Self> {
        let width = config.width;
        let mut parameters = Vec::new();
        let mut parameter = |name: String, shape: &[usize], init: Init| -> Result<Tensor> {
            let count = shape.iter().product();
            let values: Vec<f32> = match init {
                Init::Ones => vec![1.0; count],
                Init::Normal(deviation) => (0..count).map(|_| random.normal() * deviation).collect(),
            };
            let var = Var::from_vec(values, shape, &Device::Cpu)?;
            let tensor = var.as_tensor().clone();
            parameters.push((name, var));
            Ok(tensor)
        };

        // Inputs of about unit size keep their size through a matrix of this deviation. The two
        // matrices that write to the residual stream start smaller, the more layers there are.
        let inner = Init::Normal((width as f32).powf(-0.5));
        let residual = (2.0 * config.layers as f32).powf(-0.5);

        let token_embedding = parameter("token_embedding".into(), &[vocabulary, width], Init::Normal(0.5))?;
        let position_embedding =
            parameter("position_embedding".into(), &[context, width], Init::Normal(0.5))?;
        let mut layers = Vec::with_capacity(config.layers);
        for index in 0..config.layers {
            let mut parameter = |name: &str, shape: &[usize], init: Init| {
                parameter(format!("layer{index}.{name}"), shape, init)
            };
            layers.push(Layer {
                attention_norm: parameter("attention_norm", &[width], Init::Ones)?,
                query_key_value: parameter("query_key_value", &[width, 3 * width], inner)?,
                projection: parameter(
                    "projection",
                    &[width, width],
                    Init::Normal(residual * (width as f32).powf(-0.5)),
                )?,
                mlp_norm: parameter("mlp_norm", &[width], Init::Ones)?,
                up: parameter("up", &[width, 4 * width], inner)?,
                down: parameter(
                    "down",
                    &[4 * width, width],
                    Init::Normal(residual * (4.0 * width as f32).powf(-0.5)),
                )?,
            });
        }
        let final_norm = parameter("final_norm".into(), &[width], Init::Ones)?;
        // A small head makes all tokens nearly equally likely at first, so exploration starts wide.
        let head = parameter("head".into(), &[width, vocabulary], Init::Normal(0.02))?;

        Ok(Self { config, parameters, token_embedding, position_embedding, layers, final_norm, head })
    }

    pub fn parameters(&self) -> &[(String, Var)] {
        &self.parameters
    }

    /// The weights as they are now, cut off from the variables that training changes.
    pub fn named_weights(&self) -> impl Iterator<Item = (String, Tensor)> {
        self.parameters.iter().map(|(name, var)| (name.clone(), var.as_detached_tensor()))
    }

    /// Takes over the weights that `named_weights` gave, here or in an earlier run.
    pub fn set_weights(&self, weights: &HashMap<String, Tensor>) -> Result<()> {
        for (name, var) in &self.parameters {
            let weight = weights.get(name);
            let weight = weight.with_context(|| format!("the weight {name} is missing"))?;
            var.set(weight).with_context(|| format!("the weight {name} does not fit"))?;
        }
        Ok(())
    }

    /// A policy with the same weights that stays as it is while this one is trained.
    pub fn frozen_copy(&self) -> Result<Self> {
        let (vocabulary, _) = self.token_embedding.dims2()?;
        let (context, _) = self.position_embedding.dims2()?;
        // The weights drawn here are replaced at once.
        let copy = Self::new(self.config, vocabulary, context, &mut Random::new(0))?;
        copy.set_weights(&self.named_weights().collect())?;
        Ok(copy)
    }

    /// From tokens `[rows, length]` to scores `[rows, length, vocabulary]`. The scores at a position
    /// are for the token after it, and depend on no later token.
    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let (rows, length) = tokens.dims2()?;
        let width = self.config.width;
        let positions = self.position_embedding.narrow(0, 0, length)?;
        // Beyond attention, every operation looks at one token at a time, so the hidden states are
        // one long list of tokens: `[rows * length, width]`.
        let mut hidden = self
            .token_embedding
            .index_select(&tokens.flatten_all()?, 0)?
            .reshape((rows, length, width))?
            .broadcast_add(&positions)?
            .reshape((rows * length, width))?;
        let mask = causal_mask(length)?;
        for layer in &self.layers {
            let normed = rms_norm(&hidden, &layer.attention_norm)?;
            hidden = (&hidden + self.attention(layer, &normed, &mask, rows, length)?)?;
            let normed = rms_norm(&hidden, &layer.mlp_norm)?;
            hidden = (&hidden + normed.matmul(&layer.up)?.relu()?.matmul(&layer.down)?)?;
        }
        let scores = rms_norm(&hidden, &self.final_norm)?.matmul(&self.head)?;
        Ok(scores.reshape((rows, length, ()))?)
    }

    fn attention(
        &self,
        layer: &Layer,
        hidden: &Tensor,
        mask: &Tensor,
        rows: usize,
        length: usize,
    ) -> Result<Tensor> {
        let heads = self.config.heads;
        let head_width = self.config.width / heads;
        // `[3, rows, heads, length, head_width]`: one slice each for queries, keys and values.
        let parts = hidden
            .matmul(&layer.query_key_value)?
            .reshape((rows, length, 3, heads, head_width))?
            .permute((2, 0, 3, 1, 4))?
            .contiguous()?;
        let (query, key, value) = (parts.get(0)?, parts.get(1)?, parts.get(2)?);
        let scale = (head_width as f64).powf(-0.5);
        let scores = (query.matmul(&key.transpose(2, 3)?)? * scale)?.broadcast_add(mask)?;
        let mixed = softmax(&scores)?.matmul(&value)?;
        let mixed = mixed.transpose(1, 2)?.reshape((rows * length, self.config.width))?;
        Ok(mixed.matmul(&layer.projection)?)
    }
}

/// The logarithm of the softmax over the last dimension.
///
/// Written out, as `rms_norm` is: candle's fused versions have no backward pass, and gradients would
/// end there without a word.
pub fn log_softmax(scores: &Tensor) -> Result<Tensor> {
    // Any constant may be taken off all scores, so no gradient has to flow through the largest.
    let shifted = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?;
    let normalizer = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
    Ok(shifted.broadcast_sub(&normalizer)?)
}

fn softmax(scores: &Tensor) -> Result<Tensor> {
    let shifted = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?;
    let weights = shifted.exp()?;
    Ok(weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?)
}

fn rms_norm(hidden: &Tensor, gain: &Tensor) -> Result<Tensor> {
    let mean_square = hidden.sqr()?.mean_keepdim(D::Minus1)?;
    let normed = hidden.broadcast_div(&(mean_square + 1e-6)?.sqrt()?)?;
    Ok(normed.broadcast_mul(gain)?)
}

/// `[length, length]`, zero where a position may look, and minus infinity where it may not.
fn causal_mask(length: usize) -> Result<Tensor> {
    let mask: Vec<f32> = (0..length)
        .flat_map(|from| (0..length).map(move |to| if to > from { f32::NEG_INFINITY } else { 0.0 }))
        .collect();
    Ok(Tensor::from_vec(mask, (length, length), &Device::Cpu)?)
}
