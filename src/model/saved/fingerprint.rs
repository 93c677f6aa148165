//! What tells the models of sessions in files apart.

use crate::{
    gguf::Gguf,
    model::{Adapter, Config},
};

/// Tells models apart: a number made of what they are like, of what adapts them, and of the
/// beginning of each tensor.
pub fn fingerprint(gguf: &Gguf<'_>, config: &Config, adapters: &[Adapter<'_>]) -> u128 {
    const SAMPLE: usize = 4096;
    let mut hash = crc32fast::Hasher::new();
    hash.update(format!("{config:?}").as_bytes());
    adapters.iter().for_each(|adapter| hash.update(&adapter.scale.to_le_bytes()));
    let adapting = adapters.iter().flat_map(|adapter| &adapter.tensors);
    for tensor in gguf.tensors().iter().chain(adapting) {
        hash.update(tensor.name.as_bytes());
        hash.update(tensor.ggml_type.name.as_bytes());
        hash.update(&tensor.bytes[..tensor.bytes.len().min(SAMPLE)]);
    }
    hash.finalize().into()
}
