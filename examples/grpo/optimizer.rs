//! How does a gradient become an update of the weights?

use std::collections::HashMap;

use anyhow::{Context, Result};
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};

use crate::config::OptimizerConfig;

/// `AdamW` with clipping of the gradient norm.
#[derive(Debug)]
pub struct AdamW {
    config: OptimizerConfig,
    parameters: Vec<Parameter>,
    /// How many updates there were, which the bias correction needs.
    updates: u64,
}

/// A weight with the running means of its gradient and of its gradient's square.
#[derive(Debug)]
struct Parameter {
    name: String,
    weight: Var,
    first_moment: Tensor,
    second_moment: Tensor,
}

impl AdamW {
    pub fn new(config: OptimizerConfig, weights: &[(String, Var)]) -> Result<Self> {
        let parameters = weights
            .iter()
            .map(|(name, weight)| {
                Ok(Parameter {
                    name: name.clone(),
                    weight: weight.clone(),
                    first_moment: weight.zeros_like()?,
                    second_moment: weight.zeros_like()?,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self { config, parameters, updates: 0 })
    }

    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Both moments of every weight, by name, for a checkpoint.
    pub fn named_moments(&self) -> impl Iterator<Item = (String, Tensor)> {
        self.parameters.iter().flat_map(|parameter| {
            [
                (format!("first.{}", parameter.name), parameter.first_moment.clone()),
                (format!("second.{}", parameter.name), parameter.second_moment.clone()),
            ]
        })
    }

    /// Continues with the moments that `named_moments` gave.
    pub fn restore(&mut self, moments: &HashMap<String, Tensor>, updates: u64) -> Result<()> {
        let moment = |name: String| {
            let moment = moments.get(&name).cloned();
            moment.with_context(|| format!("the moment {name} is missing"))
        };
        for parameter in &mut self.parameters {
            parameter.first_moment = moment(format!("first.{}", parameter.name))?;
            parameter.second_moment = moment(format!("second.{}", parameter.name))?;
        }
        self.updates = updates;
        Ok(())
    }

    /// Makes one update, and returns the norm that the gradient had before it was clipped.
    pub fn update(&mut self, gradients: &GradStore, learning_rate: f64) -> Result<f64> {
        let gradients = self
            .parameters
            .iter()
            .map(|parameter| {
                let gradient = gradients.get(&parameter.weight);
                gradient.with_context(|| format!("no gradient reached {}", parameter.name))
            })
            .collect::<Result<Vec<_>>>()?;

        // All gradients count as one long vector, whose direction clipping keeps.
        let mut sum_of_squares = 0.0;
        for gradient in &gradients {
            sum_of_squares += f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?);
        }
        let norm = sum_of_squares.sqrt();
        let scale = (self.config.max_gradient_norm / norm.max(1e-12)).min(1.0);

        self.updates += 1;
        let OptimizerConfig { beta1, beta2, .. } = self.config;
        // Both means start at zero; these factors undo the bias of that start.
        let correction1 = 1.0 / (1.0 - beta1.powf(self.updates as f64));
        let correction2 = 1.0 / (1.0 - beta2.powf(self.updates as f64));
        for (parameter, gradient) in self.parameters.iter_mut().zip(gradients) {
            let gradient = (gradient * scale)?;
            let first = ((&parameter.first_moment * beta1)? + (&gradient * (1.0 - beta1))?)?;
            let second = ((&parameter.second_moment * beta2)? + (gradient.sqr()? * (1.0 - beta2))?)?;
            let size = ((&second * correction2)?.sqrt()? + 1e-8)?;
            let direction = ((&first * correction1)? / size)?;
            // Only matrices decay: a norm's gain has no reason to be small.
            let decay = if parameter.weight.rank() > 1 { self.config.weight_decay } else { 0.0 };
            let kept = (parameter.weight.as_tensor() * (1.0 - learning_rate * decay))?;
            parameter.weight.set(&(kept - (direction * learning_rate)?)?)?;
            // Detached, or the moments would keep the graph of every earlier update alive.
            parameter.first_moment = first.detach();
            parameter.second_moment = second.detach();
        }
        Ok(norm)
    }
}
