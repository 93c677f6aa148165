//! Charts of methods: frequencies, angles, and the decay of attention with distance.

use std::f64::consts::TAU;

use plotters::style::BLACK;

use crate::cli::plot::{Chart, Curve, Style, style};
use rope_cpu::eval::rope::{Baseline, View, decay, shares};

/// The number of intervals of the circle, few enough to be distinguished.
const INTERVALS: usize = 72;

/// The number of ranges of the distance whose mean decay is drawn.
const DISTANCES: usize = 200;
/// The number of distances in each range.
const OF_EACH: usize = 32;

/// Returns four charts of methods at one length: the frequency of each pair; its ratio to the trained
/// one; the angles of one pair that does not turn fully in training (as figures 3 and 7 of the DPRoPE
/// paper); the bound of attention scores. Without methods there are no charts.
pub fn charts(baseline: &Baseline, views: &[View]) -> Vec<Chart> {
    let Some(first) = views.first() else { return Vec::new() };
    let length = first.length;
    let lines = |points: &dyn Fn(&View) -> Vec<(f64, f64)>| -> Vec<Curve> {
        views
            .iter()
            .enumerate()
            .map(|(i, view)| Curve {
                name: view.name.clone(),
                style: style(i),
                points: points(view),
            })
            .collect()
    };
    let numbered = |values: &[f64]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(i, value)| (i as f64, *value)).collect()
    };
    let by_pair = |y: &str, logarithmic, lines| Chart {
        x: format!("pair, {length} tokens"),
        y: y.into(),
        x_to: (first.ratios.len().max(2) - 1) as f64,
        marks: false,
        logarithmic,
        lines,
    };
    let trained = |points| Curve { name: "as trained".into(), style: Style(BLACK, 0), points };
    let mut frequencies = lines(&|view| numbered(&view.table.inv_freq));
    frequencies.push(trained(numbered(&baseline.inv_freq)));
    let frequencies = by_pair("inverse frequency, radians a token", true, frequencies);
    let ratios = lines(&|view| numbered(&view.ratios));
    let ratios = by_pair("frequency over the trained one", false, ratios);

    let worst = worst(baseline);
    let degrees = |shares: Vec<f64>| -> Vec<(f64, f64)> {
        let width = 360.0 / INTERVALS as f64;
        shares.iter().enumerate().map(|(i, share)| ((i as f64 + 0.5) * width, *share)).collect()
    };
    let mut angles =
        lines(&|view| degrees(shares(view.table.inv_freq[worst], view.length, INTERVALS)));
    angles.push(trained(degrees(shares(baseline.inv_freq[worst], baseline.context, INTERVALS))));
    let angles = Chart {
        x: format!("angle of pair {worst} in degrees, {length} tokens"),
        y: "share of positions".into(),
        x_to: 360.0,
        marks: false,
        logarithmic: false,
        lines: angles,
    };

    let distance = |i: f64| length as f64 * i / DISTANCES as f64;
    let decay = Chart {
        x: "distance in tokens".into(),
        y: "bound of the attention score".into(),
        x_to: length as f64,
        marks: false,
        logarithmic: false,
        lines: lines(&|view| {
            let at = |i: usize| {
                let each = (0..OF_EACH).map(|j| i as f64 + j as f64 / OF_EACH as f64);
                let sum: f64 = each.map(|i| decay(&view.table, distance(i))).sum();
                (distance(i as f64 + 0.5), sum / OF_EACH as f64)
            };
            (0..DISTANCES).map(at).collect()
        }),
    };
    vec![frequencies, ratios, angles, decay]
}

/// Returns the first pair that turns less than once in training: of the pairs that a longer context
/// takes to untrained angles, the one that it takes furthest. The slowest, if all turn.
fn worst(baseline: &Baseline) -> usize {
    let turns = |theta: &f64| theta * baseline.context as f64 >= TAU;
    let turning = baseline.inv_freq.iter().filter(|theta| turns(theta)).count();
    turning.min(baseline.inv_freq.len() - 1)
}
