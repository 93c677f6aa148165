//! The kinds of layers of a model, and what the plan does to each.

use rope_cpu::model::{Config, Layer, Rotation};

/// The layers that positions act on in the same way.
pub struct Kind {
    /// The number of layers.
    pub count: usize,
    /// The computation from other tokens, such as `attention, window of 512`.
    pub computes: String,
    /// The rotation of queries and keys.
    pub rotation: String,
}

/// Returns the kinds of the layers, in the order of the first of each.
pub fn kinds(config: &Config) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    for layer in &config.layers {
        let (computes, rotation) = describe(layer);
        let known = |kind: &&mut Kind| kind.computes == computes && kind.rotation == rotation;
        match kinds.iter_mut().find(known) {
            Some(kind) => kind.count += 1,
            None => kinds.push(Kind { count: 1, computes, rotation }),
        }
    }
    kinds
}

/// Returns the number of layers that rotate by the plan, which RoPE methods act on.
pub fn planned(config: &Config) -> usize {
    config.attention().filter(|attention| attention.rotation == Rotation::Global).count()
}

fn describe(layer: &Layer) -> (String, String) {
    let attention = layer.attention.map(|attention| {
        let keys = if attention.latent.is_some() { "attention to latents" } else { "attention" };
        match attention.window {
            Some(window) => format!("{keys}, window of {window}"),
            None => keys.into(),
        }
    });
    let recurrence = layer.recurrence.map(|_| "recurrence".to_string());
    let computes: Vec<_> = attention.into_iter().chain(recurrence).collect();
    let rotation = match layer.attention {
        None => "no positions".into(),
        Some(attention) => {
            let dims = format!("{} of {} dimensions", attention.n_rot, attention.head_dim);
            match attention.rotation {
                Rotation::Global => format!("{dims}, by this plan"),
                Rotation::Window => format!("{dims}, by a base that no method changes"),
                Rotation::None => "none, which no method changes".into(),
            }
        }
    };
    match computes.is_empty() {
        true => ("nothing".into(), rotation),
        false => (computes.join(" and "), rotation),
    }
}
