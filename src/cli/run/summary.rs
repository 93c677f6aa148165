//! What a run took, told on stderr.

use std::time::Duration;

use rope_cpu::{
    generate::Timings,
    model::memory::Bytes,
    platform::{self, processors::plural},
};

/// The lines after the last answer.
pub fn summary(load: Duration, total: &Timings, seed: u32) -> String {
    let mut lines = format!(
        "load    {:.2} s\n\
         prompt  {}\n\
         answer  {}\n",
        load.as_secs_f64(),
        prompt(total),
        answer(total),
    );
    if let Some(peak) = platform::memory::peak_resident() {
        lines += &format!("memory  {} at most, mapped weights included\n", Bytes(peak));
    }
    lines + &format!("seed    {seed}")
}

/// The line after one answer of a conversation.
pub fn turn(timings: &Timings) -> String {
    format!("[prompt {}; answer {}]", prompt(timings), answer(timings))
}

fn prompt(timings: &Timings) -> String {
    let Timings { reused, read, reading, .. } = *timings;
    format!("{}, {reused} reused", rate(read, read, reading))
}

fn answer(timings: &Timings) -> String {
    rate(timings.written, timings.steps, timings.writing)
}

/// A number of tokens, and the rate at which `timed` of them, or of the steps between them, were
/// computed. There is none where nothing was.
fn rate(tokens: usize, timed: usize, time: Duration) -> String {
    let (tokens, seconds) = (plural(tokens, "token"), time.as_secs_f64());
    if timed == 0 || seconds == 0.0 {
        return tokens;
    }
    format!("{tokens} in {seconds:.2} s, {:.1} tokens/s", timed as f64 / seconds)
}

/// The sum of two timings.
pub fn sum(a: &Timings, b: &Timings) -> Timings {
    Timings {
        reused: a.reused + b.reused,
        read: a.read + b.read,
        reading: a.reading + b.reading,
        written: a.written + b.written,
        steps: a.steps + b.steps,
        writing: a.writing + b.writing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_tokens_by_time() {
        let timings = Timings {
            reused: 3910,
            read: 192,
            reading: Duration::from_millis(1500),
            written: 1,
            steps: 0,
            writing: Duration::from_millis(1),
        };
        let more = Timings { written: 41, steps: 40, writing: Duration::from_secs(2), ..timings };
        assert_eq!(
            turn(&sum(&timings, &more)),
            "[prompt 384 tokens in 3.00 s, 128.0 tokens/s, 7820 reused; \
             answer 42 tokens in 2.00 s, 20.0 tokens/s]"
        );
        // Its one token follows from the prompt.
        assert!(turn(&timings).ends_with("; answer 1 token]"));
        let stopped = Timings { read: 0, written: 0, ..timings };
        assert_eq!(turn(&stopped), "[prompt 0 tokens, 3910 reused; answer 0 tokens]");
    }
}
