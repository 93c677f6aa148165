//! Commands that compute a model: `rope advise`, `attention` and `tune`.

use serde_json::Value;

use super::{json, number, shown};
use crate::cli::run;
use rope_cpu_testing::reader::tiny_reader;

#[test]
fn advice_is_the_method_with_the_lowest_perplexity() {
    let directory = tempfile::tempdir().unwrap();
    let [text, log] = ["text.txt", "log.jsonl"].map(|name| directory.path().join(name));
    std::fs::write(&text, "abcdefgh ijklmnop qrstuv wxyz ".repeat(40)).unwrap();
    let file = tiny_reader(1, true);
    let model = file.path().to_str().unwrap();
    let advise = |options: &[&str]| {
        let common = ["rope", "advise", "-m", model, "-f", text.to_str().unwrap()];
        run(&[&common[..], options].concat())
    };
    let some =
        ["-c", "512", "--methods", "none,linear,ntk:rope-scale=4", "-o", log.to_str().unwrap()];
    let found = json(advise(&[&some[..], &["--json"]].concat()));
    let methods = found["methods"].as_array().unwrap();
    assert_eq!(methods.len(), 3);
    assert!(methods.windows(2).all(|m| number(&m[0]["perplexity"]) <= number(&m[1]["perplexity"])));
    let best = methods[0]["method"].as_str().unwrap().replacen(":rope-scale=", " --rope-scale ", 1);
    assert_eq!(found["flags"], format!("--ctx 512 --rope-scaling {best}"));
    let again = advise(&some);
    assert!(!again.stderr.contains("1/"), "{}", again.stderr);
    assert!(shown(again).contains(&format!("\nUse --ctx 512 --rope-scaling {best}\n")));
    // Every method that applies: not clex and longrope, and linear for equal ones.
    let all = json(advise(&["-c", "300", "--json"]));
    let names: Vec<_> = all["methods"].as_array().unwrap().iter().map(|m| &m["method"]).collect();
    assert!(
        names.contains(&&"lm-infinite".into()) && !names.contains(&&"clex".into()),
        "{names:?}"
    );
    advise(&[]).refused(2, &["give the length that you need with --ctx"]);
    advise(&["-c", "4096"]).refused(2, &["text.txt has ", " tokens, and 4096 are needed"]);
}

#[test]
fn a_budget_holds_with_two_methods() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text.txt");
    std::fs::write(&text, "abcdefgh ijklmnop qrstuv wxyz ".repeat(600)).unwrap();
    let file = tiny_reader(1, true);
    let advise = |options: &[&str]| {
        let (model, text) = (file.path().to_str().unwrap(), text.to_str().unwrap());
        // Three percent of the time of a processor, in small batches.
        let slow = ["-t", "1", "--power", "3", "-ub", "64", "-c", "8192"];
        let common = ["rope", "advise", "-m", model, "-f", text, "--json"];
        run(&[&common[..], &slow, options].concat())
    };
    let run = advise(&["--budget", "0.1"]);
    run.said(&[
        "1/",
        " left",
        "note: --budget 0.1 suffices for two methods only with the first ",
        " of 8192 tokens; all of them take about ",
    ]);
    let found = json(run);
    assert!(found["methods"].as_array().unwrap().len() >= 2, "{found}");
    assert!(found["flags"].as_str().unwrap().starts_with("--ctx 8192 "), "{found}");
    advise(&["--budget", "0.0001"])
        .refused(2, &["--budget 0.0001: two methods take ", " min for 128 of 8192 tokens"]);
    advise(&["--budget", "0"]).refused(2, &["must be a number of minutes above 0"]);
}

#[test]
fn attention_is_measured_by_distance_for_each_method_and_head() {
    let directory = tempfile::tempdir().unwrap();
    let [text, drawing] = ["text.txt", "attention.svg"].map(|name| directory.path().join(name));
    std::fs::write(&text, "abcdefgh ijklmnop qrstuv wxyz ".repeat(40)).unwrap();
    let file = tiny_reader(1, true);
    let model = file.path().to_str().unwrap();
    let attention = |options: &[&str]| {
        let common = ["rope", "attention", "-m", model, "-f", text.to_str().unwrap()];
        run(&[&common[..], options].concat())
    };
    let some =
        ["-c", "512", "--bins", "8", "--methods", "none,linear,lm-infinite:lm-infinite-local=64"];
    let plot = ["--json", "--plot", drawing.to_str().unwrap()];
    let found = json(attention(&[&some[..], &plot].concat()));
    assert_eq!((&found["trained"], &found["length"]), (&256.into(), &512.into()));
    assert_eq!(found["positions"].as_array().unwrap().len(), 32);
    let methods = found["methods"].as_array().unwrap();
    assert_eq!(methods.len(), 3);
    for method in methods {
        let heads = method["heads"].as_array().unwrap();
        assert_eq!(heads.len(), 2 * 4);
        let all = heads.iter().map(|head| &head["distances"]).chain([&method["mean"]]);
        for distances in all.map(|all| all.as_array().unwrap()) {
            assert_eq!(distances.len(), 8);
            let sum: f64 = distances.iter().map(|bin| number(&bin["share"])).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        }
        let beyond: f64 = heads.iter().map(|head| number(&head["beyond_trained"])).sum();
        let of_bins = method["mean"].as_array().unwrap()[4..].iter();
        let of_bins: f64 = of_bins.map(|bin| number(&bin["share"])).sum();
        assert!((beyond / 8.0 - of_bins).abs() < 1e-9);
    }
    // Between its window and the first 10 tokens, LM-Infinite attends to nothing.
    let seen = |method: usize| methods[method]["mean"].as_array().unwrap().iter();
    let seen = |method| seen(method).map(|bin| !bin["score"].is_null()).collect::<Vec<_>>();
    assert_eq!(seen(2), [true, false, false, false, false, false, false, true]);
    assert_eq!(seen(0), [true; 8]);
    assert_ne!(methods[0]["mean"][7]["score"], methods[1]["mean"][7]["score"]);
    let svg = std::fs::read_to_string(&drawing).unwrap();
    for part in ["Attention score by distance: 512 tokens, trained for 256", "share, logarithmic"] {
        assert_eq!(svg.matches(part).count(), 1, "{part}");
    }
    assert_eq!(svg.matches("trained: 256").count(), 2);

    let one = ["-c", "512", "--layers", "1", "--heads", "0,3", "--queries", "5"];
    let methods = ["--methods", "none,linear:rope-scale=1,yarn"];
    let log = directory.path().join("log.jsonl");
    let output = ["-o", log.to_str().unwrap()];
    let few = attention(&[&one[..], &methods, &output].concat());
    few.said(&["linear:rope-scale=1: the same as none"]);
    for part in [
        "Means over 2 heads of layers 1, 5 queries from position 485 of 512 tokens, trained for 256",
        "480 - 511",
        "Share of attention at distances of 256 and more",
    ] {
        assert!(few.stdout.contains(part), "{part:?} is not in:\n{}", few.stdout);
    }
    let header = few.stdout.lines().find(|line| line.trim().starts_with("distance")).unwrap();
    let words: Vec<_> = header.split_whitespace().collect();
    assert_eq!(
        words,
        ["distance", "none", "score", "none", "share", "yarn", "score", "yarn", "share"]
    );
    let again = attention(&[&one[..], &methods, &output].concat());
    assert!(!again.stderr.contains("1/"), "{}", again.stderr);
    assert_eq!(again.stdout, few.stdout);
    let within = shown(attention(&["-c", "128"]));
    assert!(!within.contains("Share of attention at distances"), "{within}");

    attention(&[]).refused(2, &["give the length of the text with --ctx"]);
    attention(&["-c", "4096"]).refused(2, &["text.txt has ", " tokens, and 4096 are needed"]);
    attention(&["-c", "64", "--layers", "2"])
        .refused(2, &["layer 2: must be one of the layers that attend: 0, 1"]);
    attention(&["-c", "64", "--heads", "4"])
        .refused(2, &["head 4: must be from 0 to 3, the last head of layer 0"]);
    attention(&["-c", "64", "--queries", "0"]).refused(2, &["--queries", "at least 1"]);
}

#[test]
fn tuning_keeps_what_lowers_the_perplexity_and_measures_it_on_another_part() {
    let directory = tempfile::tempdir().unwrap();
    let [text, log] = ["text.txt", "log.jsonl"].map(|name| directory.path().join(name));
    std::fs::write(&text, "abcdefgh ijklmnop qrstuv wxyz ".repeat(50)).unwrap();
    let file = tiny_reader(1, true);
    let model = file.path().to_str().unwrap();
    let tune = |options: &[&str]| {
        let common = ["rope", "tune", "-m", model, "-f", text.to_str().unwrap()];
        run(&[&common[..], options].concat())
    };
    let some = ["-c", "512", "--trials", "12", "-o", log.to_str().unwrap(), "--json"];
    let first = tune(&some);
    let output = first.stdout.clone();
    let found = json(first);
    let trials = found["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 12);
    assert_eq!((&found["start"]["method"], &trials[0]["method"]), (&"yarn".into(), &"yarn".into()));
    let lowest = trials.iter().map(|trial| number(&trial["perplexity"])).fold(f64::MAX, f64::min);
    assert_eq!(number(&found["best"]["perplexity"]), lowest);
    assert!(lowest < number(&found["start"]["perplexity"]), "{found}");
    assert_ne!(found["best"]["perplexity"], found["best"]["perplexity_held_out"]);
    let change = number(&found["best"]["perplexity_held_out"])
        / number(&found["start"]["perplexity_held_out"])
        - 1.0;
    assert!((number(&found["change_held_out"]) - change).abs() < 1e-12);

    // An interrupted search repeats its trials, and computes only the missing ones.
    let lines = |path| std::fs::read_to_string(path).unwrap().lines().map(String::from).collect();
    let complete: Vec<String> = lines(&log);
    assert_eq!(complete.len(), 12 + 2);
    std::fs::write(&log, complete[..5].iter().map(|line| format!("{line}\n")).collect::<String>())
        .unwrap();
    let resumed = json(tune(&some));
    let methods = |found: &Value| -> Vec<Value> {
        let trials = found["trials"].as_array().unwrap().iter();
        trials.map(|trial| trial["method"].clone()).collect()
    };
    assert_eq!(methods(&resumed), methods(&found));
    assert_eq!(resumed["best"], found["best"]);
    let all: Vec<String> = lines(&log);
    assert_eq!((&all[..5], all.len()), (&complete[..5], 12 + 2));
    std::fs::write(&log, complete.iter().map(|line| format!("{line}\n")).collect::<String>())
        .unwrap();
    assert_eq!(shown(tune(&some)), output);

    // The name of a method is all of its settings.
    let best = found["best"]["method"].as_str().unwrap();
    assert!(best.starts_with("yarn:"), "{best}");
    let alone = json(tune(&["-c", "512", "--trials", "1", "--json", "--method", best]));
    assert_eq!(alone["start"]["perplexity"], found["best"]["perplexity"]);
    assert_eq!((&alone["best"]["method"], &alone["gain"]), (&best.into(), &false.into()));

    let text = shown(tune(&["-c", "512", "--trials", "3", "--method", "self-extend"]));
    assert!(
        text.contains("self-extend") && text.contains("--ctx 512 --rope-scaling self-"),
        "{text}"
    );
    tune(&[]).refused(2, &["give the length that you need with --ctx"]);
    tune(&["-c", "4096"]).refused(2, &["text.txt has ", " tokens, and 8192 are needed"]);
    tune(&["-c", "512", "--method", "su"]).refused(2, &["--method", "must be one of none, linear"]);
}

/// Needles have the words of the start of the text, and only their repetitions count.
#[test]
fn tuning_can_lower_the_perplexity_of_needles() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text.txt");
    std::fs::write(&text, "abcdefgh ijklmnop qrstuv wxyz ".repeat(150)).unwrap();
    let file = tiny_reader(1, true);
    let model = file.path().to_str().unwrap();
    let tune = |options: &[&str]| {
        let common = ["rope", "tune", "-m", model, "-f", text.to_str().unwrap(), "--trials", "6"];
        run(&[&common[..], options].concat())
    };
    let needles = ["-c", "1024", "--objective", "needles"];
    let found = json(tune(&[&needles[..], &["--json"]].concat()));
    let plain = json(tune(&["-c", "1024", "--json"]));
    assert_eq!(
        (&found["objective"], &plain["objective"]),
        (&"needles".into(), &"perplexity".into())
    );
    assert_ne!(found["start"]["perplexity"], plain["start"]["perplexity"]);
    let trials = found["trials"].as_array().unwrap();
    let lowest = trials.iter().map(|trial| number(&trial["perplexity"])).fold(f64::MAX, f64::min);
    assert_eq!((trials.len(), number(&found["best"]["perplexity"])), (6, lowest));
    assert_ne!(found["best"]["perplexity"], found["best"]["perplexity_held_out"]);
    let text = shown(tune(&needles));
    assert!(text.contains("PPL of needles, searched"), "{text}");
    tune(&["-c", "64", "--objective", "needles"]).refused(
        2,
        &["--objective needles: two needles and their answers need a --ctx of at least"],
    );
}
