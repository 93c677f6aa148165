//! Reads tensors by name and checks their shapes.

use std::{cell::RefCell, collections::HashSet};

use rope_cpu_kernels::Matrix;

use super::{latent::SplitKeys, linear::SegmentTensors};
use crate::{
    gguf::{Gguf, Tensor},
    model::{
        Config, Error,
        adapter::{self, Adapter, LowRank},
        dtype,
    },
};

/// Returns the elements of a tensor of type `f32`, which must be finite.
fn vector<'a>(tensor: &Tensor<'a>) -> Result<&'a [f32], Error> {
    let floats = (tensor.ggml_type.name.eq_ignore_ascii_case("f32"))
        .then(|| bytemuck::try_cast_slice(tensor.bytes).ok());
    let floats: &[f32] = floats.flatten().ok_or_else(|| Error::NotF32 {
        tensor: tensor.name.into(),
        found: tensor.ggml_type.name.into(),
    })?;
    match floats.iter().position(|x| !x.is_finite()) {
        None => Ok(floats),
        Some(index) => {
            Err(Error::TensorNotFinite { tensor: tensor.name.into(), index, value: floats[index] })
        }
    }
}

/// Reads tensors by name, and records which ones were read, with or without adapters.
pub struct TensorReader<'g, 'a> {
    gguf: &'g Gguf<'a>,
    adapters: &'g [Adapter<'a>],
    split: &'a SplitKeys,
    used: RefCell<HashSet<String>>,
    /// The tensors that adapters may change, as far as they were read, and skipped ones.
    adapted: RefCell<HashSet<String>>,
}

impl<'g, 'a> TensorReader<'g, 'a> {
    /// Creates a reader of the tensors of a file and of `adapters`.
    pub fn new(gguf: &'g Gguf<'a>, adapters: &'g [Adapter<'a>], split: &'a SplitKeys) -> Self {
        let [used, adapted] = Default::default();
        TensorReader { gguf, adapters, split, used, adapted }
    }

    /// Returns the keys' matrices of all heads of a layer, of files that join them with the values'.
    pub fn split_keys(&self, layer: usize) -> Option<&'a [f32]> {
        self.split.of_layer(layer)
    }

    /// Checks that every tensor of the file was read, except for tensors of layers that are not used
    /// and of a vision or audio part; and that adapters change none that was read without them.
    pub fn finish(self, config: &Config) -> Result<(), Error> {
        let (used, adapted) = (self.used.into_inner(), self.adapted.into_inner());
        let mut changed = self.adapters.iter().flat_map(|adapter| adapter.additions.keys());
        if let Some(name) = changed.find(|name| used.contains(**name) && !adapted.contains(**name))
        {
            return Err(adapter::Error::Fixed(name.into()).into());
        }
        let unused = self
            .gguf
            .tensors()
            .iter()
            .filter(|tensor| !is_rope(tensor.name) && !is_media(tensor.name))
            .filter(|tensor| !config.skips(tensor.name))
            .find(|tensor| !used.contains(tensor.name));
        unused.map_or(Ok(()), |tensor| Err(Error::UnusedTensor(tensor.name.into())))
    }

    /// Returns whether the file has the matrix `name.weight`.
    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(&format!("{name}.weight")).is_some()
    }

    /// Marks a tensor as read, if the file has it.
    pub fn skip(&self, name: &str) {
        self.used.borrow_mut().insert(name.into());
        self.adapted.borrow_mut().insert(name.into());
    }

    /// Returns the number of rows of the matrix `name.weight`, if the file has it.
    pub fn rows(&self, name: &str) -> Option<usize> {
        self.gguf.tensor(&format!("{name}.weight")).map(|tensor| tensor.rows() as usize)
    }

    fn find(&self, name: &str, shape: &[usize]) -> Result<Option<&Tensor<'a>>, Error> {
        let Some(tensor) = self.gguf.tensor(name) else { return Ok(None) };
        let dims = shape.iter().map(|&n| n as u64).chain(std::iter::repeat(1));
        if !dims.zip(tensor.dims).all(|(expected, found)| expected == found) {
            return Err(Error::Shape {
                tensor: name.into(),
                found: tensor.shape().to_vec(),
                expected: shape.iter().map(|&n| n as u64).collect(),
            });
        }
        self.used.borrow_mut().insert(name.into());
        Ok(Some(tensor))
    }

    /// Reads a vector of `len` elements if the file has it.
    pub fn vector_if(&self, name: &str, len: usize) -> Result<Option<&'a [f32]>, Error> {
        self.find(name, &[len])?.map(vector).transpose()
    }

    /// Reads a vector of `len` elements.
    pub fn vector(&self, name: &str, len: usize) -> Result<&'a [f32], Error> {
        self.vector_if(name, len)?.ok_or_else(|| Error::MissingTensor(name.into()))
    }

    /// Reads a matrix of type `f32` that no adapter may change.
    pub fn table(&self, name: &str, rows: usize, columns: usize) -> Result<&'a [f32], Error> {
        let table = self.find(name, &[columns, rows])?.map(vector).transpose()?;
        table.ok_or_else(|| Error::MissingTensor(name.into()))
    }

    /// Reads a matrix that no adapter may change, unless the caller reads [`TensorReader::low_rank`].
    pub fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix<'a>, Error> {
        let tensor = self.find(name, &[columns, rows])?;
        let tensor = tensor.ok_or_else(|| Error::MissingTensor(name.into()))?;
        Matrix::new(dtype(tensor)?, rows, columns, tensor.bytes)
            .map_err(|reason| Error::Matrix { tensor: name.into(), reason })
    }

    /// Returns the adapters' terms that are added to the products with a tensor.
    pub fn low_rank(&self, name: &str) -> Vec<LowRank<'a>> {
        self.adapted.borrow_mut().insert(name.into());
        self.adapters.iter().filter_map(|adapter| adapter.addition(name)).collect()
    }

    /// Reads the factors of the products with `count` matrices, `name.scale`, which files in NVFP4
    /// have. `name.input_scale` is for programs that quantize activations with a fixed scale; here
    /// activations have their own scales.
    fn scales(&self, name: &str, count: usize) -> Result<Option<&'a [f32]>, Error> {
        self.vector_if(&format!("{name}.input_scale"), count)?;
        self.vector_if(&format!("{name}.scale"), count)
    }

    /// Reads the matrix `name.weight`, and its scale and bias if the file has them.
    pub fn linear(
        &self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<SegmentTensors<'a>, Error> {
        let scale = self.scales(name, 1)?.map_or(1.0, |scale| scale[0]);
        Ok(SegmentTensors { scale, ..self.unscaled(name, rows, columns)? })
    }

    /// Reads the matrix `name.weight`, and its bias if the file has one.
    pub fn unscaled(
        &self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<SegmentTensors<'a>, Error> {
        let weight = format!("{name}.weight");
        Ok(SegmentTensors {
            matrix: self.matrix(&weight, rows, columns)?,
            scale: 1.0,
            bias: self.vector_if(&format!("{name}.bias"), rows)?,
            low_rank: self.low_rank(&weight),
        })
    }

    /// Reads matrices that are stacked in `name.weight`, each with its number of rows, and their
    /// biases in `name.bias`.
    pub fn fused(
        &self,
        name: &str,
        rows: &[usize],
        columns: usize,
    ) -> Result<Vec<SegmentTensors<'a>>, Error> {
        let whole = self.linear(name, rows.iter().sum(), columns)?;
        let mut end = 0;
        let segments = rows.iter().map(|&rows| {
            end += rows;
            whole.rows(end - rows..end)
        });
        Ok(segments.collect())
    }

    /// Reads the matrices of all experts, of `rows` each: from `name_exps.weight`, or from a tensor
    /// for each expert, as in Mixtral's first files.
    pub fn experts(
        &self,
        name: &str,
        count: usize,
        rows: usize,
        columns: usize,
    ) -> Result<Vec<SegmentTensors<'a>>, Error> {
        let together = format!("{name}_exps");
        if let Some(all) = self.stacked(&together, count, rows, columns)? {
            return Ok(all);
        }
        if !self.has(&format!("{name}.0")) {
            return Err(Error::MissingTensor(format!("{together}.weight").into()));
        }
        let name = |expert: usize| format!("{name}.{expert}");
        let all = (0..count).map(|i| self.linear(&name(i), rows, columns));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        let factors = |expert: &SegmentTensors<'_>| {
            expert.low_rank.iter().map(|low| low.factor).collect::<Vec<_>>()
        };
        // The products of all experts share the buffers of low-rank terms.
        match all.iter().position(|expert| factors(expert) != factors(&all[0])) {
            None => Ok(all),
            Some(other) => {
                let changed = if all[other].low_rank.is_empty() { 0 } else { other };
                Err(adapter::Error::OneExpert(format!("{}.weight", name(changed)).into()).into())
            }
        }
    }

    /// Reads the matrices of all heads, of `rows` each, from `name.weight`. No adapter may change them.
    pub fn heads(
        &self,
        name: &str,
        count: usize,
        rows: usize,
        columns: usize,
    ) -> Result<Vec<SegmentTensors<'a>>, Error> {
        let weight = format!("{name}.weight");
        self.refuse_adapters(&weight)?;
        self.stacked(name, count, rows, columns)?.ok_or_else(|| Error::MissingTensor(weight.into()))
    }

    /// Refuses adapters of a tensor.
    pub fn refuse_adapters(&self, name: &str) -> Result<(), Error> {
        match self.low_rank(name).is_empty() {
            true => Ok(()),
            false => Err(adapter::Error::Fixed(name.into()).into()),
        }
    }

    /// Reads the matrix `name.weight`, and its scale and bias if the file has them. No adapter may
    /// change it.
    pub fn fixed(
        &self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<SegmentTensors<'a>, Error> {
        self.refuse_adapters(&format!("{name}.weight"))?;
        self.linear(name, rows, columns)
    }

    /// Reads `count` matrices of `rows` each from `name.weight`, if the file has it.
    fn stacked(
        &self,
        name: &str,
        count: usize,
        rows: usize,
        columns: usize,
    ) -> Result<Option<Vec<SegmentTensors<'a>>>, Error> {
        let together = format!("{name}.weight");
        let Some(tensor) = self.find(&together, &[columns, rows, count])? else { return Ok(None) };
        let scales = self.scales(name, count)?;
        let biases = self.find(&format!("{name}.bias"), &[rows, count])?.map(vector).transpose()?;
        let low_rank = self.low_rank(&together);
        let whole = Matrix::new(dtype(tensor)?, rows * count, columns, tensor.bytes)
            .map_err(|reason| Error::Matrix { tensor: together.into(), reason })?;
        let one = |i| SegmentTensors {
            matrix: whole.part(i * rows..(i + 1) * rows),
            scale: scales.map_or(1.0, |scales| scales[i]),
            bias: biases.map(|biases| &biases[i * rows..][..rows]),
            low_rank: low_rank.iter().map(|low| low.expert(i, count)).collect(),
        };
        Ok(Some((0..count).map(one).collect()))
    }
}

/// Returns whether a tensor belongs to RoPE. The RoPE plan reads these tensors or warns about them;
/// old files repeat them in each layer.
fn is_rope(name: &str) -> bool {
    let name = name.rsplit_once("rope_").map_or("", |(_, tail)| tail);
    matches!(name, "freqs.weight" | "factors_long.weight" | "factors_short.weight")
}

/// Returns whether a tensor belongs to a vision or audio part. ollama stores such parts in the file of
/// the text model, with llama.cpp's names.
pub fn is_media(name: &str) -> bool {
    ["v.", "mm.", "a."].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::is_media;

    #[test]
    fn only_tensors_of_vision_and_audio_are_media() {
        for name in ["v.blk.0.attn_k.weight", "mm.input_projection.weight", "a.conv1d.1.bias"] {
            assert!(is_media(name), "{name}");
        }
        for name in ["blk.0.attn_v.weight", "output.weight", "attn.weight", "mmproj.weight", "v"] {
            assert!(!is_media(name), "{name}");
        }
    }
}
