//! The fingerprint of a model in a session file.

use twox_hash::XxHash3_128;

use crate::{
    gguf::Tensor,
    model::{Adapter, Model},
};

impl Model {
    /// Returns a hash (XXH3, 128 bits) of everything that determines keys and values besides RoPE:
    /// the configuration, all bytes of all tensors, and the adapters with the scales that the model was
    /// opened with. A file of a sequence with other scales has another fingerprint.
    ///
    /// The first call reads the whole model, at the speed of memory, or of the disk if it is not in
    /// memory yet.
    pub fn fingerprint(&self) -> u128 {
        *self.fingerprint.get_or_init(|| self.compute_fingerprint())
    }

    fn compute_fingerprint(&self) -> u128 {
        let mut hash = XxHash3_128::new();
        add(&mut hash, format!("{:?}", self.config()).as_bytes());
        add_tensors(&mut hash, self.gguf().tensors());
        let scales: Vec<f32> = self.adapters().iter().map(Adapter::scale).collect();
        for adapter in self.adapters() {
            add_tensors(&mut hash, &adapter.tensors);
            for (name, addition) in &adapter.additions {
                add(&mut hash, name.as_bytes());
                add(&mut hash, &addition.factor.at(&scales).to_le_bytes());
            }
        }
        hash.finish_128()
    }
}

/// Returns the fingerprint of a model in a sequence with these scales of adapters. `model` is the
/// fingerprint with the scales that the model was opened with.
pub(super) fn with_scales(model: u128, scales: &[f32]) -> u128 {
    let mut hash = XxHash3_128::new();
    add(&mut hash, &model.to_le_bytes());
    scales.iter().for_each(|scale| add(&mut hash, &scale.to_le_bytes()));
    hash.finish_128()
}

/// Returns the fingerprint of a model with a predictor that follows sequences.
pub(super) fn with_predictor(model: u128) -> u128 {
    let mut hash = XxHash3_128::new();
    add(&mut hash, &model.to_le_bytes());
    add(&mut hash, b"predictor");
    hash.finish_128()
}

fn add_tensors(hash: &mut XxHash3_128, tensors: &[Tensor<'_>]) {
    hash.write(&(tensors.len() as u64).to_le_bytes());
    for tensor in tensors {
        add(hash, tensor.name.as_bytes());
        add(hash, tensor.ggml_type.name.as_bytes());
        add(hash, format!("{:?}", tensor.shape()).as_bytes());
        add(hash, tensor.bytes);
    }
}

/// Adds bytes with their length, so that bytes moved between neighbouring parts change the hash.
fn add(hash: &mut XxHash3_128, bytes: &[u8]) {
    hash.write(&(bytes.len() as u64).to_le_bytes());
    hash.write(bytes);
}
