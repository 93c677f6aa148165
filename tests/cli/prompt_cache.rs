//! `--prompt-cache`: a prompt that was read once is not read again.

use std::time::Instant;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;

use crate::cli::{Run, finish, rope_cpu, run};
use rope_cpu_testing::reader::tiny_reader;

const PROMPT: &str = "the rain in the north, then the wind on the shore, and in the end";

#[test]
fn the_next_run_reads_only_what_differs() {
    let model = tiny_reader(7, true);
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("prompt.cache");
    let write = |prompt: &str, more: &[&str]| -> Run {
        let model = model.path().to_str().unwrap();
        let cache = cache.to_str().unwrap();
        let options =
            ["-m", model, "-p", prompt, "-n", "8", "--temp", "0", "--prompt-cache", cache];
        let run = run(&[&options[..], &["--ignore-eos"], more].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run
    };
    let first = write(PROMPT, &[]);
    assert_eq!(first.reused(), 0);
    let again = write(PROMPT, &[]);
    assert_eq!(again.stdout, first.stdout);
    // All but the last token, from which the logits follow.
    let all = again.reused();
    assert!(all > 30, "{all}");
    // Longer prompts continue from it; --prompt-cache-ro does not change the file.
    let longer = format!("{PROMPT} of it all");
    assert_eq!(write(&longer, &["--prompt-cache-ro"]).reused(), all + 1);
    assert_eq!(write(&longer, &[]).reused(), all + 1);
    assert!(write(&longer, &["--prompt-cache-all"]).reused() > all + 1);
    // Answers are saved too, except the last token, which was not read.
    let told = write(&longer, &["--prompt-cache-ro", "--no-display-prompt"]).stdout;
    let more = write(&format!("{longer}{told}"), &["--prompt-cache-ro"]);
    let told_and_read = write(&longer, &["--prompt-cache-ro"]).reused() + 1 + 7;
    assert!(more.reused().abs_diff(told_and_read) <= 1, "{} {told_and_read}", more.stderr);
}

#[test]
fn a_prompt_that_is_refused_leaves_the_file_as_it_is() {
    let model = tiny_reader(7, true);
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("prompt.cache");
    let with = |prompt: &str| {
        let (model, cache) = (model.path().to_str().unwrap(), cache.to_str().unwrap());
        run(&["-m", model, "-p", prompt, "-n", "2", "--prompt-cache", cache])
    };
    assert_eq!(with(PROMPT).code, Some(0));
    let kept = std::fs::read(&cache).unwrap();
    with(&PROMPT.repeat(99)).refused(2, &["context"]);
    assert!(std::fs::read(&cache).unwrap() == kept);
}

#[test]
fn a_file_that_does_not_fit_is_refused() {
    let (model, other) = (tiny_reader(7, true), tiny_reader(8, true));
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("prompt.cache");
    let cache = cache.to_str().unwrap();
    let with = |model: &tempfile::NamedTempFile, cache: &str, more: &[&str]| {
        let model = model.path().to_str().unwrap();
        let options = ["-m", model, "-p", PROMPT, "-n", "2", "--prompt-cache", cache];
        run(&[&options[..], more].concat())
    };
    with(&model, cache, &["--prompt-cache-ro"]).refused(2, &["--prompt-cache", "prompt.cache"]);
    assert_eq!(with(&model, cache, &[]).code, Some(0));
    with(&other, cache, &[]).refused(2, &["prompt.cache", "another model", "remove the file"]);
    let scaled = ["--rope-freq-scale", "0.5"];
    with(&model, cache, &scaled).refused(2, &["other RoPE settings", "factor 2"]);
    with(&model, cache, &["-ctk", "q8_0"]).refused(2, &["--cache-type-k f16"]);
    with(&model, model.path().to_str().unwrap(), &[])
        .refused(2, &["not a prompt cache of rope-cpu"]);
    with(&model, directory.path().to_str().unwrap(), &[]).refused(2, &["directory"]);
    let nowhere = directory.path().join("missing/prompt.cache");
    with(&model, nowhere.to_str().unwrap(), &[]).refused(2, &["missing/prompt.cache"]);

    // `"keys":"f16"` with one bit changed is damage, not another type.
    let kept = std::fs::read(cache).unwrap();
    let at = kept.windows(5).position(|bytes| bytes == b"\"f16\"").unwrap() + 3;
    let mut changed = kept.clone();
    changed[at] ^= 1;
    for damaged in [&changed[..], &kept[..at], &kept[..kept.len() - 1]] {
        std::fs::write(cache, damaged).unwrap();
        with(&model, cache, &[])
            .refused(2, &["prompt.cache: the file is damaged", "remove the file"]);
    }
    std::fs::write(cache, [b"ropecpu1", &kept[8..]].concat()).unwrap();
    with(&model, cache, &[]).refused(2, &["prompt.cache", "another version", "remove the file"]);
}

/// `kill -9` at any moment: the file is the old one or the new one, never a part of it.
#[test]
fn a_killed_run_leaves_a_whole_file() {
    let model = tiny_reader(7, true);
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("prompt.cache");
    let (model, cache) = (model.path().to_str().unwrap(), cache.to_str().unwrap());
    let mut random = Pcg32::seed_from_u64(3);
    let (mut killed, mut reused) = (0, 0);
    for round in 1..=10 {
        let prompt = PROMPT.repeat(round);
        let options = ["-m", model, "-p", &prompt, "-n", "1", "--temp", "0", "-c", "4096"];
        let options = [&options[..], &["--prompt-cache", cache]].concat();
        let started = Instant::now();
        run(&[&options[..], &["--prompt-cache-ro"][..usize::from(round > 1)]].concat());
        let whole = started.elapsed();
        let mut command = rope_cpu(&options);
        // First early, then near the end of a run, where the file is written.
        let share = round as f64 / 10.0 + f64::from(random.next_u32() % 10) / 100.0;
        command.timeout(whole.mul_f64(share));
        // Windows has a code for killed programs.
        killed += usize::from(finish(command).code != Some(0));
        if std::fs::exists(cache).unwrap() {
            let next = run(&[&options[..], &["--prompt-cache-ro"]].concat());
            assert_eq!(next.code, Some(0), "{}", next.stderr);
            assert!(next.reused() >= reused, "{} after {reused}", next.reused());
            reused = next.reused();
        }
    }
    assert!(killed > 0 && reused > 0, "{killed} were killed, and {reused} tokens were reused");
}

/// The next run removes what a killed one left: it takes room, and the same PID needs its name.
#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let model = tiny_reader(7, true);
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("prompt.cache");
    std::fs::write(directory.path().join("prompt.cache.4194399.partial"), "half").unwrap();
    std::fs::write(directory.path().join("other.cache.4194399.partial"), "half").unwrap();
    let (model, path) = (model.path().to_str().unwrap(), cache.to_str().unwrap());
    let run = run(&["-m", model, "-p", PROMPT, "-n", "1", "--prompt-cache", path]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let names = directory.path().read_dir().unwrap().map(|file| file.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["other.cache.4194399.partial", "prompt.cache"]);
}

/// A file that is too large for the limit of the process is an error with its name, and the old file
/// stays.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_old_file() {
    let model = tiny_reader(7, true);
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("prompt.cache");
    let with = |limit: &str, prompt: &str| -> Run {
        let mut command = assert_cmd::Command::new("sh");
        command.args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")]);
        command.arg(assert_cmd::cargo::cargo_bin!("rope-cpu")).arg("-m").arg(model.path());
        command.args(["-c", "1024", "-p", prompt, "-n", "1", "--prompt-cache"]).arg(&cache);
        finish(command)
    };
    assert_eq!(with("true", PROMPT).code, Some(0));
    let kept = std::fs::read(&cache).unwrap();
    let failed = with("ulimit -f 16", &PROMPT.repeat(8));
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    failed.said(&["error: --prompt-cache ", "prompt.cache: File too large"]);
    assert!(std::fs::read(&cache).unwrap() == kept);
    assert_eq!(directory.path().read_dir().unwrap().count(), 1, "a partial file is left");
}
