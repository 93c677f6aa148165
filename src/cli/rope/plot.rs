//! Charts of methods: frequencies, angles, and the decay of attention with distance.

use std::f64::consts::TAU;

use plotters::style::BLACK;

use super::baseline::{Baseline, View};
use crate::cli::plot::{Chart, Curve, Style, style};
use rope_cpu::rope::Table;
use rope_cpu_lab::{disturbance::Histogram, frequencies::decay};

/// The number of intervals of the circle by default, few enough to be distinguished.
const INTERVALS: usize = 72;

/// The number of distance ranges with a mean decay each, few enough for smooth lines.
const DISTANCES: usize = 40;
/// The number of distances in each range.
const OF_EACH: usize = 256;

/// Returns three charts of methods at one length:
///
/// - the ratio of each pair's frequency to the trained one,
/// - the angles of a pair, by default one that does not turn fully in training (figures 1, 3 and 6
///   of DPRoPE),
/// - the bound of attention scores.
///
/// Methods with the same frequencies share a line. Without methods there are no charts.
pub fn charts(
    baseline: &Baseline,
    views: &[View],
    pair: Option<usize>,
    intervals: Option<usize>,
) -> Vec<Chart> {
    let Some(first) = views.first() else { return Vec::new() };
    let length = first.length;
    let groups = groups(views);
    let lines = |points: &dyn Fn(&View) -> Vec<(f64, f64)>| -> Vec<Curve> {
        let curve = |(i, (name, view)): (usize, &(String, &View))| {
            Curve::new(name, style(i), points(view).into_iter())
        };
        groups.iter().enumerate().map(curve).collect()
    };
    let title = |what: &str| format!("{what}: {length} tokens, trained for {}", baseline.context);
    let numbered = |values: &[f64]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(i, value)| (i as f64, *value)).collect()
    };
    let ratios = Chart {
        title: title("Frequency of each pair"),
        x: "pair of dimensions, from the fastest to the slowest".into(),
        y: "frequency over the trained one".into(),
        x_to: (first.ratios.len().max(2) - 1) as f64,
        lines: lines(&|view| numbered(&view.ratios)),
        ..Chart::default()
    };

    let pair = pair.unwrap_or_else(|| worst(baseline));
    let intervals = intervals.unwrap_or(INTERVALS);
    let degrees = |theta: f64, positions: usize| -> Vec<(f64, f64)> {
        let width = 360.0 / intervals as f64;
        let shares = Histogram::new(theta, positions, intervals).shares();
        shares.iter().enumerate().map(|(i, share)| ((i as f64 + 0.5) * width, *share)).collect()
    };
    let mut angles = lines(&|view| degrees(view.table.inv_freq[pair], view.length));
    let points = degrees(baseline.inv_freq[pair], baseline.context);
    // The dashes of many spikes would take a megabyte: then the line is solid, below the others.
    let (dash, at) = if intervals > INTERVALS { (0, 0) } else { (4, angles.len()) };
    angles.insert(at, Curve::new("in training", Style(BLACK, dash), points.into_iter()));
    let angles = Chart {
        title: title(&format!("Angles of pair {pair}")),
        x: "angle in degrees".into(),
        y: "share of positions".into(),
        x_to: 360.0,
        lines: angles,
        ..Chart::default()
    };

    let distance = |i: f64| length as f64 * i / DISTANCES as f64;
    let decay = Chart {
        title: title("Decay of attention with distance"),
        x: "distance in tokens".into(),
        y: "bound of the attention score".into(),
        x_to: length as f64,
        trained: Some(baseline.context as f64),
        lines: lines(&|view| {
            let at = |i: usize| {
                let each = (0..OF_EACH).map(|j| i as f64 + j as f64 / OF_EACH as f64);
                let Table { inv_freq, scale } = &view.table;
                let sum: f64 = each.map(|i| decay(inv_freq, *scale, distance(i))).sum();
                (distance(i as f64 + 0.5), sum / OF_EACH as f64)
            };
            (0..DISTANCES).map(at).collect()
        }),
        ..Chart::default()
    };
    vec![ratios, angles, decay]
}

/// Groups the methods that give all pairs the same frequencies and the same attention scale.
fn groups(views: &[View]) -> Vec<(String, &View)> {
    let mut groups: Vec<(String, &View)> = Vec::new();
    for view in views {
        let table = &view.table;
        let same = |(_, known): &&mut (String, &View)| {
            known.table.inv_freq == table.inv_freq && known.table.scale == table.scale
        };
        match groups.iter_mut().find(same) {
            Some((name, _)) => *name += &format!(", {}", view.name),
            None => groups.push((view.name.clone(), view)),
        }
    }
    groups
}

/// Returns the first pair that turns less than once in training: a longer context takes it furthest
/// into untrained angles. Returns the slowest pair if all turn.
fn worst(baseline: &Baseline) -> usize {
    let turns = |theta: &f64| theta * baseline.context as f64 >= TAU;
    let turning = baseline.inv_freq.iter().filter(|theta| turns(theta)).count();
    turning.min(baseline.inv_freq.len() - 1)
}
