//! Several methods, or windows of several lengths, computed in turn and shown side by side.

use std::{
    io::{self, Write},
    num::NonZeroUsize,
    path::Path,
    time::Instant,
};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{
    Args, Error, context, equal, estimates::pace, named, note, report, tokens, windows_together,
};
use crate::cli::{
    flags,
    log::Log,
    methods::Methods,
    plot::{self, Chart, Curve, Drawing, style},
    resources,
    table::{section, table},
    warn,
};
use rope_cpu::{
    eval::perplexity::{Scored, Settings, perplexity, windows::Windows},
    model::Model,
    runtime::{self, Plan, Sequences},
};

/// The result of one method in windows of one length, as in the `--output` file.
#[derive(Serialize, Deserialize)]
struct ScoredRun {
    method: String,
    #[serde(flatten)]
    settings: RunSettings,
    scored: Scored,
    seconds: f64,
}

/// The settings that determine the result, besides the model.
#[derive(Serialize, Deserialize, PartialEq)]
struct RunSettings {
    /// The RoPE plan in words.
    rope: String,
    windows: Windows,
    windows_max: Option<usize>,
    bucket: Option<NonZeroUsize>,
    text: String,
    text_tokens: usize,
    /// CRC-32 of the tokens as little-endian numbers of 32 bits.
    text_crc: u32,
}

/// Scores the text at `path` with every method in windows of every length.
///
/// # Errors
/// As [`super::run`].
pub fn run(
    args: &Args,
    path: &Path,
    windows: &[Windows],
    model: &Model,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let flags = args.rope.flags();
    let methods = Methods::new(&args.methods, &flags)?;
    let sparse = args.sparse.settings();
    let mut runs = Vec::new();
    for &windows in windows {
        for method in methods.all() {
            // The method extends the context to this size.
            let rolls = method.flags.rolls();
            let context = context(args, windows.window(), rolls.then_some(model))?;
            let rope = methods.plan(method, model, context)?;
            let settings = runtime::Settings {
                context: Some(rope.context.clone()),
                sequences: Sequences::SideBySide(windows_together(args, windows.window())),
                sparse,
                ..resources::settings(&args.memory, &args.machine, method.flags.clone())
            };
            let plan = Plan::with_rope(model, &settings, |_| Ok::<_, Error>(rope))?;
            runs.push((&method.name[..], windows, plan));
        }
    }
    // All checks come before the long computation.
    if resources::stops(runs.iter().map(|(_, _, plan)| plan), &args.memory)? {
        return Ok(());
    }
    let tokens = tokens(path, tokenizer)?;
    for (_, windows, _) in &runs {
        windows.split(tokens.len()).map_err(|e| named(args, path, e))?;
    }
    let Args { model: file, adapters, memory, .. } = args;
    let mut log: Log<ScoredRun> =
        Log::with_attention(args.output.as_deref(), file, adapters, memory, (sparse, None))?;
    let drawing = args.plot.as_deref().map(Drawing::to).transpose()?;

    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let text_crc = crc32fast::hash(&bytes);
    let total = runs.len();
    let mut order = Vec::new(); // the index of each row in the log
    let mut as_trained = Vec::new();
    for (number, (method, windows, plan)) in (1..).zip(runs) {
        let settings = Settings {
            windows,
            windows_max: usize::try_from(args.chunks).ok(),
            bos: tokenizer.bos().filter(|_| tokenizer.adds_bos()),
            bucket: args.buckets.and_then(NonZeroUsize::new),
        };
        as_trained.push(equal::as_trained(&plan.rope, windows.window()));
        let run_settings = RunSettings {
            rope: flags::line(&plan.rope),
            windows,
            windows_max: settings.windows_max,
            bucket: settings.bucket,
            text: path.file_name().unwrap_or_default().to_string_lossy().into(),
            text_tokens: tokens.len(),
            text_crc,
        };
        let label = format!("{number}/{total}: {method}, windows of {}", windows.window());
        let known =
            log.entries.iter().position(|row| row.method == method && row.settings == run_settings);
        order.push(known.unwrap_or(log.entries.len()));
        if known.is_some() {
            note(format_args!("{label}: already computed"));
            continue;
        }
        note(format_args!("{label}: {}", plan.rope));
        warn(&plan.rope);
        let mut engine = plan.engine(model).map_err(Error::failed)?;
        let began = Instant::now();
        let scored = perplexity(&mut engine, &tokens, settings, None, &mut |point| {
            pace(point.number, point.together, point.total, began);
            Ok(())
        })
        .map_err(|e| named(args, path, e))?;
        let seconds = began.elapsed().as_secs_f64();
        note(format_args!("PPL = {:.4}, {seconds:.1} s", scored.all.perplexity().value));
        log.add(ScoredRun { method: method.into(), settings: run_settings, scored, seconds })?;
    }
    let rows: Vec<&ScoredRun> = order.into_iter().map(|i| &log.entries[i]).collect();
    // An error in one output does not prevent the other.
    let shown = match args.json {
        true => json(&rows, out),
        false => {
            let equal = equal(&rows, &as_trained, model.config().context_train);
            text(windows, &rows, &equal, out)
        }
    };
    if let Some(drawing) = drawing {
        let trained = model.config().context_train;
        let charts = windows.iter().map(|windows| chart(*windows, trained, &rows));
        let charts: Vec<_> = charts.collect();
        drawing.write(plot::draw(&charts))?;
    }
    Ok(shown?)
}

/// Returns the sentences about methods with equal results.
fn equal(rows: &[&ScoredRun], as_trained: &[bool], context_train: usize) -> Vec<String> {
    let runs = rows.iter().zip(as_trained).map(|(row, &as_trained)| equal::MethodResult {
        method: &row.method,
        windows: row.settings.windows,
        scored: &row.scored,
        as_trained,
    });
    equal::sentences(&runs.collect::<Vec<_>>(), context_train)
}

/// Returns the rows with these windows.
fn rows_with<'r>(
    windows: Windows,
    rows: &'r [&ScoredRun],
) -> impl Iterator<Item = &'r ScoredRun> + Clone {
    rows.iter().copied().filter(move |row| row.settings.windows == windows)
}

/// Prints a table of all rows, the remarks on it, and for windows of each length a table by
/// position.
fn text(
    windows: &[Windows],
    rows: &[&ScoredRun],
    remarks: &[String],
    out: &mut dyn Write,
) -> io::Result<()> {
    let header = ["method", "window", "tokens", "PPL", "+/-", "seconds"];
    let mut all = table(&header, &[1, 2, 3, 4, 5]);
    for row in rows {
        let ppl = row.scored.all.perplexity();
        all.add_row([
            row.method.clone(),
            row.settings.windows.window().to_string(),
            row.scored.all.count.to_string(),
            format!("{:.4}", ppl.value),
            format!("{:.5}", ppl.uncertainty),
            format!("{:.1}", row.seconds),
        ]);
    }
    section(out, None, &all)?;
    remarks.iter().try_for_each(|remark| writeln!(out, "{remark}"))?;
    for &windows in windows {
        let longest = rows_with(windows, rows).max_by_key(|row| row.scored.buckets.len());
        let Some(longest) = longest else { continue };
        let mut header = vec!["positions", "tokens"];
        header.extend(rows_with(windows, rows).map(|row| &row.method[..]));
        let right: Vec<_> = (0..header.len()).collect();
        let mut shown = table(&header, &right);
        for bucket in &longest.scored.buckets {
            let positions = &bucket.positions;
            let mut cells = vec![format!("{} - {}", positions.start, positions.end - 1)];
            cells.push(bucket.nll.count.to_string());
            cells.extend(rows_with(windows, rows).map(|row| {
                let same = row.scored.buckets.iter().find(|same| same.positions == *positions);
                same.map_or_else(String::new, |b| format!("{:.4}", b.nll.perplexity().value))
            }));
            shown.add_row(cells);
        }
        let title = format!("PPL by position in windows of {}", windows.window());
        section(out, Some(&title), &shown)?;
    }
    Ok(())
}

/// Prints an array of the results as JSON, with the method and the time of each.
fn json(rows: &[&ScoredRun], out: &mut dyn Write) -> io::Result<()> {
    let objects = rows.iter().map(|row| {
        let RunSettings { rope, windows, text_tokens, .. } = &row.settings;
        let mut value = report::object(&row.scored, *windows, *text_tokens, rope);
        value["method"] = row.method.clone().into();
        value["seconds"] = row.seconds.into();
        value
    });
    writeln!(out, "{:#}", Json::Array(objects.collect()))
}

/// Returns a chart of perplexity by position in windows of one length.
fn chart(windows: Windows, trained: usize, rows: &[&ScoredRun]) -> Chart {
    let lines = rows_with(windows, rows).enumerate().map(|(i, row)| {
        let points = row.scored.buckets.iter().map(|bucket| {
            let middle = (bucket.positions.start + bucket.positions.end) as f64 / 2.0;
            (middle, bucket.nll.perplexity().value)
        });
        Curve::new(&row.method, style(i), points)
    });
    Chart {
        title: format!(
            "Perplexity by position: windows of {} tokens, trained for {trained}",
            windows.window()
        ),
        trained: Some(trained as f64),
        x: format!("position in a window of {}", windows.window()),
        y: "perplexity, logarithmic".into(),
        x_to: windows.window() as f64,
        marks: true,
        logarithmic: true,
        lines: lines.collect(),
    }
}
