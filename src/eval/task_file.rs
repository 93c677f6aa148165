//! Reads questions from a user's file, in the form of the data sets of lm-evaluation-harness: a JSON
//! object on each line, or an array of objects.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use thiserror::Error;

use choices::{Arc, HellaSwag, Mmlu, Plain, TruthfulQa1, TruthfulQa2, Winogrande};

mod choices;
mod generation;

pub use choices::Choose;
pub use generation::Generation;

/// The form of a file.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name of the task, as in lm-evaluation-harness.
    pub name: &'static str,
    /// The fields of an object.
    pub fields: &'static str,
    /// The names of the scores.
    pub metrics: &'static [&'static str],
    parse: fn(&str) -> Result<Question, serde_json::Error>,
}

/// All forms.
pub const FORMATS: [Format; 8] = [
    Format {
        name: "hellaswag",
        fields: "activity_label, ctx_a, ctx_b, endings, label",
        metrics: &["acc", "acc_norm"],
        parse: |line| choose(line, HellaSwag::question),
    },
    Format {
        name: "arc",
        fields: "question, choices {text, label}, answerKey",
        metrics: &["acc", "acc_norm"],
        parse: |line| choose(line, Arc::question),
    },
    Format {
        name: "mmlu",
        fields: "question, choices, answer, subject",
        metrics: &["acc"],
        parse: |line| choose(line, Mmlu::question),
    },
    Format {
        name: "truthfulqa_mc1",
        fields: "question, mc1_targets {choices, labels}",
        metrics: &["acc"],
        parse: |line| choose(line, TruthfulQa1::question),
    },
    Format {
        name: "truthfulqa_mc2",
        fields: "question, mc2_targets {choices, labels}",
        metrics: &["mass"],
        parse: |line| choose(line, TruthfulQa2::question),
    },
    Format {
        name: "winogrande",
        fields: "sentence, option1, option2, answer",
        metrics: &["acc"],
        parse: |line| choose(line, Winogrande::question),
    },
    Format {
        name: "choices",
        fields: "query, choices, gold",
        metrics: &["acc", "acc_norm"],
        parse: |line| choose(line, Plain::question),
    },
    Format {
        name: "generation",
        fields: "prompt, answers, and optionally context, tokens, until",
        metrics: &["exact_match", "f1", "rouge_l"],
        parse: |line| crate::json::parse(line).map(Question::Answer),
    },
];

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// A question with choices.
    Choose(Choose),
    /// A question with an answer in words.
    Answer(Generation),
}

/// An error while reading a file of questions.
#[derive(Debug, Error)]
pub enum Error {
    /// A line is not a question.
    #[error("{place} {number}: {reason}; {name} has the fields {fields}")]
    Line {
        /// A line or an item of an array.
        place: &'static str,
        /// Its number, from 1.
        number: usize,
        /// What is wrong.
        reason: String,
        /// The name of the form.
        name: &'static str,
        /// The fields of the form.
        fields: &'static str,
    },
    /// The file has no question.
    #[error("has no questions")]
    Empty,
    /// The file starts as an array, but is not JSON.
    #[error("is not an array of JSON: {0}")]
    Array(serde_json::Error),
}

impl Format {
    /// Returns the form of a name.
    pub fn named(name: &str) -> Option<Format> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// Parses a file.
    ///
    /// # Errors
    /// If a line is not a question of this form. The error names the line and the field.
    pub fn parse(&self, text: &str) -> Result<Vec<Question>, Error> {
        let Format { name, fields, .. } = *self;
        let array = text.trim_start().starts_with('[');
        let items: Vec<(usize, String)> = match array {
            true => {
                let items: Vec<serde_json::Value> =
                    crate::json::parse(text).map_err(Error::Array)?;
                (1..).zip(items.iter().map(ToString::to_string)).collect()
            }
            false => {
                let lines = (1..).zip(text.lines().map(String::from));
                lines.filter(|(_, line)| !line.trim().is_empty()).collect()
            }
        };
        let place = if array { "item" } else { "line" };
        let questions = items.into_iter().map(|(number, item)| {
            let line = |reason: &dyn Display| Error::Line {
                place,
                number,
                reason: reason.to_string(),
                name,
                fields,
            };
            let question = (self.parse)(&item).map_err(|e| line(&e))?;
            question.check().map_err(|reason| line(&reason))?;
            Ok(question)
        });
        let questions = questions.collect::<Result<Vec<_>, _>>()?;
        if questions.is_empty() { Err(Error::Empty) } else { Ok(questions) }
    }
}

impl Question {
    fn check(&self) -> Result<(), String> {
        match self {
            Question::Choose(question) => question.check(),
            Question::Answer(question) => question.check(),
        }
    }
}

/// Parses an object and makes it a question with choices.
fn choose<T: DeserializeOwned>(
    line: &str,
    question: fn(T) -> Result<Choose, String>,
) -> Result<Question, serde_json::Error> {
    let question = question(crate::json::parse(line)?).map_err(serde::de::Error::custom)?;
    Ok(Question::Choose(question))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, line: &str) -> Question {
        Format::named(name).unwrap().parse(&line.replace('\n', " ")).unwrap().remove(0)
    }

    fn choices(name: &str, line: &str) -> Choose {
        match one(name, line) {
            Question::Choose(choose) => choose,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn questions_are_those_of_lm_evaluation_harness() {
        let hellaswag = choices(
            "hellaswag",
            r#"{"activity_label": "Baking", "ctx_a": "A man [step] stirs.",
            "ctx_b": "he IS", "endings": ["sad [title] now.", "b", "c", "d"], "label": "1"}"#,
        );
        assert_eq!(
            hellaswag.choices[0],
            ("Baking: A man stirs. He is".into(), " sad. now.".into())
        );
        assert_eq!(hellaswag.scores(&[-1.0, -0.5, -2.0, -3.0]), [1.0, 0.0]);

        let arc = choices(
            "arc",
            r#"{"question": "Why?", "choices": {"text": ["x", "yyyy"], "label": ["A", "B"]}, "answerKey": "B"}"#,
        );
        assert_eq!(arc.choices[1], ("Question: Why?\nAnswer:".into(), " yyyy".into()));
        // By character the second is likelier: 2 / 4 is less than 1 / 1.
        assert_eq!(arc.scores(&[-1.0, -2.0]), [0.0, 1.0]);

        let mmlu = choices(
            "mmlu",
            r#"{"question": " Q ", "choices": ["w", "x", "y", "z"], "answer": 3, "subject": "high_school"}"#,
        );
        let text = "The following are multiple choice questions (with answers) about high school.\n\nQ\nA. w\nB. x\nC. y\nD. z\nAnswer:";
        assert_eq!(mmlu.choices[3], (text.into(), " D".into()));

        let line = r#"{"question": "Is it?", "mc1_targets": {"choices": ["a", "b"], "labels": [0, 1]},
            "mc2_targets": {"choices": ["a", "b", "c"], "labels": [1, 1, 0]}}"#;
        let mc1 = choices("truthfulqa_mc1", line);
        assert!(mc1.choices[0].0.ends_with("Barcelona, Spain.\n\nQ: Is it?\nA:"));
        assert_eq!(mc1.scores(&[-2.0, -1.0])[0], 1.0);
        let [mass] = choices("truthfulqa_mc2", line).scores(&[-1000.0, -1000.0, -1000.0])[..]
        else {
            panic!()
        };
        assert!((mass - 2.0 / 3.0).abs() < 1e-15);

        let winogrande = choices(
            "winogrande",
            r#"{"sentence": "Ann told Bea that _ won.", "option1": "Ann", "option2": "Bea", "answer": "2"}"#,
        );
        assert_eq!(winogrande.choices[1], ("Ann told Bea that Bea".into(), " won.".into()));
        assert_eq!(winogrande.scores(&[-3.0, -2.0])[0], 1.0);
    }

    #[test]
    fn answers_in_words_have_three_scores() {
        let Question::Answer(question) = one(
            "generation",
            r#"{"input": "Who?", "context": "Ada is.", "answers": ["Ada", "she"], "until": "\n"}"#,
        ) else {
            panic!()
        };
        assert_eq!((question.text(), question.tokens), ("Ada is.\n\nWho?".into(), 128));
        assert_eq!((question.answers().len(), question.until()), (2, &["\n".to_string()][..]));
        assert_eq!(question.scores(" The Ada."), [1.0, 1.0, 2.0 / 3.0]);
    }

    #[test]
    fn labels_fit_their_choices() {
        let error = |name: &str, labels: &str| {
            let line = format!(
                r#"{{"question": "q", "mc1_targets": {{"choices": ["a", "b", "c"], "labels": {labels}}},
                "mc2_targets": {{"choices": ["a", "b", "c"], "labels": {labels}}}}}"#
            );
            let format = Format::named(name).unwrap();
            format.parse(&line.replace('\n', " ")).unwrap_err().to_string()
        };
        for (name, labels, reason) in [
            ("truthfulqa_mc1", "[1, 0]", "mc1_targets.labels has 2 labels for 3 choices"),
            ("truthfulqa_mc2", "[1, 1, 1, 0]", "mc2_targets.labels has 4 labels for 3 choices"),
            ("truthfulqa_mc2", "[1, 0, 1]", "mc2_targets.labels[2] is 1 after a 0"),
            ("truthfulqa_mc2", "[1, 2, 0]", "mc2_targets.labels[1] is 2: must be 1 (correct) or 0"),
        ] {
            let text = error(name, labels);
            assert!(text.starts_with(&format!("line 1: {reason}")), "{text}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_with_its_field() {
        let error = |name: &str, text: &str| {
            Format::named(name).unwrap().parse(text).unwrap_err().to_string()
        };
        let good = r#"{"query": "q", "choices": ["a", "b"], "gold": 1}"#;
        assert_eq!(
            error("choices", &format!("{good}\n\n{}", r#"{"query": "q", "gold": 1}"#)),
            "line 3: missing field `choices`; choices has the fields query, choices, gold"
        );
        for (line, reason) in [
            (
                r#"{"query": "q", "choices": ["a", "b"], "gold": 2}"#,
                "line 1: the correct answer is choice 2 (from 0), but there are 2",
            ),
            (r#"{"query": "q", "choices": ["a", " "], "gold": 0}"#, "line 1: choice 2 is empty"),
            (
                r#"{"query": "q", "choices": ["a"], "gold": 0}"#,
                "line 1: has 1 choices, and needs 2",
            ),
            (
                r#"{"query": "q", "choices": ["a", "b"], "gold": "x"}"#,
                "gold is \"x\", not a number",
            ),
            (r#"[{"query": "q", "choices": ["a", "b"]}]"#, "item 1: missing field `gold`"),
            ("{", "line 1: EOF while parsing"),
            ("[1, 2", "is not an array of JSON"),
            ("\n", "has no questions"),
        ] {
            let text = error("choices", line);
            assert!(text.contains(reason), "{text}");
        }
        assert!(
            error("generation", r#"{"prompt": "p", "answers": []}"#).contains("answers is empty")
        );
        assert!(
            error(
                "arc",
                r#"{"question": "", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "1"}"#
            )
            .contains("answerKey \"1\" is not in choices.label")
        );
        assert!(
            error(
                "winogrande",
                r#"{"sentence": "no gap", "option1": "a", "option2": "b", "answer": "1"}"#
            )
            .contains("sentence has no _")
        );
    }
}
