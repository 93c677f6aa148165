//! A file of log-probabilities, as llama-perplexity writes it, is read or refused.
#![no_main]

use libfuzzer_sys::{arbitrary::Arbitrary, fuzz_target};
use rope_cpu::eval::logits_file::Reader;
use rope_cpu_fuzz::number::Number;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// Whether the header is built from numbers.
    header: Option<[Number; 3]>,
    /// Whether the length is correct for these numbers.
    fills: bool,
    length: Option<Number>,
    rest: &'a [u8],
}

/// Maximum bytes of a file.
const BYTES_MAX: usize = 64 << 10;

fuzz_target!(|input: Input| {
    let mut file = Vec::new();
    if let Some(numbers) = input.header {
        let [window, vocabulary, windows] = numbers.map(|number| number.get() as u32);
        file.extend(b"_logits_");
        [window, vocabulary, windows].iter().for_each(|number| file.extend(number.to_le_bytes()));
        file.extend(input.rest);
        let [window, vocabulary, windows] = [window, vocabulary, windows].map(u64::from);
        let rows = window.saturating_sub(1 + window / 2);
        let bytes = 20
            + windows
                * (4 * window)
                    .saturating_add(rows.saturating_mul(8 + 2 * vocabulary.next_multiple_of(2)))
                    .min(1 << 30);
        if input.fills && bytes <= BYTES_MAX as u64 {
            file.resize(bytes as usize, 0);
        }
    } else {
        file.extend(input.rest);
    }
    let length = input.length.map_or(file.len() as u64, Number::get);
    let Ok(mut reader) = Reader::new(&file[..], length) else { return };
    assert!(reader.tokens().iter().all(|token| (*token as usize) < reader.vocabulary()));
    while let Ok(row) = reader.row() {
        assert!(row.iter().all(|log| log.is_finite()));
    }
});
