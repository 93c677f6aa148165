//! The weights of a model, and the products and norms of them.

use std::collections::HashMap;

use crate::tiny::{EPSILON, Tiny};

/// All tensors by name.
pub struct Weights(pub HashMap<String, Vec<f64>>);

impl Weights {
    pub fn new(tiny: &Tiny) -> Self {
        let exact = |values: Vec<f32>| values.into_iter().map(f64::from).collect();
        Weights(tiny.weights().into_iter().map(|(name, values)| (name, exact(values))).collect())
    }

    pub fn get(&self, name: &str) -> &[f64] {
        &self.0[name]
    }

    /// Computes `W x + b`.
    pub fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let w = self.get(&format!("{name}.weight"));
        let bias = self.0.get(&format!("{name}.bias"));
        let products = product(w, x).into_iter().enumerate();
        products.map(|(r, dot)| dot + bias.map_or(0.0, |b| b[r])).collect()
    }

    pub fn norm(&self, tiny: &Tiny, name: &str, x: &[f64]) -> Vec<f64> {
        self.norm_of_head(tiny, name, 0, x)
    }

    /// Computes a norm, if there is one.
    pub fn norm_if(&self, tiny: &Tiny, name: Option<&str>, x: &[f64]) -> Vec<f64> {
        name.map_or_else(|| x.to_vec(), |name| self.norm(tiny, name, x))
    }

    /// Computes the norm of a head. Heads may have different weights.
    pub fn norm_of_head(&self, tiny: &Tiny, name: &str, head: usize, x: &[f64]) -> Vec<f64> {
        let center = x.iter().sum::<f64>() / x.len() as f64;
        let center = if tiny.centered() { center } else { 0.0 };
        let x: Vec<_> = x.iter().map(|x| x - center).collect();
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let after = name.contains("post_");
        let epsilon = tiny.architecture.norms.post_epsilon.filter(|_| after).unwrap_or(EPSILON);
        let scale = 1.0 / (mean + f64::from(epsilon)).sqrt();
        let bias = self.0.get(&format!("{name}.bias"));
        // Falcon-H1 has one without the suffix.
        let weights = self
            .0
            .get(name)
            .map(|all| &all[..])
            .unwrap_or_else(|| self.get(&format!("{name}.weight")));
        let weights = &weights[head * x.len() % weights.len()..];
        let products = x.iter().zip(weights).map(|(x, w)| x * scale * w);
        products.enumerate().map(|(i, x)| x + bias.map_or(0.0, |bias| bias[i])).collect()
    }
}

/// Computes `W x`.
pub fn product(w: &[f64], x: &[f64]) -> Vec<f64> {
    let rows = w.chunks_exact(x.len());
    rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

/// Divides by the root of the mean square.
pub fn normalize(x: &mut [f64]) {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter_mut().for_each(|x| *x /= (mean + f64::from(EPSILON)).sqrt());
}
