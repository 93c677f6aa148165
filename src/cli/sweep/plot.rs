//! The points of a sweep as a drawing.

use super::table::Run;
use crate::cli::plot::{self, BLUE, Chart, GREY, Line, RED, Style};
use rope_cpu::eval::sweep::Point;

/// Two charts of tokens a second against depth: reading above, writing below.
///
/// # Errors
/// If the drawing does not succeed.
pub fn draw(run: &Run<'_>, points: &[Point]) -> Result<String, String> {
    let line = |name: &str, color, speed: &dyn Fn(&Point) -> f64| Line {
        name: name.into(),
        style: Style(color, 0),
        points: points.iter().map(|point| (point.depth as f64, speed(point))).collect(),
    };
    let chart = |lines| {
        let (x, y) = ("depth in tokens".into(), "tokens/s".into());
        let x_to = run.options.context as f64;
        Chart { x, y, x_to, marks: true, logarithmic: false, lines }
    };
    plot::draw(&[
        chart(vec![line("prompt", BLUE, &Point::prompt_per_second)]),
        chart(vec![
            line("answer", RED, &Point::generation_per_second),
            line("all that memory can be read for", GREY, &|point| run.limit(point)),
        ]),
    ])
}
