//! The points of a sweep, drawn as charts.

use super::table::SweepSettings;
use crate::cli::plot::{self, BLUE, Chart, Curve, GREY, RED, Style};
use rope_cpu::eval::sweep::Point;

/// Draws two charts of tokens per second against depth: the prompt above, the answer below.
///
/// # Errors
/// If drawing fails.
pub fn draw(run: &SweepSettings<'_>, trained: usize, points: &[Point]) -> Result<String, String> {
    let line = |name: &str, color, speed: &dyn Fn(&Point) -> f64| {
        let points = points.iter().map(|point| (point.depth as f64, speed(point)));
        Curve::new(name, Style(color, 0), points)
    };
    let chart = |what: &str, lines| {
        let title = format!("{what} by depth, trained for {trained} tokens");
        let (x, y) = ("depth in tokens".into(), "tokens/s".into());
        let x_to = run.options.context as f64;
        let trained = Some(trained as f64);
        Chart { title, x, y, x_to, trained, marks: true, lines, ..Chart::default() }
    };
    plot::draw(&[
        chart("Prompt processing", vec![line("prompt", BLUE, &Point::prompt_per_second)]),
        chart(
            "Generation",
            vec![
                line("answer", RED, &Point::generation_per_second),
                line("limit of the memory bandwidth", GREY, &|point| run.limit(point)),
            ],
        ),
    ])
}
