//! Speculative decoding: options, and the same text with and without.

use crate::cli::{run, smollm2};
use rope_cpu_testing::reader as tiny;

#[test]
fn drafts_do_not_change_the_text() {
    let [model, draft] = [1, 2].map(|seed| tiny::tiny_reader(seed, true));
    let [model, draft] = [&model, &draft].map(|file| file.path().to_str().unwrap());
    for shared in [
        &["-n", "120", "--temp", "0"][..],
        &["-n", "400", "-s", "5", "--context-shift", "-c", "300"],
    ] {
        let with = |options: &[&str]| {
            let run =
                run(&[&["-m", model, "-p", "the theatre", "--ignore-eos"], shared, options]
                    .concat());
            assert_eq!(run.code, Some(0), "{}", run.stderr);
            run
        };
        let expected = with(&[]).stdout;
        for options in [
            &["--spec-type", "ngram-simple"][..],
            &["--spec-type", "ngram-mod", "--draft-max", "3"],
            &["-md", model],
            &["-md", draft, "--spec-type", "ngram-simple,draft-simple", "-ctkd", "q8_0"],
        ] {
            let found = with(options);
            assert_eq!(found.stdout, expected, "{options:?}");
            let model = found.stderr.contains("Draft model: unnamed (llama), ");
            assert_eq!(model, options.contains(&"-md"), "{}", found.stderr);
        }
    }
}

#[test]
fn a_source_of_drafts_must_fit() {
    let model = tiny::tiny_reader(1, true);
    let model = model.path().to_str().unwrap();
    let other = tiny::tiny();
    let other = other.path().to_str().unwrap();
    run(&["-m", model, "-p", "the", "-md", "/no/such.gguf"]).refused(2, &["/no/such.gguf"]);
    run(&["-m", model, "-p", "the", "-md", other]).refused(2, &[other, "tokenizer.ggml.model"]);
    run(&["-m", model, "-p", "the", "--spec-type", "draft-mtp"])
        .refused(2, &["draft-mtp needs a layer that predicts further tokens"]);
    let sparse = ["-m", model, "-p", "the", "--spec-type", "draft-sparse"];
    run(&sparse).refused(2, &["--spec-type draft-sparse has no effect on this llama model"]);
    run(&[&sparse[..], &["--sparse-attention", "0.9"]].concat())
        .refused(2, &["draft-sparse drafts for dense attention"]);
    run(&[&sparse[..], &["--rope-scaling", "rerope"]].concat())
        .refused(2, &["--spec-type draft-sparse needs all keys"]);
    let plan = run(&["-m", model, "-md", model, "--dry-run"]);
    assert_eq!(plan.stdout.matches("Memory: ").count(), 2, "{}", plan.stdout);
}

#[test]
fn an_assistant_drafts_for_its_model() {
    let [model, assistant] = tiny::tiny_assisted();
    let [model, assistant] = [&model, &assistant].map(|file| file.path().to_str().unwrap());
    let with = |options: &[&str]| {
        let shared = ["-m", model, "-p", "the theatre", "--ignore-eos", "-n", "60", "--temp", "0"];
        run(&[&shared[..], options].concat())
    };
    let expected = with(&[]).stdout;
    let line = format!("Assistant: {assistant}, ");
    for options in
        [&[][..], &["--spec-type", "draft-mtp"], &["--spec-type", "ngram-simple,draft-mtp"]]
    {
        let found = with(&[&["-md", assistant], options].concat());
        assert_eq!(found.code, Some(0), "{}", found.stderr);
        assert_eq!(found.stdout, expected, "{options:?}");
        assert!(found.stderr.contains(&line), "{}", found.stderr);
    }
    with(&["-md", assistant, "--spec-type", "draft-simple"])
        .refused(2, &["draft tokens for a gemma4 model"]);
    with(&["-md", assistant, "--spec-type", "ngram-simple"]).refused(2, &["-md has no effect"]);
    with(&["-md", model, "--spec-type", "draft-mtp"]).refused(2, &["or its assistant as -md"]);
    run(&["-m", assistant, "-p", "the"]).refused(2, &[assistant, "generate nothing alone"]);
    let llama = tiny::tiny_reader(1, true);
    let llama = llama.path().to_str().unwrap();
    run(&["-m", llama, "-p", "the", "-md", assistant])
        .refused(2, &[&format!("{assistant} cannot draft for {llama}: it is made for gemma4")]);
}

#[test]
fn a_layer_that_predicts_tokens_drafts_by_default() {
    let model = tiny::tiny_predicting();
    let model = model.path().to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let with = |options: &[&str]| {
        let shared = ["-m", model, "-p", "the theatre", "--ignore-eos", "-n", "60", "--temp", "0"];
        let run = run(&[&shared[..], options].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        (run.stdout, run.stderr.contains("Drafts: from the model's layer"))
    };
    let (expected, drafts) = with(&["--spec-type", "none"]);
    assert!(!drafts);
    for (options, drafts) in [
        (&[][..], true),
        (&["--spec-type", "auto,ngram-simple"], true),
        (&["--spec-type", "draft-mtp"], true),
        (&["--spec-type", "ngram-simple"], false),
        (&["-md", model], false),
        (&["--cache-disk", folder], false),
        (&["--cache-disk", folder, "--spec-type", "draft-mtp"], true),
    ] {
        assert_eq!(with(options), (expected.clone(), drafts), "{options:?}");
    }
}

/// Returns the numbers of the line that says what was left out of a prompt.
fn left_out(stderr: &str) -> Option<[usize; 3]> {
    let line = stderr.lines().find_map(|line| line.strip_prefix("Speculative prefill: "))?;
    let words: Vec<_> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    words.first_chunk().copied()
}

#[test]
fn a_share_of_a_long_prompt_is_computed() {
    let [model, draft] = [1, 2].map(|seed| tiny::tiny_reader(seed, true));
    let [model, draft] = [&model, &draft].map(|file| file.path().to_str().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let text = folder.path().join("text");
    let words = (0..700).map(|i| ["rain ", "north ", "inner ", "the "][i * i * 31 % 251 % 4]);
    std::fs::write(&text, words.collect::<String>()).unwrap();
    let (cache, text) = (cache.to_str().unwrap(), text.to_str().unwrap());
    let with = |options: &[&str]| {
        let shared = ["-m", model, "-md", draft, "-c", "8192", "-f", text, "--ignore-eos"];
        let run =
            run(&[&shared[..], &["-n", "40", "--temp", "3", "--seed", "1"], options].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run
    };
    let dense = with(&[]);
    assert!(!dense.stderr.contains("Speculative prefill"), "{}", dense.stderr);
    let shared = with(&["--prefill-share", "0.1", "--prompt-cache", cache]);
    let line = "Speculative prefill: from 2048 prompt tokens on, only 10 % of them are computed";
    assert!(shared.stderr.contains(line), "{}", shared.stderr);
    let plan = shared.stderr.lines().filter(|line| !line.contains("prompt tokens on"));
    let [computed, all, omitted] = left_out(&plan.collect::<Vec<_>>().join("\n")).unwrap();
    assert_eq!(computed + omitted, all);
    assert!(all > 2048 && computed < 128 + 512 + 64 + all / 5, "{computed} of {all}");
    assert_ne!(shared.stdout, dense.stdout);
    // The cache has only what precedes the first gap: a dense run from it has the dense text.
    assert_eq!(with(&["--prompt-cache", cache]).stdout, dense.stdout);
    // Short prompts are computed whole.
    let short = run(&["-m", model, "-md", draft, "-p", "the", "-n", "1", "--prefill-share", "0.1"]);
    assert_eq!(short.stderr.matches("Speculative prefill: ").count(), 1, "{}", short.stderr);
}

#[test]
fn speculative_prefill_is_refused_with_the_reason() {
    let model = tiny::tiny_reader(1, true);
    let model = model.path().to_str().unwrap();
    let [gemma, assistant] = tiny::tiny_assisted();
    let [gemma, assistant] = [&gemma, &assistant].map(|file| file.path().to_str().unwrap());
    let with = |options: &[&str]| {
        run(&[&["-m", model, "-p", "the", "--prefill-share", "0.2"], options].concat())
    };
    with(&[]).refused(2, &["--prefill-share needs a smaller model", "-md"]);
    run(&["-m", gemma, "-p", "the", "--prefill-share", "0.2", "-md", assistant])
        .refused(2, &["--prefill-share needs a smaller model", "an assistant cannot"]);
    with(&["-md", model, "--context-shift", "-c", "512"])
        .refused(2, &["--prefill-share: no token can be left out", "shifts or rolls"]);
    run(&["-m", model, "-p", "the", "-md", model, "--prefill-share", "1.5"])
        .refused(2, &["--prefill-share", "above 0 and below 1"]);
}

#[test]
fn options_of_llama_cpp_that_change_nothing_are_ignored() {
    let model = tiny::tiny_reader(1, true);
    let model = model.path().to_str().unwrap();
    let run = run(&[
        "-m",
        model,
        "-p",
        "the",
        "-n",
        "1",
        "--spec-draft-n-min",
        "2",
        "-td",
        "3",
        "-ngld",
        "9",
    ]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    for name in ["--spec-draft-n-min", "-td", "-ngld"] {
        assert!(run.stderr.lines().any(|line| line.ends_with(name)), "{name}: {}", run.stderr);
    }
}

#[test]
fn a_repetition_is_generated_in_few_passes() {
    let Some(model) = smollm2() else { return };
    let list = "one, two, three, four, five, six, ".repeat(12);
    let with = |options: &[&str]| {
        let prompt =
            ["-m", &model, "-p", &list, "-no-cnv", "--temp", "0", "-n", "100", "-c", "512"];
        run(&[&prompt[..], options].concat())
    };
    let (plain, drafted) = (with(&[]), with(&["--spec-type", "ngram-simple"]));
    assert_eq!(plain.stdout, drafted.stdout);
    assert!(!plain.stderr.contains("drafts right"), "{}", plain.stderr);
}
