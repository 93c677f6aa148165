//! `rope-cpu read`: documents that later prompts start with are not read again.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::{NamedTempFile, TempDir};

use crate::cli::{Run, run, smollm2};
use rope_cpu_testing::reader::{tiny_adapter, tiny_reader};

/// A document of at least 120 tokens, which begins with `first`.
fn text(first: &str) -> String {
    first.to_string() + &"the rain in the north, then the wind on the shore. ".repeat(4) + "an end"
}

/// A model, and a folder with documents and their keys and values.
struct Case {
    model: NamedTempFile,
    folder: TempDir,
}

impl Case {
    fn new() -> Self {
        Case { model: tiny_reader(7, true), folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().into()
    }

    /// Writes a document; returns its path.
    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn model(&self) -> &str {
        self.model.path().to_str().unwrap()
    }

    fn read(&self, arguments: &[&str]) -> Run {
        let with = ["read", "-m", self.model(), "-o", &self.path("kv"), "-c", "1024"];
        run(&[&with[..], arguments].concat())
    }

    /// Reads documents; returns the line about each, without its time.
    #[track_caller]
    fn lines(&self, arguments: &[&str]) -> Vec<String> {
        let run = self.read(arguments);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let line = |line: &str| line.split(", ").take(2).collect::<Vec<_>>().join(", ");
        run.stdout.lines().map(line).collect()
    }

    /// Answers a prompt with the folder.
    #[track_caller]
    fn answer(&self, file: &str, more: &[&str]) -> Run {
        let folder = self.path("kv");
        self.answer_without(file, &[&["--cache-disk", &folder][..], more].concat())
    }

    #[track_caller]
    fn answer_without(&self, file: &str, more: &[&str]) -> Run {
        let model = if more.contains(&"-m") { vec![] } else { vec!["-m", self.model()] };
        let options = ["-f", file, "-c", "1024", "-n", "8", "--temp", "0", "--ignore-eos"];
        let run = run(&[&model[..], &options, more].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path("kv")).unwrap().map(|file| file.unwrap().path()).collect()
    }
}

/// The number of tokens in the line about a document.
fn tokens(line: &str) -> usize {
    line.split(": ").last().unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_document_is_read_once() {
    let case = Case::new();
    let notes = case.write("notes", &text("a "));
    let lines = case.lines(&[&notes]);
    let all = tokens(&lines[0]);
    assert!(all >= 120 && lines[0].ends_with(" KiB"), "{lines:?}");

    let expected = case.answer_without(&notes, &[]);
    let answer = case.answer(&notes, &[]);
    assert_eq!(answer.stdout, expected.stdout);
    // The last token is computed again, for its logits.
    assert_eq!((expected.reused(), answer.reused()), (0, all - 1));
    let kept = case.files()[0].to_str().unwrap().to_string();
    answer.said(&[&format!("note: {} of {all} prompt tokens come from {kept} (", all - 1)]);

    // A text that continues it, on any number of threads.
    let longer = case.write("longer", &(text("a ") + "\nof it all, in the rain"));
    let expected = case.answer_without(&longer, &["-t", "1"]);
    let answer = case.answer(&longer, &["-t", "2"]);
    assert_eq!((&answer.stdout, answer.reused()), (&expected.stdout, all));

    let before = fs::read(&kept).unwrap();
    assert_eq!(case.lines(&[&notes]), [format!("{notes}: {all} tokens, there already")]);
    assert!(case.files() == [Path::new(&kept)] && fs::read(&kept).unwrap() == before);
}

#[test]
fn a_changed_document_is_reused_up_to_the_change() {
    let case = Case::new();
    let notes = case.write("notes", &text("a "));
    let all = tokens(&case.lines(&[&notes])[0]);
    let changed = text("a ").replace("an end", "no end");
    let changed = case.write("changed", &changed);
    let answer = case.answer(&changed, &[]);
    assert_eq!(answer.stdout, case.answer_without(&changed, &[]).stdout);
    assert!(all - 8 < answer.reused() && answer.reused() < all - 2, "{}", answer.stderr);
    // Few tokens are not worth loading it.
    let other = case.write("other", &text("in "));
    let answer = case.answer(&other, &[]);
    assert_eq!(answer.reused(), 0);
    answer.said(&["kv: no document is used: the prompt starts with none of its 1 document"]);
}

#[test]
fn documents_are_for_one_model_and_its_settings() {
    let case = Case::new();
    let notes = case.write("notes", &text("a "));
    case.lines(&[&notes]);
    let (other, adapter) = (tiny_reader(8, true), tiny_adapter());
    let [other, adapter] = [&other, &adapter].map(|file| file.path().to_str().unwrap());
    let cases: [(&[&str], &str); 4] = [
        (
            &["-ctk", "q8_0"],
            "keys are stored as f16, but this run uses q8_0: set --cache-type-k f16",
        ),
        (&["--rope-freq-scale", "0.5"], "other RoPE settings"),
        (&["--lora", adapter], "another model or adapter"),
        (&["-m", other], "another model"),
    ];
    for (options, reason) in cases {
        let (expected, answer) =
            (case.answer_without(&notes, options), case.answer(&notes, options));
        assert_eq!((&answer.stdout, answer.reused()), (&expected.stdout, 0), "{reason}");
        answer.said(&["kv: no document is used: ", reason]);
    }
    let short = case.write("short", "a the rain");
    case.answer(&short, &["-c", "128"]).said(&["more than the context of 128"]);
    // Each has documents of its own in the folder.
    let lines = case.lines(&[&notes, "-ctk", "q8_0"]);
    assert!(!lines[0].contains("already") && case.files().len() == 2, "{lines:?}");
    assert!(case.answer(&notes, &["-ctk", "q8_0"]).reused() > 100);
}

#[test]
fn damaged_documents_are_reported_and_read_again() {
    let case = Case::new();
    let notes = case.write("notes", &text("a "));
    case.lines(&[&notes]);
    let expected = case.answer_without(&notes, &[]).stdout;
    let file = &case.files()[0];
    let whole = fs::read(file).unwrap();
    let mut wrong = whole.clone();
    wrong[whole.len() - 100] ^= 1;
    for damaged in [&wrong[..], &whole[..whole.len() - 1], &whole[..40], &[]] {
        fs::write(file, damaged).unwrap();
        let answer = case.answer(&notes, &[]);
        assert_eq!((&answer.stdout, answer.reused()), (&expected, 0));
        answer.said(&[file.file_name().unwrap().to_str().unwrap(), "the file is damaged: "]);
        let lines = case.lines(&[&notes]);
        assert!(!lines[0].contains("already"), "{lines:?}");
        let answer = case.answer(&notes, &[]);
        assert!(answer.stdout == expected && answer.reused() > 100, "{}", answer.stderr);
        assert_eq!(case.files().len(), 1);
    }
}

#[test]
fn the_longest_document_is_used() {
    let case = Case::new();
    let beginning = text("a ");
    let files = ["in the rain", "on the shore, and then", ""]
        .map(|end| case.write(&format!("notes {}", end.len()), &format!("{beginning}\n{end}")));
    let [first, second, short] = files.each_ref().map(String::as_str);
    let lines = case.lines(&[first, second]);
    // Both begin with the short one and a newline.
    let shared = tokens(&case.lines(&[short])[0]);
    let there = format!(" tokens ({} there already), ", shared + 1);
    assert!(lines[1].contains(&there), "{lines:?}");
    assert_eq!(case.lines(&[short]), [format!("{short}: {shared} tokens, there already")]);
    assert_eq!(case.files().len(), 2);
    for (file, line) in [(first, &lines[0]), (second, &lines[1])] {
        let answer = case.answer(file, &[]);
        assert_eq!(answer.stdout, case.answer_without(file, &[]).stdout);
        assert_eq!(answer.reused(), tokens(line) - 1);
    }
    // A document takes the place of one that it continues.
    let third = case.write("third", &format!("{beginning}\nin the rain, and no more"));
    case.lines(&[&third]);
    assert_eq!(case.files().len(), 2);
}

#[test]
fn documents_that_cannot_be_read_are_refused_before_others_are_read() {
    let case = Case::new();
    let [notes, empty, long] =
        [("notes", text("a ")), ("empty", "\n".into()), ("long", text("a ").repeat(20))]
            .map(|(name, text)| case.write(name, &text));
    case.read(&[&notes, &empty]).refused(2, &["empty is empty"]);
    case.read(&[&notes, &case.path("missing")]).refused(2, &["cannot read ", "missing"]);
    case.read(&[&notes, &long])
        .refused(2, &["long: its ", " tokens leave no room in the context of 1024", "-c"]);
    case.read(&[]).refused(2, &["nothing to read"]);
    case.read(&[&notes, "-sys", "a", "-no-cnv"]).refused(2, &["remove one of the two flags"]);
    assert!(!Path::new(&case.path("kv")).exists());
    case.read(&[&notes, "-o", &notes]).refused(2, &["--output"]);
    let missing = ["-m", case.model(), "-f", &notes, "--cache-disk", &case.path("kv")];
    run(&missing).refused(2, &["kv: --cache-disk: "]);
    fs::create_dir(case.path("kv")).unwrap();
    case.answer(&notes, &[])
        .said(&["kv: no document is used: it has none; `rope-cpu read` writes them"]);
    // As with -f.
    fs::write(case.path("bytes"), [&b"a \xff "[..], text("").as_bytes()].concat()).unwrap();
    let read = case.read(&[&case.path("bytes")]);
    assert_eq!(read.code, Some(0), "{}", read.stderr);
    read.said(&["UTF-8"]);
    assert!(case.answer(&case.path("bytes"), &[]).reused() > 100);
}

#[test]
fn what_precedes_a_document_is_part_of_it() {
    let Some(model) = smollm2() else { return };
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    let sentence = "The lighthouse keeper of Ouessant wrote down the weather every evening. ";
    fs::write(&notes, sentence.repeat(8)).unwrap();
    let (notes, kv) = (notes.to_str().unwrap(), folder.path().join("kv"));
    let kv = kv.to_str().unwrap();
    let read = |options: &[&str]| {
        let read = run(&[&["read", "-m", &model, "-c", "1024", "-o", kv], options].concat());
        assert_eq!(read.code, Some(0), "{}", read.stderr);
        tokens(read.stdout.lines().next().unwrap())
    };
    let answer = |options: &[&str]| {
        let with = ["-m", &model, "-c", "1024", "-n", "8", "--temp", "0", "-st"];
        let expected = run(&[&with[..], options].concat());
        let answer = run(&[&with[..], &["--cache-disk", kv], options].concat());
        assert_eq!((answer.code, &answer.stdout), (Some(0), &expected.stdout), "{}", answer.stderr);
        answer.reused()
    };
    // The document is a message after the system message, or the system message itself.
    let message = read(&["-sys", "Be brief.", notes]);
    assert_eq!(answer(&["-sys", "Be brief.", "-f", notes]), message);
    assert_eq!(answer(&["-sys", "Be long.", "-f", notes]), 0);
    let system = read(&["-sysf", notes]);
    assert_eq!(answer(&["-sysf", notes, "-p", "Who wrote it down?"]), system);
    assert_eq!(answer(&["-sysf", notes, "-p", "Where is it?"]), system);
    let after = read(&["-p", "Summarise:", notes]);
    assert_eq!(answer(&["-p", "Summarise:", "-f", notes]), after);
}

#[test]
fn a_document_goes_before_the_question() {
    let case = Case::new();
    let notes = case.write("notes", &text("a "));
    let all = tokens(&case.lines(&[&notes])[0]);
    let asked = case.answer(&notes, &["-p", "the wind"]);
    asked.said(&["note: the file goes before the text of -p, since --cache-disk "]);
    assert_eq!(asked.reused(), all);
    let first = case.write("first", &(text("a ") + "\nthe wind"));
    assert_eq!(asked.stdout, case.answer_without(&first, &[]).stdout);
    // Another file stays where it was.
    let other = case.write("other", &text("the shore "));
    let asked = case.answer(&other, &["-p", "the wind"]);
    assert_eq!(asked.stdout, case.answer_without(&other, &["-p", "the wind"]).stdout);
    asked.said(&[
        "the prompt starts with none of its 1 document; put the document first, after the -sys",
    ]);
}

#[cfg(unix)]
mod unix {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };

    use super::*;

    #[test]
    fn a_document_continues_after_an_interruption() {
        let case = Case::new();
        let notes = case.write("notes", &text("a ").repeat(40));
        let more = [&notes[..], "-c", "32k", "-ub", "16", "-t", "1"];
        let with = ["read", "-m", case.model(), "-o", &case.path("kv")];
        let mut child = Command::new(assert_cmd::cargo::cargo_bin!("rope-cpu"))
            .args(with)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        lines.find(|line| line.as_ref().unwrap().starts_with("RoPE: ")).unwrap().unwrap();
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        lines.for_each(drop);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let stdout = String::from_utf8(output.stdout).unwrap();
        let kept = tokens(&stdout);
        assert!(kept >= 16 && stdout.contains(&format!(": {kept} of ")), "{stdout}");

        let line = &case.lines(&more)[0];
        assert!(kept < 64 || line.contains(&format!(" tokens ({kept} there already), ")), "{line}");
        // The whole document takes the place of its beginning.
        assert_eq!(case.files().len(), 1);
        let options = ["-c", "32k", "-ub", "16"];
        let (expected, answer) =
            (case.answer_without(&notes, &options), case.answer(&notes, &options));
        assert_eq!((&answer.stdout, answer.reused()), (&expected.stdout, tokens(line) - 1));
    }

    #[test]
    fn a_full_disk_leaves_no_file() {
        let case = Case::new();
        let notes = case.write("notes", &text("a "));
        // Files of at most 8 blocks, fewer than a page of keys and values.
        let limited = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
        let output = Command::new("sh")
            .args(["-c", limited, assert_cmd::cargo::cargo_bin!("rope-cpu").to_str().unwrap()])
            .args(["read", "-m", case.model(), "-o", &case.path("kv"), "-c", "1024", &notes])
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{stderr}");
        let said =
            format!("error: --output {}: cannot write a document: File too large", case.path("kv"));
        assert!(stderr.contains(&said), "{stderr}");
        assert_eq!(case.files().len(), 0);
    }
}
