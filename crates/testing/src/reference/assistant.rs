//! The definition of an assistant of a Gemma 4 model.

use super::{Frequencies, Stored, Weights, layers::rotate, outputs_and_stored, plain};
use crate::tiny::Tiny;

/// Computes the logits of the assistant `tiny` of a model: after `tokens`, and then after each of
/// `drafts`. The model has computed all of `tokens` but the last.
pub fn assisted(
    model: &Tiny,
    tiny: &Tiny,
    rope: &Frequencies,
    tokens: &[u32],
    drafts: &[u32],
) -> Vec<Vec<f32>> {
    let (of_model, w) = (Weights::new(model), Weights::new(tiny));
    let has = |part: &str| tiny.without != part;
    let frequencies = |_: usize| (rope.global.clone(), 1.0);
    let rules = plain(&frequencies);
    let count = tokens.len() - 1;
    let (outputs, stored) = outputs_and_stored(
        model,
        &of_model,
        &rules,
        &rope.window,
        &tokens[..count],
        &mut |_, _| {},
    );
    let last = &outputs[count - 1];
    let mut before = match has("the norm of outputs") {
        true => of_model.norm(model, model.output_norm(), last),
        false => last.clone(),
    };
    let embeddings = of_model.get("token_embd.weight");
    let scale = if has("the scale of embeddings") { f64::from(model.factors()[0]) } else { 1.0 };
    let mut all = Vec::new();
    for (i, token) in tokens[count..].iter().chain(drafts).enumerate() {
        let position = if has("the same position") { count } else { count + i };
        let embedding = &embeddings[*token as usize * model.embedding..][..model.embedding];
        let embedding = embedding.iter().map(|x| x * scale).collect::<Vec<_>>();
        let parts = match has("the order") {
            true => [embedding, before.clone()],
            false => [before.clone(), embedding],
        };
        let mut x = w.linear("nextn.pre_projection", &parts.concat());
        for layer in 0..tiny.layers {
            let window = tiny.layer_window(layer).is_some();
            let mut alike =
                (0..model.layers).filter(|i| model.layer_window(*i).is_some() == window);
            let source = if has("the last layer") { alike.next_back() } else { alike.next() };
            let stored = &stored[model.source(source.unwrap())];
            w.assist(tiny, layer, rope, position, stored, &mut x);
        }
        let y = w.norm(tiny, tiny.output_norm(), &x);
        all.push(w.linear("token_embd", &y).into_iter().map(|x| x as f32).collect());
        if has("its own output") {
            before = w.linear("nextn.post_projection", &y);
        }
    }
    all
}

impl Weights {
    /// Computes a layer for the token at a position, which attends to stored keys and values.
    fn assist(
        &self,
        tiny: &Tiny,
        layer: usize,
        rope: &Frequencies,
        position: usize,
        [keys, values]: &Stored,
        x: &mut [f64],
    ) {
        let has = |part: &str| tiny.without != part;
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let [heads, kv_heads, dim] = tiny.layer_shape(layer);
        let window = tiny.layer_window(layer);
        let frequencies = if window.is_some() { &rope.window } else { &rope.global };
        let first = window.filter(|_| has("the window"));
        let first = first.map_or(0, |window| (position + 1).saturating_sub(window));
        let mut queries = self.linear(&name("attn_q"), &self.norm(tiny, &name("attn_norm"), x));
        let mut attended = vec![0.0; queries.len()];
        let each = queries.chunks_exact_mut(dim).zip(attended.chunks_exact_mut(dim));
        for (head, (q, out)) in each.enumerate() {
            if has("norms of queries") {
                q.copy_from_slice(&self.norm(tiny, &name("attn_q_norm"), q));
            }
            let at = head / (heads / kv_heads) * dim;
            let weight = |j: usize| {
                let distance = (position - j) as f64;
                let angles: Vec<_> = frequencies.iter().map(|f| (distance * f).sin_cos()).collect();
                let mut q = q.to_vec();
                if has("the rotation of queries") {
                    rotate(&mut q, &angles, false);
                }
                q.iter().zip(&keys[j][at..]).map(|(q, k)| q * k).sum::<f64>().exp()
            };
            let weights: Vec<f64> = (first..keys.len()).map(weight).collect();
            let sum: f64 = weights.iter().sum();
            for (weight, values) in weights.iter().zip(&values[first..]) {
                out.iter_mut().zip(&values[at..]).for_each(|(out, v)| *out += weight / sum * v);
            }
        }
        let mut add = |norm: &str, y: Vec<f64>| {
            let y = if has(norm) { self.norm(tiny, &name(norm), &y) } else { y };
            x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
            x.to_vec()
        };
        let x_attended = add("post_attention_norm", self.linear(&name("attn_output"), &attended));
        let input = self.norm(tiny, &name("ffn_norm"), &x_attended);
        add("post_ffw_norm", self.network(tiny, layer, &input));
        if has("the scales of layers") {
            let scale = self.get(&name("layer_output_scale.weight"))[0];
            x.iter_mut().for_each(|x| *x *= scale);
        }
    }
}
