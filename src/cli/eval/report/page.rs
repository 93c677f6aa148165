//! The page of a report: one file of HTML with its own style, script and drawings.

use super::{Origin, Summary, Table, Words, all, notes, title};
use crate::cli::plot::{Chart, Curve, HeatMap, draw, heat_maps, style};

const STYLE: &str = "\
    body { font: 16px/1.5 sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
    table { border-collapse: collapse; margin: 1rem 0 }
    th, td { padding: .3rem .8rem; border-bottom: 1px solid #ccc; text-align: right }
    th:first-child, td:first-child { text-align: left }
    th button { font: inherit; font-weight: bold; border: 0; background: none; cursor: pointer }
    svg { max-width: 100%; height: auto }";

/// Sorts a table by the column of the clicked button: by number if the cells start with one.
const SCRIPT: &str = "\
    for (const button of document.querySelectorAll('th button')) {
        button.onclick = () => {
            const head = button.parentElement, body = head.closest('table').tBodies[0];
            const column = head.cellIndex, down = head.ariaSort !== 'descending';
            const key = row => row.cells[column].textContent;
            const order = (a, b) => {
                const [x, y] = [parseFloat(a), parseFloat(b)];
                return isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y;
            };
            const rows = [...body.rows].sort((a, b) => order(key(a), key(b)));
            for (const other of head.parentElement.cells) other.ariaSort = null;
            head.ariaSort = down ? 'descending' : 'ascending';
            body.append(...(down ? rows.reverse() : rows));
        };
    }";

/// Returns the page.
///
/// # Errors
/// If drawing fails.
pub fn page(summary: &Summary, origin: &Origin) -> Result<String, String> {
    let mut body = String::new();
    for note in notes(summary) {
        body += &format!("<p>{}</p>\n", escaped(&note));
    }
    let facts = origin.facts().into_iter().map(|(name, fact)| {
        format!("<dt>{}</dt><dd><code>{}</code></dd>\n", escaped(&name), escaped(&fact))
    });
    body += &format!("<dl>\n{}</dl>\n", facts.collect::<String>());
    body +=
        &heat_maps(&summary.tables.iter().map(|table| map(summary, table)).collect::<Vec<_>>())?;
    let tables = all(summary);
    for (i, words) in tables.iter().enumerate() {
        body += &html(words);
        if let (Some(table), true) = (summary.tables.get(i), summary.lengths.len() > 1) {
            body += &draw(&[curves(summary, table)])?;
        }
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Evaluation</title>\n\
         <style>\n{STYLE}\n</style>\n<h1>Evaluation</h1>\n{body}\n<script>\n{SCRIPT}\n</script>\n</html>\n"
    ))
}

fn html(Words { title, header, rows }: &Words) -> String {
    let head = header.iter().map(|name| format!("<th><button>{}</button></th>", escaped(name)));
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    format!(
        "<h2>{}</h2>\n<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table>\n",
        escaped(title),
        head.collect::<String>(),
        rows.iter().map(row).collect::<String>()
    )
}

/// Returns a map of the means: a row for each method, a column for each length.
fn map(summary: &Summary, table: &Table) -> HeatMap {
    let column =
        |length: usize| table.cells.iter().map(|cells| cells[length].interval.mean).collect();
    HeatMap {
        title: title(table),
        x: "length in tokens".into(),
        y: "method".into(),
        columns: summary.lengths.iter().map(ToString::to_string).collect(),
        rows: summary.methods.clone(),
        values: (0..summary.lengths.len()).map(column).collect(),
    }
}

/// Returns the means by length, with a curve and its intervals for each method.
fn curves(summary: &Summary, table: &Table) -> Chart {
    let lines = summary.methods.iter().zip(&table.cells).enumerate().map(|(i, (method, cells))| {
        let at = || summary.lengths.iter().map(|length| *length as f64).zip(cells);
        Curve {
            name: method.clone(),
            style: style(i),
            points: at().map(|(x, cell)| (x, 100.0 * cell.interval.mean)).collect(),
            intervals: at()
                .map(|(x, cell)| (x, 100.0 * cell.interval.low, 100.0 * cell.interval.high))
                .collect(),
        }
    });
    Chart {
        title: title(table),
        x: "length in tokens".into(),
        y: "share in percent".into(),
        x_to: 1.05 * summary.lengths.last().copied().unwrap_or_default() as f64,
        marks: true,
        lines: lines.collect(),
        ..Chart::default()
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
