//! A grammar in GBNF, or in Lark after `%llguidance`, is compiled and permits an answer, or is refused.
//!
//! The input is the grammar, a zero byte, and the choices of tokens.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rope_cpu_constraint::Grammar;
use rope_cpu_fuzz::constraints::{answer, parts, tolerate_panics_of_llguidance};

fuzz_target!(init: tolerate_panics_of_llguidance(), |input: &[u8]| {
    let Some((text, choices)) = parts(input) else { return };
    answer(&Grammar::from_text(text), choices);
});
