//! Sums over tensors.

use rope_cpu::gguf::Tensor;

/// The sums over a group of tensors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    pub tensors: usize,
    pub weights: u64,
    pub bytes: u64,
}

impl Total {
    fn add(&mut self, tensor: &Tensor<'_>) {
        self.tensors += 1;
        self.weights += tensor.elements();
        self.bytes += tensor.bytes.len() as u64;
    }

    /// Returns the bits per weight; `None` if there are no weights.
    pub fn bits_per_weight(&self) -> Option<f64> {
        (self.weights > 0).then(|| 8.0 * self.bytes as f64 / self.weights as f64)
    }
}

/// Returns one total per type, in the order of first appearance.
pub fn by_type(tensors: &[Tensor<'_>]) -> Vec<(&'static str, Total)> {
    let mut totals: Vec<(&str, Total)> = Vec::new();
    for tensor in tensors {
        let name = tensor.ggml_type.name;
        match totals.iter_mut().find(|(known, _)| *known == name) {
            Some((_, total)) => total.add(tensor),
            None => {
                let mut total = Total::default();
                total.add(tensor);
                totals.push((name, total));
            }
        }
    }
    totals
}

/// Returns the total of all tensors.
pub fn of_all(tensors: &[Tensor<'_>]) -> Total {
    let mut total = Total::default();
    tensors.iter().for_each(|tensor| total.add(tensor));
    total
}
