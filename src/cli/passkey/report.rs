//! The grid of answers: as a table with shades, as a drawing, and as JSON.

use std::io::{self, Write};

use serde_json::json;

use super::{Args, Log, MethodRun, Record};
use crate::cli::{
    flags,
    plot::{HeatMap, heat_maps},
    table::{section, table},
};
use rope_cpu::{eval::passkey::effective_window, rope::short};

/// The number of keys found by a method at a length, for each depth.
pub struct Grid {
    method: String,
    rope: String,
    trained: usize,
    length: usize,
    /// The keys found at each depth, from the start of the text to its end.
    cells: Vec<usize>,
    keys: usize,
    seconds: f64,
}

impl Grid {
    /// Counts the answers of a run.
    pub fn new(args: &Args, run: &MethodRun, log: &Log<Record>) -> Self {
        let tests = args.tests(run.length);
        let records: Vec<_> = tests.filter_map(|test| Record::of(args, run, log, test)).collect();
        let cells = args.percents().map(|percent| {
            records.iter().filter(|record| record.depth == percent && record.found).count()
        });
        Grid {
            method: run.method.clone(),
            trained: run.plan.rope.context_train.value,
            length: run.length,
            cells: cells.collect(),
            keys: args.keys,
            seconds: records.iter().map(|record| record.seconds).sum(),
            rope: flags::line(&run.plan.rope),
        }
    }

    fn rates(&self) -> impl Iterator<Item = f64> {
        self.cells.iter().map(|found| *found as f64 / self.keys as f64)
    }

    fn rate(&self) -> f64 {
        self.rates().sum::<f64>() / self.cells.len() as f64
    }
}

/// Groups the grids by method, in the order of their lengths.
fn by_method(grids: &[Grid]) -> Vec<(&str, Vec<&Grid>)> {
    let mut all: Vec<(&str, Vec<&Grid>)> = Vec::new();
    for grid in grids {
        match all.iter_mut().find(|(method, _)| *method == grid.method) {
            Some((_, of_method)) => of_method.push(grid),
            None => all.push((&grid.method, vec![grid])),
        }
    }
    all
}

fn window(args: &Args, grids: &[&Grid]) -> Option<usize> {
    let rates: Vec<_> = grids.iter().map(|grid| (grid.length, grid.rate())).collect();
    effective_window(&rates, args.share)
}

/// Prints a table for each method, and the effective windows.
pub fn text(args: &Args, grids: &[Grid], out: &mut dyn Write) -> io::Result<()> {
    let places: Vec<String> = args.percents().map(|percent| format!("at {percent} %")).collect();
    let mut header: Vec<&str> = vec!["tokens"];
    header.extend(places.iter().map(String::as_str));
    header.extend(["all", "seconds"]);
    let right: Vec<usize> = (0..header.len()).collect();
    let methods = by_method(grids);
    for (method, grids) in &methods {
        let mut shown = table(&header, &right);
        for grid in grids {
            let mut row = vec![grid.length.to_string()];
            row.extend(grid.cells.iter().zip(grid.rates()).map(|(found, rate)| {
                let shade = ["··", "░░", "▒▒", "▓▓", "██"][(rate * 4.0).round() as usize];
                format!("{shade} {found}/{}", grid.keys)
            }));
            row.push(format!("{:.0} %", 100.0 * grid.rate()));
            row.push(format!("{:.1}", grid.seconds));
            shown.add_row(row);
        }
        section(out, Some(method), &shown)?;
    }
    let share = short(100.0 * args.share);
    let mut windows = table(&["method", "effective context window"], &[1]);
    for (method, grids) in &methods {
        let window = window(args, grids).map_or("none".into(), |length| length.to_string());
        windows.add_row([method.to_string(), window]);
    }
    let title = format!("The largest length up to which at least {share} % are found");
    section(out, Some(&title), &windows)
}

/// Prints the grids and the effective windows as JSON.
pub fn json(args: &Args, grids: &[Grid], out: &mut dyn Write) -> io::Result<()> {
    let methods = by_method(grids).into_iter().map(|(method, grids)| {
        let lengths = grids.iter().map(|grid| {
            let cells = args.percents().zip(&grid.cells);
            let cells = cells.map(
                |(depth, found)| json!({"depth_percent": depth, "found": found, "keys": grid.keys}),
            );
            json!({
                "length": grid.length,
                "rope": grid.rope,
                "rate": grid.rate(),
                "seconds": grid.seconds,
                "cells": cells.collect::<Vec<_>>(),
            })
        });
        json!({
            "method": method,
            "effective_window": window(args, &grids),
            "lengths": lengths.collect::<Vec<_>>(),
        })
    });
    let methods: Vec<_> = methods.collect();
    let object = json!({"seed": args.seed, "share": args.share, "methods": methods});
    writeln!(out, "{object:#}")
}

/// Draws a heat map for each method, as SVG.
///
/// # Errors
/// If drawing fails.
pub fn svg(args: &Args, grids: &[Grid]) -> Result<String, String> {
    let maps = by_method(grids).into_iter().map(|(method, grids)| HeatMap {
        title: match grids.first() {
            Some(first) => format!("{method}: keys found, trained for {} tokens", first.trained),
            None => format!("{method}: keys found"),
        },
        x: "length in tokens".into(),
        y: "depth of the key".into(),
        columns: grids.iter().map(|grid| grid.length.to_string()).collect(),
        rows: args.percents().map(|percent| format!("{percent} %")).collect(),
        values: grids.iter().map(|grid| grid.rates().collect()).collect(),
    });
    heat_maps(&maps.collect::<Vec<_>>())
}
