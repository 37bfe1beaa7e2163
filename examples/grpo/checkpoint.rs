//! What must be kept on disk so that a later run continues exactly where this one stopped?

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use candle_core::{Device, Tensor};

use crate::model::Policy;
use crate::optimizer::AdamW;
use crate::random::{Random, RandomState};

const POLICY: &str = "policy/";
const REFERENCE: &str = "reference/";
const OPTIMIZER: &str = "optimizer/";
const STEP: &str = "step";
const UPDATES: &str = "optimizer_updates";
const RANDOM_KEY: &str = "random_key";
const RANDOM_POSITION: &str = "random_position";

/// The weights of the policy and of the reference, the optimiser's moments, the state of the random
/// generator and the counters, all as named tensors in one safetensors file.
#[derive(Debug)]
pub struct Checkpoint {
    tensors: HashMap<String, Tensor>,
}

impl Checkpoint {
    pub fn new(
        step: u64,
        random: &Random,
        policy: &Policy,
        reference: &Policy,
        optimizer: &AdamW,
    ) -> Result<Self> {
        let mut tensors = HashMap::new();
        let mut add = |prefix: &str, (name, tensor): (String, Tensor)| {
            tensors.insert(format!("{prefix}{name}"), tensor);
        };
        policy.named_weights().for_each(|weight| add(POLICY, weight));
        reference.named_weights().for_each(|weight| add(REFERENCE, weight));
        optimizer.named_moments().for_each(|moment| add(OPTIMIZER, moment));

        let state = random.state();
        for (name, bytes) in [
            (STEP, &step.to_le_bytes()[..]),
            (UPDATES, &optimizer.updates().to_le_bytes()),
            (RANDOM_KEY, &state.key),
            (RANDOM_POSITION, &state.position.to_le_bytes()),
        ] {
            let tensor = Tensor::from_slice(bytes, bytes.len(), &Device::Cpu)?;
            tensors.insert(name.to_owned(), tensor);
        }
        Ok(Self { tensors })
    }

    /// Writes under a temporary name and renames at the end, so that a file with the final name is
    /// always complete, even if the run is killed meanwhile.
    pub fn write(&self, path: &Path) -> Result<()> {
        let temporary = path.with_extension("partial");
        let write = || -> Result<()> {
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            candle_core::safetensors::save(&self.tensors, &temporary)?;
            Ok(std::fs::rename(&temporary, path)?)
        };
        write().with_context(|| format!("cannot write the checkpoint {}", path.display()))
    }

    pub fn read(path: &Path) -> Result<Self> {
        let tensors = candle_core::safetensors::load(path, &Device::Cpu)
            .with_context(|| format!("cannot read the checkpoint {}", path.display()))?;
        Ok(Self { tensors })
    }

    pub fn step(&self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(STEP)?))
    }

    pub fn random(&self) -> Result<Random> {
        Ok(Random::restore(RandomState {
            key: self.bytes(RANDOM_KEY)?,
            position: u128::from_le_bytes(self.bytes(RANDOM_POSITION)?),
        }))
    }

    pub fn policy_weights(&self) -> HashMap<String, Tensor> {
        self.with_prefix(POLICY)
    }

    pub fn reference_weights(&self) -> HashMap<String, Tensor> {
        self.with_prefix(REFERENCE)
    }

    /// The optimiser's moments and the number of updates it has made.
    pub fn optimizer_state(&self) -> Result<(HashMap<String, Tensor>, u64)> {
        let updates = u64::from_le_bytes(self.bytes(UPDATES)?);
        Ok((self.with_prefix(OPTIMIZER), updates))
    }

    fn with_prefix(&self, prefix: &str) -> HashMap<String, Tensor> {
        self.tensors
            .iter()
            .filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone())))
            .collect()
    }

    fn bytes<const N: usize>(&self, name: &str) -> Result<[u8; N]> {
        let tensor = self.tensors.get(name);
        let tensor = tensor.with_context(|| format!("the checkpoint has no {name}"))?;
        let bytes = tensor.to_vec1::<u8>()?;
        <[u8; N]>::try_from(bytes.as_slice())
            .with_context(|| format!("{name} in the checkpoint does not have {N} bytes"))
    }
}
