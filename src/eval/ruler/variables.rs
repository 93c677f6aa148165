//! Variable tracking: a chain of assignments, hidden in other text.

use std::ops::RangeInclusive;

use super::{FILLER, Prompt, Random};

/// The assignments after the first.
const HOPS: usize = 4;

/// Lines of other text in the example before the question.
const EXAMPLE_LINES: usize = 10;

/// Lines of other text.
pub const SIZES: RangeInclusive<usize> = HOPS + 1..=1 << 24;

/// Returns the prompt with `size` lines of other text, after an example with its answer.
pub fn prompt(random: &mut Random, size: usize) -> Prompt {
    let (example, prefix, answers) = chain(random, EXAMPLE_LINES, 3);
    let example = format!("{example}{prefix} {}", answers.join(" "));
    let (question, prefix, answers) = chain(random, size, 5);
    Prompt { question: format!("{example}\n\n{question}"), prefix, answers }
}

/// Returns a question about variables with `letters` letters, the start of its answer, and the
/// variables.
fn chain(random: &mut Random, size: usize, letters: usize) -> (String, String, Vec<String>) {
    let mut names: Vec<String> = Vec::new();
    while names.len() <= HOPS {
        let name = random.letters(letters, b'A');
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let value = 10_000 + random.below(90_000);
    let mut places = random.distinct(HOPS + 1, size);
    places.sort_unstable();
    let mut lines = vec![FILLER.to_string(); size];
    // From the last on, so that the places stay right.
    for (i, place) in places.into_iter().enumerate().rev() {
        let line = match i {
            0 => format!("VAR {} = {value}", names[0]),
            i => format!("VAR {} = VAR {}", names[i], names[i - 1]),
        };
        lines.insert(place, line);
    }
    let question = format!(
        "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{}\n\
         Question: Find all variables that are assigned the value {value} in the text above.",
        lines.join("\n")
    );
    // Spelled as in RULER.
    let prefix = format!(
        " Answer: According to the chain(s) of variable assignment in the text above, {} variables \
         are assgined the value {value}, they are:",
        names.len()
    );
    (question, prefix, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_has_the_value_of_the_one_before() {
        let prompt = prompt(&mut Random::new(&[1]), 20);
        let (example, question) = prompt.question.split_once("\n\nMemorize").unwrap();
        let assignments = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.starts_with("VAR ")).map(String::from).collect()
        };
        let found = assignments(question);
        assert_eq!(found.len(), 5);
        assert_eq!(prompt.answers.len(), 5);
        let value = found[0].split(' ').nth(3).unwrap();
        assert_eq!(found[0], format!("VAR {} = {value}", prompt.answers[0]));
        for i in 1..5 {
            let expected = format!("VAR {} = VAR {}", prompt.answers[i], prompt.answers[i - 1]);
            assert_eq!(found[i], expected);
        }
        assert!(prompt.prefix.ends_with(&format!("the value {value}, they are:")));
        // The example ends with its own answers.
        let example_names: Vec<_> = assignments(example);
        let last = example_names[4].split(' ').nth(1).unwrap();
        assert!(example.ends_with(last), "{example}");
    }
}
