//! Questions about documents, hidden among other documents.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
};

use serde::Deserialize;

use super::{Prompt, Random};

/// The documents and questions of a data set.
#[derive(Debug)]
pub struct Documents {
    texts: Vec<String>,
    questions: Vec<Question>,
}

#[derive(Debug)]
struct Question {
    text: String,
    answers: Vec<String>,
    /// The documents with the answer.
    needed: Vec<usize>,
    /// Documents about the same subject, which come before others.
    related: Vec<usize>,
}

/// SQuAD's file.
#[derive(Deserialize)]
struct Squad {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    context: String,
    qas: Vec<SquadQuestion>,
}

#[derive(Deserialize)]
struct SquadQuestion {
    question: String,
    answers: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    text: String,
}

/// A question of HotpotQA's file.
#[derive(Deserialize)]
struct HotpotQuestion {
    question: String,
    answer: String,
    /// Titles, each with sentences.
    context: Vec<(String, Vec<String>)>,
}

/// The texts so far, with the index of each.
#[derive(Default)]
struct Texts {
    indices: HashMap<String, usize>,
    all: Vec<String>,
}

impl Texts {
    fn index(&mut self, text: String) -> usize {
        let next = self.all.len();
        *self.indices.entry(text).or_insert_with_key(|text| {
            self.all.push(text.clone());
            next
        })
    }
}

impl Documents {
    /// Parses SQuAD 1.1 or 2.0. Questions without an answer are left out.
    ///
    /// # Errors
    /// If the text is not SQuAD's JSON.
    pub fn squad(json: &str) -> Result<Self, serde_json::Error> {
        let (mut texts, mut questions) = (Texts::default(), Vec::new());
        for Article { paragraphs } in crate::json::parse::<Squad>(json)?.data {
            let (contexts, asked): (Vec<_>, Vec<_>) =
                paragraphs.into_iter().map(|paragraph| (paragraph.context, paragraph.qas)).unzip();
            let article: Vec<usize> = contexts.into_iter().map(|text| texts.index(text)).collect();
            for (index, asked) in article.iter().zip(asked) {
                let answered = asked.into_iter().filter(|question| !question.answers.is_empty());
                questions.extend(answered.map(|question| Question {
                    text: question.question,
                    answers: question.answers.into_iter().map(|answer| answer.text).collect(),
                    needed: vec![*index],
                    related: article.iter().copied().filter(|other| other != index).collect(),
                }));
            }
        }
        Ok(Documents { texts: texts.all, questions })
    }

    /// Parses HotpotQA's file with distractors.
    ///
    /// # Errors
    /// If the text is not HotpotQA's JSON.
    pub fn hotpot(json: &str) -> Result<Self, serde_json::Error> {
        let mut texts = Texts::default();
        let asked = crate::json::parse::<Vec<HotpotQuestion>>(json)?;
        let questions = asked.into_iter().map(|HotpotQuestion { question, answer, context }| {
            let documents = context.into_iter();
            let documents =
                documents.map(|(title, sentences)| format!("{title}\n{}", sentences.concat()));
            let needed = documents.map(|text| texts.index(text)).collect();
            Question { text: question, answers: vec![answer], needed, related: Vec::new() }
        });
        let questions = questions.collect();
        Ok(Documents { texts: texts.all, questions })
    }

    /// Returns the number of questions.
    pub fn len(&self) -> usize {
        self.questions.len()
    }

    /// Returns whether there is no question.
    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// Returns the possible numbers of documents of question `number`.
    pub(super) fn sizes(&self, number: usize) -> RangeInclusive<usize> {
        let needed = self.questions.get(number).map_or(1, |question| question.needed.len());
        needed..=self.texts.len().max(needed)
    }

    /// Returns the prompt of question `number` with `size` documents.
    pub(super) fn prompt(&self, random: &mut Random, size: usize, number: usize) -> Prompt {
        const TASK: &str = "Answer the question based on the given documents. Only give me the answer \
                            and do not output any other words.";
        let Question { text, answers, needed, related } = &self.questions[number];
        let mut shown = needed.clone();
        let mut taken: HashSet<usize> = needed.iter().copied().collect();
        let others: Vec<usize> = (0..self.texts.len()).collect();
        for group in [related, &others] {
            let order = random.distinct(group.len(), group.len());
            let more = order.into_iter().map(|i| group[i]).filter(|index| taken.insert(*index));
            shown.extend(more.take(size.saturating_sub(shown.len())));
        }
        random.shuffle(&mut shown);
        let documents = shown.iter().enumerate();
        let documents =
            documents.map(|(i, index)| format!("Document {}:\n{}", i + 1, self.texts[*index]));
        let question = format!(
            "{TASK}\n\nThe following are given documents.\n\n{}\n\n{TASK}\n\nQuestion: {text}",
            documents.collect::<Vec<_>>().join("\n\n")
        );
        Prompt { question, prefix: " Answer:".into(), answers: answers.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUAD: &str = r#"{"data": [
        {"title": "A", "paragraphs": [
            {"context": "Ada is 5.", "qas": [
                {"question": "How old is Ada?", "answers": [{"text": "5", "answer_start": 7}, {"text": "five"}]},
                {"question": "Where is Ada?", "answers": [], "is_impossible": true}]},
            {"context": "Bea is 6.", "qas": []}]},
        {"title": "B", "paragraphs": [{"context": "It rains.", "qas": []}]}]}"#;

    #[test]
    fn documents_of_the_article_come_before_others() {
        let squad = Documents::squad(SQUAD).unwrap();
        assert_eq!((squad.len(), squad.sizes(0)), (1, 1..=3));
        for seed in 0..8 {
            let prompt = |size| squad.prompt(&mut Random::new(&[seed]), size, 0);
            assert_eq!(prompt(1).answers, ["5", "five"]);
            assert!(prompt(1).question.contains("\n\nDocument 1:\nAda is 5.\n\nAnswer"));
            assert!(prompt(2).question.contains("Bea is 6."), "{}", prompt(2).question);
            assert!(prompt(3).question.contains("It rains."));
            assert!(prompt(3).question.ends_with("\n\nQuestion: How old is Ada?"));
        }
    }

    #[test]
    fn documents_have_their_title_in_hotpotqa() {
        let json = r#"[{"question": "Who?", "answer": "Eve", "supporting_facts": [["T", 0]],
            "context": [["T", ["One. ", "Two."]], ["U", ["Three."]]]}]"#;
        let hotpot = Documents::hotpot(json).unwrap();
        let prompt = hotpot.prompt(&mut Random::new(&[1]), 2, 0);
        assert!(prompt.question.contains("T\nOne. Two."), "{}", prompt.question);
        assert!(prompt.question.contains("U\nThree."));
        assert!(Documents::hotpot(SQUAD).is_err() && Documents::squad(json).is_err());
    }
}
