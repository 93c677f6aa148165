//! A tiny model of each family, as llama.cpp computed it for tests/data.

use super::{LINEARS, Latent, Recurrent, Tiny, family};

const ATTENTION_BIASES: &[&str] = &["attn_q", "attn_k", "attn_v"];
const ALL_BIASES: &[&str] = &[
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate_inp",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
];

/// The matrices with a bias in models with a network without a gate.
const UNGATED_BIASES: &[&str] =
    &["output", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"];

const DELTA: Recurrent = Recurrent::Delta { key_heads: 2, value_heads: 4, dim: 16, taps: 4 };

/// [`on_families`](crate::on_families) with all families. `on_every_family!(@names)` lists them.
#[macro_export]
macro_rules! on_every_family {
    ($($check:ident),+ $(,)?) => {
        $($crate::on_every_family! { @families $check })+
    };
    (@names) => { $crate::on_every_family! { @families @names } };
    (@families $($first:tt)+) => {
        $crate::on_families! {
            $($first)+:
            llama llama_experts laguna_elements glm4moe_air glm4_sections deepseek2_lite gemma4_experts smollm3
            qwen2 qwen2vl qwen3 qwen3vl qwen3moe qwen3vlmoe phi3 phi2 starcoder2 gemma2 gemma3 gemma4
            gpt_oss mistral3 olmo2 granite granitemoe granite_swa minicpm exaone4 glm4 glm4moe
            ernie4_5 ernie4_5_moe seed_oss hunyuan_dense hunyuan_moe arcee apertus command_r
            cohere2 cohere2moe muse_glimmer lfm2 lfm2moe deepseek2 granitehybrid falcon_h1
            nemotron_h nemotron_h_moe laguna mellum qwen35 qwen35moe qwen3next
        }
    };
}

impl Tiny {
    /// Returns the models that tests/data/architectures.json has logits of, with their names there.
    pub fn all() -> Vec<(&'static str, Tiny)> {
        let base = Tiny { head_dim: 12, biases: &[], ..Tiny::llama() };
        let of = |name: &str| Tiny { architecture: family(name), ..base.clone() };
        let wide = |name: &str| Tiny { head_dim: 20, n_rot: 20, ..of(name) };
        let tied = |name: &str| Tiny { tied: true, ..of(name) };
        let lfm2 = |name: &str| Tiny {
            layers: 4,
            recurrent: Some(Recurrent::ShortConvolution { taps: 3 }),
            attends: 3,
            ..tied(name)
        };
        let qwen35 = |name: &str| Tiny {
            layers: 3,
            head_dim: 20,
            sections: Some([2, 2, 2, 0]),
            recurrent: Some(DELTA),
            attends: 2,
            predicts: true,
            ..of(name)
        };
        // llama.cpp wants an inner width of twice the embedding in Granite's models.
        let mamba2 = Recurrent::Mamba2 { groups: 2, heads: 8, dim: 16, state: 24, taps: 4 };
        let nemotron =
            |name: &str| Tiny { layers: 4, branches: b"M-*-", recurrent: Some(mamba2), ..of(name) };
        let qwen3vl =
            |name: &str| Tiny { head_dim: 24, n_rot: 24, sections: Some([4, 4, 4, 0]), ..of(name) };
        let laguna = Tiny {
            layers: 5,
            shapes: &[[6, 2, 20], [8, 2, 20], [8, 2, 20], [8, 2, 20], [6, 2, 20]],
            head_dim: 20,
            window: Some((10, 4)),
            window_head: Some([20, 20]),
            experts: Some((5, 2)),
            dense: Some(1),
            shared: 56,
            selection_bias: true,
            expert_scale: 2.5,
            ..of("laguna")
        };
        let gemma4 = Tiny {
            layers: 6,
            n_rot: 20,
            turning: Some(4),
            window_head: Some([12, 8]),
            window: Some((10, 3)),
            tied: true,
            output_scales: true,
            soft_caps: Some((0.0, 3.0)),
            ..wide("gemma4")
        };
        let deepseek2 = Tiny {
            layers: 3,
            kv_heads: 1,
            n_rot: 32,
            feed_forward: 32,
            experts: Some((8, 3)),
            dense: Some(1),
            shared: 64,
            latent: Some(Latent {
                query_rank: 40,
                rank: 64,
                unrotated: 24,
                value_dim: 20,
                joined: false,
            }),
            ..of("deepseek2")
        };
        let glm4moe = Tiny {
            layers: 3,
            n_rot: 10,
            feed_forward: 56,
            biases: ATTENTION_BIASES,
            experts: Some((5, 2)),
            dense: Some(1),
            shared: 56,
            selection_bias: true,
            expert_scale: 2.5,
            predicts: true,
            ..wide("glm4moe")
        };
        let glm4 = Tiny { n_rot: 6, biases: ATTENTION_BIASES, ..of("glm4") };
        let pair = |tiny: Tiny| (tiny.architecture.name, tiny);
        let mut all = vec![
            ("llama", Tiny { biases: &LINEARS, tied: true, ..base.clone() }),
            ("llama-experts", Tiny { experts: Some((5, 2)), ..base.clone() }),
            (
                "laguna-elements",
                Tiny {
                    layers: 2,
                    shapes: &[[6, 2, 20], [8, 2, 20]],
                    element_gates: true,
                    ..laguna.clone()
                },
            ),
            // The smaller models have no norms of heads.
            ("glm4moe-air", Tiny { head_norms: false, predicts: false, ..glm4moe.clone() }),
            // GLM-4.1V and GLM-OCR.
            ("glm4-sections", Tiny { sections: Some([1, 1, 1, 0]), ..glm4.clone() }),
            (
                "deepseek2-lite",
                Tiny {
                    latent: deepseek2.latent.map(|latent| Latent { query_rank: 0, ..latent }),
                    sums_to_one: false,
                    expert_scale: 1.0,
                    score_weight: 0.707,
                    ..deepseek2.clone()
                },
            ),
            (
                "gemma4-experts",
                Tiny {
                    layers: 3,
                    shapes: &[[6, 2, 20], [6, 2, 20], [6, 1, 20]],
                    keys_as_values: true,
                    experts: Some((5, 2)),
                    narrower: 8,
                    ..gemma4.clone()
                },
            ),
        ];
        all.extend(
            [
                Tiny { layers: 5, ..tied("smollm3") },
                Tiny { biases: ATTENTION_BIASES, ..of("qwen2") },
                Tiny { sections: Some([2, 2, 2, 0]), biases: ATTENTION_BIASES, ..of("qwen2vl") },
                Tiny { tied: true, ..wide("qwen3") },
                qwen3vl("qwen3vl"),
                Tiny { experts: Some((7, 3)), ..wide("qwen3moe") },
                Tiny { experts: Some((7, 3)), ..qwen3vl("qwen3vlmoe") },
                Tiny { n_rot: 8, fused: true, long_rope: Some(16), ..of("phi3") },
                Tiny { n_rot: 8, biases: UNGATED_BIASES, norm_biases: true, ..of("phi2") },
                Tiny { biases: &UNGATED_BIASES[1..], norm_biases: true, ..of("starcoder2") },
                Tiny {
                    layers: 4,
                    window: Some((10, 2)),
                    soft_caps: Some((1.5, 3.0)),
                    ..tied("gemma2")
                },
                Tiny {
                    layers: 7,
                    window: Some((10, 6)),
                    soft_caps: Some((0.0, 3.0)),
                    ..tied("gemma3")
                },
                Tiny { layer_input: 32, shared_kv: 3, narrower: 8, ..gemma4.clone() },
                Tiny {
                    biases: ALL_BIASES,
                    experts: Some((5, 2)),
                    window: Some((10, 2)),
                    ..of("gpt-oss")
                },
                Tiny { temperature: Some((0.5, 16)), ..of("mistral3") },
                Tiny { layers: 4, window: Some((10, 4)), ..of("olmo2") },
                of("granite"),
                Tiny { experts: Some((5, 2)), shared: 56, ..of("granitemoe") },
                Tiny { layers: 4, window: Some((10, 2)), unrotated: Some(3), ..of("granite_swa") },
                tied("minicpm"),
                of("exaone4"),
                glm4,
                glm4moe,
                of("ernie4_5"),
                Tiny {
                    experts: Some((5, 2)),
                    dense: Some(1),
                    shared: 56,
                    selection_bias: true,
                    ..of("ernie4_5-moe")
                },
                Tiny { biases: ATTENTION_BIASES, ..of("seed_oss") },
                of("hunyuan-dense"),
                Tiny { experts: Some((5, 2)), shared: 56, ..of("hunyuan-moe") },
                of("arcee"),
                of("apertus"),
                Tiny { head_norms: false, ..tied("command-r") },
                Tiny { layers: 4, window: Some((10, 4)), ..tied("cohere2") },
                Tiny {
                    layers: 6,
                    window: Some((10, 4)),
                    experts: Some((5, 2)),
                    dense: Some(1),
                    shared: 56,
                    expert_scale: 2.5,
                    predicts: true,
                    ..tied("cohere2moe")
                },
                Tiny {
                    layers: 5,
                    soft_caps: Some((0.0, 3.0)),
                    window: Some((10, 4)),
                    ..wide("muse-glimmer")
                },
                lfm2("lfm2"),
                Tiny {
                    experts: Some((5, 2)),
                    dense: Some(1),
                    selection_bias: true,
                    sigmoid_gating: true,
                    ..lfm2("lfm2moe")
                },
                Tiny {
                    selection_bias: true,
                    sigmoid_gating: true,
                    groups: Some((4, 2)),
                    expert_scale: 2.5,
                    predicts: true,
                    ..deepseek2
                },
                Tiny {
                    layers: 3,
                    embedding: 64,
                    tied: true,
                    unrotated: Some(1),
                    recurrent: Some(mamba2),
                    attends: 2,
                    experts: Some((5, 2)),
                    shared: 56,
                    ..of("granitehybrid")
                },
                Tiny { recurrent: Some(mamba2), ..of("falcon-h1") },
                nemotron("nemotron_h"),
                Tiny {
                    experts: Some((5, 2)),
                    shared: 56,
                    selection_bias: true,
                    expert_scale: 2.5,
                    ..nemotron("nemotron_h_moe")
                },
                laguna,
                Tiny { layers: 4, experts: Some((7, 3)), window: Some((10, 4)), ..wide("mellum") },
                qwen35("qwen35"),
                Tiny {
                    experts: Some((5, 2)),
                    fused_experts: true,
                    shared: 56,
                    shared_gate: true,
                    ..qwen35("qwen35moe")
                },
                Tiny {
                    experts: Some((5, 2)),
                    sections: None,
                    shared: 56,
                    shared_gate: true,
                    ..qwen35("qwen3next")
                },
            ]
            .map(pair),
        );
        all
    }

    /// Returns the encoders that tests/data/architectures.json has embeddings of, with their names
    /// there.
    pub fn encoders() -> Vec<(&'static str, Tiny)> {
        let gemma = Tiny {
            architecture: family("gemma-embedding"),
            layers: 4,
            window: Some((10, 2)),
            soft_caps: None,
            ..Tiny::gemma3()
        };
        let bert = Tiny {
            architecture: family("bert"),
            kv_heads: 6,
            head_dim: 12,
            context: 1100,
            norm_biases: true,
            tied: true,
            ..Tiny::llama()
        };
        let nomic =
            Tiny { architecture: family("nomic-bert"), biases: &[], fused: true, ..bert.clone() };
        [gemma, bert, nomic].map(|tiny| (tiny.architecture.name, tiny)).to_vec()
    }

    /// Returns a model with norms of its heads, with weights of their own for each head. llama.cpp
    /// reads them in models with 64 layers.
    pub fn command_r_plus() -> Tiny {
        Tiny {
            layers: 64,
            embedding: 24,
            feed_forward: 16,
            heads: 2,
            kv_heads: 1,
            head_norms: true,
            ..Tiny::named("command-r")
        }
    }

    /// Returns the name of the test of a family.
    pub fn test_name(name: &str) -> String {
        name.replace('-', "_")
    }

    /// Returns the family of a test, with its name.
    pub fn of_test(test: &str) -> (&'static str, Tiny) {
        let mut models = Tiny::all().into_iter().chain(Tiny::encoders());
        models.find(|(name, _)| Tiny::test_name(name) == test).expect(test)
    }

    /// Returns the model of [`Tiny::all`] or [`Tiny::encoders`] with this name.
    pub fn named(name: &str) -> Tiny {
        let mut models = Tiny::all().into_iter().chain(Tiny::encoders());
        models.find(|(known, _)| *known == name).unwrap().1
    }
}
