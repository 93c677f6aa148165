//! Norms of activations: which ones a family has, and their weights.

use rope_cpu_kernels::{
    Cpu,
    vector::{add, layer_norm, rms_norm},
};

use super::reader::TensorReader;
use crate::model::{Config, Error};

/// The norms of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormFamily {
    /// How all norms scale.
    pub kind: NormKind,
    /// Whether files with the epsilon of RMS norm have that norm instead.
    pub rms_by_epsilon: bool,
    /// Whether embeddings are normalized, without weights.
    pub of_embeddings: bool,
    /// The norms around attention.
    pub attention: BranchNorms,
    /// The norms around the feed-forward network. `None` if the network has the same input as
    /// attention, and their outputs are added together.
    pub network: Option<BranchNorms>,
    /// Whether the norm after a branch is a norm of the sum of the branch's input and output (BERT).
    pub of_sums: bool,
    /// The constant of norms after a branch, if they do not have the file's.
    pub post_epsilon: Option<f32>,
    /// The norm of the output of the last layer.
    pub output: Option<&'static str>,
}

/// How a norm scales. All divide by the root of the mean square, and multiply by weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// RMS norm.
    Rms,
    /// The norm of a layer, which subtracts the mean first.
    Layer,
}

/// The names of the tensors of the norms of a branch's input and output, if it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchNorms {
    /// The norm of the input.
    pub before: Option<&'static str>,
    /// The norm of the output.
    pub after: Option<&'static str>,
}

impl NormFamily {
    /// RMS norms of the inputs of attention and network, and of the output.
    pub const PLAIN: Self = NormFamily {
        kind: NormKind::Rms,
        rms_by_epsilon: false,
        of_embeddings: false,
        attention: BranchNorms { before: Some("attn_norm"), after: None },
        network: Some(BranchNorms { before: Some("ffn_norm"), after: None }),
        of_sums: false,
        post_epsilon: None,
        output: Some("output_norm"),
    };
}

/// A norm without its weights.
#[derive(Clone, Copy)]
pub struct Norm {
    kind: NormKind,
    /// The constant that is added to the mean square.
    epsilon: f32,
}

impl Norm {
    /// Returns the norm of a model.
    pub fn of(config: &Config) -> Self {
        Norm { kind: config.architecture.norms.kind, epsilon: config.epsilon }
    }

    /// Returns the norm of the outputs of a model's branches.
    pub fn after_branch(config: &Config) -> Self {
        let norm = Self::of(config);
        Norm { epsilon: config.architecture.norms.post_epsilon.unwrap_or(norm.epsilon), ..norm }
    }

    /// Normalizes `x`.
    pub fn apply(self, cpu: Cpu, x: &mut [f32], weight: &[f32]) {
        let norm = match self.kind {
            NormKind::Rms => rms_norm,
            NormKind::Layer => layer_norm,
        };
        norm(cpu, x, weight, self.epsilon);
    }
}

/// A norm and its weights.
#[derive(Clone, Copy)]
pub struct NormWeights<'a> {
    norm: Norm,
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
}

impl<'a> NormWeights<'a> {
    /// Returns a norm without a bias.
    pub fn new(norm: Norm, weight: &'a [f32]) -> Self {
        NormWeights { norm, weight, bias: None }
    }

    /// Reads a norm of activations, if it has a name. Only norms that subtract the mean have a bias.
    pub fn load(
        reader: &TensorReader<'_, 'a>,
        config: &Config,
        norm: Norm,
        name: Option<&str>,
    ) -> Result<Option<Self>, Error> {
        let Some(name) = name else { return Ok(None) };
        let bias = match norm.kind {
            NormKind::Rms => None,
            NormKind::Layer => reader.vector_if(&format!("{name}.bias"), config.embedding)?,
        };
        // Files of Falcon-H1 have the norm of the network's input without the suffix.
        let weight = match reader.vector_if(name, config.embedding)? {
            Some(weight) => weight,
            None => reader.vector(&format!("{name}.weight"), config.embedding)?,
        };
        Ok(Some(NormWeights { norm, weight, bias }))
    }

    /// Returns the number of weights.
    pub fn len(&self) -> usize {
        self.weight.len()
    }

    /// Returns the norm of a head of `dim` elements: heads may have weights of their own.
    pub fn of_head(self, head: usize, dim: usize) -> Self {
        match self.len() > dim {
            true => NormWeights { weight: &self.weight[head * dim..][..dim], ..self },
            false => self,
        }
    }

    /// Normalizes `x`, which has as many elements as there are weights.
    pub fn apply(&self, cpu: Cpu, x: &mut [f32]) {
        self.norm.apply(cpu, x, self.weight);
        if let Some(bias) = self.bias {
            add(cpu, x, bias);
        }
    }
}
