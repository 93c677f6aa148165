//! The metadata of a tiny model.

use rope_cpu::model::architecture::{
    self as model, Factors, Global, Inner, NormKind, RoutingKeys, Unrotated,
};

use super::{ALPHA_OF_BASE, EPSILON, Latent, Recurrent, Tiny};
use crate::builder::{ARRAY, BOOL, Builder, F32, STRING, U32, array, string};

/// Adds keys that start with the family's name.
struct Keys {
    file: Builder,
    family: &'static str,
}

impl Keys {
    fn add(&mut self, key: &str, kind: u32, value: impl AsRef<[u8]>) {
        let file = std::mem::take(&mut self.file);
        self.file = file.key(format!("{}.{key}", self.family), kind, value);
    }

    fn number(&mut self, key: &str, number: usize) {
        self.add(key, U32, (number as u32).to_le_bytes());
    }

    fn numbers<const N: usize>(&mut self, all: [(&str, usize); N]) {
        all.into_iter().for_each(|(key, number)| self.number(key, number));
    }

    fn float(&mut self, key: &str, value: f32) {
        self.add(key, F32, value.to_le_bytes());
    }

    fn flag(&mut self, key: &str, flag: bool) {
        self.add(key, BOOL, [u8::from(flag)]);
    }

    fn text(&mut self, key: &str, text: &str) {
        self.add(key, STRING, string(text));
    }

    fn list(&mut self, key: &str, all: impl ExactSizeIterator<Item = usize>) {
        let len = all.len() as u64;
        self.add(key, ARRAY, array(U32, len, all.map(|number| (number as u32).to_le_bytes())));
    }

    fn flags(&mut self, key: &str, all: impl ExactSizeIterator<Item = bool>) {
        let len = all.len() as u64;
        self.add(key, ARRAY, array(BOOL, len, all.map(|flag| [u8::from(flag)])));
    }
}

impl Tiny {
    /// Returns a file with the metadata and without tensors.
    pub(crate) fn metadata(&self) -> Builder {
        let family = self.architecture.name;
        let file = Builder::new().key("general.architecture", STRING, string(family));
        let mut keys = Keys { file, family };
        keys.numbers([
            ("context_length", self.context),
            ("embedding_length", self.embedding),
            ("block_count", self.layers + usize::from(self.predicts)),
            ("rope.dimension_count", self.n_rot),
        ]);
        keys.float("rope.freq_base", self.base);
        if !self.architecture.causal {
            keys.flag("attention.causal", false);
        }
        self.add_norms_and_scales(&mut keys);
        self.add_heads(&mut keys);
        self.add_layers_of_windows(&mut keys);
        self.add_recurrence(&mut keys);
        self.add_networks(&mut keys);
        self.add_experts(&mut keys);
        self.add_further_tokens(&mut keys);
        self.add_scaling(&mut keys);
        let mut file = keys.file;
        if self.terms()[0] {
            file = file.key("tokenizer.ggml.token_type_count", U32, 2u32.to_le_bytes());
        }
        if let Some(token) = self.separator {
            file = file.key("tokenizer.ggml.seperator_token_id", U32, token.to_le_bytes());
        }
        file
    }

    fn add_norms_and_scales(&self, keys: &mut Keys) {
        // Files of Nemotron-H name it as if norms subtracted the mean.
        let alone = self.architecture.recurrent == model::Recurrent::Mamba2Alone;
        let rms = match self.architecture.norms.kind {
            NormKind::Rms if !alone => "_rms",
            NormKind::Rms | NormKind::Layer => "",
        };
        keys.float(&format!("attention.layer_norm{rms}_epsilon"), EPSILON);
        let [embedding, residual, logits] = self.factors();
        match self.architecture.scales.factors {
            Factors::None | Factors::Embeddings => {}
            Factors::Keys | Factors::KeysOrDefaults => {
                keys.float("embedding_scale", embedding);
                keys.float("residual_scale", residual);
                keys.float("logit_scale", 1.0 / logits);
            }
            Factors::Logits => keys.float("logit_scale", logits),
        }
        // Without these keys Gemma 2 has default soft caps: 0 disables them.
        let by_default = self.architecture.scales.soft_caps.contains(&Some(50.0));
        if let Some((attention, logits)) = self.soft_caps.or(by_default.then_some((0.0, 0.0))) {
            keys.float("attn_logit_softcapping", attention);
            keys.float("final_logit_softcapping", logits);
        }
    }

    /// Adds the numbers and the lengths of heads.
    fn add_heads(&self, keys: &mut Keys) {
        if self.shared_kv > 0 {
            keys.number("attention.shared_kv_layers", self.shared_kv);
        }
        // The recurrences that layers without KV heads have.
        let by_kv_heads = match self.recurrent {
            Some(Recurrent::ShortConvolution { .. }) => true,
            Some(Recurrent::Mamba2 { .. }) => !self.recurs_beside(),
            Some(Recurrent::Delta { .. }) | None => false,
        };
        let all = ["head_count", "head_count_kv", "key_length", "value_length"];
        for (key, index) in all.into_iter().zip([0, 1, 2, 2]) {
            let latent = self.latent.map(|latent| match key {
                "head_count_kv" if latent.joined => self.heads,
                "key_length" if latent.joined => latent.unrotated + self.n_rot,
                "value_length" if latent.joined => latent.value_dim,
                "key_length" => latent.rank + self.n_rot,
                "value_length" => latent.rank,
                _ => self.layer_shape(0)[index],
            });
            let number = |layer| latent.unwrap_or_else(|| self.layer_shape(layer)[index]);
            let attends = |layer| usize::from(self.layer_attends(layer));
            let key = format!("attention.{key}");
            match self.shapes {
                [] if by_kv_heads && index == 1 => {
                    let all = (0..self.layers).map(|layer| attends(layer) * self.kv_heads);
                    keys.list(&key, all);
                }
                _ if index == 2 && self.window_head.is_some() => {}
                [] => keys.number(&key, number(0)),
                _ => keys.list(&key, (0..self.layers).map(number)),
            }
        }
        if let Some([head_dim, n_rot]) = self.window_head {
            keys.numbers([
                ("attention.key_length", self.head_dim),
                ("attention.value_length", self.head_dim),
                ("attention.key_length_swa", head_dim),
                ("attention.value_length_swa", head_dim),
                ("rope.dimension_count_swa", n_rot),
            ]);
        }
        if let Some(Latent { query_rank, rank, unrotated, value_dim, joined }) = self.latent {
            keys.number("attention.q_lora_rank", query_rank);
            keys.number("attention.kv_lora_rank", rank);
            if !joined {
                keys.number("attention.key_length_mla", unrotated + self.n_rot);
                keys.number("attention.value_length_mla", value_dim);
            }
        }
    }

    /// Adds which layers have a window, and which ones rotate.
    fn add_layers_of_windows(&self, keys: &mut Keys) {
        let positions = self.architecture.positions;
        if let Some((window, period)) = self.window {
            const PATTERN: &str = "attention.sliding_window_pattern";
            keys.number("attention.sliding_window", window);
            // Files with a layer that predicts tokens list the others.
            let listed = positions.windows.is_some_and(|windows| windows.global == Global::Listed);
            match listed || self.predicts {
                true => {
                    let has_window = |layer| self.layer_window(layer).is_some();
                    keys.flags(PATTERN, (0..self.layers).map(has_window));
                }
                false => keys.number(PATTERN, period),
            }
        }
        match positions.unrotated {
            Unrotated::Unless if self.unrotated.is_some() => {
                keys.flag("rope.scaling.finetuned", false);
            }
            Unrotated::Listed => {
                let rotates = (0..self.layers).map(|layer| !self.is_unrotated(layer));
                keys.flags("attention.rope_pattern", rotates);
            }
            _ => {}
        }
        if let Some(sections) = self.sections {
            keys.list("rope.dimension_sections", sections.into_iter());
        }
    }

    fn add_recurrence(&self, keys: &mut Keys) {
        let (taps, inner, state, heads, groups) = match self.recurrent {
            None => return,
            Some(Recurrent::ShortConvolution { taps }) => {
                return keys.number("shortconv.l_cache", taps);
            }
            Some(Recurrent::Delta { key_heads, value_heads, dim, taps }) => {
                keys.number("full_attention_interval", self.attends);
                (taps, value_heads * dim, dim, value_heads, key_heads)
            }
            Some(Recurrent::Mamba2 { groups, heads, dim, state, taps }) => {
                (taps, heads * dim, state, heads, groups)
            }
        };
        keys.numbers([
            ("ssm.conv_kernel", taps),
            ("ssm.inner_size", inner),
            ("ssm.state_size", state),
            ("ssm.time_step_rank", heads),
            ("ssm.group_count", groups),
        ]);
    }

    fn add_networks(&self, keys: &mut Keys) {
        const WIDTH: &str = "feed_forward_length";
        let width = |layer| match self.has_network(layer) {
            true => self.layer_feed_forward(layer),
            false => 0,
        };
        match self.narrower {
            0 if self.branches.is_empty() => keys.number(WIDTH, self.feed_forward),
            _ => keys.list(WIDTH, (0..self.layers).map(width)),
        }
        // Files of Gemma 4 have it in any case.
        if keys.family.starts_with("gemma4") {
            keys.number("embedding_length_per_layer_input", self.layer_input);
        }
        if self.architecture.network.inner == Inner::Xielu {
            for (i, name) in ["alpha_n", "alpha_p", "beta", "eps"].into_iter().enumerate() {
                let all = (0..self.layers).map(|layer| self.xielu(layer)[i].to_le_bytes());
                let all = array(F32, self.layers as u64, all);
                let file = std::mem::take(&mut keys.file);
                keys.file = file.key(format!("xielu.{name}"), ARRAY, all);
            }
        }
    }

    fn add_experts(&self, keys: &mut Keys) {
        if let Some((count, used)) = self.experts {
            keys.numbers([
                ("expert_count", count),
                ("expert_used_count", used),
                ("expert_feed_forward_length", self.feed_forward),
            ]);
        }
        let routing = self.architecture.network.routing;
        if self.shared > 0 && routing.sets_all() {
            keys.number("expert_shared_count", self.shared.div_ceil(self.feed_forward));
        }
        if self.shared > 0 && !self.counts_shared() {
            keys.number("expert_shared_feed_forward_length", self.shared);
        }
        if let Some(dense) = self.dense {
            keys.number("leading_dense_block_count", dense);
            keys.number("interleave_moe_layer_step", 1);
        }
        if routing.sets_all() {
            keys.flag("expert_weights_norm", self.sums_to_one);
            keys.float("expert_weights_scale", self.expert_scale);
        }
        // Files of families with sigmoids need not say it.
        if matches!(routing, RoutingKeys::Gating | RoutingKeys::All) {
            keys.number("expert_gating_func", 1 + usize::from(self.sigmoid_gating));
        }
        if let Some((groups, used)) = self.groups {
            keys.numbers([("expert_group_count", groups), ("expert_group_used_count", used)]);
        }
    }

    /// Adds what a model needs that drafts, and an assistant.
    fn add_further_tokens(&self, keys: &mut Keys) {
        if self.predicts {
            keys.number("nextn_predict_layers", 1);
        }
        if self.assists > 0 {
            keys.numbers([
                ("embedding_length_out", self.assists),
                ("nextn_predict_layers", self.layers),
                ("attention.shared_kv_layers", self.layers),
            ]);
        }
    }

    /// Adds what scales RoPE.
    fn add_scaling(&self, keys: &mut Keys) {
        if self.architecture.rope.alpha_in_base {
            keys.float("rope.scaling.alpha", ALPHA_OF_BASE);
        }
        if self.score_weight != 0.0 {
            keys.text("rope.scaling.type", "yarn");
            keys.float("rope.scaling.factor", 4.0);
            keys.number("rope.scaling.original_context_length", 16);
            keys.float("rope.scaling.yarn_log_multiplier", 0.1 * self.score_weight);
        }
        if let Some((slope, original)) = self.temperature {
            keys.float("attention.temperature_scale", slope);
            keys.text("rope.scaling.type", "yarn");
            keys.number("rope.scaling.original_context_length", original);
            keys.float("rope.scaling.factor", 4.0);
            keys.float("rope.scaling.yarn_beta_fast", 4.0);
            keys.float("rope.scaling.yarn_beta_slow", 0.5);
            keys.float("rope.scaling.yarn_log_multiplier", 0.8);
        }
        if let Some(original) = self.long_rope {
            // Files of Phi 3 do not have this key.
            if keys.family != "phi3" {
                keys.text("rope.scaling.type", "longrope");
            }
            keys.number("rope.scaling.original_context_length", original);
            keys.float("rope.scaling.attn_factor", 1.0);
        }
    }
}
