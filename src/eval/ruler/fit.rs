//! Searches for the longest prompt that fits.

use std::ops::RangeInclusive;

use super::{Error, Prompt, Task};

/// Maximum prompts that are tried after the first two. The number of tokens is almost linear in the
/// size, so four are usually enough.
const TRIES: usize = 24;

/// Returns the prompt of the largest size in `sizes` that fits, with its answer, in `length` tokens.
/// `material` names what limits the sizes.
///
/// # Errors
/// If the smallest prompt does not fit, or the largest leaves a tenth of the length empty.
pub fn longest(
    task: &'static Task,
    length: usize,
    sizes: RangeInclusive<usize>,
    material: &'static str,
    make: &dyn Fn(usize) -> Prompt,
    tokens: &dyn Fn(&Prompt) -> usize,
) -> Result<Prompt, Error> {
    let (least, most) = (*sizes.start(), *sizes.end());
    let measured = |size: usize| {
        let prompt = make(size);
        let tokens = tokens(&prompt) + task.answer_tokens;
        (prompt, tokens)
    };
    let (mut best, shortest) = measured(least);
    if shortest > length {
        return Err(Error::Length { task: task.name, length, least: shortest });
    }
    let (mut size, mut filled) = (least, shortest);
    // The smallest size that is known not to fit.
    let mut above = most.saturating_add(1).max(least + 1);
    for _ in 0..TRIES {
        if size + 1 >= above {
            break;
        }
        let of_one = (filled - shortest) as f64 / (size - least).max(1) as f64;
        let more = match size == least {
            true => size.max(16),
            false => ((length - filled) as f64 / of_one.max(0.1)).max(1.0) as usize,
        };
        let next = match size.saturating_add(more) {
            next if next < above => next,
            // The last guess was too large.
            _ if above <= most => size + (above - size) / 2,
            _ => most,
        };
        match measured(next) {
            (prompt, tokens) if tokens <= length => {
                (best, size, filled) = (prompt, next, tokens.max(shortest));
            }
            _ => above = next,
        }
    }
    if size >= most && filled < length - length / 10 {
        return Err(Error::Material { task: task.name, material, tokens: filled, length });
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn found(length: usize, most: usize, of_one: usize) -> (Result<usize, Error>, usize) {
        let (task, tries) = (Task::named("vt").unwrap(), Cell::new(0));
        let make = |size: usize| {
            tries.set(tries.get() + 1);
            Prompt { question: "x".repeat(size), prefix: String::new(), answers: Vec::new() }
        };
        let tokens = |prompt: &Prompt| 50 + of_one * prompt.question.len();
        let found = longest(task, length, 5..=most, "words", &make, &tokens);
        (found.map(|prompt| prompt.question.len()), tries.get())
    }

    #[test]
    fn the_largest_size_is_found_in_few_tries() {
        for length in [105, 106, 1000, 4096, 65536, 1 << 20] {
            for of_one in [1, 3, 40] {
                let fits = (length - 30 - 50) / of_one;
                let (size, tries) = found(length, usize::MAX, of_one);
                match fits {
                    5.. => {
                        assert_eq!((size, tries < 9), (Ok(fits), true), "{length} {of_one} {tries}")
                    }
                    _ => assert!(size.is_err()),
                }
            }
        }
    }

    #[test]
    fn a_length_that_nothing_fills_is_an_error() {
        let (size, _) = found(1000, 500, 1);
        let Err(error) = size else { panic!("{size:?}") };
        assert_eq!(
            error.to_string(),
            "vt: all of the words fill only 580 of 1000 tokens: give more of them"
        );
        assert_eq!(found(1000, 900, 1).0, Ok(900));
        let Err(error) = found(84, 500, 1).0 else { panic!() };
        assert_eq!(error.to_string(), "vt: the length of 84 tokens must be at least 85");
    }
}
