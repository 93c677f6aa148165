//! Conversations on a terminal.

use std::{
    fs::File,
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use nix::{
    pty::{Winsize, openpty},
    sys::{
        signal::{Signal, kill},
        termios::{LocalFlags, tcgetattr},
    },
    unistd::Pid,
};

use crate::cli::smollm2;
use rope_cpu_testing::reader::tiny_reader;

/// The program on its own pseudo terminal.
pub struct Terminal {
    child: Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    /// The output that no call of `until` has consumed.
    rest: String,
    _home: tempfile::TempDir,
}

impl Terminal {
    pub fn new(arguments: &[&str]) -> Self {
        Self::of_size(None, arguments)
    }

    /// The program on a terminal of a size.
    pub fn of_size(size: Option<Winsize>, arguments: &[&str]) -> Self {
        let program = assert_cmd::cargo::cargo_bin!("rope-cpu");
        Self::running(program.to_str().unwrap(), size, arguments)
    }

    /// Another program on a terminal of a size.
    fn running(program: &str, size: Option<Winsize>, arguments: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let pty = openpty(size.as_ref(), None).unwrap();
        let stdio = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = Command::new(program)
            .args(arguments)
            .env("TERM", "xterm")
            .env("XDG_STATE_HOME", home.path())
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap();
        let keys = File::from(pty.master);
        let mut screen = keys.try_clone().unwrap();
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of a terminal is an error (EIO).
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { child, keys, shown, rest: String::new(), _home: home }
    }

    pub fn press(&mut self, keys: impl AsRef<[u8]>) {
        self.keys.write_all(keys.as_ref()).unwrap();
    }

    /// Waits for the prompt of the line editor, which then enables bracketed paste.
    #[track_caller]
    pub fn ready(&mut self) -> String {
        self.until("\x1b[?2004h")
    }

    /// Waits for the prompt of the line editor, then types a line.
    #[track_caller]
    pub fn enter(&mut self, line: &str) {
        self.ready();
        self.press(format!("{line}\r"));
        self.until("\x1b[?2004l");
    }

    /// Waits for the line that ends an answer.
    #[track_caller]
    pub fn timings(&mut self) -> String {
        self.until("[prompt ");
        self.until("]")
    }

    /// Waits until `text` is shown; returns what came before it.
    #[track_caller]
    pub fn until(&mut self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(at) = self.rest.find(text) {
                let before = self.rest[..at].to_string();
                self.rest.drain(..at + text.len());
                return before;
            }
            match self.shown.recv_timeout(deadline - Instant::now()) {
                Ok(bytes) => self.rest.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout) => panic!("{text:?} never came: {}", self.rest),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("ended before {text:?}: {}", self.rest)
                }
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    #[track_caller]
    pub fn ends_with(mut self, code: i32) {
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{}", self.rest);
    }
}

/// The number before `word` in the line that ends an answer.
pub fn number_before(line: &str, word: &str) -> usize {
    let before = line.split(word).next().unwrap();
    before.rsplit(' ').find_map(|part| part.parse().ok()).unwrap()
}

#[test]
fn turns_reuse_the_cache_and_clear_removes_them() {
    let Some(model) = smollm2() else { return };
    let mut terminal = Terminal::new(&["-m", &model, "--temp", "0", "-n", "12", "-c", "512"]);
    terminal.until("RoPE: ");
    terminal.enter("My name is Ada. Who are you?");
    let first = terminal.timings();
    assert_eq!(number_before(&first, " reused"), 0);
    let read = number_before(&first, " tokens in");

    terminal.enter("And what is my name?");
    let second = terminal.timings();
    // The first prompt, and all but one token of its answer.
    assert!(number_before(&second, " reused") >= read, "{first} {second}");
    assert!(number_before(&second, " tokens in") < read, "{first} {second}");

    terminal.enter("/help");
    terminal.until(&format!("{:19}  remove", "/clear"));
    terminal.enter("/nonsense");
    terminal.until("/nonsense is not a command");
    terminal.enter("/clear");
    terminal.enter("Who are you?");
    let again = terminal.timings();
    // Only the system message of the template.
    assert!(number_before(&again, " reused") < read, "{again}");
    assert!(number_before(&again, " tokens in") < read, "{again}");

    terminal.ready();
    terminal.press("\u{4}"); // Ctrl-D
    terminal.until("seed    ");
    terminal.ends_with(0);
}

#[test]
fn lines_typed_ahead_are_not_lost() {
    let Some(model) = smollm2() else { return };
    let mut terminal = Terminal::new(&["-m", &model, "--temp", "0", "-n", "4", "-c", "512"]);
    terminal.ready();
    terminal.press("One\rTwo\r/exit\r");
    terminal.timings();
    terminal.timings();
    terminal.ends_with(0);
}

#[test]
fn what_is_typed_during_an_answer_is_kept_and_not_mixed_into_it() {
    let Some(model) = smollm2() else { return };
    let mut terminal = Terminal::new(&["-m", &model, "--ignore-eos", "--temp", "0", "-n", "40"]);
    terminal.enter("Tell me about the sea.");
    terminal.until(" "); // the answer has begun
    terminal.press("/exQ");
    let answer = terminal.until("(the answer is cut after 40 tokens (-n 40); /set n N changes");
    assert!(!answer.contains('Q'), "{answer}");
    terminal.ready();
    terminal.until("/exQ");
    terminal.press("\u{7f}it\r"); // backspace
    terminal.ends_with(0);
}

#[test]
fn words_are_wrapped_at_the_edge_of_the_terminal() {
    let Some(model) = smollm2() else { return };
    let size = Winsize { ws_row: 24, ws_col: 32, ws_xpixel: 0, ws_ypixel: 0 };
    let ask = ["-m", &model, "--temp", "0", "-n", "30", "-q", "-st", "-p", "Why is the sky blue?"];
    let mut wrapped = Terminal::of_size(Some(size), &ask);
    wrapped.until("Why is the sky blue?");
    let lines = wrapped.until("note: the answer is cut after 30 tokens (-n 30)");
    wrapped.ends_with(0);
    let mut plain = Terminal::new(&ask);
    plain.until("Why is the sky blue?");
    let whole = plain.until("note: ");
    plain.ends_with(0);
    assert!(lines.matches('\n').count() > whole.matches('\n').count(), "{lines}");
    // The erased part of a word is before `\x1b[ND\x1b[K`.
    let mut kept = String::new();
    for part in lines.split("\x1b[K") {
        let (text, back) = part.rsplit_once("\x1b[").unwrap_or((part, "0D"));
        let (text, back) = match back.strip_suffix('D').and_then(|back| back.parse().ok()) {
            Some(back) => (text, back),
            None => (part, 0),
        };
        kept += &text[..text.len() - back];
    }
    assert!(kept.lines().all(|line| line.trim_end_matches('\r').len() < 32), "{kept}");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(&kept), words(&whole));
}

#[test]
fn ctrl_c_stops_the_answer_and_not_the_program() {
    let Some(model) = smollm2() else { return };
    let mut terminal = Terminal::new(&["-m", &model, "--ignore-eos", "--temp", "0"]);
    terminal.enter("Count to one thousand.");
    terminal.until(" "); // the answer has begun
    terminal.signal(Signal::SIGINT);
    terminal.timings();
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn ctrl_c_ends_a_single_answer_with_130() {
    let Some(model) = smollm2() else { return };
    let mut terminal = Terminal::new(&[
        "-m",
        &model,
        "-no-cnv",
        "--ignore-eos",
        "-p",
        "Once upon a time",
        "-s",
        "1",
    ]);
    terminal.until("Once upon a time");
    terminal.until(" ");
    terminal.signal(Signal::SIGINT);
    terminal.until("seed    1");
    terminal.ends_with(130);
}

#[test]
fn without_a_template_text_is_continued() {
    let Some(model) = smollm2() else { return };
    let mut terminal =
        Terminal::new(&["-m", &model, "--temp", "0", "-n", "8", "-no-cnv", "-c", "256"]);
    terminal.enter("One, two, three, \\\rfour,");
    let first = terminal.timings();
    terminal.enter(" and");
    let second = terminal.timings();
    // All but the last token of the answer, which was not read.
    let expected = number_before(&first, " tokens in") + 7;
    assert_eq!(number_before(&second, " reused"), expected, "{first} {second}");

    terminal.ready();
    terminal.press("\u{3}"); // Ctrl-C, as the line editor reads it
    terminal.until("Ctrl-D, or enter /exit");
    terminal.ready();
    terminal.press("\u{3}");
    terminal.ends_with(0);
}

#[test]
fn ctrl_c_drops_a_line_and_counts_only_at_an_empty_one() {
    let model = tiny_reader(7, true);
    let mut terminal = Terminal::new(&["-m", model.path().to_str().unwrap(), "-no-cnv"]);
    for _ in 0..3 {
        terminal.ready();
        terminal.press("a wrong line");
        terminal.until("line");
        terminal.press("\u{3}");
    }
    let shown = terminal.ready();
    assert!(!shown.contains("to exit)"), "{shown}");
    terminal.press("/clear\r");
    terminal.ready();
    terminal.press("\u{3}");
    terminal.until("(press Ctrl-C again or Ctrl-D, or enter /exit, to exit)");
    terminal.ready();
    terminal.press("half\u{3}");
    terminal.ready();
    terminal.press("\u{3}");
    terminal.until("(press Ctrl-C again");
    terminal.ready();
    terminal.press("\u{3}");
    terminal.ends_with(0);
}

#[test]
fn a_conversation_starts_with_two_lines_that_wrap_at_words() {
    let model = tiny_reader(7, true);
    let model = model.path().to_str().unwrap();
    let options = ["-m", model, "-no-cnv", "-c", "1k", "--rope-scaling", "yarn"];
    let mut terminal = Terminal::new(&options);
    let header = terminal.ready();
    let lines: Vec<_> = header.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(lines.len(), 2, "{header}");
    assert!(lines[0].contains("trained for 256 tokens"), "{header}");
    assert!(lines[1].starts_with("RoPE: yarn by 4, context 1024 ("), "{header}");
    assert!(lines[1].ends_with("); /help: commands, /stats: details"), "{header}");
    terminal.press("/stats\r");
    for part in ["RoPE: yarn (--rope-scaling yarn), factor 4", "Model: ", "Memory: ", "Threads: "] {
        terminal.until(part);
    }
    terminal.enter("/exit");
    terminal.ends_with(0);

    let size = Winsize { ws_row: 24, ws_col: 40, ws_xpixel: 0, ws_ypixel: 0 };
    let mut narrow = Terminal::of_size(Some(size), &options);
    let wrapped = narrow.ready();
    let wrapped = wrapped.split("> ").next().unwrap();
    assert!(wrapped.lines().all(|line| line.trim_end().len() <= 40), "{wrapped}");
    let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
    assert_eq!(words(wrapped), words(header.split("> ").next().unwrap()));
    narrow.press("\u{4}");
    narrow.ends_with(0);
}

#[test]
fn a_question_whose_reading_was_stopped_is_asked_again() {
    let model = tiny_reader(7, true);
    let options = ["-m", model.path().to_str().unwrap(), "-no-cnv", "--temp", "0", "-n", "4"];
    let slow = ["-c", "8k", "--rope-scaling", "yarn", "-ub", "16", "-t", "1", "--power", "1"];
    let mut terminal = Terminal::new(&[&options[..], &slow, &["--ignore-eos"]].concat());
    terminal.enter(&"the rain in the north ".repeat(60));
    terminal.until("reading ");
    terminal.signal(Signal::SIGINT);
    terminal.until("(/regen reads the rest of the question and answers it, /edit changes it)");
    terminal.enter("/regen");
    let again = terminal.timings();
    assert!(number_before(&again, " reused") >= 16, "{again}");
    assert!(number_before(&again, " tokens in") > 16, "{again}");
    // It is the last question now.
    terminal.enter("/regen");
    let third = terminal.timings();
    assert!(number_before(&third, " reused") > number_before(&again, " reused"), "{third}");
    terminal.enter("/undo");
    terminal.until("(removed 1 turn, 0 turns left)");
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn a_long_help_has_a_pager() {
    let folder = tempfile::tempdir().unwrap();
    let pager = folder.path().join("pager");
    std::fs::write(&pager, "#!/bin/sh\necho \"lines: $(wc -l)\"\n").unwrap();
    let shell = format!("chmod +x {0} && PAGER={0} exec \"$0\" \"$@\"", pager.display());
    let size = |rows| Winsize { ws_row: rows, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let help = |rows, arguments: &[&str]| {
        let program = assert_cmd::cargo::cargo_bin!("rope-cpu").to_str().unwrap();
        Terminal::running("sh", Some(size(rows)), &[&["-c", &shell, program], arguments].concat())
    };
    let mut long = help(24, &["run", "--help"]);
    long.until("lines: ");
    long.ends_with(0);
    let mut short = help(1000, &["run", "--help"]);
    let shown = short.until("Environment:");
    assert!(!shown.contains("lines: "));
}

#[test]
fn after_a_message_that_is_too_long_another_may_follow() {
    let Some(model) = smollm2() else { return };
    let mut terminal = Terminal::new(&["-m", &model, "--temp", "0", "-n", "4", "-c", "64"]);
    terminal.enter(&"word ".repeat(80));
    let all = terminal.ready();
    assert!(all.contains("does not fit in the context of 64") && !all.contains("/drop"), "{all}");
    terminal.press("Hi\r");
    terminal.timings();
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn long_prompts_show_a_progress_bar() {
    let Some(model) = smollm2() else { return };
    let prompt = "All work and no play makes Jack a dull boy. ".repeat(12);
    let arguments =
        ["-m", &model, "-no-cnv", "-ub", "32", "-n", "1", "--no-display-prompt", "-p", &prompt];
    let mut terminal = Terminal::new(&arguments);
    terminal.until("reading [");
    terminal.until("tokens/s, ");
    terminal.until(" left");
    terminal.until("seed    ");
    terminal.ends_with(0);
}

#[test]
fn a_full_conversation_goes_on_without_its_oldest_turns() {
    let model = tiny_reader(7, true);
    let model = model.path().to_str().unwrap();
    let options = ["-m", model, "-no-cnv", "--temp", "0", "--ignore-eos", "-n", "20", "-c", "48"];
    let mut terminal = Terminal::new(&options);
    terminal.enter("the rain");
    let first = terminal.timings();
    terminal.enter("/drop");
    terminal.until("(removed 1 turn, 0 turns left)");
    // The BOS token was not removed, so the prompt equals the first one.
    terminal.enter("the rain");
    let read = number_before(&first, " tokens in");
    assert_eq!(number_before(&terminal.timings(), " reused"), read - 1);
    terminal.enter(" in the north");
    terminal.until("the context of 48 tokens is full");
    terminal.until("/drop removes the oldest turn");
    terminal.timings();
    terminal.enter(" and");
    terminal.until("does not fit in the context of 48");
    terminal.until("--context-shift");
    terminal.enter("/drop 1");
    terminal.until("(removed 1 turn, 1 turn left)");
    terminal.enter("/drop x");
    terminal.until("/drop x: must be a whole number of at least 1");
    terminal.enter("/help");
    terminal.until(&format!("{:19}  remove", "/drop [N]"));
    terminal.enter(" and");
    let later = terminal.timings();
    assert_eq!(number_before(&later, " reused"), 1, "{later}");
    terminal.enter("/drop 9");
    terminal.until("(removed 2 turns, 0 turns left)");
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn the_system_message_stays_where_turns_are_dropped() {
    let Some(model) = smollm2() else { return };
    let options = ["-m", &model, "-sys", "Be brief.", "--temp", "0", "-n", "4", "-c", "512"];
    let mut terminal = Terminal::new(&options);
    terminal.enter("One");
    let first = terminal.timings();
    terminal.enter("Two");
    terminal.timings();
    terminal.enter("/drop 2");
    terminal.until("(removed 2 turns, 0 turns left)");
    terminal.enter("One");
    let again = terminal.timings();
    let read = number_before(&first, " tokens in");
    assert!(number_before(&again, " reused") >= read - 1, "{first} {again}");
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn a_conversation_follows_the_question_of_the_command_line() {
    let Some(model) = smollm2() else { return };
    let mut terminal = Terminal::new(&["-m", &model, "-p", "Who are you?", "-n", "4", "-c", "256"]);
    terminal.until("> \x1b[32mWho are you?\x1b[0m\r\n");
    let first = terminal.timings();
    terminal.enter("And who am I?");
    let second = terminal.timings();
    assert!(number_before(&second, " reused") > number_before(&first, " tokens in"), "{second}");
    terminal.enter("/exit");
    terminal.ends_with(0);
}

#[test]
fn the_question_of_the_command_line_is_shown() {
    let Some(model) = smollm2() else { return };
    let ask = ["-m", &model, "-cnv", "-st", "-p", "Why is the sky blue?", "-n", "4", "-q"];
    let mut terminal = Terminal::new(&ask);
    terminal.until("> \x1b[32mWhy is the sky blue?\x1b[0m\r\n");
    terminal.ends_with(0);
    let mut terminal = Terminal::new(&[&ask[..], &["--no-display-prompt", "-r", " "]].concat());
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    let shown: Vec<u8> = terminal.shown.try_iter().flatten().collect();
    assert!(!String::from_utf8_lossy(&shown).contains("Why"), "{shown:?}");
}

/// Starts a conversation that saves all tokens in a prompt cache; returns its folder.
fn kept(options: &[&str]) -> (Terminal, tempfile::TempDir) {
    let model = smollm2().unwrap_or_default();
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("kept");
    let with = ["-m", &model, "--ignore-eos", "--temp", "0", "--prompt-cache"];
    let all = [&with[..], &[cache.to_str().unwrap(), "--prompt-cache-all"], options].concat();
    (Terminal::new(&all), folder)
}

fn files(folder: &tempfile::TempDir) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect()
}

#[test]
fn sigterm_ends_an_answer_or_the_waiting_for_a_line_and_keeps_what_was_read() {
    if smollm2().is_none() {
        return;
    }
    let (mut writing, folder) = kept(&[]);
    writing.enter("Count to one thousand.");
    writing.until(" ");
    writing.signal(Signal::SIGTERM);
    writing.until("seed    ");
    writing.ends_with(143);
    assert_eq!(files(&folder), ["kept"]);

    // After the program handled a Ctrl-C, the next signal counts as the first.
    let (mut waiting, folder) = kept(&[]);
    waiting.enter("Count to one thousand.");
    waiting.until(" ");
    waiting.signal(Signal::SIGINT);
    waiting.timings();
    waiting.ready();
    waiting.press("half a line");
    waiting.until("line");
    waiting.signal(Signal::SIGTERM);
    waiting.until("seed    ");
    waiting.ends_with(143);
    assert_eq!(files(&folder), ["kept"]);
}

#[test]
fn a_second_ctrl_c_exits_at_once_with_a_warning() {
    if smollm2().is_none() {
        return;
    }
    let prompt = "All work and no play makes Jack a dull boy. ".repeat(400);
    let (mut terminal, folder) = kept(&["-ub", "2048", "-c", "8192", "-cnv", "-p", &prompt]);
    terminal.until("reading [");
    terminal.signal(Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(50));
    terminal.signal(Signal::SIGINT);
    terminal.until("warning: --prompt-cache ");
    terminal.until("kept was not saved");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(130));
    // The echo, which was off, is on again.
    let settings = tcgetattr(&terminal.keys).unwrap();
    assert!(settings.local_flags.contains(LocalFlags::ECHO));
    assert!(files(&folder).is_empty());
}
