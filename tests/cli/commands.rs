//! The commands of a conversation.

use std::{fs, path::Path};

use crate::cli::{
    smollm2,
    terminal::{Terminal, number_before},
};
use rope_cpu_testing::reader::tiny_reader;

/// Starts a conversation with short answers.
fn conversation(options: &[&str]) -> Option<Terminal> {
    let model = smollm2()?;
    let with = ["-m", &model, "--temp", "0", "-n", "8", "-c", "1024"];
    Some(Terminal::new(&[&with[..], options].concat()))
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn exit(mut terminal: Terminal) {
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn questions_are_answered_again_changed_and_removed_without_reading_them_again() {
    let Some(mut terminal) = conversation(&[]) else { return };
    terminal.enter("/regen");
    terminal.until("there is no question yet");
    terminal.enter("Name a color of the rainbow.");
    let read = number_before(&terminal.timings(), " tokens in");

    terminal.enter("/regen");
    let again = terminal.timings();
    assert_eq!(number_before(&again, " reused"), read - 1, "{again}");

    terminal.enter("And a fruit?");
    terminal.timings();
    terminal.enter("/undo");
    terminal.until("(removed 1 turn, 1 turn left)");
    terminal.enter("/regen");
    let again = terminal.timings();
    assert_eq!(number_before(&again, " reused"), read - 1, "{again}");

    terminal.enter("/edit");
    terminal.until("Name a color of the rainbow.");
    terminal.press(" Only one.\r");
    let edited = terminal.timings();
    // All before the new words, and after them the end of the question.
    assert!(number_before(&edited, " reused") + 8 > read, "{edited}");
    assert!(number_before(&edited, " tokens in") < read, "{edited}");

    terminal.enter("/edit");
    terminal.ready();
    terminal.press("\u{3}"); // Ctrl-C
    terminal.until("(the last question and its answer stay as they were)");
    terminal.enter("/undo 9");
    terminal.until("(removed 1 turn, 0 turns left)");
    exit(terminal);
}

#[test]
fn conversations_are_saved_and_continued() {
    let Some(mut terminal) = conversation(&["-sys", "Be brief."]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a conversation.json");
    terminal.enter("Hello!");
    let read = number_before(&terminal.timings(), " tokens in");
    terminal.enter(&format!("/save '{}'", name(&path)));
    terminal.until("(wrote 1 turn to ");
    let text = fs::read_to_string(&path).unwrap();
    for part in [r#""messages": ["#, r#""content": "Be brief.""#, r#""content": "Hello!""#] {
        assert!(text.contains(part), "{part}: {text}");
    }

    terminal.enter("/clear");
    terminal.enter("/system Be long.");
    terminal.enter("/system");
    terminal.until("Be long.");
    terminal.enter(&format!("/load {}", name(&path).replace(' ', "\\ ")));
    terminal.until("(read 1 turn from ");
    terminal.enter("/system");
    terminal.until("Be brief.");
    terminal.enter("And now?");
    let next = terminal.timings();
    assert!(number_before(&next, " reused") >= read, "{next}");
    terminal.enter("/system none");
    terminal.enter("/system");
    terminal.until("(no system message)");

    // A file is replaced after a yes only.
    let before = fs::read_to_string(&path).unwrap();
    terminal.enter("/clear");
    for (answer, said) in [("", "(nothing was written)"), ("y", "(wrote 0 turns to ")] {
        terminal.enter(&format!("/save '{}'", name(&path)));
        terminal.until(" exists: replace it? [y/N] ");
        terminal.press(format!("{answer}\r"));
        terminal.until(said);
        assert_eq!(fs::read_to_string(&path).unwrap() == before, answer.is_empty());
    }

    for (content, reason) in [
        ("", "not JSON: "),
        ("{}", r#"no conversation: {"messages": [...]} or a list of messages is one"#),
        (r#"[{"role": "user", "content": "a"}, {"role": "critic"}]"#, "message 2: "),
    ] {
        fs::write(&path, content).unwrap();
        terminal.enter(&format!("/load {}", name(&path).replace(' ', "\\ ")));
        terminal.until(reason);
    }
    terminal.enter("/load /no/such/file");
    terminal.until("cannot read /no/such/file: ");
    terminal.enter("/save /no/such/file");
    terminal.until("cannot write /no/such/file: ");
    exit(terminal);
}

#[test]
fn a_file_is_read_before_the_question_and_stays_when_it_is_edited() {
    let Some(mut terminal) = conversation(&[]) else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "The rain in the north never ends.\n".repeat(20)).unwrap();
    terminal.enter(&format!("/read {}", name(file.path())));
    let noted = terminal.until(" tokens, before the next question)");
    let tokens: usize = noted.rsplit(' ').next().unwrap().parse().unwrap();
    terminal.enter("Where does it rain?");
    let first = terminal.timings();
    assert!(number_before(&first, " tokens in") > tokens, "{first}");
    terminal.enter("/edit");
    let shown = terminal.until("Where does it rain?");
    assert!(!shown.contains("never ends"), "{shown}");
    terminal.press(" Tell me.\r");
    let edited = terminal.timings();
    assert!(number_before(&edited, " reused") > tokens, "{edited}");
    // It belongs to the first question only.
    terminal.enter("/undo");
    terminal.enter("Where does it rain?");
    let without = terminal.timings();
    assert!(number_before(&without, " reused") < tokens, "{without}");
    exit(terminal);
}

#[test]
fn a_file_that_does_not_fit_is_dropped_and_the_rest_stays() {
    let model = tiny_reader(7, true);
    let options = ["-no-cnv", "--temp", "0", "--ignore-eos", "-n", "4", "-c", "64"];
    let mut terminal = Terminal::new(&[&["-m", name(model.path())], &options[..]].concat());
    let folder = tempfile::tempdir().unwrap();
    let [one, two, long, binary, latin] = ["one", "two", "long", "binary", "latin"].map(|file| {
        let path = folder.path().join(file);
        let text = match file {
            "long" => "the rain in the north ".repeat(100_000).into(),
            // A file of a gigabyte, which is not read whole.
            "binary" => b"GGUF\0".to_vec(),
            "latin" => b"the r\xe4in".to_vec(),
            _ => b"the rain in the north on a train to the inn in the rain".to_vec(),
        };
        fs::write(&path, text).unwrap();
        path
    });
    fs::OpenOptions::new().write(true).open(&binary).unwrap().set_len(1 << 30).unwrap();
    terminal.enter(&format!("/read {}", name(&binary)));
    terminal.until("binary: it is binary (byte 4 is 0); give a text");
    terminal.enter(&format!("/read {}", name(&long)));
    terminal.until("long: over ");
    terminal.until(" tokens do not fit in the context of 64; give a shorter file");
    for path in [&one, &two] {
        terminal.enter(&format!("/read {}", name(path)));
        terminal.until(" tokens, before the next question)");
    }
    terminal.enter("the rain");
    terminal.until("does not fit in the context of 64");
    let dropped = terminal.until(" so that the next question can fit; 1 file left before it)");
    assert!(dropped.contains("(dropped ") && dropped.contains("/two, "), "{dropped}");
    terminal.enter("the rain");
    let with = number_before(&terminal.timings(), " tokens in");
    // The queue is empty after the answer.
    terminal.enter("/clear");
    terminal.enter("the rain");
    assert!(number_before(&terminal.timings(), " tokens in") < with);
    terminal.enter(&format!("/read {}", name(&latin)));
    terminal.until("is not entirely UTF-8");
    terminal.until(" tokens, before the next question)");
    exit(terminal);
}

/// The terminal may be one of another encoding.
#[test]
fn a_line_that_is_not_utf8_is_dropped_with_a_note() {
    let Some(mut terminal) = conversation(&[]) else { return };
    terminal.ready();
    terminal.press(b"the r\xe4in\r");
    terminal.until("(the line is not UTF-8: enter it again, or /read a file that has it)");
    exit(terminal);
}

#[test]
fn settings_are_shown_and_set() {
    let Some(mut terminal) = conversation(&[]) else { return };
    terminal.enter("/set");
    terminal.until(&format!("{:19} {:8} Temperature", "temp", "0"));
    terminal.enter("/set temp 0.5");
    terminal.enter("/set temp");
    terminal.until("temp 0.5");
    for (typed, reason) in [
        ("/set temp cold", "/set temp cold: must be "),
        ("/set top-p 2", "/set top-p 2: must be from 0 to 1"),
        ("/set seed -2", "/set seed -2: must be a whole number from -1 to "),
        ("/set tmp 1", "/set tmp: not a setting: temp is; /set lists the settings"),
    ] {
        terminal.enter(typed);
        terminal.until(reason);
    }
    terminal.enter("/set dry-base 2");
    terminal.until("warning: --dry-base has no effect without --dry-multiplier");
    terminal.enter("/set n 2");
    terminal.enter("/set seed 7");
    terminal.enter("Count to ten.");
    let few = terminal.timings();
    assert!(few.contains("answer 2 tokens"), "{few}");
    terminal.enter("/exit");
    terminal.until("seed    7");
    terminal.ends_with(0);
}

#[test]
fn the_extended_context_is_shown() {
    let model = tiny_reader(7, true);
    let options = ["-m", name(model.path()), "-no-cnv", "--temp", "0", "--ignore-eos", "-n", "4"];
    let mut terminal = Terminal::new(&[&options[..], &["-c", "512", "--rope-scale", "2"]].concat());
    terminal.enter("the rain");
    terminal.timings();
    terminal.enter("/stats");
    let used = terminal.until(" tokens of 512 used (2 %), extended from the trained 256");
    assert!(used.ends_with("context 10"), "{used}");
    for part in
        ["RoPE: linear", "prompt  ", "answer  4 tokens in", "memory  ", " of keys and values"]
    {
        terminal.until(part);
    }
    for (command, what) in [("/system Be brief.", "system message"), ("/save x", "messages")] {
        terminal.enter(command);
        terminal.until(&format!("plain text has no {what}: start without -no-cnv"));
    }
    exit(terminal);
}

#[test]
fn pasted_lines_are_one_question_and_tab_completes_commands() {
    let Some(mut terminal) = conversation(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    terminal.ready();
    terminal.press("\x1b[200~make \\\rall\r\rWhat is this?\x1b[201~\r");
    terminal.timings();
    // Also where a line ends in a backslash as it is typed.
    terminal.enter("One\\\rtwo");
    terminal.timings();
    let path = folder.path().join("saved.json");
    terminal.ready();
    terminal.press(format!("/sa\t{}\t\r", name(folder.path())));
    terminal.until("cannot write ");
    terminal.enter(&format!("/save {}", name(&path)));
    terminal.until("(wrote 2 turns to ");
    let text = fs::read_to_string(&path).unwrap();
    for content in [r#""make \\\nall\n\nWhat is this?""#, r#""One\ntwo""#] {
        assert!(text.contains(content), "{content}: {text}");
    }
    exit(terminal);
}
