//! Methods that act on attention, against the distances of the reference.

use rope_cpu::rope::{
    Flags, Plan, Region, SCALING, dca, lm_infinite, rerope, self_extend, string, yarn,
};

use crate::rope::{Case, close, floats, golden};

/// Returns the plan of a model with a trained length of 8 tokens, in a context of 14.
fn plan(scaling: &'static str, flags: Flags) -> Plan {
    let flags = flags.with(&SCALING, scaling);
    Case { context_train: 8, context: Some(14), ..Case::default() }.flags(flags).plan().unwrap()
}

/// Returns the distance that is assigned to the key at `j` for the query at `i`, or `None` if the key
/// is not visible.
fn distance(plan: &Plan, i: usize, j: usize) -> Option<f64> {
    let sees = |part: &Region| plan.visibility.visible(*part, i).contains(&j);
    let parts = plan.visibility.regions(0..i + 1).filter(sees).count();
    assert!(parts <= 1, "the key at {j} is in two regions for the query at {i}");
    plan.visibility.distance(i, j)
}

#[test]
fn distances_equal_the_reference() {
    let four = Some(4);
    let cases = [
        ("rerope_w4", plan("rerope", Flags::default().with_some(&rerope::WINDOW, four))),
        (
            "leaky_rerope_w4_k4",
            plan(
                "leaky-rerope",
                Flags::default().with_some(&rerope::WINDOW, four).with_some(&rerope::K, four),
            ),
        ),
        (
            "self_extend_G2_W4",
            plan(
                "self-extend",
                Flags::default().with(&self_extend::GROUP, 2).with_some(&self_extend::WINDOW, four),
            ),
        ),
        (
            "lm_infinite_g2_l4_kvlen14",
            plan(
                "lm-infinite",
                Flags::default().with(&lm_infinite::GLOBAL, 2).with_some(&lm_infinite::LOCAL, four),
            ),
        ),
    ];
    let dca =
        |c, w| plan("dca", Flags::default().with(&dca::CHUNK_SIZE, c).with(&dca::LOCAL_SIZE, w));
    let cases = cases.into_iter().chain([("dca_c6_w2", dca(6, 2)), ("dca_c5_w4", dca(5, 4))]);
    let golden = golden();
    for (name, plan) in cases {
        let rows = golden["rel_pos"][name].as_array().unwrap();
        assert_eq!(rows.len(), 14);
        for (i, row) in rows.iter().enumerate() {
            for (j, expected) in row.as_array().unwrap().iter().enumerate().take(i + 1) {
                assert_eq!(distance(&plan, i, j), expected.as_f64(), "{name}: {i} {j}");
            }
        }
    }
}

/// If the group size does not divide the window, one kernel of the authors' code computes fractions of
/// a position, and another rounds them. Such settings are an error here.
#[test]
fn groups_that_do_not_fill_the_window_are_errors() {
    let rows = &golden()["rel_pos"]["self_extend_G4_W6"];
    assert_eq!(rows[8][0].as_f64(), Some(2.0 + 6.0 - 1.5));
    let (grp_attn_n, grp_attn_w) = (Some(4), Some(6));
    let scaling = Some("self-extend");
    let flags = Flags::default()
        .with_some(&SCALING, scaling)
        .with_some(&self_extend::GROUP, grp_attn_n)
        .with_some(&self_extend::WINDOW, grp_attn_w);
    let case = Case { context_train: 8, context: Some(14), ..Case::default() }.flags(flags);
    assert!(case.error().starts_with("`grp_attn_w` 6: must be a multiple of the group size"));
}

/// llama.cpp has options with the same names and another effect, which `rope explain` reports.
#[test]
fn groups_of_llama_cpp_follow_another_rule() {
    let golden = golden();
    let references = golden["llamacpp_grp_attn"].as_array().unwrap();
    assert_eq!(references.len(), 3);
    for reference in references {
        let whole = |name: &str| reference[name].as_u64().unwrap() as usize;
        let (grp_attn_n, grp_attn_w) = (Some(whole("G")), Some(whole("W")));
        let (tokens, positions) = (whole("n_tokens"), floats(&reference["positions"]));
        assert_eq!(positions.len(), tokens);
        let flags = Flags::default()
            .with_some(&self_extend::GROUP, grp_attn_n)
            .with_some(&self_extend::WINDOW, grp_attn_w);
        let flags = flags.with(&SCALING, "self-extend");
        let case = Case { context_train: 8, context: Some(tokens), ..Case::default() };
        let plan = case.flags(flags).plan().unwrap();
        let last = tokens - 1;
        let differs =
            |j: &usize| distance(&plan, last, *j) != Some(positions[last] - positions[*j]);
        assert!((0..tokens).any(|j| differs(&j)), "{reference}");
        let differences = plan.unlike_llama_cpp(&Flags::default()).join(" ");
        assert!(differences.contains("`grp_attn_n` follows another rule"), "{differences}");
    }
}

#[test]
fn query_scales_equal_the_reference() {
    let plan = plan("rerope", Flags::default());
    for (i, expected) in floats(&golden()["rel_pos"]["logn_scale_train8"]).into_iter().enumerate() {
        // The tolerance is half a unit in the last place of an f32.
        close("log n", f64::from(plan.query_scale(i)), expected, 1.0 / (1 << 24) as f64);
    }
}

#[test]
fn defaults_reach_the_context() {
    for (scaling, context) in [
        ("rerope", 100_000),
        ("leaky-rerope", 100_000),
        ("self-extend", 100_000),
        ("self-extend", 8193),
        ("lm-infinite", 100_000),
        ("dca", 100_000),
    ] {
        let flags = Flags::method(scaling);
        let plan = Case { context: Some(context), ..Case::default() }.flags(flags).plan().unwrap();
        // Twelve times the trained length has not been measured.
        let expected = usize::from(context > 65536);
        assert_eq!(plan.warnings.len(), expected, "{:?}", plan.warnings);
        assert!(plan.warnings.iter().all(|text| text.contains("no measurement")));
        let farthest = [0, 1, context / 2, context - 1]
            .map(|j| distance(&plan, context - 1, j).unwrap_or(0.0));
        let farthest = farthest.into_iter().fold(0.0, f64::max);
        assert!(farthest <= 8192.0, "{scaling}: {farthest}");
    }
}

/// The paper's formula, section 4, as in the authors' code for generated tokens.
#[test]
fn far_distances_of_string_start_again() {
    let plan = |context, flags: Flags| {
        let flags = flags.with(&SCALING, "string");
        Case { context_train: 1200, context: Some(context), ..Case::default() }.flags(flags)
    };
    let of = plan(1200, Flags::default()).plan().unwrap();
    for (d, expected) in [(0, 0), (1, 1), (399, 399), (400, 128), (401, 129), (1199, 927)] {
        assert_eq!(distance(&of, 1199, 1199 - d), Some(expected as f64), "{d}");
    }
    assert_eq!(of.warnings, [""; 0]);
    let given = Flags::default().with(&string::SHIFT, 300).with(&string::WINDOW, 50);
    let of = plan(1450, given).plan().unwrap();
    assert_eq!((distance(&of, 1449, 0), of.reaches()), (Some(1199.0), true));
    let given = Flags::default().with(&string::SHIFT, 300).with(&string::WINDOW, 300);
    assert_eq!(
        plan(1200, given).error(),
        "`string_window` 300: must be a whole number from 0 to 299"
    );
}

/// The authors' constants for Qwen: 3/4 and 1/16 of the trained length.
#[test]
fn chunks_of_dca_are_within_the_trained_length() {
    let plan = |context, flags: Flags| {
        let flags = flags.with(&SCALING, "dca");
        Case { context_train: 32768, context: Some(context), ..Case::default() }.flags(flags)
    };
    let of = plan(131_072, Flags::default()).plan().unwrap();
    let visibility = of.visibility;
    assert_eq!((visibility.near, of.span(131_072), of.reaches()), (22528, 24577, true));
    // In the own chunk, at the end and the start of the one before, and in an older one.
    let query = 3 * 22528 + 3000;
    for (key, expected) in
        [(3 * 22528, 3000), (3 * 22528 - 1, 2049), (2 * 22528, 24576), (0, 24576)]
    {
        assert_eq!(distance(&of, query, key), Some(expected as f64), "{key}");
    }
    // Up to the chunk size all distances are true, and a larger one is never seen.
    assert!((0..24577).step_by(191).all(|j| distance(&of, 24576, j) == Some((24576 - j) as f64)));
    let within = plan(24577, Flags::default()).plan().unwrap();
    assert_eq!(
        within.warnings,
        ["dca in a context of 24577, which is within its window, changes nothing"]
    );
    assert_eq!(plan(24578, Flags::default()).plan().unwrap().warnings, [""; 0]);
    let longest = |local: usize| {
        let flags = Flags::default().with(&dca::CHUNK_SIZE, 100).with(&dca::LOCAL_SIZE, local);
        let of = plan(1000, flags).plan().unwrap();
        (0..1000).filter_map(|j| distance(&of, 999, j)).fold(0.0, f64::max)
    };
    assert_eq!([0, 30, 60, 99].map(longest), [100.0, 100.0, 79.0, 1.0]);
    for (flags, error) in [
        (
            Flags::default().with(&dca::CHUNK_SIZE, 0),
            "`dca_chunk_size` 0: must be a whole number from 1 to 1073741824",
        ),
        (
            Flags::default().with(&dca::CHUNK_SIZE, 64).with(&dca::LOCAL_SIZE, 64),
            "`dca_local_size` 64: must be a whole number from 0 to 63",
        ),
    ] {
        assert_eq!(plan(1000, flags).error(), error);
    }
}

/// Qwen2.5-1M, as its card configures vLLM.
#[test]
fn scores_of_dca_grow_with_yarns_scale() {
    let flags = Flags::method("dca")
        .with(&yarn::ORIG_CTX, 262_144)
        .with(&dca::CHUNK_SIZE, 262_144)
        .with(&dca::LOCAL_SIZE, 8192)
        .with(&dca::ATTENTION_SCALE, true);
    let case = Case { context_train: 1_010_000, context: Some(1_000_000), ..Case::default() };
    let plan = case.flags(flags).plan().unwrap();
    assert_eq!((plan.visibility.near, plan.reaches()), (253_952, true));
    for position in [0, 262_143, 262_144, 524_287, 999_999] {
        let length = position as f64 + 1.0;
        let scale = (0.1 * (length / 262_144.0).ln() + 1.0).max(1.0);
        let found = f64::from(plan.query_scale(position));
        close("scale", found, scale * scale, 1.0 / (1 << 23) as f64);
    }
    let line = plan.to_string();
    let expected = "RoPE: dca (`rope_scaling` dca), chunk size 262144 (`dca_chunk_size` 262144), local size \
                    8192 (`dca_local_size` 8192), attention scaled by length from 262144 (`yarn_orig_ctx` \
                    262144), base 10000 (default)";
    assert!(line.starts_with(expected), "{line}");
}
