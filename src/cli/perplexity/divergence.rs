//! The statistics of a comparison, in llama-perplexity's form and as JSON.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use crate::cli::note;
use rope_cpu::eval::{
    kl::{Divergence, Point, Quantiles},
    likelihood::Estimate,
};

/// Minimum number of tokens for statistics, as in llama-perplexity.
const TOKENS_LEAST: usize = 100;

/// The table of estimates after each window.
#[derive(Debug, Default)]
pub struct WindowTable {
    has_header: bool,
}

impl WindowTable {
    /// Prints the estimates after a window, below a heading.
    pub fn row(&mut self, point: &Point<'_>, out: &mut dyn Write) -> io::Result<()> {
        if !self.has_header {
            writeln!(
                out,
                "\nchunk             PPL               ln(PPL(Q)/PPL(base))          \
                 KL Divergence              Δp RMS            Same top p"
            )?;
            self.has_header = true;
        }
        let d = point.so_far;
        let (ppl, ratio, kl) = (d.nll.perplexity(), d.log_ratio(), d.kl.mean());
        let (rms, top) = (percent(d.rms_difference()), percent(d.same_top()));
        writeln!(
            out,
            "{:>4}    {:>9.4} ± {:>9.4}    {:>10.5} ± {:>10.5}    {:>10.5} ± {:>10.5}    \
             {:>6.3} ± {:>6.3} %    {:>6.3} ± {:>6.3} %",
            point.number,
            ppl.value,
            ppl.uncertainty,
            ratio.value,
            ratio.uncertainty,
            kl.value,
            kl.uncertainty,
            rms.value,
            rms.uncertainty,
            top.value,
            top.uncertainty,
        )?;
        out.flush()
    }
}

/// Prints the final statistics.
pub fn text(d: &Divergence, out: &mut dyn Write) -> io::Result<()> {
    if d.count() < TOKENS_LEAST {
        let count = d.count();
        note(format_args!(
            "note: {count} tokens are too few for statistics: at least {TOKENS_LEAST} are needed"
        ));
        return out.flush();
    }
    writeln!(out, "\n====== Perplexity statistics ======")?;
    let correlation = 100.0 * d.correlation().unwrap_or(1.0);
    estimate(out, "Mean PPL(Q)", d.nll.perplexity())?;
    estimate(out, "Mean PPL(base)", d.base.perplexity())?;
    writeln!(out, "Cor(ln(PPL(Q)), ln(PPL(base))): {correlation:>6.2}%")?;
    estimate(out, "Mean ln(PPL(Q)/PPL(base))", d.log_ratio())?;
    estimate(out, "Mean PPL(Q)/PPL(base)", d.log_ratio().exp())?;
    estimate(out, "Mean PPL(Q)-PPL(base)", d.perplexity_difference())?;

    writeln!(out, "\n====== KL divergence statistics ======")?;
    let Estimate { value, uncertainty } = d.kl.mean();
    writeln!(out, "Mean    KLD: {value:>10.6} ± {uncertainty:>10.6}")?;
    let quantiles = d.kl_quantiles();
    for (share, name) in SHARES.into_iter().filter(|(share, _)| !QUARTERS.contains(share)) {
        writeln!(out, "{name:<7} KLD: {:>10.6}", quantiles.at(share))?;
    }

    writeln!(out, "\n====== Token probability statistics ======")?;
    let Estimate { value, uncertainty } = percent(d.difference.mean());
    writeln!(out, "Mean    Δp: {value:>6.3} ± {uncertainty:>5.3} %")?;
    let quantiles = d.difference_quantiles();
    for (share, name) in SHARES {
        writeln!(out, "{name:<7} Δp: {:>6.3}%", 100.0 * quantiles.at(share))?;
    }
    for (name, value) in [("RMS Δp    ", d.rms_difference()), ("Same top p", d.same_top())] {
        let Estimate { value, uncertainty } = percent(value);
        writeln!(out, "{name}: {value:>6.3} ± {uncertainty:>5.3} %")?;
    }
    out.flush()
}

/// The quantiles that are shown.
const SHARES: [(f64, &str); 13] = [
    (1.0, "Maximum"),
    (0.999, "99.9%"),
    (0.99, "99.0%"),
    (0.95, "95.0%"),
    (0.9, "90.0%"),
    (0.75, "75.0%"),
    (0.5, "Median"),
    (0.25, "25.0%"),
    (0.1, "10.0%"),
    (0.05, " 5.0%"),
    (0.01, " 1.0%"),
    (0.001, " 0.1%"),
    (0.0, "Minimum"),
];

/// The shares that llama-perplexity does not show for the divergence.
const QUARTERS: [f64; 2] = [0.75, 0.25];

fn estimate(out: &mut dyn Write, name: &str, estimate: Estimate) -> io::Result<()> {
    let Estimate { value, uncertainty } = estimate;
    writeln!(out, "{name:<30}: {value:>10.6} ± {uncertainty:>10.6}")
}

fn percent(estimate: Estimate) -> Estimate {
    Estimate { value: 100.0 * estimate.value, uncertainty: 100.0 * estimate.uncertainty }
}

/// Prints the final statistics as JSON; probabilities are from 0 to 1.
pub fn json(d: &Divergence, window: usize, rope: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:#}", object(d, window, rope))
}

/// Returns the final statistics as a JSON object.
pub fn object(d: &Divergence, window: usize, rope: &str) -> Json {
    let pair = |e: Estimate| json!({ "value": e.value, "uncertainty": e.uncertainty });
    let quantiles = |of: Quantiles| -> Json {
        let named = SHARES.iter().map(|(share, _)| (share.to_string(), json!(of.at(*share))));
        Json::Object(named.collect())
    };
    json!({
        "perplexity": pair(d.nll.perplexity()),
        "base_perplexity": pair(d.base.perplexity()),
        "correlation": d.correlation(),
        "log_ratio": pair(d.log_ratio()),
        "ratio": pair(d.log_ratio().exp()),
        "perplexity_difference": pair(d.perplexity_difference()),
        "kl": pair(d.kl.mean()),
        "kl_quantiles": quantiles(d.kl_quantiles()),
        "probability_difference": pair(d.difference.mean()),
        "probability_difference_quantiles": quantiles(d.difference_quantiles()),
        "probability_difference_rms": pair(d.rms_difference()),
        "same_top": pair(d.same_top()),
        "tokens": d.count(),
        "window": window,
        "rope": rope,
    })
}
