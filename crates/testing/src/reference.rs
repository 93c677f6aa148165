//! A plain forward pass in double precision, written as the definition.

mod assistant;
mod layers;
mod network;
mod recurrence;
mod weights;

pub use self::assistant::assisted;
use self::{
    layers::compute,
    weights::{Weights, normalize},
};
use crate::tiny::{ALPHA_OF_BASE, Tiny};

/// The inverse frequencies of global and of window layers.
pub struct Frequencies {
    pub global: Vec<f64>,
    pub window: Vec<f64>,
}

impl Frequencies {
    /// Returns `base^(-2i/n)` for both kinds of layers, the global ones divided by `factor`.
    pub fn new(tiny: &Tiny, factor: f64) -> Self {
        let of = |base: f64, n_rot: usize| {
            let n = n_rot as f64;
            (0..n_rot / 2).map(|i| base.powf(-2.0 * i as f64 / n)).collect::<Vec<_>>()
        };
        let window_n_rot = tiny.window_head.map_or(tiny.n_rot, |[_, n_rot]| n_rot);
        let family = tiny.architecture;
        let alpha = if family.rope.alpha_in_base { ALPHA_OF_BASE } else { 1.0 };
        let n = tiny.n_rot as f64;
        let base = f64::from(tiny.base) * f64::from(alpha).powf(n / (n - 2.0));
        let mut global: Vec<f64> = of(base, tiny.n_rot).into_iter().map(|x| x / factor).collect();
        if let Some(turning) = tiny.turning {
            global[turning..].fill(0.0);
        }
        let own = family.positions.windows.is_some_and(|windows| windows.own_rope);
        let window = match own {
            true if family.rope.shares_base => of(base, window_n_rot),
            true => of(10000.0, window_n_rot),
            false => global.clone(),
        };
        Frequencies { global, window }
    }

    /// Returns the frequencies of a sequence longer than LongRoPE's original length.
    pub fn long(tiny: &Tiny) -> Self {
        let [_, divisors] = tiny.divisors();
        let plain = Frequencies::new(tiny, 1.0);
        let divided = plain.global.iter().zip(divisors).map(|(x, d)| x / f64::from(d));
        let global: Vec<f64> = divided.collect();
        Frequencies { window: global.clone(), global }
    }
}

/// The rules of attention for the query of token `i` and the key of token `j`. All but `place`
/// apply to global layers only.
pub struct Rules<'r> {
    /// The position of the `j`th token when the `i`th is read; `None` if it is evicted.
    pub place: &'r dyn Fn(usize, usize) -> Option<usize>,
    /// The inverse frequencies for the query of the `i`th token, and the factor of the rotated
    /// elements of queries and keys.
    pub frequencies: &'r dyn Fn(usize) -> (Vec<f64>, f64),
    /// The distance of the key at position `j` from the query at position `i`; `None` if the query
    /// does not attend to the key.
    pub distance: &'r dyn Fn(usize, usize) -> Option<f64>,
    /// The factor of the query at a position.
    pub query_scale: &'r dyn Fn(usize) -> f64,
}

/// Computes the logits of each token, or its embedding if the model is an encoder.
pub fn forward(tiny: &Tiny, rope: &Frequencies, tokens: &[u32]) -> Vec<Vec<f32>> {
    forward_by(tiny, &plain(&|_| (rope.global.clone(), 1.0)), &rope.window, tokens)
}

/// Returns the rules of RoPE itself, with these frequencies.
fn plain<'r>(frequencies: &'r dyn Fn(usize) -> (Vec<f64>, f64)) -> Rules<'r> {
    Rules {
        place: &|_, j| Some(j),
        frequencies,
        distance: &|i, j| Some(i as f64 - j as f64),
        query_scale: &|_| 1.0,
    }
}

/// Computes what [`forward`] does, with other rules in global layers.
pub fn forward_by(
    tiny: &Tiny,
    rules: &Rules<'_>,
    window_frequencies: &[f64],
    tokens: &[u32],
) -> Vec<Vec<f32>> {
    let w = Weights::new(tiny);
    let output = |x: &Vec<f64>| {
        let x = w.norm_if(tiny, tiny.architecture.norms.output, x);
        match tiny.architecture.causal {
            true => logits(tiny, &w, &x),
            false => x.into_iter().map(|x| x as f32).collect(),
        }
    };
    outputs(tiny, &w, rules, window_frequencies, tokens, &mut |_, _| {})
        .iter()
        .map(output)
        .collect()
}

/// Receives the layer, the query head, the query's and the key's index of a score before the softmax,
/// and the score.
type Record<'r> = &'r mut dyn FnMut([usize; 4], f64);

/// Passes all scores of [`forward_by`] to `record`.
pub fn scores_by(
    tiny: &Tiny,
    rules: &Rules<'_>,
    window_frequencies: &[f64],
    tokens: &[u32],
    record: Record<'_>,
) {
    outputs(tiny, &Weights::new(tiny), rules, window_frequencies, tokens, record);
}

/// The keys and values of a layer that has its own, each (tokens, elements). Keys are not rotated.
type Stored = [Vec<Vec<f64>>; 2];

/// Computes the outputs of the last layer.
fn outputs(
    tiny: &Tiny,
    w: &Weights,
    rules: &Rules<'_>,
    window_frequencies: &[f64],
    tokens: &[u32],
    record: Record<'_>,
) -> Vec<Vec<f64>> {
    outputs_and_stored(tiny, w, rules, window_frequencies, tokens, record).0
}

/// Computes the outputs of the last layer, and the keys and values of layers.
fn outputs_and_stored(
    tiny: &Tiny,
    w: &Weights,
    rules: &Rules<'_>,
    window_frequencies: &[f64],
    tokens: &[u32],
    record: Record<'_>,
) -> (Vec<Vec<f64>>, Vec<Stored>) {
    let embeddings = w.get("token_embd.weight");
    let scale = f64::from(tiny.factors()[0]);
    let mut hidden: Vec<Vec<f64>> = tokens
        .iter()
        .map(|&t| embeddings[t as usize * tiny.embedding..][..tiny.embedding].to_vec())
        .map(|x| x.into_iter().map(|x| x * scale).collect())
        .collect();
    let layer_inputs: Vec<_> = match tiny.layer_input {
        0 => vec![],
        len => {
            let inputs = |(token, x): (&u32, &Vec<f64>)| w.layer_inputs(tiny, len, *token, x);
            tokens.iter().zip(&hidden).map(inputs).collect()
        }
    };
    for (position, x) in hidden.iter_mut().enumerate() {
        if tiny.architecture.norms.of_embeddings {
            normalize(x);
        }
        let mut add = |tensor: &str, row: usize| {
            let row = &w.get(tensor)[row * tiny.embedding..];
            x.iter_mut().zip(row).for_each(|(x, term)| *x += term);
        };
        let [types, positions] = tiny.terms();
        if types {
            let before = |separator| tokens[..position].contains(&separator);
            add("token_types.weight", usize::from(tiny.separator.is_some_and(before)));
        }
        if positions {
            add("position_embd.weight", position);
        }
        if types {
            *x = w.norm(tiny, "token_embd_norm", x);
        }
    }
    let layers = 0..tiny.layers;
    let stored =
        compute(tiny, w, rules, window_frequencies, &layer_inputs, layers, &mut hidden, record);
    (hidden, stored)
}

/// Computes the logits of the layer that predicts further tokens: after `tokens`, and then after each
/// of `drafts`. The model has computed all of `tokens` but the last.
pub fn predicted(tiny: &Tiny, rope: &Frequencies, tokens: &[u32], drafts: &[u32]) -> Vec<Vec<f32>> {
    let w = Weights::new(tiny);
    let has = |part: &str| tiny.without != part;
    let frequencies = |_: usize| (rope.global.clone(), 1.0);
    let rules = plain(&frequencies);
    let name = |tensor: &str| format!("blk.{}.{tensor}", tiny.layers);
    let own = |tensor: &str, of_model: &str| match tiny.predicts_alone && has(tensor) {
        true => name(tensor),
        false => of_model.to_string(),
    };
    let embeddings = w.get(&format!("{}.weight", own("nextn.embed_tokens", "token_embd")));
    let norm = |part: &str, x: &[f64]| match has(part) {
        true => w.norm(tiny, &name(part), x),
        false => x.to_vec(),
    };
    let input = |token: u32, output: &[f64]| {
        let embedding = &embeddings[token as usize * tiny.embedding..][..tiny.embedding];
        let parts = [norm("nextn.enorm", embedding), norm("nextn.hnorm", output)];
        let [first, second] =
            if has("the order") { parts } else { [1, 0].map(|i| parts[i].clone()) };
        w.linear(&name("nextn.eh_proj"), &[first, second].concat())
    };
    let before = &tokens[..tokens.len() - 1];
    let outputs = outputs(tiny, &w, &rules, &rope.window, before, &mut |_, _| {});
    let outputs = outputs.iter().map(|x| match has("the norm of outputs") {
        true => w.norm(tiny, tiny.output_norm(), x),
        false => x.clone(),
    });
    let before = std::iter::once(vec![0.0; tiny.embedding]).chain(outputs);
    let mut x: Vec<_> = tokens.iter().zip(before).map(|(token, x)| input(*token, &x)).collect();
    if !has("earlier tokens") {
        x.drain(..tokens.len() - 1);
    }
    let (output_norm, head) = (
        own("nextn.shared_head_norm", tiny.output_norm()),
        own("nextn.shared_head_head", output(tiny)),
    );
    let mut drafts = drafts.iter();
    let mut all = Vec::new();
    loop {
        let mut computed = x.clone();
        let layer = tiny.layers..tiny.layers + 1;
        compute(tiny, &w, &rules, &rope.window, &[], layer, &mut computed, &mut |_, _| {});
        let last = w.norm(tiny, &output_norm, &computed[computed.len() - 1]);
        all.push(scaled(tiny, w.linear(&head, &last)));
        match drafts.next() {
            Some(draft) => x.push(input(*draft, &last)),
            None => return all,
        }
    }
}

/// Returns the logits that follow from an embedding: the normalized output of the last layer.
pub fn logits_of_embedding(tiny: &Tiny, embedding: &[f32]) -> Vec<f32> {
    let embedding: Vec<_> = embedding.iter().map(|x| f64::from(*x)).collect();
    logits(tiny, &Weights::new(tiny), &embedding)
}

/// Returns the name of the matrix that logits are computed with.
fn output(tiny: &Tiny) -> &'static str {
    if tiny.tied { "token_embd" } else { "output" }
}

fn logits(tiny: &Tiny, w: &Weights, embedding: &[f64]) -> Vec<f32> {
    scaled(tiny, w.linear(output(tiny), embedding))
}

/// Multiplies logits, and limits them.
fn scaled(tiny: &Tiny, logits: Vec<f64>) -> Vec<f32> {
    let scale = f64::from(tiny.factors()[2]);
    let cap = tiny.soft_caps.map(|caps| caps.1);
    logits.into_iter().map(|x| capped(scale * x, cap) as f32).collect()
}

fn capped(x: f64, cap: Option<f32>) -> f64 {
    cap.filter(|cap| *cap > 0.0).map_or(x, |cap| f64::from(cap) * (x / f64::from(cap)).tanh())
}
