//! Generates the tasks of RULER: Hsieh et al., "RULER: What's the Real Context Size of Your
//! Long-Context Language Models?" (arXiv:2404.06654), with the prompts of its program
//! (github.com/NVIDIA/RULER).
//!
//! A prompt has a size: a number of lines, words or documents. [`Task::prompt`] searches for the
//! largest size that fits in a length. The same task, length, sample and seed give the same prompt.

mod documents;
mod fit;
mod needles;
mod variables;
mod vocabulary;
mod words;

pub use documents::Documents;

use thiserror::Error;

use super::{passkey::FILLER, random::Random};
use needles::{
    Haystack::{Filler, Others, Text},
    Kind::{Uuid, Words},
    Needles,
};

/// The score that RULER requires for its effective length: that of Llama 2 7B Chat at 4,096 tokens.
pub const EFFECTIVE_SHARE: f64 = 0.856;

/// Returns random words that a needle can have as its key or value.
pub(super) fn key(random: &mut Random) -> String {
    vocabulary::pair(random.below(vocabulary::PAIRS))
}

/// A prompt with its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The user's message.
    pub question: String,
    /// The start of the answer, which the model continues.
    pub prefix: String,
    /// The texts that an answer must contain.
    pub answers: Vec<String>,
}

/// The text and the documents of a user, for the tasks that need them.
#[derive(Debug, Default)]
pub struct Material {
    text: Vec<String>,
    words: Vec<String>,
    /// The documents and questions of each task of [`Making::Documents`].
    documents: Vec<(&'static str, Documents)>,
}

/// A task.
#[derive(Debug)]
pub struct Task {
    /// The name in RULER.
    pub name: &'static str,
    /// What a prompt asks for.
    pub about: &'static str,
    /// Maximum tokens of an answer.
    pub answer_tokens: usize,
    making: Making,
}

/// How prompts are made.
#[derive(Debug)]
enum Making {
    Needles(Needles),
    Variables,
    CommonWords,
    FrequentWords,
    Documents,
}

/// An error while generating a prompt.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The task needs more material than it has.
    #[error("{task}: needs {material}")]
    Missing {
        /// The task.
        task: &'static str,
        /// What is missing.
        material: &'static str,
    },
    /// The length is too short.
    #[error("{task}: the length of {length} tokens must be at least {least}")]
    Length {
        /// The task.
        task: &'static str,
        /// The length in tokens.
        length: usize,
        /// The tokens of the shortest prompt and its answer.
        least: usize,
    },
    /// The text or the documents do not fill the length.
    #[error(
        "{task}: all of the {material} fill only {tokens} of {length} tokens: give more of them"
    )]
    Material {
        /// The task.
        task: &'static str,
        /// What is too short.
        material: &'static str,
        /// The tokens of the longest prompt and its answer.
        tokens: usize,
        /// The length in tokens.
        length: usize,
    },
}

/// All tasks, in RULER's order.
pub static TASKS: [Task; 13] = [
    needles("niah_single_1", "a number in repeated sentences", Needles::new(Filler, [1, 1, 1])),
    needles("niah_single_2", "a number in a text", Needles::new(Text, [1, 1, 1])),
    needles("niah_single_3", "a UUID in a text", Needles::new(Text, [1, 1, 1]).of(Words, Uuid)),
    needles("niah_multikey_1", "one of 4 numbers in a text", Needles::new(Text, [4, 1, 1])),
    needles("niah_multikey_2", "a number among others", Needles::new(Others, [1, 1, 1])),
    needles(
        "niah_multikey_3",
        "a UUID among others, by another UUID",
        Needles::new(Others, [1, 1, 1]).of(Uuid, Uuid),
    ),
    needles("niah_multivalue", "4 numbers of a word in a text", Needles::new(Text, [1, 4, 1])),
    needles("niah_multiquery", "the numbers of 4 words in a text", Needles::new(Text, [4, 1, 4])),
    Task {
        name: "vt",
        about: "5 variables that have a value through a chain of assignments",
        answer_tokens: 30,
        making: Making::Variables,
    },
    Task {
        name: "cwe",
        about: "the 10 most common words of a list",
        answer_tokens: 120,
        making: Making::CommonWords,
    },
    Task {
        name: "fwe",
        about: "the 3 most frequent words of a coded text",
        answer_tokens: 50,
        making: Making::FrequentWords,
    },
    Task {
        name: "qa_1",
        about: "an answer in one of many documents (SQuAD)",
        answer_tokens: 32,
        making: Making::Documents,
    },
    Task {
        name: "qa_2",
        about: "an answer in two of many documents (HotpotQA)",
        answer_tokens: 32,
        making: Making::Documents,
    },
];

const fn needles(name: &'static str, about: &'static str, needles: Needles) -> Task {
    Task { name, about, answer_tokens: 128, making: Making::Needles(needles) }
}

impl Material {
    /// Creates the material from a text, which may be empty.
    pub fn new(text: &str) -> Self {
        Material {
            text: needles::sentences(text),
            words: words::distinct(text),
            documents: Vec::new(),
        }
    }

    /// Adds the documents of a task.
    pub fn add(&mut self, task: &'static str, documents: Documents) {
        self.documents.push((task, documents));
    }

    /// Returns the documents of a task.
    fn documents(&self, task: &str) -> Option<&Documents> {
        self.documents.iter().find(|(name, _)| *name == task).map(|(_, documents)| documents)
    }
}

impl Task {
    /// Returns the task of a name.
    pub fn named(name: &str) -> Option<&'static Task> {
        TASKS.iter().find(|task| task.name == name)
    }

    /// Returns whether the task needs the user's text.
    pub fn needs_text(&self) -> bool {
        match &self.making {
            Making::Needles(needles) => needles.haystack == Text,
            Making::CommonWords => true,
            _ => false,
        }
    }

    /// Returns whether the task needs the user's documents and questions.
    pub fn needs_documents(&self) -> bool {
        matches!(self.making, Making::Documents)
    }

    /// Returns the number of samples, if the material limits it.
    pub fn samples_max(&self, material: &Material) -> Option<usize> {
        self.needs_documents().then(|| material.documents(self.name).map_or(0, Documents::len))
    }

    /// Returns the longest prompt of sample `number` that fits, with its answer, in `length` tokens.
    /// `tokens` counts the tokens of a prompt.
    ///
    /// # Errors
    /// If the length is too short, or the material does not fill it.
    pub fn prompt(
        &'static self,
        material: &Material,
        length: usize,
        number: usize,
        seed: u32,
        tokens: &dyn Fn(&Prompt) -> usize,
    ) -> Result<Prompt, Error> {
        let (task, documents) = (self.name, material.documents(self.name));
        if self.needs_text() && material.text.is_empty() {
            return Err(Error::Missing { task, material: "a text" });
        }
        if self.needs_documents() && documents.is_none_or(|all| number >= all.len()) {
            return Err(Error::Missing {
                task,
                material: "documents with a question for each sample",
            });
        }
        let task = crc32fast::hash(task.as_bytes());
        let numbers = [seed.into(), task.into(), length as u64, number as u64];
        let make = |size: usize| {
            let random = &mut Random::new(&numbers);
            match &self.making {
                Making::Needles(needles) => needles.prompt(random, size, &material.text),
                Making::Variables => variables::prompt(random, size),
                Making::CommonWords => words::common(random, size, length, &material.words),
                Making::FrequentWords => words::frequent(random, size, length),
                Making::Documents => {
                    let prompt = |all: &Documents| all.prompt(random, size, number);
                    documents.map(prompt).unwrap_or_default()
                }
            }
        };
        let (sizes, of) = match &self.making {
            Making::Needles(needles) => (needles.sizes(), "needles"),
            Making::Variables => (variables::SIZES, ""),
            Making::CommonWords => (words::COMMON..=material.words.len(), "words"),
            Making::FrequentWords => (words::FREQUENT_SIZES, ""),
            Making::Documents => {
                (documents.map_or(1..=1, |documents| documents.sizes(number)), "documents")
            }
        };
        fit::longest(self, length, sizes, of, &make, tokens)
    }

    /// Returns the score of an answer, from 0 to 1.
    pub fn score(&self, answer: &str, answers: &[String]) -> f64 {
        match self.needs_documents() {
            true => super::scores::contained_any(answer, answers),
            false => super::scores::contained(answer, answers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn material() -> Material {
        let words = (0..26u8).map(|i| char::from(b'a' + i)).flat_map(|a| {
            (0..26u8).map(move |i| {
                format!("w{a}{}s.", char::from(b'a' + i))
                    .replace("s.", if i % 9 == 0 { "s. Then" } else { "s" })
            })
        });
        let mut material = Material::new(&words.collect::<Vec<_>>().join(" "));
        let squad = r#"{"data": [{"paragraphs": [{"context": "Ada is 5 years old.", "qas": [
            {"question": "How old is Ada?", "answers": [{"text": "5"}]}]},
            {"context": "It rains a lot, here and there.", "qas": []}]}]}"#;
        material.add("qa_1", Documents::squad(squad).unwrap());
        material
    }

    /// A token for each word.
    fn tokens(prompt: &Prompt) -> usize {
        prompt.question.split_whitespace().count() + prompt.prefix.split_whitespace().count()
    }

    #[test]
    fn prompts_fill_their_length_and_depend_on_the_sample() {
        let material = material();
        for task in TASKS.iter().filter(|task| !task.needs_documents()) {
            let prompt = |number, seed| {
                task.prompt(&material, 1500, number, seed, &tokens)
                    .unwrap_or_else(|e| panic!("{e}"))
            };
            let first = prompt(0, 0);
            let filled = tokens(&first) + task.answer_tokens;
            // A line of the haystack, or a sentence of nine words.
            assert!((1500 - 24..=1500).contains(&filled), "{}: {filled}", task.name);
            assert_eq!(prompt(0, 0), first, "{}", task.name);
            assert_ne!(prompt(1, 0).answers, first.answers, "{}", task.name);
            assert_ne!(prompt(0, 1).answers, first.answers, "{}", task.name);
            assert_eq!(task.score(&first.answers.join(", "), &first.answers), 1.0);
            let count = first.answers.len() as f64;
            let without_first = first.answers[1..].join(", ");
            assert_eq!(task.score(&without_first, &first.answers), (count - 1.0) / count);
            let found = first.answers.iter().filter(|answer| first.question.contains(*answer));
            assert_eq!(found.count(), first.answers.len(), "{}", task.name);
        }
    }

    #[test]
    fn missing_and_short_material_is_named() {
        let qa = Task::named("qa_1").unwrap();
        let error = |task: &'static Task, material: &Material, length, number| {
            task.prompt(material, length, number, 0, &tokens).unwrap_err().to_string()
        };
        assert!(qa.prompt(&material(), 100, 0, 0, &tokens).is_ok());
        assert_eq!(
            error(qa, &material(), 1000, 0),
            "qa_1: all of the documents fill only 99 of 1000 tokens: give more of them"
        );
        assert!(error(qa, &material(), 100, 1).contains("qa_1: needs documents"));
        let cwe = Task::named("cwe").unwrap();
        assert!(error(cwe, &material(), 8192, 0).starts_with("cwe: all of the words fill only "));
        assert_eq!(error(cwe, &Material::new(""), 8192, 0), "cwe: needs a text");
        let vt = Task::named("vt").unwrap();
        assert!(error(vt, &material(), 100, 0).starts_with("vt: the length of 100 tokens must be"));
    }
}
