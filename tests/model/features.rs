//! Every architecture, compared with itself without each of its features.

use rope_cpu::model::{
    Pairing,
    architecture::{
        Factors, Global, HeadNorms, Inner, NormKind, RoutingKeys, ScoreFactor, Unrotated, Windows,
    },
};
use rope_cpu_kernels::vector::{Activation, Ungated};

use crate::model::{
    architectures::{GELU_BOUND, expected, found},
    session::difference,
};
use rope_cpu_testing::tiny::{EPSILON, Tiny};

/// The bounds are small enough to detect each feature: a definition without it exceeds them.
const BOUND: f32 = 10.0 * GELU_BOUND;

/// Checks that a definition without a feature is far from the model.
type Without<'w> = dyn Fn(&str, &dyn Fn(&mut Tiny)) + 'w;

/// Returns the check of a family's features.
fn family(name: &'static str) -> Box<Without<'static>> {
    let tiny = Tiny::named(name);
    let found = found(&tiny);
    Box::new(move |what, change| {
        let mut other = tiny.clone();
        change(&mut other);
        let apart = difference(&found, &expected(&other));
        assert!(apart > BOUND, "{name} without {what}: {apart}");
    })
}

/// Checks what networks without a gate have.
fn without_parts_of_ungated_networks(without: &Without<'_>) {
    without("its activation", &|t| {
        t.architecture.network.inner = Inner::Ungated(Ungated::SquaredRelu);
    });
    without("the mean that norms subtract", &|t| t.architecture.norms.kind = NormKind::Rms);
    without("the biases of its norms", &|t| t.norm_biases = false);
    without("the biases of its network", &|t| {
        t.biases = &["output", "attn_q", "attn_k", "attn_v", "attn_output"];
    });
}

#[test]
fn llama() {
    let without = family("llama");
    without("its biases", &|t| t.biases = &[]);
    without("the bias of queries", &|t| t.biases = &t.biases[1..]);
    without("tied embeddings", &|t| t.tied = false);
    without("pairs side by side", &|t| t.architecture.positions.pairing = Pairing::Halves);
}

#[test]
fn llama_experts() {
    let without = family("llama-experts");
    without("a second expert", &|t| t.experts = Some((5, 1)));
}

#[test]
fn smollm3() {
    let without = family("smollm3");
    without("a layer that does not rotate", &|t| {
        t.architecture.positions.unrotated = Unrotated::Never;
    });
    without("this layer that does not rotate", &|t| {
        t.architecture.positions.unrotated = Unrotated::Period(3);
    });
}

#[test]
fn qwen2() {
    let without = family("qwen2");
    without("its biases", &|t| t.biases = &[]);
    without("pairs half a head apart", &|t| t.architecture.positions.pairing = Pairing::Adjacent);
}

#[test]
fn qwen3() {
    let without = family("qwen3");
    without("the norms of its heads", &|t| t.head_norms = false);
}

#[test]
fn qwen3moe() {
    let without = family("qwen3moe");
    without("the norms of its heads", &|t| t.head_norms = false);
    without("a third expert", &|t| t.experts = Some((7, 2)));
}

#[test]
fn phi3() {
    let without = family("phi3");
    without("a part of a head that does not rotate", &|t| t.n_rot = 12);
    without("LongRoPE's divisors", &|t| t.long_rope = None);
}

#[test]
fn phi3_with_a_window() {
    let phi3 = Tiny { window: Some((10, 1 << 20)), ..Tiny::named("phi3") };
    let whole = Tiny { window: None, ..phi3.clone() };
    assert!(difference(&found(&phi3), &expected(&whole)) > BOUND);
}

#[test]
fn phi2() {
    let without = family("phi2");
    without_parts_of_ungated_networks(&without);
    without("a part of a head that does not rotate", &|t| t.n_rot = 12);
    without("the bias of its logits", &|t| t.biases = &t.biases[1..]);
}

#[test]
fn starcoder2() {
    let without = family("starcoder2");
    without_parts_of_ungated_networks(&without);
}

#[test]
fn gpt_oss() {
    let without = family("gpt-oss");
    without("its sinks", &|t| t.architecture.attention.sinks = false);
    without("its window", &|t| t.window = None);
    without("its activation", &|t| t.architecture.network.inner = Inner::Gated(Activation::Silu));
    without("the bias of its router", &|t| {
        t.biases = &["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    });
    without("the biases of its experts", &|t| {
        t.biases = &["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp"];
    });
}

#[test]
fn mistral3() {
    let without = family("mistral3");
    without("its temperature", &|t| t.temperature = Some((0.0, 16)));
    without("YaRN", &|t| t.temperature = None);
}

#[test]
fn olmo2() {
    let without = family("olmo2");
    without("its window", &|t| t.window = None);
    without("norms of whole rows", &|t| t.architecture.attention.head_norms = HeadNorms::None);
    without("norms after attention and network", &|t| t.drop_post_norms());
}

#[test]
fn granite() {
    let without = family("granite");
    for (i, what) in ["embeddings", "branches", "logits"].into_iter().enumerate() {
        without(&format!("its factor of {what}"), &|t| t.factors[i] = 1.0);
    }
}

#[test]
fn minicpm() {
    let without = family("minicpm");
    for (i, what) in ["embeddings", "branches", "logits"].into_iter().enumerate() {
        without(&format!("its factor of {what}"), &|t| t.factors[i] = 1.0);
    }
}

#[test]
fn granitemoe() {
    let without = family("granitemoe");
    without("its shared network", &|t| t.shared = 0);
}

#[test]
fn granite_swa() {
    let without = family("granite_swa");
    without("its sinks", &|t| t.architecture.attention.sinks = false);
    without("its window", &|t| t.window = None);
    without("its layer that does not rotate", &|t| t.unrotated = None);
    without("the layers that it lists", &|t| t.unrotated = Some(4));
    without("its factor of branches", &|t| t.factors[1] = 1.0);
}

#[test]
fn hunyuan_moe() {
    let without = family("hunyuan-moe");
    without("norms of rotated heads", &|t| t.architecture.attention.head_norms = HeadNorms::None);
    without("norms after rotation", &|t| {
        t.architecture.attention.head_norms = HeadNorms::Heads;
    });
    without("a base without alpha", &|t| t.architecture.rope.alpha_in_base = true);
    without("a second expert", &|t| t.experts = Some((5, 1)));
    without("its shared network", &|t| t.shared = 0);
}

#[test]
fn seed_oss() {
    let without = family("seed_oss");
    without("its biases", &|t| t.biases = &[]);
    without("the bias of queries", &|t| t.biases = &t.biases[1..]);
    without("pairs half a head apart", &|t| t.architecture.positions.pairing = Pairing::Adjacent);
}

#[test]
fn qwen3vl() {
    let without = family("qwen3vl");
    without("the norms of its heads", &|t| t.head_norms = false);
    without("what rotates of a head", &|t| t.n_rot = 12);
    without("pairs half a head apart", &|t| t.architecture.positions.pairing = Pairing::Adjacent);
}

#[test]
fn hunyuan_dense() {
    let without = family("hunyuan-dense");
    without("norms of rotated heads", &|t| t.architecture.attention.head_norms = HeadNorms::None);
    without("norms after rotation", &|t| {
        t.architecture.attention.head_norms = HeadNorms::Heads;
    });
    without("the alpha of its base", &|t| t.architecture.rope.alpha_in_base = false);
}

#[test]
fn exaone4() {
    let without = family("exaone4");
    without("the norms of its heads", &|t| t.head_norms = false);
}

#[test]
fn glm4() {
    let without = family("glm4");
    without("a part of a head that does not rotate", &|t| t.n_rot = 12);
}

#[test]
fn glm4_sections() {
    let without = family("glm4-sections");
    without("its pairs half a head apart", &|t| t.sections = None);
}

#[test]
fn glm4moe() {
    let without = family("glm4moe");
    without("the norms of its heads", &|t| t.head_norms = false);
    without("a part of a head that does not rotate", &|t| t.n_rot = 20);
    without("pairs half a head apart", &|t| t.architecture.positions.pairing = Pairing::Adjacent);
    without("its biases", &|t| t.biases = &[]);
    without("the bias of its choice", &|t| t.selection_bias = false);
    without("the sigmoids of its choice", &|t| t.architecture.network.routing = RoutingKeys::All);
    without("weights that sum to 1", &|t| t.sums_to_one = false);
    without("the factor of experts", &|t| t.expert_scale = 1.0);
    without("its shared network", &|t| t.shared = 0);
    without("its first layer without experts", &|t| t.dense = Some(0));
}

#[test]
fn ernie4_5_moe() {
    let without = family("ernie4_5-moe");
    without("its first layer without experts", &|t| t.dense = Some(0));
    without("its shared network", &|t| t.shared = 0);
    without("the bias of its choice", &|t| t.selection_bias = false);
}

#[test]
fn arcee() {
    let without = family("arcee");
    without("its activation", &|t| t.architecture.network.inner = Inner::Xielu);
}

#[test]
fn apertus() {
    let without = family("apertus");
    without("the norms of its heads", &|t| t.head_norms = false);
}

#[test]
fn command_r() {
    let without = family("command-r");
    without("the mean that norms subtract", &|t| t.architecture.norms.kind = NormKind::Rms);
    without("its factor of logits", &|t| t.factors[2] = 1.0);
    without("one input of attention and network", &|t| t.without = "one input");
}

#[test]
fn cohere2() {
    let without = family("cohere2");
    without("the mean that norms subtract", &|t| t.architecture.norms.kind = NormKind::Rms);
    without("its factor of logits", &|t| t.factors[2] = 1.0);
    without("its window", &|t| t.window = None);
    without("its layer that does not rotate", &|t| {
        t.architecture.positions.unrotated = Unrotated::Never
    });
}

#[test]
fn cohere2moe() {
    let without = family("cohere2moe");
    without("the mean that norms subtract", &|t| t.architecture.norms.kind = NormKind::Rms);
    without("its factor of logits", &|t| t.factors[2] = 1.0);
    without("its window", &|t| t.window = None);
    without("its layer that does not rotate", &|t| {
        t.architecture.positions.unrotated = Unrotated::Never
    });
    without("its first layer, which has no window", &|t| {
        t.architecture.positions.windows = Some(Windows::without(Global::Last(4)));
    });
    without("the mean of experts and network", &|t| t.architecture.network.mixture_scale = 1.0);
    without("its shared network", &|t| t.shared = 0);
    without("the sigmoids of its choice", &|t| {
        t.architecture.network.routing = RoutingKeys::All;
    });
    without("weights that sum to 1", &|t| t.sums_to_one = false);
    without("the factor of experts", &|t| t.expert_scale = 1.0);
    without("its first layer without experts", &|t| t.dense = Some(0));
}

#[test]
fn muse_glimmer() {
    let without = family("muse-glimmer");
    without("the norm of embeddings", &|t| t.architecture.norms.of_embeddings = false);
    without("the constant of later norms", &|t| t.architecture.norms.post_epsilon = Some(EPSILON));
    without("the norms of its heads", &|t| t.head_norms = false);
    without("pairs side by side", &|t| t.architecture.positions.pairing = Pairing::Halves);
    without("the gates of its attention", &|t| t.without = "gates of attention");
    without("norms after attention and network", &|t| t.drop_post_norms());
    without("its window", &|t| t.window = None);
    without("its layer that does not rotate", &|t| {
        t.architecture.positions.unrotated = Unrotated::Never
    });
    without("its factor of logits", &|t| t.factors[2] = 1.0);
    without("the limit of logits", &|t| t.soft_caps = None);
}

#[test]
fn granitehybrid() {
    let without = family("granitehybrid");
    without("layers that do not rotate", &|t| t.unrotated = None);
    without("its factor of branches", &|t| t.factors[1] = 1.0);
    without("its shared network", &|t| t.shared = 0);
}

#[test]
fn falcon_h1() {
    let without = family("falcon-h1");
    without("attention beside the scan", &|t| t.branches = b"MM");
}

#[test]
fn nemotron_h() {
    let without = family("nemotron_h");
    for part in [
        "groups of heads",
        "activation",
        "decays",
        "steps",
        "values beside outputs",
        "gates",
        "bias of the convolution",
    ] {
        without(part, &|t| t.without = part);
    }
    without("its activation", &|t| t.architecture.network.inner = Inner::Xielu);
}

#[test]
fn nemotron_h_moe() {
    let without = family("nemotron_h_moe");
    without("the bias of its choice", &|t| t.selection_bias = false);
    without("the factor of experts", &|t| t.expert_scale = 1.0);
    without("its shared network", &|t| t.shared = 0);
}

#[test]
fn lfm2() {
    let without = family("lfm2");
    for part in ["gates of inputs", "gates of outputs"] {
        without(part, &|t| t.without = part);
    }
    without("the norms of its heads", &|t| t.head_norms = false);
}

#[test]
fn lfm2moe() {
    let without = family("lfm2moe");
    without("the bias of its choice", &|t| t.selection_bias = false);
    without("the sigmoids of its choice", &|t| t.sigmoid_gating = false);
    without("its first layer without experts", &|t| t.dense = Some(0));
}

#[test]
fn deepseek2_lite() {
    let without = family("deepseek2-lite");
    without("the factor of scores", &|t| t.without = "the factor of scores");
    without("YaRN", &|t| t.score_weight = 0.0);
    without("weights that do not sum to 1", &|t| t.sums_to_one = true);
    without("keys of its heads", &|t| t.without = "keys of heads");
}

#[test]
fn deepseek2() {
    let without = family("deepseek2");
    without("keys of its heads", &|t| t.without = "keys of heads");
    without("the bias of its choice", &|t| t.selection_bias = false);
    without("the sigmoids of its choice", &|t| t.sigmoid_gating = false);
    without("groups of experts", &|t| t.groups = None);
    without("the factor of experts", &|t| t.expert_scale = 1.0);
    without("its shared network", &|t| t.shared = 0);
    without("its first layer without experts", &|t| t.dense = Some(0));
}

#[test]
fn qwen35() {
    let without = family("qwen35");
    for part in [
        "order of heads",
        "activation",
        "unit keys",
        "decays",
        "what is known",
        "rates",
        "gates of outputs",
    ] {
        without(part, &|t| t.without = part);
    }
    without("the gates of its attention", &|t| t.without = "gates of attention");
    without("the norms of its heads", &|t| t.head_norms = false);
    without("a part of a head that does not rotate", &|t| t.n_rot = 20);
}

#[test]
fn laguna() {
    let without = family("laguna");
    without("the gates of its attention", &|t| t.without = "gates of attention");
    without("its first layer, which has no window", &|t| {
        let windows = t.architecture.positions.windows.as_mut().unwrap();
        windows.global = Global::Last(4);
    });
    without("what rotates in windows", &|t| t.window_head = Some([20, 12]));
    without("its window", &|t| t.window = None);
}

#[test]
fn laguna_elements() {
    let without = family("laguna-elements");
    without("the gates of its attention", &|t| t.without = "gates of attention");
}

#[test]
fn mellum() {
    let without = family("mellum");
    without("its window", &|t| t.window = None);
}

#[test]
fn qwen3next() {
    let without = family("qwen3next");
    without("the order of its heads", &|t| t.without = "order of heads");
}

#[test]
fn qwen35moe() {
    let without = family("qwen35moe");
    without("its shared network", &|t| t.shared = 0);
    without("the gate of this network", &|t| t.shared_gate = false);
}

#[test]
fn gemma4() {
    let without = family("gemma4");
    without("the inputs of its layers", &|t| t.layer_input = 0);
    without("the scales of its layers", &|t| t.output_scales = false);
    without("the norms of its values", &|t| t.architecture.attention.value_norm = false);
    without("scores that are not divided", &|t| t.architecture.scales.scores = ScoreFactor::ByHead);
    without("pairs that stay still", &|t| t.turning = None);
    without("heads of layers with a window", &|t| t.window_head = None);
    without("keys and values of other layers", &|t| t.shared_kv = 0);
    without("the limit of logits", &|t| t.soft_caps = None);
}

#[test]
fn gemma4_experts() {
    let without = family("gemma4-experts");
    without("keys as values", &|t| t.keys_as_values = false);
    without("a second expert", &|t| t.experts = Some((5, 1)));
}

#[test]
fn gemma3() {
    let without = family("gemma3");
    without("its window", &|t| t.window = None);
    without("layers that have none", &|t| t.window = Some((10, 1 << 20)));
    without("the limit of logits", &|t| t.soft_caps = None);
    without("the scale of embeddings", &|t| t.architecture.scales.factors = Factors::None);
    without("the norms of its heads", &|t| t.head_norms = false);
    without("norms after attention and network", &|t| t.drop_post_norms());
    without("its activation", &|t| {
        t.architecture.network.inner = Inner::Gated(Activation::Silu);
    });
}

#[test]
fn gemma2() {
    let without = family("gemma2");
    without("its window", &|t| t.window = None);
    without("this window", &|t| t.window = Some((11, 2)));
    without("layers that have none", &|t| t.window = Some((10, 1 << 20)));
    without("the limit of scores", &|t| t.soft_caps = Some((100.0, 3.0)));
    without("the limit of logits", &|t| t.soft_caps = Some((1.5, 100.0)));
    without("the scale of embeddings", &|t| t.architecture.scales.factors = Factors::None);
    without("norms after attention and network", &|t| t.drop_post_norms());
}
