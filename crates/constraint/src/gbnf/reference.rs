//! Compares GBNF constraints with a matcher that implements the definition directly.

use std::{borrow::Cow, collections::BTreeSet};

use super::{
    parse::parse,
    rules::{Node, NodeId, Rules},
    to_lark,
};
use crate::{Constraint, Grammar, Token, Vocabulary, Word};

/// The bytes of the alphabet.
const BYTES: &[u8] = b"ab\xc3\xa8\xa9";

/// Longer tokens.
const LONGER: [&str; 9] = ["é", "è", "ab", "ba", "aa", "aé", "éb", "aab", "bèa"];

/// A vocabulary of the bytes, the longer tokens, and an end token.
fn vocabulary() -> Vocabulary {
    let bytes = BYTES.iter().map(|byte| Word::Text(Cow::from(std::slice::from_ref(byte))));
    let longer = LONGER.map(|word| Word::Text(word.as_bytes().into()));
    let end = BYTES.len() + LONGER.len();
    let words = bytes.chain(longer).chain([Word::Control("<end>")]);
    Vocabulary::new(words, &[end as Token]).unwrap()
}

/// Returns the logits of a constraint's next tokens: 0 for allowed tokens. `None` if the answer is
/// complete, or cannot be completed.
fn next(constraint: &mut Constraint) -> Option<Vec<f32>> {
    let mut logits = vec![0.0; BYTES.len() + LONGER.len() + 1];
    if constraint.is_complete() {
        return None;
    }
    constraint.restrict(&mut logits).ok()?;
    Some(logits)
}

/// Returns the constraint after a text, in single bytes; `None` if it does not allow the text.
fn after(constraint: &Constraint, text: &str) -> Option<Constraint> {
    let mut constraint = constraint.clone();
    for byte in text.bytes() {
        if constraint.is_complete() {
            return None;
        }
        let token = BYTES.iter().position(|known| *known == byte).unwrap();
        constraint.accept(token as Token).ok()?;
    }
    Some(constraint)
}

/// Returns whether a text follows the rules. Computes all ends for each node and start.
fn follows(rules: &Rules, text: &[char]) -> bool {
    let mut ends = vec![vec![0_u32; text.len() + 1]; rules.nodes.len()];
    loop {
        let before = ends.clone();
        for node in 0..rules.nodes.len() {
            for start in 0..=text.len() {
                ends[node][start] |= match &rules.nodes[node] {
                    Node::Class(class) => {
                        let permitted = text.get(start).is_some_and(|c| {
                            class.ranges().iter().any(|(first, last)| first <= c && c <= last)
                        });
                        u32::from(permitted) << (start + 1)
                    }
                    Node::Token(_) => 0,
                    Node::Rule(rule) => ends[rules.bodies[*rule]][start],
                    Node::Choice(options) => {
                        options.iter().fold(0, |all, option| all | ends[*option][start])
                    }
                    Node::Sequence(items) => {
                        items.iter().fold(1 << start, |starts, item| step(&ends, *item, starts))
                    }
                    Node::Repeat(part, least, most) => {
                        let (mut all, mut starts) = (0, 1 << start);
                        // More repetitions add nothing to a text of this length.
                        let enough = least + text.len() as u32 + 1;
                        for count in 0..=most.unwrap_or(enough).min(enough) {
                            all |= if count >= *least { starts } else { 0 };
                            starts = step(&ends, *part, starts);
                        }
                        all
                    }
                };
            }
        }
        if ends == before {
            return ends[rules.bodies[rules.root]][0] >> text.len() & 1 != 0;
        }
    }
}

fn step(ends: &[Vec<u32>], node: NodeId, starts: u32) -> u32 {
    let starts = (0..ends[node].len()).filter(|start| starts >> start & 1 != 0);
    starts.fold(0, |all, start| all | ends[node][start])
}

const ALPHABET: [char; 4] = ['a', 'b', 'é', 'è'];

/// Returns all texts of the alphabet with at most `len` characters.
fn texts(len: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..len {
        last = last.iter().flat_map(|text| ALPHABET.map(|c| format!("{text}{c}"))).collect();
        all.extend_from_slice(&last);
    }
    all
}

/// Checks that a grammar allows the same texts as its definition, and long tokens as their bytes.
#[track_caller]
fn check(grammar: &str, vocabulary: &Vocabulary, len: usize) {
    let rules = parse(grammar).unwrap();
    let constraint = Constraint::new(vocabulary, &Grammar::Gbnf(grammar.into()));
    let whole: BTreeSet<_> = texts(len)
        .into_iter()
        .filter(|text| follows(&rules, &text.chars().collect::<Vec<_>>()))
        .collect();
    let constraint = match constraint {
        Ok(constraint) => constraint,
        Err(e) => {
            assert!(e.to_string().contains("no answer can begin"), "{grammar}\n{e}");
            assert!(whole.is_empty(), "{grammar}");
            return;
        }
    };
    let lark = || to_lark(grammar, vocabulary.trie()).unwrap();
    for text in texts(len) {
        let state = after(&constraint, &text);
        let needed = whole.range(text.clone()..).next().is_some_and(|t| t.starts_with(&text));
        assert!(state.is_some() || !needed, "{text:?} is not permitted by\n{grammar}\n{}", lark());
        let Some(mut state) = state else { continue };
        let ends = state.is_complete() || state.may_end().unwrap();
        assert_eq!(ends, whole.contains(&text), "the end of {text:?} by\n{grammar}\n{}", lark());
        let Some(permitted) = next(&mut state) else { continue };
        for (word, token) in LONGER.iter().zip(BYTES.len()..) {
            let as_bytes = after(&state, word).is_some();
            let message = || format!("{word:?} after {text:?} by\n{grammar}\n{}", lark());
            assert_eq!(permitted[token] == 0.0, as_bytes, "{}", message());
            if as_bytes {
                let mut one = state.clone();
                one.accept(token as Token).unwrap();
                let other = next(&mut after(&state, word).unwrap());
                assert_eq!(next(&mut one), other, "{}", message());
            }
        }
    }
}

/// Random numbers, by xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }

    fn pick<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.below(of.len())]
    }

    fn grammar(&mut self) -> String {
        let names = &["root", "x", "y"][..1 + self.below(3)];
        let rules: Vec<_> =
            names.iter().map(|name| format!("{name} ::= {}\n", self.choice(names, 1))).collect();
        rules.concat()
    }

    fn choice(&mut self, names: &[&str], depth: usize) -> String {
        let options: Vec<_> = (0..1 + self.below(2))
            .map(|_| {
                let items = 1 + self.below(2);
                (0..items).map(|_| self.item(names, depth)).collect::<Vec<_>>().join(" ")
            })
            .collect();
        options.join(" | ")
    }

    fn item(&mut self, names: &[&str], depth: usize) -> String {
        let item = match self.below(if depth > 0 { 5 } else { 4 }) {
            0 => format!("{:?}", self.pick(&["a", "b", "é", "è", "ab", "aé", "ba", "aab", ""])),
            1 => self.pick(&["[ab]", "[^a]", "[a-é]", "[éè]", "[^é]", "."]).into(),
            2 | 3 => self.pick(names).into(),
            _ => format!("({})", self.choice(names, depth - 1)),
        };
        item + self.pick(&["", "", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "{0}"])
    }
}

#[test]
fn random_grammars_permit_the_texts_that_follow_them() {
    let vocabulary = vocabulary();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..40 {
        check(&random.grammar(), &vocabulary, 3);
    }
}

#[test]
fn lexemes_that_overlap_are_read_as_characters() {
    let vocabulary = vocabulary();
    for grammar in [
        // A lexeme as long as possible would take the last "b".
        "root ::= x \"b\" | \"a\" root\nx ::= [ab]*",
        "root ::= (\"a\" | \"ab\") root | \"b\" x | \"a\"\nx ::= \"é\"+ \"é\" root?",
        // The two characters share their first byte.
        "root ::= \"a\"+ (\"é\" | root \"b\") | \"aè\" root",
        // White space as in old grammars of JSON.
        "root ::= \"a\" ws root ws \"a\" | \"è\" ws\nws ::= (\"b\" ws)?",
        "root ::= root \"a\" | \"b\"",
        "root ::= \"a\" root \"b\" | ",
        "root ::= root root | \"a\" | \"é\"",
        "root ::= \"\"",
        "root ::= (\"\" | \"a\"{0})* [ab]{0,3}",
    ] {
        check(grammar, &vocabulary, 4);
    }
}
