//! Charts of lines, drawn as SVG; `heat_map` has grids of shares.

mod heat_map;

use std::{fs::File, path::Path};

use plotters::prelude::*;

use super::{args::named, error::Error};
pub use heat_map::{HeatMap, heat_maps};

/// A line of a chart.
pub struct Line {
    pub name: String,
    pub color: RGBColor,
    pub points: Vec<(f64, f64)>,
}

/// Lines over one pair of axes.
pub struct Chart {
    pub x: String,
    pub y: String,
    /// Whether points have marks.
    pub marks: bool,
    /// Whether equal steps up are equal factors.
    pub logarithmic: bool,
    pub lines: Vec<Line>,
}

pub const BLUE: RGBColor = RGBColor(31, 119, 180);
pub const RED: RGBColor = RGBColor(214, 39, 40);
pub const GREY: RGBColor = RGBColor(127, 127, 127);

/// Colors that can be told apart.
pub const COLORS: [RGBColor; 10] = [
    BLUE,
    RED,
    RGBColor(44, 160, 44),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    GREY,
    RGBColor(188, 189, 34),
    RGBColor(23, 190, 207),
];

const FONT: (&str, u32) = ("sans-serif", 14);

/// The file for a drawing, before hours are spent on what it is to show.
///
/// # Errors
/// If it cannot be made.
pub fn create(path: &Path) -> Result<File, Error> {
    File::create(path).map_err(|e| named(path, e))
}

/// In points; the legend is a part of it, beside the lines.
const WIDTH: i32 = 1040;
const LEGEND: i32 = 200;

/// The charts below each other, each 400 points high.
///
/// # Errors
/// If the drawing does not succeed.
pub fn draw(charts: &[Chart]) -> Result<String, String> {
    let mut svg = String::new();
    {
        let size = (WIDTH as u32, 400 * charts.len() as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(|e| e.to_string())?;
        let parts = root.split_evenly((charts.len(), 1));
        for (part, chart) in parts.iter().zip(charts) {
            chart.draw(part).map_err(|e| e.to_string())?;
        }
        root.present().map_err(|e| e.to_string())?;
    }
    Ok(svg)
}

type Area<'s> = DrawingArea<SVGBackend<'s>, plotters::coord::Shift>;
type Failure<'s> = DrawingAreaErrorKind<<SVGBackend<'s> as DrawingBackend>::ErrorType>;

impl Chart {
    fn draw<'s>(&self, area: &Area<'s>) -> Result<(), Failure<'s>> {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let x_to = all().map(|(x, _)| *x).fold(1.0, f64::max);
        let logarithmic = self.logarithmic;
        let scaled = |y: f64| if logarithmic { y.log10() } else { y };
        let highest = all().map(|(_, y)| scaled(*y)).fold(f64::MIN_POSITIVE, f64::max);
        let y_from = match logarithmic {
            true => all().map(|(_, y)| scaled(*y)).fold(highest, f64::min) - 0.02,
            false => 0.0,
        };
        let y_to = y_from + 1.05 * (highest - y_from);
        let (area, legend) = area.split_horizontally(WIDTH - LEGEND);
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..x_to, y_from..y_to)?;
        let mut mesh = chart.configure_mesh();
        let power = |y: &f64| format!("{:.*}", (2.0 - y.floor()).max(0.0) as usize, 10f64.powf(*y));
        if logarithmic {
            mesh.y_label_formatter(&power);
        }
        mesh.x_desc(&self.x)
            .y_desc(&self.y)
            .axis_desc_style(FONT)
            .label_style(FONT)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (i, Line { name, color, points }) in (0..).zip(&self.lines) {
            let points = points.iter().map(|(x, y)| (*x, scaled(*y)));
            chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?;
            if self.marks {
                chart.draw_series(points.map(|point| Circle::new(point, 2, color.filled())))?;
            }
            let y = 24 + 20 * i;
            legend.draw(&PathElement::new([(0, y), (18, y)], color.stroke_width(2)))?;
            legend.draw(&Text::new(name.clone(), (24, y - 7), FONT))?;
        }
        Ok(())
    }
}
