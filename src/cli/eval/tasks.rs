//! The tasks of a command line, and the prompts of their samples.

use std::{fmt::Write, path::Path};

use super::Args;
use crate::cli::{args::named, error::Error, text};
use rope_cpu::{
    Token,
    chat::{Message, Role, Template},
    eval::{
        choices::{self, Continuation},
        passkey::{self, Prompts},
        ruler::{self, Documents, Material},
        task_file::{FORMATS, Format, Question},
    },
    model::Model,
    tokenizer::{Ends, Special, Tokenizer},
};

/// A task of the command line.
pub struct Task {
    pub name: String,
    pub metrics: Vec<&'static str>,
    /// The number of samples.
    pub samples: usize,
    /// A checksum of the user's files that the samples are made from; 0 without files.
    pub source_crc: u32,
    kind: Kind,
}

enum Kind {
    Passkey,
    Ruler(&'static ruler::Task),
    File(Vec<Question>),
}

/// A sample, ready to compute.
pub enum Sample {
    /// A prompt that the model answers in words.
    Answer { prompt: Vec<Token>, tokens_max: usize, stops: Vec<String>, expected: Vec<String> },
    /// Choices that are scored.
    Choose(Vec<Continuation>),
}

/// The tasks, and what their samples are made from.
pub struct Tasks<'t, 'a> {
    pub all: Vec<Task>,
    material: Material,
    tokenizer: &'t Tokenizer<'a>,
    template: Option<Template>,
    pub seed: u32,
}

/// The name of all generated tasks of RULER.
const RULER: &str = "ruler";
const PASSKEY: &str = "passkey";

/// Returns the list of tasks for the help.
pub fn list() -> String {
    let mut list = "Tasks:\n".to_string();
    let mut line = |name: &str, about: &str| {
        let _ = writeln!(list, "  {name:<20}  {about}");
    };
    line(RULER, "all tasks of RULER that are generated: niah_*, vt, cwe, fwe");
    for task in &ruler::TASKS {
        let file = if task.needs_documents() { "=FILE" } else { "" };
        line(&format!("{}{file}", task.name), task.about);
    }
    line(PASSKEY, "a number of five digits, from the end of the text to its start");
    line("", "");
    line("NAME=FILE", "questions, an object on each line:");
    for format in &FORMATS {
        line(format.name, format.fields);
    }
    list.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

impl<'t, 'a> Tasks<'t, 'a> {
    /// Reads the tasks of a command line and their files.
    ///
    /// # Errors
    /// If a task is unknown or given twice, or a file is missing, unreadable or invalid.
    pub fn new(args: &Args, model: &'a Model, tokenizer: &'t Tokenizer<'a>) -> Result<Self, Error> {
        let haystack = args.haystack.as_deref().map(text::file).transpose()?.unwrap_or_default();
        let mut tasks = Tasks {
            all: Vec::new(),
            material: Material::new(&haystack),
            tokenizer,
            template: None,
            seed: args.seed,
        };
        if args.chat {
            let template = model.chat_template().map_err(Error::usage)?;
            let none = "--chat: the model has no chat template: evaluate it without --chat";
            tasks.template = Some(template.ok_or_else(|| Error::usage(none))?);
        }
        let haystack_crc = crc32fast::hash(haystack.as_bytes());
        for given in &args.tasks {
            let (name, file) = match given.split_once('=') {
                Some((name, file)) => (name, Some(Path::new(file))),
                None => (&given[..], None),
            };
            match (name, file) {
                (RULER, None) => {
                    let generated = ruler::TASKS.iter().filter(|task| !task.needs_documents());
                    for task in generated {
                        tasks.add_ruler(task, None, args, haystack_crc)?;
                    }
                }
                (PASSKEY, None) => {
                    let (metrics, samples) = (vec!["found"], args.samples);
                    tasks.add(Task {
                        name: name.into(),
                        metrics,
                        samples,
                        source_crc: 0,
                        kind: Kind::Passkey,
                    })?;
                }
                _ => match (ruler::Task::named(name), Format::named(name), file) {
                    (Some(task), ..) => tasks.add_ruler(task, file, args, haystack_crc)?,
                    (_, Some(format), Some(file)) => tasks.add_file(format, file, args.samples)?,
                    (_, Some(_), None) => return Err(needs_file(name)),
                    _ if [RULER, PASSKEY].contains(&name) => return Err(reads_no_file(name)),
                    _ => return Err(unknown(name)),
                },
            }
        }
        Ok(tasks)
    }

    fn add(&mut self, task: Task) -> Result<(), Error> {
        if self.all.iter().any(|known| known.name == task.name) {
            return Err(Error::usage(format_args!("{} is listed twice", task.name)));
        }
        self.all.push(task);
        Ok(())
    }

    fn add_ruler(
        &mut self,
        task: &'static ruler::Task,
        file: Option<&Path>,
        args: &Args,
        haystack_crc: u32,
    ) -> Result<(), Error> {
        let name = task.name;
        let mut source_crc = 0;
        match (file, task.needs_documents()) {
            (Some(file), true) => {
                let json = text::file(file)?;
                let read = if name == "qa_1" { Documents::squad } else { Documents::hotpot };
                let documents = read(&json).map_err(|e| named(file, e))?;
                if documents.is_empty() {
                    return Err(named(file, "has no questions with an answer"));
                }
                source_crc = crc32fast::hash(json.as_bytes());
                self.material.add(name, documents);
            }
            (None, true) => return Err(needs_file(name)),
            (Some(_), false) => {
                return Err(reads_no_file(name));
            }
            (None, false) => {}
        }
        if task.needs_text() {
            if args.haystack.is_none() {
                return Err(Error::usage(format_args!(
                    "{name} needs a text: give one with --haystack FILE"
                )));
            }
            source_crc = haystack_crc;
        }
        let samples = args.samples.min(task.samples_max(&self.material).unwrap_or(usize::MAX));
        self.add(Task {
            name: name.into(),
            metrics: vec!["found"],
            samples,
            source_crc,
            kind: Kind::Ruler(task),
        })
    }

    fn add_file(&mut self, format: Format, file: &Path, samples: usize) -> Result<(), Error> {
        let bytes = text::file_bytes(file)?;
        let source_crc = crc32fast::hash(&bytes);
        let questions = format.parse(&text::text(&file.display().to_string(), bytes)?);
        let questions = questions.map_err(|e| named(file, e))?;
        self.add(Task {
            name: format.name.into(),
            metrics: format.metrics.to_vec(),
            samples: samples.min(questions.len()),
            source_crc,
            kind: Kind::File(questions),
        })
    }

    /// Checks that the samples of every task fit in `length` tokens.
    ///
    /// # Errors
    /// If they do not, with the number of tokens.
    pub fn check(&self, length: usize) -> Result<(), Error> {
        for task in &self.all {
            // Generated prompts all fill the length.
            let samples = if let Kind::File(_) = task.kind { task.samples } else { 1 };
            for number in 0..samples {
                self.sample(task, length, number)?;
            }
        }
        Ok(())
    }

    /// Returns sample `number` of a task for `length` tokens.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn sample(&self, task: &Task, length: usize, number: usize) -> Result<Sample, Error> {
        match &task.kind {
            Kind::Passkey => {
                let prompts = Prompts::new(self.tokenizer, length).map_err(|least| {
                    Error::usage(format_args!(
                        "passkey: the length of {length} tokens must be at least {least}"
                    ))
                })?;
                let test = passkey_test(length, number, task.samples);
                let key = test.key(self.seed);
                Ok(Sample::Answer {
                    prompt: prompts.tokens(test.depth, key),
                    tokens_max: passkey::ANSWER_TOKENS,
                    stops: Vec::new(),
                    expected: vec![key.to_string()],
                })
            }
            Kind::Ruler(ruler) => {
                let tokens = |prompt: &ruler::Prompt| self.prompt(&prompt.question, &prompt.prefix);
                let count =
                    |prompt: &ruler::Prompt| tokens(prompt).map_or(usize::MAX / 2, |t| t.len());
                let prompt = ruler.prompt(&self.material, length, number, self.seed, &count);
                let prompt = prompt.map_err(Error::usage)?;
                Ok(Sample::Answer {
                    prompt: tokens(&prompt)?,
                    tokens_max: ruler.answer_tokens,
                    stops: Vec::new(),
                    expected: prompt.answers,
                })
            }
            Kind::File(questions) => {
                let (sample, tokens) = match &questions[number] {
                    Question::Choose(choose) => {
                        let choices: Vec<_> = choose
                            .choices
                            .iter()
                            .map(|(text, choice)| Continuation::new(self.tokenizer, text, choice))
                            .collect();
                        choices::check(&choices).map_err(|e| {
                            Error::usage(format_args!(
                                "{}: question {}: {e}",
                                task.name,
                                number + 1
                            ))
                        })?;
                        let longest = choices.iter().map(|choice| choice.tokens.len()).max();
                        (Sample::Choose(choices), longest.unwrap_or_default())
                    }
                    Question::Answer(question) => {
                        let prompt = self.prompt(&question.text(), "")?;
                        let tokens = prompt.len().saturating_add(question.tokens);
                        let sample = Sample::Answer {
                            prompt,
                            tokens_max: question.tokens,
                            stops: question.until().to_vec(),
                            expected: question.answers().to_vec(),
                        };
                        (sample, tokens)
                    }
                };
                if tokens > length {
                    return Err(Error::usage(format_args!(
                        "{}: question {} has {tokens} tokens with its answer, more than the length of \
                         {length}: choose longer --lengths",
                        task.name,
                        number + 1
                    )));
                }
                Ok(sample)
            }
        }
    }

    /// Returns the scores of an answer in words, in the order of the task's metrics.
    pub fn scores(
        &self,
        task: &Task,
        number: usize,
        answer: &str,
        expected: &[String],
    ) -> Vec<f64> {
        match &task.kind {
            Kind::Passkey => {
                let found = expected.iter().any(|key| passkey::is_found(answer, key));
                vec![f64::from(u8::from(found))]
            }
            Kind::Ruler(ruler) => vec![ruler.score(answer, expected)],
            Kind::File(questions) => match &questions[number] {
                Question::Answer(question) => question.scores(answer),
                Question::Choose(_) => Vec::new(),
            },
        }
    }

    /// Returns the scores of choices with these log-likelihoods.
    pub fn choice_scores(&self, task: &Task, number: usize, log_likelihoods: &[f64]) -> Vec<f64> {
        match &task.kind {
            Kind::File(questions) => match &questions[number] {
                Question::Choose(choose) => choose.scores(log_likelihoods),
                Question::Answer(_) => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Returns whether prompts have the model's chat template.
    pub fn chat(&self) -> bool {
        self.template.is_some()
    }

    /// Returns the tokens of a question and the start of its answer.
    fn prompt(&self, question: &str, prefix: &str) -> Result<Vec<Token>, Error> {
        let Some(template) = &self.template else {
            let bos = self.tokenizer.bos().filter(|_| self.tokenizer.adds_bos());
            let text = format!("{question}{prefix}");
            let text = self.tokenizer.encode(text, Special::AsText, Ends::Omit);
            return Ok(bos.into_iter().chain(text).collect());
        };
        let rendered = template.render(&[Message::new(Role::User, question)], &[], true);
        let rendered = rendered.map_err(|e| Error::usage(format_args!("--chat: {e}")))?;
        Ok(self.tokenizer.encode_chat(format!("{rendered}{}", prefix.trim_start())))
    }
}

impl Task {
    /// Returns whether the task is of RULER, and counts for its average.
    pub fn is_ruler(&self) -> bool {
        matches!(self.kind, Kind::Ruler(_))
    }

    /// Returns whether choices are scored.
    pub fn has_choices(&self) -> bool {
        matches!(&self.kind, Kind::File(questions) if matches!(questions[0], Question::Choose(_)))
    }

    /// Returns the number of samples if it determines each of them, else 0.
    pub fn grid(&self) -> usize {
        if let Kind::Passkey = self.kind { self.samples } else { 0 }
    }

    /// Estimates the tokens of a sample for `length` tokens.
    pub fn tokens(&self, length: usize) -> usize {
        match &self.kind {
            Kind::File(questions) => {
                let texts = questions.iter().take(self.samples).map(|question| match question {
                    Question::Choose(choose) => {
                        choose.choices.iter().map(|(_, text)| text.len()).sum()
                    }
                    Question::Answer(question) => question.text().len(),
                });
                // About four bytes a token.
                let bytes: usize = texts.sum();
                (bytes / self.samples.max(1) / 4).min(length)
            }
            _ => length,
        }
    }
}

/// Returns the passkey test of a sample: keys go from the end of the text to its start, so that each
/// prompt shares most of the one before.
fn passkey_test(length: usize, number: usize, samples: usize) -> passkey::Test {
    let last = samples.saturating_sub(1);
    let depth = match last {
        0 => 50,
        last => 100 - (100 * number + last / 2) / last,
    };
    passkey::Test { length, depth: depth as u32, number }
}

fn needs_file(name: &str) -> Error {
    Error::usage(format_args!("{name} needs a file: give one with {name}=FILE"))
}

fn reads_no_file(name: &str) -> Error {
    Error::usage(format_args!("{name} reads no file: give {name} alone"))
}

fn unknown(name: &str) -> Error {
    let ruler = ruler::TASKS.iter().map(|task| task.name);
    let formats = FORMATS.iter().map(|format| format.name);
    let known: Vec<_> = [RULER, PASSKEY].into_iter().chain(ruler).chain(formats).collect();
    Error::usage(format_args!("unknown task {name:?}: choose from {}", known.join(", ")))
}
