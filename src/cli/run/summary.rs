//! What a run took, told on stderr.

use std::time::Duration;

use crate::{generate::Timings, model::memory::Bytes, platform};

/// The lines after the last answer.
pub fn summary(load: Duration, total: &Timings, seed: u32) -> String {
    let Timings { reused, read, reading, steps, writing } = *total;
    let mut lines = format!(
        "load    {:.2} s\n\
         prompt  {}, {reused} reused\n\
         answer  {}\n",
        load.as_secs_f64(),
        rate(read, reading),
        rate(steps, writing),
    );
    if let Some(peak) = platform::memory::peak_resident() {
        lines += &format!("memory  {} at most, mapped weights included\n", Bytes(peak));
    }
    lines + &format!("seed    {seed}")
}

/// The line after one answer of a conversation.
pub fn turn(timings: &Timings) -> String {
    let Timings { reused, read, reading, steps, writing } = *timings;
    format!("[prompt {}, {reused} reused; answer {}]", rate(read, reading), rate(steps, writing))
}

fn rate(tokens: usize, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let tokens_per_second = if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    format!("{tokens} tokens in {seconds:.2} s, {tokens_per_second:.1} tokens/s")
}

/// The sum of two timings.
pub fn sum(a: &Timings, b: &Timings) -> Timings {
    Timings {
        reused: a.reused + b.reused,
        read: a.read + b.read,
        reading: a.reading + b.reading,
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
            steps: 0,
            writing: Duration::ZERO,
        };
        assert_eq!(
            turn(&sum(
                &timings,
                &Timings { steps: 40, writing: Duration::from_secs(2), ..timings }
            )),
            "[prompt 384 tokens in 3.00 s, 128.0 tokens/s, 7820 reused; \
             answer 40 tokens in 2.00 s, 20.0 tokens/s]"
        );
        assert!(turn(&timings).ends_with("answer 0 tokens in 0.00 s, 0.0 tokens/s]"));
    }
}
