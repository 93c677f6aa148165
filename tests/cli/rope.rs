//! `rope` on a tiny model: 16 dimensions, base 10000, trained for 256 tokens.

mod measured;

use rope_cpu::gguf::{self, File};
use serde_json::Value;

use crate::cli::{Run, gemma3, run};
use rope_cpu_testing::{
    reader::{tiny, tiny_in_parts},
    tiny::Tiny,
};

/// Runs `rope` with the tiny model.
fn rope(what: &str, options: &[&str]) -> Run {
    let file = tiny();
    let model = file.path().to_str().unwrap();
    run(&[&["rope", what, "-m", model], options].concat())
}

fn shown(run: Run) -> String {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.stdout
}

fn json(run: Run) -> Value {
    rope_cpu::json::parse(&shown(run)).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn explain_shows_the_settings_and_their_effect() {
    let text =
        shown(rope("explain", &["-c", "1024", "--rope-scaling", "linear", "--rope-scale", "4"]));
    for part in [
        "RoPE: linear (--rope-scaling linear), factor 4 (--rope-scale 4), base 10000 (default)",
        "context 1024 (--ctx 1024)",
        "g(m) = m / 4 and h(θ_i) = θ_i",
        "turns in 256",
        "D (paper)",
        "longrope is not shown: RoPE scaling longrope needs the tensor rope_factors_short.weight",
        "Differences in llama.cpp:\n- its server and llama-cli cut contexts of linear and NTK scaling down to the trained 256",
        "- it computes angles by repeated multiplication in single precision",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_eq!(text.matches("interpolated").count(), 8, "{text}");
    let text =
        shown(rope("explain", &["-c", "1024", "--rope-scaling", "dprope", "--dprope-dims", "6"]));
    assert_eq!(text.matches("extrapolated").count(), 5, "{text}");
    assert!(text.contains("it has no --rope-scaling dprope"), "{text}");
    let auto =
        shown(rope("explain", &["-c", "512", "--rope-scaling", "auto", "--rope-log-n", "on"]));
    for part in ["it has no --rope-scaling auto", "it does not scale queries by log n"] {
        assert!(auto.contains(part), "{part:?} is not in:\n{auto}");
    }
    let shifts = shown(rope("explain", &["--context-shift"]));
    for part in [", --context-shift, base", "- its context shift rotates keys again"] {
        assert!(shifts.contains(part), "{part:?} is not in:\n{shifts}");
    }
    let text = shown(rope("explain", &[]));
    assert!(text.contains("context 256 (llama.context_length)"));
    let first = "llama.cpp:\n- it computes angles by repeated multiplication in single precision";
    assert!(text.contains(first), "{text}");
    assert_eq!(text.matches("as trained").count(), 8, "{text}");
    assert_eq!(json(rope("explain", &["--json"]))["method"], "none");
    // The factor is the one that reaches the context, whatever the method.
    let text = shown(rope("explain", &["-c", "1024", "--rope-scaling", "yarn"]));
    for part in [
        "RoPE: yarn (--rope-scaling yarn), factor 4 (context / original context)",
        "- it does not compute a factor from the context: without --rope-scale 4 it does not scale",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let text = shown(rope("explain", &["-c", "256", "--rope-scaling", "dprope"]));
    assert!(text.contains("h(θ_i) = θ_i\n") && text.contains("dprope changes nothing"), "{text}");
    let text = shown(rope("explain", &["-c", "512", "--rope-freq-base", "30000"]));
    assert!(text.contains("h(θ_i) = θ_i for θ_i of base 30000\n"), "{text}");
    // Distances of far tokens are reduced, so that no angle exceeds the trained ones.
    for method in ["rerope", "leaky-rerope", "self-extend", "lm-infinite", "dca"] {
        let text = shown(rope("explain", &["-c", "4096", "--rope-scaling", method]));
        assert_eq!(text.matches("as trained").count(), 8, "{text}");
        assert!(
            text.contains("\n frequencies in force  ") && !text.contains("cut contexts"),
            "{text}"
        );
    }
    let text = shown(rope(
        "explain",
        &["-c", "4096", "--rope-scaling", "self-extend", "--grp-attn-n", "2"],
    ));
    assert!(text.contains("extrapolated"), "{text}");
    let text = shown(rope("explain", &["-c", "512", "--rope-scaling", "dynamic"]));
    let alpha = "α = max(n, 256) / 256 (n rounded up to a multiple of 256)\n";
    assert!(text.contains(alpha), "{text}");
    let text = shown(rope("explain", &["-c", "512"]));
    let cut = "- its server and llama-cli cut the context down to the trained 256\n";
    assert!(text.contains(cut), "{text}");
    // Invalid flags are reported as in a run.
    rope("explain", &["--rope-scale", "0"]).refused(2, &["--rope-scale 0: must be a number from"]);
}

#[test]
fn invalid_values_are_reported_with_flag_and_range() {
    let head = ["--override-kv", "llama.rope.dimension_count=int:15"];
    for (options, said) in [
        (&["--rope-scale", "-2"][..], "--rope-scale -2: must be a number from 0.000001 to 1000000"),
        (&["--rope-freq-scale", "0"], "--rope-freq-scale 0: must be a number from 0.000001"),
        (&["--rope-freq-base", "0"], "--rope-freq-base 0: must be a finite number above 1"),
        (
            &["--rope-scaling", "dprope", "--dprope-dims", "18"],
            "--dprope-dims 18: must be a whole number from 0 to 16",
        ),
        (&["--rope-scaling", "clex"], "--rope-scaling clex needs --clex-weights FILE"),
        (
            &["--rope-scaling", "clex", "--clex-weights", "/no/such/file"],
            "--clex-weights /no/such/file: ",
        ),
        (
            &["--rope-scaling", "clex", "--clex-weights", "Cargo.toml"],
            "--clex-weights Cargo.toml: is not a safetensors file: ",
        ),
        (
            &["--rope-scaling", "rerope", "--rerope-window", "2000", "-c", "1024"],
            "--rerope-window 2000: must be a whole number from 1 to 1024",
        ),
        (
            &["--rope-scaling", "self-extend", "--grp-attn-w", "2000", "-c", "1024"],
            "--grp-attn-w 2000: must be a whole number from 1 to 1024",
        ),
        (
            &["--rope-scaling", "lm-infinite", "--lm-infinite-local", "2000", "-c", "1024"],
            "--lm-infinite-local 2000: must be a whole number from 1 to 1024",
        ),
        (
            &head,
            "llama.rope.dimension_count is 15: must be even, as pairs rotate; by default it is the head size",
        ),
    ] {
        rope("explain", options).refused(2, &[said]);
    }
    // An invalid whole number is reported before the model is opened.
    for (flag, bad, range) in [
        ("--yarn-orig-ctx", "-1", "0 to 1073741824"),
        ("--dynamic-target", "-1", "the trained context to 1073741824"),
        ("--rope-step", "-1", "1 to 1073741824"),
        ("--rerope-window", "-1", "1 to the context"),
        ("--rerope-k", "-1", "1 to 1048576"),
        ("--grp-attn-n", "-1", "1 to the context"),
        ("--grp-attn-w", "-1", "1 to the context"),
        ("--lm-infinite-global", "-1", "1 to the context"),
        ("--lm-infinite-local", "0.5", "1 to the context"),
        ("--attention-sinks", "-1", "1 to the context less 1"),
        ("--dprope-intervals", "many", "2 to 65536"),
        ("--dprope-dims", "-2", "0 to the dimensions that rotate"),
    ] {
        let said = format!("'{bad}' for '{flag} <");
        let range = format!(">': must be a whole number from {range}\n");
        rope("explain", &[flag, bad]).refused(2, &[&said, &range]);
    }
}

#[test]
fn explain_as_json_has_the_same() {
    let yarn = ["-c", "1024", "--rope-scaling", "yarn", "--rope-scale", "4", "--json"];
    let explained = json(rope("explain", &yarn));
    assert!(explained["plan"].as_str().unwrap().starts_with("RoPE: yarn (--rope-scaling yarn)"));
    let pairs = explained["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 8);
    // corr(32) = 0.21 and corr(1) = 3.22 of 16 dimensions: the ramp goes from pair 0 to 4.
    let fates: Vec<_> = pairs.iter().map(|pair| pair["fate"].as_str().unwrap()).collect();
    assert_eq!(fates[0], "extrapolated");
    assert!(fates[1..4].iter().all(|fate| *fate == "between"), "{fates:?}");
    assert!(fates[4..].iter().all(|fate| *fate == "interpolated"), "{fates:?}");
    assert!((number(&pairs[1]["ratio"]) - (0.75 + 0.25 / 4.0)).abs() < 1e-14, "{}", pairs[1]);
    let scale = 1.0 + 0.1 * 4f64.ln();
    assert!((number(&explained["attention_scale"]) - scale).abs() < 1e-14);
    // The settings in force are yarn's in the list.
    let methods = explained["methods"].as_array().unwrap();
    let yarn = methods.iter().find(|method| method["method"] == "yarn").unwrap();
    assert_eq!(yarn["disturbance_code"], explained["disturbance_code"]);
    let value = |name: &str| explained["values"][name].to_string();
    assert_eq!(value("factor"), r#"{"value":4.0,"origin":"--rope-scale 4"}"#);
    assert_eq!(value("context_trained"), r#"{"value":256,"origin":"llama.context_length"}"#);
    assert_eq!((value("policy"), value("base_window")), ("null".into(), "null".into()));
    assert_eq!(explained["methods_missing"][0]["method"], "longrope");
    let notes = explained["unlike_llama_cpp"].to_string();
    assert!(notes.contains("context shift multiplies all cached keys"), "{notes}");
}

/// Gemma 3 270M has a window in five of six layers.
#[test]
fn explain_shows_what_rotates_in_each_kind_of_layer() {
    let Some(model) = gemma3() else { return };
    let text = shown(run(&["rope", "explain", "-m", &model]));
    let row = |start: &str| text.lines().find(|line| line.trim().starts_with(start)).unwrap();
    assert!(text.contains("Kinds of layers\n"), "{text}");
    assert!(row("15  attention, window of 512").ends_with("by a base that no method changes"));
    assert!(row("3  attention").ends_with("256 of 256 dimensions, by this plan"), "{text}");
    let explained = json(run(&["rope", "explain", "-m", &model, "--json"]));
    assert_eq!(explained["layers"][1]["count"], 3);
}

/// A model with one kind of layers shows what applies in it: by the plan, or nothing.
#[test]
fn explain_says_where_no_method_has_an_effect() {
    let none = "No layer rotates by this plan: no RoPE method has an effect.";
    let text = shown(rope("explain", &[]));
    assert!(text.contains("16 of 16 dimensions, by this plan") && !text.contains(none), "{text}");
    assert_ne!(json(rope("explain", &["--json"]))["layers_by_plan"], 0);
    let bert = Tiny::named("bert").builder().file();
    let bert = bert.path().to_str().unwrap();
    let yarn = ["rope", "explain", "-m", bert, "--rope-scaling", "yarn", "--rope-scale", "2"];
    let text = shown(run(&yarn));
    assert!(text.contains(none) && text.contains("none, which no method changes"), "{text}");
    assert_eq!(json(run(&[&yarn[..], &["--json"]].concat()))["layers_by_plan"], 0);
}

/// Nothing in such a model rotates: there are no frequencies to show.
#[test]
fn explain_shows_no_frequencies_where_nothing_rotates() {
    let model = Tiny::named("nemotron_h").builder().file();
    let explain = ["rope", "explain", "-m", model.path().to_str().unwrap()];
    let text = shown(run(&explain));
    assert!(text.starts_with("No layer rotates by this plan"), "{text}");
    assert!(text.contains("none, which no method changes"), "{text}");
    for absent in ["wavelength", "base", "Disturbance", "angles", "h(θ_i)"] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    let explained = json(run(&[&explain[..], &["--json"]].concat()));
    for list in ["pairs", "methods", "unlike_llama_cpp"] {
        assert_eq!(explained[list].as_array().unwrap().len(), 0, "{list}");
    }
    assert!(explained["disturbance_code"].is_null() && explained["disturbance_paper"].is_null());
}

#[test]
fn compare_shows_methods_side_by_side() {
    let text =
        shown(rope("compare", &["-c", "512,1024", "--methods", "linear,dprope,dynamic-yarn"]));
    let starts = |start: &str| text.lines().filter(|line| line.trim().starts_with(start)).count();
    assert_eq!((starts("linear"), starts("dprope"), starts("dynamic-yarn")), (2, 2, 2), "{text}");
    assert!(text.contains("512 tokens, trained for 256"), "{text}");

    let run = rope("compare", &["-c", "512", "--methods", "linear,longrope"]);
    run.said(&["note: longrope is not shown: RoPE scaling longrope needs the tensor"]);

    rope("compare", &["--ctx-size", "512", "--methods", "longrope"]).refused(
        2,
        &["no method can be shown: longrope is not shown: RoPE scaling longrope needs"],
    );
    rope("compare", &["--methods", "none,none"]).refused(2, &["none is listed twice"]);

    // Within the trained length, no pair goes beyond it.
    let within = json(rope(
        "compare",
        &["-c", "128", "--methods", "none,linear:rope-scale=2,yarn", "--json"],
    ));
    let pairs = |i: usize, fate: &str| number(&within[i][format!("pairs_{fate}")]);
    for i in [0, 2] {
        assert_eq!((pairs(i, "as_trained"), pairs(i, "extrapolated")), (8.0, 0.0), "{within}");
    }
    assert_eq!(pairs(1, "interpolated"), 8.0, "{within}");

    let text = shown(rope("compare", &["-c", "128,1024", "--methods", "none"]));
    for part in [
        "128 tokens, within the 256 of training",
        "D is the disturbance of DPRoPE: how far the angles at this length are from those of training",
        "Recommended for 128 tokens: no scaling.",
        "else --rope-scaling auto, here yarn with factor 4.",
    ] {
        assert!(text.contains(part), "{text}");
    }

    // The reason for an omitted method is printed once for all lengths.
    let run = rope("compare", &["--json"]);
    run.said(&[
        "note: longrope is not shown: RoPE scaling longrope needs the tensor",
        "note: clex is not shown: --rope-scaling clex needs --clex-weights FILE",
        "note: rerope, leaky-rerope, self-extend, lm-infinite, string, dca are not shown: they change attention",
    ]);
    assert_eq!(run.stderr.lines().count(), 3, "{}", run.stderr);
    let all = json(run);
    let all = all.as_array().unwrap();
    // Twice and four times the trained length, by all methods but these.
    assert_eq!(all.len(), 22);
    let of = |method: &str, length: u64| {
        let is = |entry: &&Value| entry["method"] == method && entry["length"] == length;
        all.iter().find(is).unwrap()
    };
    let worse = number(&of("none", 1024)["disturbance_paper"]);
    for entry in all {
        assert!(number(&entry["disturbance_code"]) >= 0.0, "{entry}");
    }
    // dprope decides by the disturbance, so it has the smallest one of the methods that divide or
    // keep.
    let [dprope, linear] = ["dprope", "linear"].map(|method| of(method, 1024));
    assert!(number(&dprope["disturbance_code"]) <= number(&linear["disturbance_code"]));
    assert!(number(&linear["disturbance_paper"]) < worse);
    assert_eq!(number(&linear["pairs_interpolated"]), 8.0);
    assert_eq!(number(&of("none", 512)["pairs_extrapolated"]), 8.0);
}

#[test]
fn compare_draws_three_charts_of_each_length() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rope.svg");
    shown(rope("compare", &["-c", "512,1024", "--plot", path.to_str().unwrap()]));
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for (part, times) in [
        ("frequency over the trained one", 2),
        ("Frequency of each pair: 512 tokens, trained for 256", 1),
        ("Frequency of each pair: 1024 tokens, trained for 256", 1),
        ("Angles of pair 4: 512 tokens", 1),
        ("Angles of pair 4: 1024 tokens", 1),
        ("bound of the attention score", 2),
        ("trained: 256", 2),
        ("in training", 2),
        // Methods with the same frequencies share a line in each chart.
        ("\nlinear, dynamic-linear\n", 6),
        ("\nyarn, dynamic-yarn\n", 6),
    ] {
        assert_eq!(svg.matches(part).count(), times, "{part}");
    }
    let pair = ["-c", "512", "--plot", path.to_str().unwrap(), "--pair"];
    shown(rope("compare", &[&pair[..], &["7"]].concat()));
    let points_max = |svg: &str| svg.lines().map(|line| line.matches(',').count()).max();
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.contains("Angles of pair 7: 512 tokens"));
    assert_eq!(points_max(&svg), Some(72));
    shown(rope("compare", &[&pair[..], &["7", "--intervals", "360"]].concat()));
    assert_eq!(points_max(&std::fs::read_to_string(&path).unwrap()), Some(360));
    rope("compare", &[&pair[..], &["8"]].concat()).refused(2, &["--pair 8: must be from 0 to 7"]);
    let nowhere = ["-c", "512", "--plot", "/no/such/folder/x.svg"];
    let run = rope("compare", &nowhere);
    assert_eq!(run.code, Some(2));
    run.said(&["/no/such/folder/x.svg"]);
}

#[test]
fn disturbance_is_shown_for_each_pair() {
    let of = |options: &[&str]| {
        json(rope(
            "disturbance",
            &[&["-c", "1024", "--intervals", "36", "--json"], options].concat(),
        ))
    };
    let code = of(&[]);
    let values = |name: &str| -> Vec<f64> {
        code[name]["pairs"].as_array().unwrap().iter().map(number).collect()
    };
    let (none, linear, dprope) = (values("none"), values("linear"), values("method"));
    for i in 0..8 {
        assert_eq!(dprope[i], none[i].min(linear[i]), "pair {i}");
    }
    assert_eq!(code["method"]["name"], "dprope");
    let paper = of(&["--direction", "paper", "--method", "yarn"]);
    assert!(number(&paper["none"]["mean"]) > number(&code["none"]["mean"]));
    let half = of(&["--method", "linear:rope-scale=2"]);
    assert_eq!(half["method"]["name"], "linear:rope-scale=2");
    assert!(half["method"]["mean"] != code["linear"]["mean"], "{half}");
    let text = shown(rope("disturbance", &["-c", "512"]));
    assert!(text.contains("at 512 tokens of a model trained for 256, 360 intervals"), "{text}");
    assert!(text.lines().any(|line| line.trim().starts_with("mean")), "{text}");
}

#[test]
fn disturbances_of_methods_are_shown_and_drawn_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disturbance.svg");
    let options = ["-c", "512", "--methods", "none,yarn,dprope:dprope-dims=4", "--plot"];
    let options = [&options[..], &[path.to_str().unwrap()]].concat();
    let text = shown(rope("disturbance", &options));
    let words: Vec<_> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(words, ["pair", "none", "yarn", "dprope:dprope-dims=4"]);
    let svg = std::fs::read_to_string(&path).unwrap();
    for part in ["Disturbance of each pair: 512 tokens, trained for 256", "dprope:dprope-dims=4"] {
        assert!(svg.contains(part), "{part}");
    }
    let both = json(rope("disturbance", &[&options[..], &["--json"]].concat()));
    let one = json(rope("disturbance", &["-c", "512", "--method", "yarn", "--json"]));
    assert_eq!(both["methods"][1], one["method"]);
    assert_eq!(both["methods"][0]["pairs"], one["none"]["pairs"]);
    let twice = ["-c", "512", "--methods", "none,none"];
    rope("disturbance", &twice).refused(2, &["--methods: none is listed twice"]);
    rope("disturbance", &["-c", "512", "--methods", "none", "--method", "yarn"])
        .refused(2, &["--methods", "--method"]);
}

#[test]
fn disturbance_repeats_table_3() {
    let text = shown(run(&["rope", "disturbance", "--table3"]));
    for part in ["Double precision", "24.062", "authors' arithmetic", "24.078", "33.670", "22.924"]
    {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let rows = json(run(&["rope", "disturbance", "--table3", "--json"]));
    assert_eq!(rows.as_array().unwrap().len(), 6);
}

#[test]
fn invalid_lengths_and_methods_are_reported() {
    run(&["rope"]).refused(2, &["explain", "compare", "disturbance"]);
    run(&["rope", "explain"]).refused(2, &["--model <FILE>"]);
    run(&["rope", "disturbance"]).refused(2, &["--model <FILE>", "--ctx <N>"]);
    run(&["rope", "explain", "-m", "/no/such.gguf"]).refused(2, &["/no/such.gguf"]);
    run(&["rope", "disturbance", "--table3", "-m", "x"]).refused(2, &["--table3"]);
    rope("explain", &["-c", "0"]).refused(2, &["at least 1"]);
    rope("explain", &["-c", "4194305"]).refused(2, &["at most 4194304"]);
    rope("compare", &["--methods", "linear,su"]).refused(2, &["must be one of none, linear, ntk"]);
    rope("compare", &["--intervals", "1"]).refused(2, &["from 2 to 65536"]);
    let two = ["-c", "512", "--method", "longrope"];
    rope("disturbance", &two).refused(2, &["needs the tensor rope_factors_short.weight"]);
    let attention = "rerope: the method changes attention and no angles";
    rope("disturbance", &["-c", "512", "--method", "rerope"]).refused(2, &["--method", attention]);
    rope("compare", &["--methods", "none,rerope"]).refused(2, &["--methods", attention]);
}

#[test]
fn what_is_baked_is_read_back() {
    let model = tiny();
    let (input, folder) = (model.path().to_str().unwrap(), tempfile::tempdir().unwrap());
    let output = folder.path().join("baked.gguf");
    let output = output.to_str().unwrap();
    let yarn = ["-c", "1024", "--rope-scaling", "yarn", "--rope-scale", "4"];
    let bake = |to: &str, flags: &[&str]| {
        run(&[&["rope", "bake", "-m", input, "-o", to][..], flags].concat())
    };
    let said = shown(bake(output, &yarn));
    assert!(said.contains("7 of 8 pairs divided, attention scale 1.13863, context 1024"), "{said}");

    let explained = |model: &str, flags: &[&str]| {
        json(run(&[&["rope", "explain", "--json", "-m", model][..], flags].concat()))
    };
    let (found, expected) = (explained(output, &[]), explained(input, &yarn));
    assert_eq!(found["length"], 1024);
    let plan = found["plan"].as_str().unwrap();
    assert!(plan.contains("frequencies divided (rope_freqs.weight)"), "{plan}");
    for (found, expected) in
        found["pairs"].as_array().unwrap().iter().zip(expected["pairs"].as_array().unwrap())
    {
        // Divisors are f32.
        let (found, expected) = (number(&found["inv_freq"]), number(&expected["inv_freq"]));
        assert!((found / expected - 1.0).abs() < 1e-7, "{found} {expected}");
    }
    let [found, expected] = [found, expected].map(|plan| number(&plan["attention_scale"]));
    assert!((found - expected).abs() < 1e-7);

    // The rest is the same, byte for byte; a copy of a copy has one set of divisors.
    let (a, b) = (File::open(input).unwrap(), File::open(output).unwrap());
    let (a, b) = (a.parse(&[]).unwrap(), b.parse(&[]).unwrap());
    assert_eq!(b.tensors().len(), a.tensors().len() + 1);
    for tensor in a.tensors() {
        let copy = b.tensor(tensor.name).unwrap();
        assert_eq!((copy.bytes, copy.shape()), (tensor.bytes, tensor.shape()), "{}", tensor.name);
    }
    for (key, value) in a.metadata().iter().filter(|(key, _)| *key != "llama.context_length") {
        assert_eq!(b.metadata().get(key), Some(value), "{key}");
    }
    let second = folder.path().join("second.gguf");
    let baked_again = ["-c", "2048", "--rope-scaling", "linear", "--rope-scale", "2"];
    shown(run(&[
        &["rope", "bake", "-m", output, "-o", second.to_str().unwrap()][..],
        &baked_again,
    ]
    .concat()));
    let second = File::open(&second).unwrap();
    assert_eq!(second.parse(&[]).unwrap().tensors().len(), b.tensors().len());

    bake(output, &yarn).refused(2, &["baked.gguf already exists"]);
    bake(input, &yarn).refused(2, &["already exists"]);
    let other = folder.path().join("other.gguf");
    let dynamic = bake(other.to_str().unwrap(), &["-c", "1024", "--rope-scaling", "dynamic"]);
    dynamic.refused(2, &["RoPE scaling dynamic depends on the length of the sequence"]);
    bake("/no/such/folder/x.gguf", &yarn).refused(1, &["/no/such/folder/x.gguf"]);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn settings_that_change_nothing_are_not_baked() {
    let model = tiny();
    let (input, folder) = (model.path().to_str().unwrap(), tempfile::tempdir().unwrap());
    let output = folder.path().join("baked.gguf");
    let bake = |flags: &[&str]| {
        let bake = ["rope", "bake", "-m", input, "-o", output.to_str().unwrap()];
        run(&[&bake[..], flags].concat())
    };
    for flags in [
        &["-c", "1024"][..],
        &["-c", "1024", "--rope-scaling", "none"],
        &["-c", "1024", "--rope-scaling", "yarn", "--rope-scale", "1"],
        &["-c", "256", "--rope-scaling", "yarn"],
        &["-c", "256", "--rope-scaling", "auto"],
        // llama.cpp applies the scaling in the file itself.
        &["-c", "1024", "--override-kv", "llama.rope.scaling.factor=float:4"],
    ] {
        bake(flags).refused(
            2,
            &[
                "nothing to bake: with these settings",
                "give a method, such as --rope-scaling yarn, with more than the 256 trained tokens",
            ],
        );
        assert!(!output.exists(), "{flags:?}");
    }
    let said = shown(bake(&["-c", "1024", "--rope-scaling", "yarn"]));
    assert!(said.contains("7 of 8 pairs divided, attention scale 1.13863, context 1024"), "{said}");
}

#[test]
fn nothing_is_baked_where_llama_cpp_would_not_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("baked.gguf");
    for tiny in [Tiny::gemma3(), Tiny::named("gemma2"), Tiny::named("qwen3")] {
        let model = tiny.builder().file();
        let (model, out) = (model.path().to_str().unwrap(), output.to_str().unwrap());
        let said = format!(
            "{model}: baking is not supported for {} models: llama.cpp does not use rope_freqs.weight",
            tiny.architecture.name
        );
        let yarn = ["-c", "1024", "--rope-scaling", "yarn", "--rope-scale", "4"];
        let bake = ["rope", "bake", "-m", model, "-o", out];
        run(&[&bake[..], &yarn].concat()).refused(2, &[&said]);
        assert!(!output.exists());
    }
}

/// Other programs require exactly these keys.
#[test]
fn what_is_baked_is_one_file_with_keys_of_the_types_that_they_have() {
    let folder = tempfile::tempdir().unwrap();
    let [first, _] = tiny_in_parts(1, folder.path());
    let output = folder.path().join("baked.gguf");
    let (input, out) = (first.to_str().unwrap(), output.to_str().unwrap());
    let keys = "llama.rope.freq_base=float:500000,llama.block_count=int:2";
    let yarn = ["-c", "1024", "--rope-scaling", "yarn", "--rope-scale", "4"];
    let bake = ["rope", "bake", "-m", input, "-o", out, "--override-kv", keys];
    shown(run(&[&bake[..], &yarn].concat()));
    let file = File::open(&output).unwrap();
    let gguf = file.parse(&[]).unwrap();
    assert!(gguf.metadata().iter().all(|(key, _)| !key.starts_with("split.")));
    let key = |name| gguf.metadata().get(name).unwrap();
    assert_eq!(key("llama.rope.freq_base"), gguf::Value::F32(500_000.0));
    assert_eq!(key("llama.block_count"), gguf::Value::U32(2));
}
