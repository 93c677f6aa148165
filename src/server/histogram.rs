//! Histograms of times, in the text format of Prometheus.

use std::{fmt::Write, time::Duration};

/// The upper bounds of times between two tokens, in seconds.
pub const NEXT_TOKEN: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];

/// The upper bounds of times until the first token, in seconds.
pub const FIRST_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];

/// A histogram of times.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// The upper bounds in seconds.
    bounds: &'static [f64],
    /// Count of times per bucket, in the order of `bounds`, then the count above the last bound.
    counts: Vec<u64>,
    sum: Duration,
}

impl Histogram {
    /// Creates an empty histogram with these upper bounds in seconds.
    pub fn new(bounds: &'static [f64]) -> Self {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: Duration::ZERO }
    }

    /// Adds a time.
    pub fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.counts[self.bounds.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += time;
    }

    /// Writes the histogram to `to` under a name, with the model's name as a label.
    pub fn write(&self, name: &str, help: &str, model: &str, to: &mut String) {
        let model = model.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let model = format!("model_name=\"{model}\"");
        let mut count = 0;
        let mut text = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
        let bounds = self.bounds.iter().map(f64::to_string).chain(["+Inf".into()]);
        // Writing to a string does not fail.
        for (bound, more) in bounds.zip(&self.counts) {
            count += more;
            let _ = writeln!(text, "{name}_bucket{{{model},le=\"{bound}\"}} {count}");
        }
        let sum = self.sum.as_secs_f64();
        let _ = writeln!(text, "{name}_sum{{{model}}} {sum}\n{name}_count{{{model}}} {count}");
        to.push_str(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_up_to_the_first_bound_that_it_does_not_exceed() {
        let mut histogram = Histogram::new(&[0.5, 2.0]);
        for time in [500, 501, 2000, 9000] {
            histogram.add(Duration::from_millis(time));
        }
        let mut text = String::new();
        histogram.write("t", "Times.", r#"a\b "c""#, &mut text);
        let label = r#"model_name="a\\b \"c\"""#;
        let expected = format!(
            "# HELP t Times.\n# TYPE t histogram\nt_bucket{{{label},le=\"0.5\"}} 1\n\
             t_bucket{{{label},le=\"2\"}} 3\nt_bucket{{{label},le=\"+Inf\"}} 4\n\
             t_sum{{{label}}} 12.001\nt_count{{{label}}} 4\n"
        );
        assert_eq!(text, expected);
    }
}
