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
