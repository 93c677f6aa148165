//! The results of `rope-cpu rope attention` as tables, JSON and charts.

use std::io::Write;

use serde_json::{Value, json};

use super::Row;
use crate::cli::{
    plot::{Chart, Curve, style},
    table::{section, table},
};
use rope_cpu_lab::attention::Bin;

/// Prints the means by distance, and beyond the trained length the shares of each head.
pub fn text(
    rows: &[&Row],
    trained: usize,
    length: usize,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let names = |what: &str| rows.iter().map(|row| format!("{}{what}", row.method)).collect();
    let [scores, shares]: [Vec<String>; 2] = [" score", " share"].map(names);
    let header: Vec<&str> = std::iter::once("distance")
        .chain(scores.iter().zip(&shares).flat_map(|(score, share)| [&score[..], share]))
        .collect();
    let right: Vec<usize> = (0..header.len()).collect();
    let mut shown = table(&header, &right);
    let means: Vec<Vec<Bin>> = rows.iter().map(|row| row.mean()).collect();
    for (i, bin) in means[0].iter().enumerate() {
        let mut cells = vec![format!("{} - {}", bin.distances.start, bin.distances.end - 1)];
        for bin in means.iter().map(|mean| &mean[i]) {
            cells.extend(match bin.pairs {
                0 => [String::new(), String::new()],
                _ => [format!("{:.3}", bin.score), percent(bin.share)],
            });
        }
        shown.add_row(cells);
    }
    let (heads, positions) = (&first.measured.heads, &first.measured.positions);
    let mut layers: Vec<usize> = heads.iter().map(|head| head.layer).collect();
    layers.dedup();
    let layers: Vec<String> = layers.iter().map(usize::to_string).collect();
    writeln!(
        out,
        "Means over {} heads of layers {}, {} queries from position {} of {length} tokens, trained for {trained}",
        heads.len(),
        layers.join(", "),
        positions.len(),
        positions.first().unwrap_or(&0)
    )?;
    section(out, Some("Score before the softmax and share of attention"), &shown)?;
    if length <= trained {
        return Ok(());
    }
    let header: Vec<&str> =
        ["layer", "head"].into_iter().chain(rows.iter().map(|row| &row.method[..])).collect();
    let right: Vec<usize> = (0..header.len()).collect();
    let mut shown = table(&header, &right);
    for (i, head) in heads.iter().enumerate() {
        let beyond = rows.iter().map(|row| percent(row.measured.heads[i].beyond));
        shown.add_row([head.layer.to_string(), head.head.to_string()].into_iter().chain(beyond));
    }
    let title = format!("Share of attention at distances of {trained} and more");
    section(out, Some(&title), &shown)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Returns the attention of every method and head as JSON.
pub fn object(rows: &[&Row], trained: usize, length: usize) -> Value {
    let bin = |bin: &Bin| {
        let seen = bin.pairs > 0;
        json!({
            "from": bin.distances.start,
            "to": bin.distances.end,
            "pairs": bin.pairs,
            "score": seen.then_some(bin.score),
            "highest": seen.then_some(bin.highest),
            "share": bin.share,
        })
    };
    let bins = |bins: &[Bin]| bins.iter().map(bin).collect::<Vec<_>>();
    let methods = rows.iter().map(|row| {
        let heads = row.measured.heads.iter().map(|head| {
            json!({
                "layer": head.layer,
                "head": head.head,
                "beyond_trained": head.beyond,
                "sink": head.sink,
                "distances": bins(&head.bins),
            })
        });
        json!({
            "method": row.method,
            "rope": row.rope,
            "mean": bins(&row.mean()),
            "heads": heads.collect::<Vec<_>>(),
        })
    });
    json!({
        "trained": trained,
        "length": length,
        "positions": rows.first().map(|row| &row.measured.positions),
        "methods": methods.collect::<Vec<_>>(),
    })
}

/// Returns the charts of scores and of shares by distance, means over heads.
pub fn charts(rows: &[&Row], trained: usize, length: usize) -> [Chart; 2] {
    let chart = |title: &str, y: &str, logarithmic, value: fn(&Bin) -> f64| {
        let lines = rows.iter().enumerate().map(|(i, row)| {
            let mean = row.mean();
            let drawn = |bin: &&Bin| bin.pairs > 0 && !(logarithmic && value(bin) == 0.0);
            let middle = |bin: &Bin| (bin.distances.start + bin.distances.end) as f64 / 2.0;
            let points = mean.iter().filter(drawn).map(|bin| (middle(bin), value(bin)));
            Curve::new(&row.method, style(i), points)
        });
        Chart {
            title: format!("{title}: {length} tokens, trained for {trained}"),
            x: "distance in tokens".into(),
            y: y.into(),
            x_to: length as f64,
            trained: Some(trained as f64),
            marks: true,
            logarithmic,
            lines: lines.collect(),
        }
    };
    [
        chart("Attention score by distance", "mean score before the softmax", false, |bin| {
            bin.score
        }),
        chart("Attention by distance", "share, logarithmic", true, |bin| bin.share),
    ]
}
