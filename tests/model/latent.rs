//! Attention to latents: what the cache holds, and files that are refused.

use crate::model::{
    predictor::{predict_after, with_predictor},
    session::{How, load, tokens, with_session},
};
use rope_cpu_testing::{
    builder::{Builder, U32},
    tiny::{Latent, Tiny},
};

#[test]
fn the_cache_holds_one_row_for_a_position() {
    let tiny = Tiny::latent();
    with_session(&tiny, &How::default(), |session| {
        session.evaluate(&tokens(&tiny, 250), 0..0, &mut |_, _| {}).unwrap();
        let Some(Latent { rank, .. }) = tiny.latent else { unreachable!() };
        assert_eq!(session.cache_bytes(), tiny.layers * 256 * (rank + tiny.n_rot) * 4);
    });
}

#[test]
fn files_that_do_not_fit_are_refused_by_name() {
    let with = |key: &str, value: u32| -> Builder {
        let mut b = Tiny::named("deepseek2").builder();
        b.keys.retain(|entry| !entry.windows(key.len()).any(|part| part == key.as_bytes()));
        b.key(format!("deepseek2.{key}"), U32, value.to_le_bytes())
    };
    for (key, value, expected) in [
        ("attention.key_length_mla", 32, "is 32: must be more than the 32 that rotate"),
        ("attention.kv_lora_rank", 48, "is 48: must be a multiple of 32"),
        ("attention.kv_lora_rank", 1024, "is 1024: must be at most 992 beside 32 that rotate"),
        ("rope.dimension_count", 12, "is 12: must be a multiple of 32"),
        ("expert_group_count", 3, "is 3: must divide the number of experts, which is 8"),
        ("expert_group_used_count", 1, "is 1: so many groups have fewer than the 3 experts"),
        ("expert_gating_func", 3, "is 3: must be 1 (softmax) or 2 (sigmoid)"),
    ] {
        let error = load(&with(key, value), &[]).unwrap_err().to_string();
        assert!(error.contains(&format!("deepseek2.{key} {expected}")), "{error}");
    }
    let error = load(&with("attention.kv_lora_rank", 96), &[]).unwrap_err().to_string();
    assert!(error.contains("tensor blk.0.attn_kv_a_mqa.weight has shape [72, 96]"), "{error}");
    let error = load(&with("attention.value_length_mla", 21), &[]).unwrap_err().to_string();
    assert!(error.contains("blk.0.attn_v_b.weight has shape [64, 20, 6]"), "{error}");
}

/// The first files have one tensor, `attn_kv_b`, for the matrices of keys and values.
#[test]
fn files_with_joined_matrices_compute_the_same() {
    let tiny = Tiny::named("deepseek2-lite");
    let latent = tiny.latent.map(|latent| Latent { joined: true, ..latent });
    let how = How::default();
    let run =
        |tiny: &Tiny| with_session(tiny, &how, |session| how.read(session, &tokens(tiny, 60)));
    assert!(run(&tiny) == run(&Tiny { latent, ..tiny.clone() }));
    let run = |tiny: &Tiny| {
        with_predictor(tiny, &how, true, |session| {
            how.read(session, &tokens(tiny, 60));
            predict_after(session, &[1, 2])
        })
    };
    let tiny = Tiny { predicts: true, ..tiny };
    let found = run(&tiny);
    assert!(found.len() == 2 && found == run(&Tiny { latent, ..tiny }));
}
