//! `/model` in a conversation on a terminal.

use std::fs;

use tempfile::TempDir;

use crate::cli::{
    smollm2,
    terminal::{Terminal, number_before},
};
use rope_cpu_testing::reader::tiny_reader;

/// A folder of models: `one` and `two`, which differ, and `broken`, which is none.
fn shelf() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, seed) in [("one", 7), ("two", 8)] {
        let model = tiny_reader(seed, true);
        fs::copy(model.path(), folder.path().join(format!("{name}.gguf"))).unwrap();
    }
    fs::write(folder.path().join("broken.gguf"), "GGUF").unwrap();
    folder
}

/// A conversation in plain text with the model `one`.
fn terminal(folder: &TempDir, options: &[&str]) -> Terminal {
    let models = folder.path().to_str().unwrap();
    let start = ["run", "one", "--models-dir", models, "--temp", "0", "-n", "4", "-no-cnv"];
    Terminal::new(&[&start, options].concat())
}

#[test]
fn models_are_listed_and_the_current_one_is_marked() {
    let folder = shelf();
    let mut terminal = terminal(&folder, &[]);
    terminal.enter("/model");
    let listed = terminal.ready();
    let lines: Vec<&str> = listed.lines().map(str::trim_end).collect();
    for line in ["  broken", "* one", "  two"] {
        assert!(lines.contains(&line), "{line}: {listed}");
    }
    terminal.press("/model one\r");
    terminal.until("(one is the model of this conversation)");
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn another_model_goes_on_with_the_conversation() {
    let folder = shelf();
    let mut terminal = terminal(&folder, &["-c", "256"]);
    terminal.enter("the rain");
    let first = terminal.timings();
    let read = number_before(&first, " tokens in");
    terminal.enter("/set n 3");
    terminal.enter("/model two");
    terminal.until("RoPE: ");
    terminal.until(
        "(this model goes on: it processes the 1 turn again with your next question, since the KV \
         cache was for one)",
    );
    terminal.enter(" in the north");
    let second = terminal.timings();
    assert_eq!(number_before(&second, " reused"), 0, "{second}");
    // The first question with its answer of 4 tokens, and the second one.
    assert!(number_before(&second, " tokens in") > read + 4, "{first} {second}");
    assert!(second.contains("answer 3 tokens"), "/set is kept: {second}");
    terminal.enter("/undo 2");
    terminal.until("(removed 2 turns, 0 turns left)");
    terminal.enter("/model");
    terminal.until("* two");
    // Back again, without any turn.
    terminal.enter("/model one");
    terminal.until("(this model answers from now on)");
    terminal.enter("the rain");
    assert_eq!(number_before(&terminal.timings(), " tokens in"), read);
    terminal.enter("/exit");
    terminal.until("seed    ");
    terminal.ends_with(0);
}

#[test]
fn a_model_that_cannot_be_opened_leaves_the_conversation_as_it_is() {
    let folder = shelf();
    let mut terminal = terminal(&folder, &["-c", "256"]);
    terminal.enter("the rain");
    let first = terminal.timings();
    for (name, said) in [
        ("none", "/model none: no file and no model is named none"),
        ("o", "/model o: o stands for several models"),
        ("broken", "/model broken: "),
    ] {
        terminal.enter(&format!("/model {name}"));
        terminal.until(said);
        terminal.until("; one stays");
    }
    terminal.enter(" in");
    let second = terminal.timings();
    assert!(number_before(&second, " reused") >= number_before(&first, " tokens in"), "{second}");
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn a_model_that_is_too_large_is_refused() {
    let folder = shelf();
    fs::write(
        folder.path().join("presets.toml"),
        "[large]\nmodel = \"two\"\nctx = 100000000\nrope-scaling = \"linear\"\n[wrong]\nmodel = \"two\"\nctx = \"many\"\n",
    )
    .unwrap();
    let presets = folder.path().join("presets.toml");
    let mut terminal = terminal(&folder, &["--presets", presets.to_str().unwrap()]);
    terminal.enter("/model large");
    terminal.until("/model large: ");
    terminal.until("; one stays");
    terminal.enter("/model wrong");
    terminal.until("presets.toml:7: ");
    terminal.until("; one stays");
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn names_of_models_are_completed() {
    let folder = shelf();
    let mut terminal = terminal(&folder, &[]);
    terminal.ready();
    terminal.press("/mod\tT\t\r");
    terminal.until("(this model answers from now on)");
    terminal.enter("/model");
    terminal.until("* two");
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn messages_and_the_system_message_go_with_the_conversation() {
    let Some(model) = smollm2() else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        std::os::unix::fs::symlink(&model, folder.path().join(format!("{name}.gguf"))).unwrap();
    }
    fs::copy(tiny_reader(7, true).path(), folder.path().join("plain.gguf")).unwrap();
    let models = folder.path().to_str().unwrap();
    let saved = folder.path().join("saved.json");
    let options = ["--temp", "0", "-n", "4", "-c", "512", "--models-dir", models];
    let mut terminal = Terminal::new(&[&["run", "one"], &options[..]].concat());
    terminal.enter("/system You are brief.");
    terminal.enter("Who are you?");
    terminal.timings();
    terminal.enter("/model two");
    terminal.until("since the KV cache was for one)");
    terminal.enter("/system");
    terminal.until("You are brief.");
    terminal.enter("And who am I?");
    assert_eq!(number_before(&terminal.timings(), " reused"), 0);
    terminal.enter(&format!("/save {}", saved.display()));
    terminal.until("(wrote 2 turns");
    terminal.enter("/model plain");
    terminal.until("it has no chat template, so the system message is not used)");
    terminal.enter("/exit");
    terminal.ends_with(0);
    let saved = fs::read_to_string(saved).unwrap();
    for part in ["You are brief.", "Who are you?", "And who am I?"] {
        assert!(saved.contains(part), "{part}: {saved}");
    }
}
