//! The points of a sweep as a drawing.

use plotters::prelude::*;

use super::table::Run;
use crate::eval::sweep::Point;

const SIZE: (u32, u32) = (900, 800);
const FONT: (&str, u32) = ("sans-serif", 14);
const READ: RGBColor = RGBColor(31, 119, 180);
const WRITTEN: RGBColor = RGBColor(214, 39, 40);
const LIMIT: RGBColor = RGBColor(127, 127, 127);

/// A line of a chart.
struct Line {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Two charts of tokens a second against depth: reading above, writing below.
///
/// # Errors
/// If the drawing does not succeed.
pub fn draw(run: &Run<'_>, points: &[Point]) -> Result<String, String> {
    let line = |name, color, speed: &dyn Fn(&Point) -> f64| Line {
        name,
        color,
        points: points.iter().map(|point| (point.depth as f64, speed(point))).collect(),
    };
    let read = vec![line("prompt", READ, &Point::prompt_per_second)];
    let written = vec![
        line("answer", WRITTEN, &Point::generation_per_second),
        line("all that memory can be read for", LIMIT, &|point| run.limit(point)),
    ];
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(|e| e.to_string())?;
        let halves = root.split_evenly((2, 1));
        for (half, lines) in halves.iter().zip([read, written]) {
            chart(half, &lines).map_err(|e| e.to_string())?;
        }
        root.present().map_err(|e| e.to_string())?;
    }
    Ok(svg)
}

type Area<'s> = DrawingArea<SVGBackend<'s>, plotters::coord::Shift>;
type Failure<'s> = DrawingAreaErrorKind<<SVGBackend<'s> as DrawingBackend>::ErrorType>;

fn chart<'s>(area: &Area<'s>, lines: &[Line]) -> Result<(), Failure<'s>> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let deepest = all().map(|(depth, _)| *depth).fold(1.0, f64::max);
    let fastest = all().map(|(_, speed)| *speed).fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..deepest, 0.0..1.05 * fastest)?;
    chart
        .configure_mesh()
        .x_desc("depth in tokens")
        .y_desc("tokens/s")
        .axis_desc_style(FONT)
        .label_style(FONT)
        .x_label_formatter(&|depth| format!("{depth:.0}"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for Line { name, color, points } in lines {
        let color = *color;
        chart
            .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 2, color.filled())))?;
    }
    // Speeds fall: the upper right is free.
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font(FONT)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()
}
