//! Prompts that are longer than the context.

use std::fs;

use tempfile::TempDir;

use crate::cli::run;
use rope_cpu_testing::reader::tiny_reader;

/// Writes a text of more tokens than the 256 that the tiny model was trained for.
fn long_text(folder: &TempDir) -> String {
    let path = folder.path().join("long");
    fs::write(&path, "the rain in the north, then the wind on the shore. ".repeat(12)).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn a_prompt_that_does_not_fit_is_told_which_options_fit_it() {
    let (model, folder) = (tiny_reader(7, true), tempfile::tempdir().unwrap());
    let (model, text) = (model.path().to_str().unwrap(), long_text(&folder));
    let ask = ["-m", model, "-f", &text, "-n", "8", "--temp", "0", "--ignore-eos"];
    let with = |options: &[&str]| run(&[&ask[..], options].concat());
    with(&["-c", "256"]).refused(
        2,
        &[
            " does not fit in the context of 256: start with -c 1k --rope-scaling auto, which needs ",
            " MiB of memory; -c auto fits the context to the prompt",
        ],
    );
    // RoPE options that reach the length stay, and others are replaced.
    let reaching = with(&["-c", "256", "--rope-scaling", "yarn"]);
    reaching.refused(2, &["start with -c 1k, which needs "]);
    let half = with(&["-c", "256", "--rope-scale", "2"]);
    half.refused(2, &["-c 1k --rope-scaling auto in place of your RoPE options"]);

    let proposed = with(&["-c", "1k", "--rope-scaling", "auto"]);
    assert_eq!(proposed.code, Some(0), "{}", proposed.stderr);
    let fitted = with(&["-c", "auto"]);
    assert_eq!((fitted.code, &fitted.stdout), (Some(0), &proposed.stdout), "{}", fitted.stderr);
    fitted.said(&[
        "context of 1024 (--ctx auto: the prompt has ",
        "RoPE: yarn (--rope-scaling auto: ",
    ]);
    with(&["-c", "auto", "--rope-scaling", "ntk"]).said(&["RoPE: ntk", "context 1024 "]);
}

#[test]
fn a_context_is_not_fitted_below_the_trained_one() {
    let model = tiny_reader(7, true);
    let model = model.path().to_str().unwrap();
    let ask = ["-m", model, "-p", "the rain", "-n", "2", "--temp", "0"];
    let fitted = run(&[&ask[..], &["-c", "auto"]].concat());
    assert_eq!(fitted.code, Some(0), "{}", fitted.stderr);
    fitted.said(&["context of 256", "RoPE: no scaling"]);
    for command in ["serve", "read"] {
        run(&[command, "-m", model, "-c", "auto"])
            .refused(2, &["'--ctx <N>'", "auto fits the context to the prompt of `rope-cpu run`"]);
    }
    run(&["-m", model, "-c", "some"]).refused(2, &["not a whole number", "4k", "auto"]);
}

#[test]
fn a_document_that_does_not_fit_is_told_which_options_fit_it() {
    let (model, folder) = (tiny_reader(7, true), tempfile::tempdir().unwrap());
    let (model, text) = (model.path().to_str().unwrap(), long_text(&folder));
    let kv = folder.path().join("kv");
    run(&["read", "-m", model, "-o", kv.to_str().unwrap(), "-c", "256", &text]).refused(
        2,
        &[" leave no room in the context of 256: use -c 2k --rope-scaling auto, which needs "],
    );
}
