//! Scores of answers in words, from 0 to 1.

use std::collections::HashMap;

/// Returns the share of `references` that are in the answer, in any case: RULER's rule for tasks
/// that ask for all of them.
pub fn contained(answer: &str, references: &[String]) -> f64 {
    let answer = answer.to_lowercase();
    let found = references.iter().filter(|text| answer.contains(&text.to_lowercase())).count();
    found as f64 / references.len().max(1) as f64
}

/// Returns 1 if any of `references` is in the answer, in any case, else 0: RULER's rule for
/// questions with several correct answers.
pub fn contained_any(answer: &str, references: &[String]) -> f64 {
    let answer = answer.to_lowercase();
    let found = references.iter().any(|text| answer.contains(&text.to_lowercase()));
    f64::from(u8::from(found))
}

/// Returns 1 if the answer is one of `references`, else 0. Case, punctuation, articles and spaces
/// do not count, as in SQuAD.
pub fn exact_match(answer: &str, references: &[String]) -> f64 {
    let words = words(answer);
    f64::from(u8::from(references.iter().any(|text| self::words(text) == words)))
}

/// Returns the F1 of the words that an answer has in common with a reference, for the best
/// reference. Words are compared as in [`exact_match`].
pub fn f1(answer: &str, references: &[String]) -> f64 {
    let answer = words(answer);
    let of = |reference: &String| {
        let reference = words(reference);
        let mut counts: HashMap<&str, usize> = HashMap::new();
        reference.iter().for_each(|word| *counts.entry(word).or_default() += 1);
        let common = answer.iter().filter(|word| match counts.get_mut(word.as_str()) {
            Some(count @ 1..) => {
                *count -= 1;
                true
            }
            _ => false,
        });
        f_measure(common.count(), answer.len(), reference.len())
    };
    references.iter().map(of).fold(0.0, f64::max)
}

/// Returns ROUGE-L: the F1 of the longest common subsequence of words, for the best reference.
/// Words are runs of ASCII letters and digits in lower case, without stemming, as in the package
/// `rouge_score`.
pub fn rouge_l(answer: &str, references: &[String]) -> f64 {
    let runs = |text: &str| -> Vec<String> {
        let text = text.to_lowercase();
        let runs = text.split(|c: char| !c.is_ascii_alphanumeric());
        runs.filter(|run| !run.is_empty()).map(String::from).collect()
    };
    let answer = runs(answer);
    let of = |reference: &String| {
        let reference = runs(reference);
        f_measure(longest_common(&answer, &reference), answer.len(), reference.len())
    };
    references.iter().map(of).fold(0.0, f64::max)
}

/// Returns the harmonic mean of precision and recall.
fn f_measure(common: usize, answer: usize, reference: usize) -> f64 {
    match common {
        0 => 0.0,
        common => 2.0 * common as f64 / (answer + reference) as f64,
    }
}

/// Returns the length of the longest common subsequence.
fn longest_common(a: &[String], b: &[String]) -> usize {
    // The lengths for the words of `a` so far and each number of words of `b`.
    let mut lengths = vec![0; b.len() + 1];
    for word in a {
        let mut diagonal = 0;
        for (i, other) in b.iter().enumerate() {
            let above = lengths[i + 1];
            lengths[i + 1] = if word == other { diagonal + 1 } else { above.max(lengths[i]) };
            diagonal = above;
        }
    }
    lengths[b.len()]
}

/// Returns the words of a text in lower case, without ASCII punctuation and English articles.
fn words(text: &str) -> Vec<String> {
    let text: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let words = text.split_whitespace().filter(|word| !["a", "an", "the"].contains(word));
    words.map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| text.to_string()).collect()
    }

    #[test]
    fn references_are_found_inside_an_answer() {
        let answer = " They are VAR ABCDE, fghij and 12.";
        assert_eq!(contained(answer, &texts(&["ABCDE", "FGHIJ", "KLMNO", "12"])), 0.75);
        assert_eq!(contained_any(answer, &texts(&["no", "12"])), 1.0);
        assert_eq!(contained_any(answer, &texts(&["no"])), 0.0);
    }

    #[test]
    fn words_are_compared_as_in_squad() {
        let references = texts(&["The Eiffel Tower", "Eiffel"]);
        assert_eq!(exact_match(" an eiffel  tower.", &references), 1.0);
        assert_eq!(exact_match("tower", &references), 0.0);
        // "tower tower": one of two words is right, and one of two is found.
        assert_eq!(f1("tower, tower", &references), 0.5);
        // The second reference is better: 2 x 1 / (3 + 1).
        assert_eq!(f1("eiffel is it", &texts(&["no", "Eiffel"])), 0.5);
        assert_eq!((f1("", &references), f1("x", &[])), (0.0, 0.0));
    }

    #[test]
    fn rouge_l_counts_words_in_order() {
        // The example of the paper (Lin 2004): 3 of 4 words in order.
        let reference = texts(&["police killed the gunman"]);
        assert_eq!(rouge_l("police kill the gunman", &reference), 0.75);
        assert_eq!(rouge_l("the gunman kill police", &reference), 0.5);
        // "it s a 1 all right" and "a1 it s all right now": 4 of 6 words each.
        let found = rouge_l("It's A-1, all right", &texts(&["a1 it s all right now"]));
        assert!((found - 2.0 * 4.0 / 12.0).abs() < 1e-15, "{found}");
    }
}
