//! Needles in a haystack: sentences with the value of a key, hidden in other text.

use std::{collections::HashSet, ops::RangeInclusive};

use super::{FILLER, Prompt, Random, vocabulary};

/// The text around the needles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haystack {
    /// Repeated sentences.
    Filler,
    /// The user's text.
    Text,
    /// Needles with other keys.
    Others,
}

/// A kind of keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An adjective and a noun.
    Words,
    /// Seven digits.
    Number,
    /// A UUID, version 4.
    Uuid,
}

impl Kind {
    /// Returns the name of several values, as in RULER.
    fn name(self) -> &'static str {
        match self {
            Kind::Words => "words",
            Kind::Number => "numbers",
            Kind::Uuid => "uuids",
        }
    }

    fn random(self, random: &mut Random) -> String {
        match self {
            Kind::Words => super::key(random),
            Kind::Number => (1_000_000 + random.below(9_000_000)).to_string(),
            Kind::Uuid => uuid(random),
        }
    }
}

/// The numbers and kinds of needles.
#[derive(Clone, Copy, Debug)]
pub struct Needles {
    pub haystack: Haystack,
    keys: Kind,
    values: Kind,
    keys_count: usize,
    values_of_each: usize,
    queries: usize,
}

/// Needles are placed in a text at different multiples of 1/39 of its length.
const DEPTHS: usize = 40;

impl Needles {
    /// Creates needles with words as keys and numbers as values. `counts` are the keys, the values
    /// of each, and the keys that are asked for.
    pub const fn new(haystack: Haystack, counts: [usize; 3]) -> Self {
        let [keys_count, values_of_each, queries] = counts;
        let (keys, values) = (Kind::Words, Kind::Number);
        Needles { haystack, keys, values, keys_count, values_of_each, queries }
    }

    /// Sets the kinds of keys and values.
    pub const fn of(self, keys: Kind, values: Kind) -> Self {
        Needles { keys, values, ..self }
    }

    /// Returns the possible sizes of the haystack: lines, or sentences of the text.
    pub fn sizes(&self) -> RangeInclusive<usize> {
        let needles = self.keys_count * self.values_of_each;
        // Each line of needles has another key.
        let most = if self.haystack == Haystack::Others { vocabulary::PAIRS / 2 } else { 1 << 24 };
        needles..=most
    }

    /// Returns the prompt with `size` lines or sentences around the needles.
    pub fn prompt(&self, random: &mut Random, size: usize, text: &[String]) -> Prompt {
        let (mut used, mut keys, mut answers, mut needles) =
            (HashSet::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.keys_count {
            let key = self.new_key(random, &mut used);
            let values: Vec<_> =
                (0..self.values_of_each).map(|_| self.values.random(random)).collect();
            needles.extend(values.iter().map(|value| self.needle(&key, value)));
            keys.push(key);
            answers.push(values);
        }
        let queried = random.distinct(self.queries, self.keys_count);
        random.shuffle(&mut needles);
        let context = match self.haystack {
            Haystack::Text => {
                let mut places = random.distinct(needles.len(), DEPTHS);
                places.sort_unstable();
                let places = places.into_iter().map(|place| size * place / (DEPTHS - 1));
                let sentences = text.iter().cycle().take(if text.is_empty() { 0 } else { size });
                inserted(sentences.cloned(), places, needles).join(" ")
            }
            haystack => {
                let mut places = random.distinct(needles.len(), size);
                places.sort_unstable();
                let lines = (0..size).map(|_| match haystack {
                    Haystack::Others => {
                        let key = self.new_key(random, &mut used);
                        self.needle(&key, &self.values.random(random))
                    }
                    _ => FILLER.to_string(),
                });
                let lines: Vec<String> = lines.collect();
                inserted(lines.into_iter(), places.into_iter(), needles).join("\n")
            }
        };

        let queries: Vec<&str> = queried.iter().map(|i| &keys[*i][..]).collect();
        let query = match &queries[..] {
            [first @ .., last] if !first.is_empty() => format!("{}, and {last}", first.join(", ")),
            all => all.concat(),
        };
        let answers: Vec<String> = queried.iter().flat_map(|i| answers[*i].clone()).collect();
        let kinds = self.values.name();
        let kind = &kinds[..kinds.len() - 1];
        let memorize = "hidden within the following text. Make sure to memorize it. I will quiz you \
                        about the";
        let (question, prefix) = match answers.len() {
            1 => (
                format!(
                    "A special magic {kind} is {memorize} {kind} afterwards.\n{context}\nWhat is the \
                     special magic {kind} for {query} mentioned in the provided text?"
                ),
                format!("The special magic {kind} for {query} mentioned in the provided text is"),
            ),
            _ => (
                format!(
                    "Some special magic {kinds} are {memorize} {kinds} afterwards.\n{context}\nWhat \
                     are all the special magic {kinds} for {query} mentioned in the provided text?"
                ),
                format!("The special magic {kinds} for {query} mentioned in the provided text are"),
            ),
        };
        Prompt { question, prefix: format!(" {prefix}"), answers }
    }

    fn needle(&self, key: &str, value: &str) -> String {
        format!("One of the special magic {} for {key} is: {value}.", self.values.name())
    }

    /// Returns a key that is not in `used`, and adds it.
    fn new_key(&self, random: &mut Random, used: &mut HashSet<String>) -> String {
        loop {
            let key = self.keys.random(random);
            if used.insert(key.clone()) {
                return key;
            }
        }
    }
}

/// Inserts each of `needles` before the line at its place. The places are in ascending order.
fn inserted(
    lines: impl Iterator<Item = String>,
    places: impl Iterator<Item = usize>,
    needles: Vec<String>,
) -> Vec<String> {
    let mut needles = places.zip(needles).peekable();
    let mut all = Vec::new();
    for (i, line) in lines.enumerate() {
        while let Some((_, needle)) = needles.next_if(|(place, _)| *place <= i) {
            all.push(needle);
        }
        all.push(line);
    }
    all.extend(needles.map(|(_, needle)| needle));
    all
}

fn uuid(random: &mut Random) -> String {
    let mut hex = |digits: u32| {
        format!("{:0width$x}", random.below(1 << (4 * digits)), width = digits as usize)
    };
    let parts = [hex(8), hex(4), format!("4{}", hex(3))];
    let (third, last) = (hex(3), hex(12));
    format!("{}-{}{third}-{last}", parts.join("-"), ["8", "9", "a", "b"][random.below(4)])
}

/// Returns the sentences of a text, each with single spaces.
pub fn sentences(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut open = false;
    for word in text.split_whitespace() {
        match all.last_mut() {
            Some(sentence) if open => {
                sentence.push(' ');
                sentence.push_str(word);
            }
            _ => all.push(word.into()),
        }
        let end = word.trim_end_matches(['"', '\'', ')', '”', '’']);
        open = !end.ends_with(['.', '!', '?']);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random() -> Random {
        Random::new(&[7])
    }

    #[test]
    fn one_number_is_asked_for_in_the_singular() {
        let prompt = Needles::new(Haystack::Filler, [1, 1, 1]).prompt(&mut random(), 6, &[]);
        let [answer] = &prompt.answers[..] else { panic!("{prompt:?}") };
        let lines: Vec<&str> = prompt.question.lines().collect();
        assert_eq!(lines.len(), 1 + 7 + 1);
        assert!(
            lines[0].starts_with("A special magic number is hidden within the following text.")
        );
        let needle = lines.iter().find(|line| line.starts_with("One of the special")).unwrap();
        assert!(needle.ends_with(&format!(" is: {answer}.")), "{needle}");
        let key = needle.split(' ').nth(7).unwrap();
        assert_eq!(
            lines[8],
            format!("What is the special magic number for {key} mentioned in the provided text?")
        );
        assert_eq!(
            prompt.prefix,
            format!(" The special magic number for {key} mentioned in the provided text is")
        );
        assert_eq!((answer.len(), lines.iter().filter(|line| **line == FILLER).count()), (7, 6));
    }

    #[test]
    fn several_keys_and_values_are_hidden_in_a_text() {
        let text = sentences("One sentence (and more.) Two! And  three \"words?\" The end");
        assert_eq!(text, ["One sentence (and more.)", "Two!", "And three \"words?\"", "The end"]);
        let many = Needles::new(Haystack::Text, [4, 1, 4]).prompt(&mut random(), 100, &text);
        assert_eq!(many.answers.len(), 4);
        assert!(many.answers.iter().all(|answer| many.question.contains(answer)));
        assert_eq!(many.question.matches("One of the special magic numbers for ").count(), 4);
        assert!(many.question.contains(", and "), "{}", many.question);
        assert_eq!(many.question.matches("Two!").count(), 25);
        let values = Needles::new(Haystack::Text, [1, 4, 1]).prompt(&mut random(), 100, &text);
        assert_eq!((values.answers.len(), values.question.contains(", and ")), (4, false));
        assert!(values.prefix.starts_with(" The special magic numbers for "));
    }

    #[test]
    fn the_key_is_among_others_once() {
        let words = Needles::new(Haystack::Others, [1, 1, 1]);
        for needles in [words, words.of(Kind::Uuid, Kind::Uuid)] {
            let prompt = needles.prompt(&mut random(), 300, &[]);
            let key = prompt.prefix.split(' ').nth(6).unwrap();
            // In its needle, and in the question.
            assert_eq!(prompt.question.matches(key).count(), 2, "{key}");
            assert_eq!(prompt.question.matches("One of the special").count(), 301);
        }
        let uuid = uuid(&mut random());
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
        assert!(uuid.split('-').nth(2).unwrap().starts_with('4'), "{uuid}");
    }
}
