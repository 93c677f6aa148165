//! Words to count: the most common ones of a list, and the most frequent ones of a coded text.

use std::{collections::HashSet, f64::consts::PI, ops::RangeInclusive};

use super::{Prompt, Random};

/// The number of common words.
pub const COMMON: usize = 10;

/// Prompts shorter than this repeat words less often, as in RULER.
const SHORT: usize = 4096;

/// Words of the coded text, with repetitions.
pub const FREQUENT_SIZES: RangeInclusive<usize> = 16..=1 << 24;

/// Returns the words of a text that are in lower case and have 3 to 12 letters, each once.
pub fn distinct(text: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let words = text.split_whitespace().filter(|word| {
        (3..=12).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase())
    });
    words.filter(|word| seen.insert(*word)).map(String::from).collect()
}

/// Returns the prompt of `size` different words. The first ten that are chosen are more common.
pub fn common(random: &mut Random, size: usize, length: usize, words: &[String]) -> Prompt {
    let (example, repeats) = match length {
        ..SHORT => ((20, [3, 1]), [6, 1]),
        _ => ((40, [10, 3]), [30, 3]),
    };
    let (example, common) = list(random, example.0, example.1, words);
    let example = format!("{example}{COMMON_PREFIX} {}", numbered(&common));
    let (question, answers) = list(random, size, repeats, words);
    let question = format!("{example}\n{question}");
    Prompt { question, prefix: COMMON_PREFIX.into(), answers }
}

const COMMON_PREFIX: &str = " Answer: The top 10 words that appear most often in the list are:";

/// Returns the question about `size` words, and the ten common ones. `repeats` is how often a common
/// word and another one appear.
fn list(
    random: &mut Random,
    size: usize,
    repeats: [usize; 2],
    words: &[String],
) -> (String, Vec<String>) {
    let chosen = random.distinct(size, words.len());
    let chosen: Vec<String> = chosen.into_iter().map(|i| words[i].clone()).collect();
    let common = chosen[..COMMON.min(chosen.len())].to_vec();
    let repeated =
        |(i, word): (usize, &String)| vec![word.clone(); repeats[usize::from(i >= COMMON)]];
    let mut all: Vec<String> = chosen.iter().enumerate().flat_map(repeated).collect();
    random.shuffle(&mut all);
    let question = format!(
        "Below is a numbered list of words. In these words, some appear more often than others. \
         Memorize the ones that appear most often.\n{}\nQuestion: What are the 10 most common words \
         in the above list?",
        numbered(&all)
    );
    (question, common)
}

fn numbered(words: &[String]) -> String {
    let words = words.iter().enumerate().map(|(i, word)| format!("{}. {word}", i + 1));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the prompt of about `size` coded words. The word of rank k appears size · k^-2 / ζ(2)
/// times; the first rank is dots, which do not count.
pub fn frequent(random: &mut Random, size: usize, length: usize) -> Prompt {
    const SQUARES: f64 = PI * PI / 6.0; // ζ(2)
    let vocabulary = (length / 50).max(8);
    let (mut seen, mut words) = (HashSet::new(), vec!["...".to_string()]);
    while words.len() < vocabulary {
        let word = random.letters(6, b'a');
        if seen.insert(word.clone()) {
            words.push(word);
        }
    }
    let counted = words.iter().enumerate().flat_map(|(i, word)| {
        let rank = (i + 1) as f64;
        vec![&word[..]; (size as f64 / (rank * rank * SQUARES)) as usize]
    });
    let mut text: Vec<&str> = counted.collect();
    random.shuffle(&mut text);
    let question = format!(
        "Read the following coded text and track the frequency of each coded word. Find the three \
         most frequently appeared coded words. {}\nQuestion: Do not provide any explanation. Please \
         ignore the dots '....'. What are the three most frequently appeared words in the above \
         coded text?",
        text.join(" ")
    );
    let prefix = " Answer: According to the coded text above, the three most frequently appeared \
                  words are:";
    Prompt { question, prefix: prefix.into(), answers: words[1..4].to_vec() }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn counts(text: &str) -> HashMap<&str, usize> {
        let mut counts = HashMap::new();
        text.split(' ').for_each(|word| *counts.entry(word).or_default() += 1);
        counts
    }

    #[test]
    fn ten_words_are_more_common() {
        let text: String = (b'a'..=b'z')
            .flat_map(|a| {
                (b'a'..=b'z').map(move |b| format!("{0}{1}{0} ", char::from(a), char::from(b)))
            })
            .collect();
        let words = distinct(&format!("The no {text} aba abcdefghijklm"));
        assert_eq!(words.len(), 26 * 26);
        for (length, often, seldom) in [(4096, 30, 3), (2048, 6, 1)] {
            let prompt = common(&mut Random::new(&[2]), 100, length, &words);
            assert_eq!(prompt.answers.len(), 10);
            let list = prompt.question.lines().rev().nth(1).unwrap();
            let counts = counts(list);
            for word in &prompt.answers {
                assert_eq!(counts[&word[..]], often, "{word}");
            }
            let others = counts.iter().filter(|(_, count)| **count == seldom);
            let others = others.filter(|(word, _)| !word.ends_with('.'));
            assert_eq!(others.count(), 90);
        }
    }

    #[test]
    fn three_coded_words_are_most_frequent() {
        let prompt = frequent(&mut Random::new(&[2]), 1000, 4096);
        let text = prompt.question.lines().next().unwrap();
        let mut counts: Vec<_> = counts(text).into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        // 1000 / ζ(2) = 607.9, and a quarter, a ninth and a sixteenth of it.
        assert_eq!(counts[0], ("...", 607));
        let found: Vec<_> = counts[1..4].to_vec();
        let expected: Vec<_> =
            prompt.answers.iter().map(|word| &word[..]).zip([151, 67, 37]).collect();
        assert_eq!(found, expected);
    }
}
