//! The timings of a run.

use std::time::Duration;

use rope_cpu::{
    generate::Timings,
    model::memory::Bytes,
    platform::{self, processors::plural},
};

/// Returns the lines that are printed after the last answer.
pub fn summary(load: Duration, total: &Timings, seed: u32) -> String {
    let mut lines = format!("load    {:.2} s\n{}\n", load.as_secs_f64(), speeds(total),);
    if let Some(peak) = platform::memory::peak_resident() {
        lines += &format!("memory  {} peak, including mapped weights\n", Bytes(peak));
    }
    lines + &format!("seed    {seed}")
}

/// Returns the lines on prompts and answers: their tokens, times and rates.
pub fn speeds(total: &Timings) -> String {
    format!("prompt  {}\nanswer  {}", prompt(total), answer(total))
}

/// Returns the line that is printed after each answer of a conversation.
pub fn turn(timings: &Timings) -> String {
    format!("[prompt {}; answer {}]", prompt(timings), answer(timings))
}

fn prompt(timings: &Timings) -> String {
    let Timings { reused, read, reading, .. } = *timings;
    format!("{}, {reused} reused", rate(read, read, reading))
}

fn answer(timings: &Timings) -> String {
    let Timings { generated, steps, drafted, accepted, generating, .. } = *timings;
    let answer = rate(generated, steps + accepted, generating);
    if drafted == 0 {
        return answer;
    }
    let share = 100.0 * accepted as f64 / drafted as f64;
    let each = (steps + accepted) as f64 / steps as f64;
    format!(
        "{answer}, {accepted} of {drafted} drafts right ({share:.0} %), {each:.2} tokens a pass"
    )
}

/// Formats a number of tokens, and the rate of the `timed` tokens or steps that `time` measures.
/// The rate is omitted if none were computed.
fn rate(tokens: usize, timed: usize, time: Duration) -> String {
    let (tokens, seconds) = (plural(tokens, "token"), time.as_secs_f64());
    if timed == 0 || seconds == 0.0 {
        return tokens;
    }
    format!("{tokens} in {seconds:.2} s, {:.1} tokens/s", timed as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_tokens_by_time() {
        let timings = Timings {
            omitted: 0,
            reused: 3910,
            read: 192,
            reading: Duration::from_millis(1500),
            generated: 1,
            steps: 0,
            steps_with_drafts: 0,
            drafted: 0,
            accepted: 0,
            generating: Duration::from_millis(1),
        };
        let more =
            Timings { generated: 41, steps: 40, generating: Duration::from_secs(2), ..timings };
        let mut both = timings;
        both += more;
        assert_eq!(
            turn(&both),
            "[prompt 384 tokens in 3.00 s, 128.0 tokens/s, 7820 reused; \
             answer 42 tokens in 2.00 s, 20.0 tokens/s]"
        );
        let drafts = Timings { generated: 101, drafted: 80, accepted: 60, ..more };
        assert!(turn(&drafts).ends_with(
            "; answer 101 tokens in 2.00 s, 50.0 tokens/s, 60 of 80 drafts right (75 %), \
             2.50 tokens a pass]"
        ));
        // The first token follows from the prompt and takes no step.
        assert!(turn(&timings).ends_with("; answer 1 token]"));
        let stopped = Timings { read: 0, generated: 0, ..timings };
        assert_eq!(turn(&stopped), "[prompt 0 tokens, 3910 reused; answer 0 tokens]");
    }
}
