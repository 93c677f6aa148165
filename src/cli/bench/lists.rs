//! Options with several values, in llama-bench's form: `512,1024`, `1-4`, `0-8192+2048`,
//! `512-8192*2`.

use std::sync::Arc;

use crate::cli::args::up_to_limit;

/// The numbers of one option.
pub type Numbers = Arc<[usize]>;

/// The tokens of a prompt and of an answer: `512,128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair(pub usize, pub usize);

/// Maximum number of values of an option.
const NUMBERS_MAX: usize = 10_000;

/// Returns the numbers of all occurrences of an option, or `default` if there are none.
pub fn all(lists: &[Numbers], default: usize) -> Vec<usize> {
    match lists.is_empty() {
        true => vec![default],
        false => lists.iter().flat_map(|list| list.iter().copied()).collect(),
    }
}

/// Parses numbers and ranges, separated by commas.
///
/// # Errors
/// If an item is neither a number nor a range.
pub fn numbers(text: &str) -> Result<Numbers, String> {
    let mut numbers = Vec::new();
    for item in text.split(',') {
        range(item, &mut numbers).map_err(|e| format!("{item:?}: {e}"))?;
    }
    Ok(numbers.into())
}

/// Parses numbers of at least 1.
///
/// # Errors
/// See [`numbers`]; also if one is 0.
pub fn sizes(text: &str) -> Result<Numbers, String> {
    within(text, 1, usize::MAX, "must be at least 1")
}

/// Parses numbers of threads.
///
/// # Errors
/// See [`numbers`]; also if one is out of range.
pub fn threads(text: &str) -> Result<Numbers, String> {
    within(text, 1, 1024, "must be from 1 to 1024")
}

/// Parses `PP,TG`.
///
/// # Errors
/// If it is not two numbers.
pub fn pair(text: &str) -> Result<Pair, String> {
    let (prompt, generation) =
        text.split_once(',').ok_or("must be two numbers, such as 512,128")?;
    Ok(Pair(up_to_limit(prompt)?, up_to_limit(generation)?))
}

fn within(text: &str, least: usize, most: usize, error: &str) -> Result<Numbers, String> {
    let numbers = numbers(text)?;
    match numbers.iter().all(|n| (least..=most).contains(n)) {
        true => Ok(numbers),
        false => Err(error.into()),
    }
}

/// Parses `first`, `first-last`, `first-last+step` or `first-last*factor`.
fn range(item: &str, numbers: &mut Vec<usize>) -> Result<(), String> {
    let Some((first, rest)) = item.split_once('-') else {
        numbers.push(up_to_limit(item)?);
        return Ok(());
    };
    let step = rest.find(['+', '*']).map_or((rest, "+", "1"), |at| {
        let (last, step) = rest.split_at(at);
        (last, &step[..1], &step[1..])
    });
    let (last, operator, step) = step;
    let (first, last, step) = (up_to_limit(first)?, up_to_limit(last)?, up_to_limit(step)?);
    if first > last {
        return Err(format!("{first} is larger than {last}"));
    }
    let mut number = first;
    while number <= last {
        if numbers.len() == NUMBERS_MAX {
            return Err(format!("gives more than {NUMBERS_MAX} numbers"));
        }
        numbers.push(number);
        // Numbers of up to 2^30 do not overflow here.
        let next = if operator == "+" { number + step } else { number * step };
        if next <= number {
            return Err(format!("{operator}{step} does not increase {number}"));
        }
        number = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_those_of_llama_bench() {
        let cases: [(&str, &[usize]); 8] = [
            ("7", &[7]),
            ("1,2,4", &[1, 2, 4]),
            ("1-4", &[1, 2, 3, 4]),
            ("0-10+4", &[0, 4, 8]),
            ("3-3", &[3]),
            ("128-1024*2", &[128, 256, 512, 1024]),
            ("5,1-7*3,9", &[5, 1, 3, 9]),
            ("0,8192", &[0, 8192]),
        ];
        for (text, expected) in cases {
            assert_eq!(&*numbers(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn an_invalid_list_is_reported() {
        for text in ["", "a", "1,", "-5", "1-", "4-1", "1-2+", "0-8*2", "1-8*1", "1-8+0", "1-2/3"] {
            assert!(numbers(text).is_err(), "{text}");
        }
        let message = numbers("1,0-1073741824").unwrap_err();
        assert!(message.contains("10000 numbers"), "{message}");
        assert!(numbers("0-8*2").unwrap_err().contains("\"0-8*2\""));
        assert!(sizes("1,0").is_err() && threads("1025").is_err() && threads("0").is_err());
    }

    #[test]
    fn repeated_options_add_up_and_none_is_the_default() {
        assert_eq!(all(&[numbers("1,2").unwrap(), numbers("4").unwrap()], 9), [1, 2, 4]);
        assert_eq!(all(&[], 9), [9]);
    }

    #[test]
    fn pairs_are_two_numbers() {
        assert_eq!(pair("512,128"), Ok(Pair(512, 128)));
        for text in ["512", "1,2,3", ",", "1-2,3"] {
            assert!(pair(text).is_err(), "{text}");
        }
    }
}
