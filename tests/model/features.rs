//! Every architecture, compared with itself without each of its features.

use crate::model::{
    architectures::{GELU_BOUND, expected, found},
    session::difference,
};
use rope_cpu_testing::tiny::{EPSILON, Function, Tiny};

/// The bounds are small enough to detect each feature: a definition without it exceeds them.
#[test]
fn every_feature_matters() {
    let without = |name: &str, what: &str, change: &dyn Fn(&mut Tiny)| {
        let tiny = Tiny::named(name);
        let mut other = tiny.clone();
        change(&mut other);
        let apart = difference(&found(&tiny), &expected(&other));
        assert!(apart > 10.0 * GELU_BOUND, "{name} without {what}: {apart}");
    };
    without("llama", "its biases", &|t| t.biases = &[]);
    without("llama", "the bias of queries", &|t| t.biases = &t.biases[1..]);
    without("llama", "tied embeddings", &|t| t.tied = false);
    without("llama", "pairs side by side", &|t| t.architecture = "qwen2");
    without("llama-experts", "a second expert", &|t| t.experts = Some((5, 1)));
    without("smollm3", "a layer that does not rotate", &|t| t.unrotated = None);
    without("smollm3", "this layer that does not rotate", &|t| t.unrotated = Some(3));
    without("qwen2", "its biases", &|t| t.biases = &[]);
    without("qwen2", "pairs half a head apart", &|t| t.architecture = "llama");
    without("qwen3", "the norms of its heads", &|t| t.head_norms = false);
    without("qwen3moe", "the norms of its heads", &|t| t.head_norms = false);
    without("qwen3moe", "a third expert", &|t| t.experts = Some((7, 2)));
    without("phi3", "a part of a head that does not rotate", &|t| t.n_rot = 12);
    let phi3 = Tiny { window: Some((10, 1 << 20)), ..Tiny::named("phi3") };
    let whole = Tiny { window: None, ..phi3.clone() };
    assert!(difference(&found(&phi3), &expected(&whole)) > 10.0 * GELU_BOUND, "phi3's window");
    without("phi3", "LongRoPE's divisors", &|t| t.long_rope = None);
    for name in ["phi2", "starcoder2"] {
        without(name, "its activation", &|t| t.function = Function::SquaredRelu);
        without(name, "the mean that norms subtract", &|t| t.centered = false);
        without(name, "the biases of its norms", &|t| t.norm_biases = false);
        without(name, "the biases of its network", &|t| {
            t.biases = &["output", "attn_q", "attn_k", "attn_v", "attn_output"];
        });
    }
    without("phi2", "a part of a head that does not rotate", &|t| t.n_rot = 12);
    without("phi2", "the bias of its logits", &|t| t.biases = &t.biases[1..]);
    without("gpt-oss", "its sinks", &|t| t.sinks = false);
    without("gpt-oss", "its window", &|t| t.window = None);
    without("gpt-oss", "its activation", &|t| t.function = Function::Silu);
    without("gpt-oss", "the bias of its router", &|t| {
        t.biases = &["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    });
    without("gpt-oss", "the biases of its experts", &|t| {
        t.biases = &["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp"];
    });
    without("mistral3", "its temperature", &|t| t.temperature = Some((0.0, 16)));
    without("mistral3", "YaRN", &|t| t.temperature = None);
    without("olmo2", "its window", &|t| t.window = None);
    without("olmo2", "norms of whole rows", &|t| t.row_norms = false);
    without("olmo2", "norms after attention and network", &|t| t.post_norms = false);
    for (i, what) in ["embeddings", "branches", "logits"].into_iter().enumerate() {
        without("granite", &format!("its factor of {what}"), &|t| t.factors[i] = 1.0);
        without("minicpm", &format!("its factor of {what}"), &|t| t.factors[i] = 1.0);
    }
    without("granitemoe", "its shared network", &|t| t.shared = 0);
    without("granite_swa", "its sinks", &|t| t.sinks = false);
    without("granite_swa", "its window", &|t| t.window = None);
    without("granite_swa", "its layer that does not rotate", &|t| t.unrotated = None);
    without("granite_swa", "the layers that it lists", &|t| t.unrotated = Some(4));
    without("granite_swa", "its factor of branches", &|t| t.factors[1] = 1.0);
    without("hunyuan-moe", "norms of rotated heads", &|t| t.rotated_norms = false);
    without("hunyuan-moe", "norms after rotation", &|t| {
        (t.rotated_norms, t.head_norms) = (false, true);
    });
    without("hunyuan-moe", "a base without alpha", &|t| t.architecture = "hunyuan-dense");
    without("hunyuan-moe", "a second expert", &|t| t.experts = Some((5, 1)));
    without("hunyuan-moe", "its shared network", &|t| t.shared = 0);
    without("seed_oss", "its biases", &|t| t.biases = &[]);
    without("seed_oss", "the bias of queries", &|t| t.biases = &t.biases[1..]);
    without("seed_oss", "pairs half a head apart", &|t| t.architecture = "llama");
    without("qwen3vl", "the norms of its heads", &|t| t.head_norms = false);
    without("qwen3vl", "what rotates of a head", &|t| t.n_rot = 12);
    without("qwen3vl", "pairs half a head apart", &|t| t.architecture = "llama");
    without("hunyuan-dense", "norms of rotated heads", &|t| t.rotated_norms = false);
    without("hunyuan-dense", "norms after rotation", &|t| {
        (t.rotated_norms, t.head_norms) = (false, true);
    });
    without("hunyuan-dense", "the alpha of its base", &|t| t.architecture = "hunyuan-moe");
    without("exaone4", "the norms of its heads", &|t| t.head_norms = false);
    without("glm4", "a part of a head that does not rotate", &|t| t.n_rot = 12);
    without("glm4-sections", "its pairs half a head apart", &|t| t.sections = None);
    without("glm4moe", "the norms of its heads", &|t| t.head_norms = false);
    without("glm4moe", "a part of a head that does not rotate", &|t| t.n_rot = 20);
    without("glm4moe", "pairs half a head apart", &|t| t.architecture = "llama");
    without("glm4moe", "its biases", &|t| t.biases = &[]);
    without("glm4moe", "the bias of its choice", &|t| t.selection_bias = false);
    without("glm4moe", "the sigmoids of its choice", &|t| t.sigmoid_gating = false);
    without("glm4moe", "weights that sum to 1", &|t| t.sums_to_one = false);
    without("glm4moe", "the factor of experts", &|t| t.expert_scale = 1.0);
    without("glm4moe", "its shared network", &|t| t.shared = 0);
    without("glm4moe", "its first layer without experts", &|t| t.dense = Some(0));
    without("ernie4_5-moe", "its first layer without experts", &|t| t.dense = Some(0));
    without("ernie4_5-moe", "its shared network", &|t| t.shared = 0);
    without("ernie4_5-moe", "the bias of its choice", &|t| t.selection_bias = false);
    without("arcee", "its activation", &|t| t.function = Function::Xielu);
    without("apertus", "the norms of its heads", &|t| t.head_norms = false);
    without("command-r", "the mean that norms subtract", &|t| t.centered = false);
    without("command-r", "its factor of logits", &|t| t.factors[2] = 1.0);
    without("command-r", "one input of attention and network", &|t| t.without = "one input");
    without("cohere2", "the mean that norms subtract", &|t| t.centered = false);
    without("cohere2", "its factor of logits", &|t| t.factors[2] = 1.0);
    without("cohere2", "its window", &|t| t.window = None);
    without("cohere2", "its layer that does not rotate", &|t| t.windows_rotate = false);
    without("cohere2moe", "the mean that norms subtract", &|t| t.centered = false);
    without("cohere2moe", "its factor of logits", &|t| t.factors[2] = 1.0);
    without("cohere2moe", "its window", &|t| t.window = None);
    without("cohere2moe", "its layer that does not rotate", &|t| t.windows_rotate = false);
    without("cohere2moe", "its first layer, which has no window", &|t| t.architecture = "cohere2");
    without("cohere2moe", "the mean of experts and network", &|t| t.averaged = false);
    without("cohere2moe", "its shared network", &|t| t.shared = 0);
    without("cohere2moe", "the sigmoids of its choice", &|t| t.sigmoid_gating = false);
    without("cohere2moe", "weights that sum to 1", &|t| t.sums_to_one = false);
    without("cohere2moe", "the factor of experts", &|t| t.expert_scale = 1.0);
    without("cohere2moe", "its first layer without experts", &|t| t.dense = Some(0));
    without("muse-glimmer", "the norm of embeddings", &|t| t.embedding_norm = false);
    without("muse-glimmer", "the constant of later norms", &|t| t.post_epsilon = EPSILON);
    without("muse-glimmer", "the norms of its heads", &|t| t.head_norms = false);
    without("muse-glimmer", "pairs side by side", &|t| t.without = "pairs side by side");
    without("muse-glimmer", "the gates of its attention", &|t| t.without = "gates of attention");
    without("muse-glimmer", "norms after attention and network", &|t| t.post_norms = false);
    without("muse-glimmer", "its window", &|t| t.window = None);
    without("muse-glimmer", "its layer that does not rotate", &|t| t.windows_rotate = false);
    without("muse-glimmer", "its factor of logits", &|t| t.factors[2] = 1.0);
    without("muse-glimmer", "the limit of logits", &|t| t.soft_caps = None);
    let parts = ["gates of inputs", "gates of outputs"].map(|part| ("lfm2", part));
    let delta = ["order of heads", "activation", "unit keys", "decays", "what is known", "rates"];
    let delta = delta.into_iter().chain(["gates of outputs"]).map(|part| ("qwen35", part));
    for (name, part) in parts.into_iter().chain(delta) {
        without(name, part, &|t| t.without = part);
    }
    for part in [
        "groups of heads",
        "activation",
        "decays",
        "steps",
        "values beside outputs",
        "gates",
        "bias of the convolution",
    ] {
        without("nemotron_h", part, &|t| t.without = part);
    }
    without("granitehybrid", "layers that do not rotate", &|t| t.unrotated = None);
    without("granitehybrid", "its factor of branches", &|t| t.factors[1] = 1.0);
    without("granitehybrid", "its shared network", &|t| t.shared = 0);
    without("falcon-h1", "attention beside the scan", &|t| t.branches = b"MM");
    without("nemotron_h", "its activation", &|t| t.function = Function::Xielu);
    without("nemotron_h_moe", "the bias of its choice", &|t| t.selection_bias = false);
    without("nemotron_h_moe", "the factor of experts", &|t| t.expert_scale = 1.0);
    without("nemotron_h_moe", "its shared network", &|t| t.shared = 0);
    without("lfm2", "the norms of its heads", &|t| t.head_norms = false);
    without("lfm2moe", "the bias of its choice", &|t| t.selection_bias = false);
    without("lfm2moe", "the sigmoids of its choice", &|t| t.sigmoid_gating = false);
    without("lfm2moe", "its first layer without experts", &|t| t.dense = Some(0));
    without("deepseek2-lite", "the factor of scores", &|t| t.without = "the factor of scores");
    without("deepseek2-lite", "YaRN", &|t| t.score_weight = 0.0);
    without("deepseek2-lite", "weights that do not sum to 1", &|t| t.sums_to_one = true);
    without("deepseek2-lite", "keys of its heads", &|t| t.without = "keys of heads");
    without("deepseek2", "keys of its heads", &|t| t.without = "keys of heads");
    without("deepseek2", "the bias of its choice", &|t| t.selection_bias = false);
    without("deepseek2", "the sigmoids of its choice", &|t| t.sigmoid_gating = false);
    without("deepseek2", "groups of experts", &|t| t.groups = None);
    without("deepseek2", "the factor of experts", &|t| t.expert_scale = 1.0);
    without("deepseek2", "its shared network", &|t| t.shared = 0);
    without("deepseek2", "its first layer without experts", &|t| t.dense = Some(0));
    without("qwen35", "the gates of its attention", &|t| t.without = "gates of attention");
    without("qwen35", "the norms of its heads", &|t| t.head_norms = false);
    without("qwen35", "a part of a head that does not rotate", &|t| t.n_rot = 20);
    for name in ["laguna", "laguna-elements"] {
        without(name, "the gates of its attention", &|t| t.without = "gates of attention");
    }
    without("laguna", "its first layer, which has no window", &|t| t.architecture = "mellum");
    without("laguna", "what rotates in windows", &|t| t.window_head = Some([20, 12]));
    without("laguna", "its window", &|t| t.window = None);
    without("mellum", "its window", &|t| t.window = None);
    without("qwen3next", "the order of its heads", &|t| t.without = "order of heads");
    without("qwen35moe", "its shared network", &|t| t.shared = 0);
    without("qwen35moe", "the gate of this network", &|t| t.shared_gate = false);
    without("gemma4", "the inputs of its layers", &|t| t.layer_input = 0);
    without("gemma4", "the scales of its layers", &|t| t.output_scales = false);
    without("gemma4", "the norms of its values", &|t| t.value_norm = false);
    without("gemma4", "scores that are not divided", &|t| t.plain_scores = false);
    without("gemma4", "pairs that stay still", &|t| t.turning = None);
    without("gemma4", "heads of layers with a window", &|t| t.window_head = None);
    without("gemma4", "keys and values of other layers", &|t| t.shared_kv = 0);
    without("gemma4", "the limit of logits", &|t| t.soft_caps = None);
    without("gemma4-experts", "keys as values", &|t| t.keys_as_values = false);
    without("gemma4-experts", "a second expert", &|t| t.experts = Some((5, 1)));
    without("gemma2", "its window", &|t| t.window = None);
    without("gemma2", "this window", &|t| t.window = Some((11, 2)));
    without("gemma2", "layers that have none", &|t| t.window = Some((10, 1 << 20)));
    without("gemma2", "the limit of scores", &|t| t.soft_caps = Some((100.0, 3.0)));
    without("gemma2", "the limit of logits", &|t| t.soft_caps = Some((1.5, 100.0)));
    without("gemma2", "the scale of embeddings", &|t| t.factors = [1.0; 3]);
    without("gemma2", "norms after attention and network", &|t| t.post_norms = false);
}
