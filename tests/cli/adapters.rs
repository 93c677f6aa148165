//! `--lora` and `--lora-scaled`.

use crate::cli::{Run, run};
use rope_cpu_testing::reader::{tiny_adapter, tiny_reader};

const PROMPT: &str = "the rain in the north, then the wind on the shore, and in the end";

#[test]
fn adapters_act_as_far_as_they_are_scaled() {
    let (model, adapter) = (tiny_reader(7, true), tiny_adapter());
    let [model, adapter] = [&model, &adapter].map(|file| file.path().to_str().unwrap());
    let with = |more: &[&str]| -> Run {
        let options = ["-m", model, "-p", PROMPT, "-n", "12", "--temp", "0", "--ignore-eos"];
        let run = run(&[&options[..], more].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run
    };
    let scaled = |scale: &str| with(&["--lora-scaled", &format!("{adapter}:{scale}")]);
    let (plain, whole) = (with(&[]).stdout, with(&["--lora", adapter]));
    whole.said(&[&format!("adapter {adapter}: 1 tensors, scale 1")]);
    assert_ne!(whole.stdout, plain);
    assert_eq!(scaled("1").stdout, whole.stdout);
    assert_eq!(scaled("0").stdout, plain);
    // An adapter can undo another one.
    let both = [&*format!("{adapter}:0.5,{adapter}:-0.5")];
    assert_eq!(with(&["--lora-scaled", both[0]]).stdout, plain);
}

#[test]
fn a_prompt_cache_and_results_are_of_one_adapter() {
    let (model, adapter) = (tiny_reader(7, true), tiny_adapter());
    let [model, adapter] = [&model, &adapter].map(|file| file.path().to_str().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let in_directory = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (cache, answers) = (in_directory("prompt.cache"), in_directory("answers.jsonl"));
    let cached = |more: &[&str]| {
        let options = ["-m", model, "-p", PROMPT, "-n", "2", "--prompt-cache", &cache];
        run(&[&options[..], more].concat())
    };
    let asked = |more: &[&str]| {
        let options = ["passkey", "-m", model, "-c", "600", "--keys", "1", "--depths", "1", "-o"];
        run(&[&options[..], &[&answers], more].concat())
    };
    for with in [&cached as &dyn Fn(&[&str]) -> Run, &asked] {
        assert_eq!(with(&["--lora", adapter]).code, Some(0));
        assert_eq!(with(&["--lora", adapter]).code, Some(0));
        with(&[]).refused(2, &["another model"]);
        let half = format!("{adapter}:0.5");
        with(&["--lora-scaled", &half]).refused(2, &["another model"]);
    }
}

#[test]
fn what_is_no_adapter_is_named() {
    let model = tiny_reader(7, true);
    let model = model.path().to_str().unwrap();
    for command in [&["run", "-p", "a"][..], &["passkey"], &["perplexity", "-f", "x.txt"]] {
        let with = |adapter| run(&[command, &["-m", model, "--lora", adapter]].concat());
        with("/no/such.gguf").refused(2, &["/no/such.gguf"]);
        with(model).refused(2, &[model, "general.type is missing"]);
    }
}
