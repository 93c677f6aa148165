//! Line charts as SVG; `heat_map` draws grids of shares.

mod heat_map;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use plotters::{element::DashedPathElement, prelude::*};

use super::{args::named, error::Error};
pub use heat_map::{HeatMap, heat_maps};
use rope_cpu::whole_file::{whole_file, writable};

/// A curve of a chart.
pub struct Curve {
    pub name: String,
    pub style: Style,
    pub points: Vec<(f64, f64)>,
}

/// Curves over one pair of axes.
pub struct Chart {
    pub x: String,
    pub y: String,
    /// The end of the x axis, which begins at 0.
    pub x_to: f64,
    /// Whether points have marks.
    pub marks: bool,
    /// Whether the y axis is logarithmic.
    pub logarithmic: bool,
    pub lines: Vec<Curve>,
}

pub const BLUE: RGBColor = RGBColor(31, 119, 180);
pub const RED: RGBColor = RGBColor(214, 39, 40);
pub const GREY: RGBColor = RGBColor(127, 127, 127);

/// The color of a curve, and the length of its dashes, 0 for a solid line.
#[derive(Clone, Copy)]
pub struct Style(pub RGBColor, pub i32);

/// Returns the style of curve `i`: each color as a solid line, then dashed, then with longer dashes.
pub fn style(i: usize) -> Style {
    Style(COLORS[i % COLORS.len()], 4 * (i / COLORS.len()) as i32)
}

/// The gap between dashes, in points.
const GAP: i32 = 4;

/// Distinguishable colors.
const COLORS: [RGBColor; 10] = [
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

/// The file of a drawing.
pub struct Drawing(PathBuf);

impl Drawing {
    /// Checks that the file can be written, before the long computation of its content.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn to(path: &Path) -> Result<Self, Error> {
        writable(path).map_err(|e| named(path, e))?;
        Ok(Drawing(path.into()))
    }

    /// Writes the drawing. A file that exists is replaced only now.
    ///
    /// # Errors
    /// If drawing failed, or the file cannot be written.
    pub fn write(self, svg: Result<String, String>) -> Result<(), Error> {
        let svg = svg.map_err(Error::failed)?;
        whole_file(&self.0, |file| file.write_all(svg.as_bytes()))
            .map_err(|e| Error::failed(format_args!("cannot write {}: {e}", self.0.display())))
    }
}

/// The width of a chart in points, without the legend.
const WIDTH: i32 = 840;
/// The largest width of a letter in points.
const LETTER: i32 = 8;
/// The distance between the lines of a legend in points.
const LEADING: i32 = 20;

/// Returns the width of the longest of `names`, in points.
fn width<'n>(names: impl Iterator<Item = &'n String>) -> i32 {
    names.map(|name| LETTER * name.chars().count() as i32).max().unwrap_or_default()
}

/// Draws charts below each other, each 400 points high, or more if a legend needs it.
///
/// # Errors
/// If drawing fails.
pub fn draw(charts: &[Chart]) -> Result<String, String> {
    let mut svg = String::new();
    {
        let most = charts.iter().map(|chart| chart.lines.len()).max().unwrap_or_default();
        let height = 400.max(40 + LEADING * most as i32);
        let names = charts.iter().flat_map(|chart| &chart.lines).map(|line| &line.name);
        let legend = 200.max(48 + width(names));
        let size = ((WIDTH + legend) as u32, height as u32 * charts.len() as u32);
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
        let logarithmic = self.logarithmic;
        let scaled = |y: f64| if logarithmic { y.log10() } else { y };
        let highest = all().map(|(_, y)| scaled(*y)).fold(f64::MIN_POSITIVE, f64::max);
        let y_from = match logarithmic {
            true => all().map(|(_, y)| scaled(*y)).fold(highest, f64::min) - 0.02,
            false => 0.0,
        };
        let y_to = y_from + 1.05 * (highest - y_from);
        let (area, legend) = area.split_horizontally(WIDTH);
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..self.x_to, y_from..y_to)?;
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
        for (i, Curve { name, style: Style(color, dash), points }) in (0..).zip(&self.lines) {
            let points: Vec<_> = points.iter().map(|(x, y)| (*x, scaled(*y))).collect();
            let y = 24 + LEADING * i;
            let (sample, stroke) = ([(0, y), (34, y)], color.stroke_width(2));
            if *dash == 0 {
                chart.draw_series(LineSeries::new(points.clone(), stroke))?;
                legend.draw(&PathElement::new(sample, stroke))?;
            } else {
                chart.draw_series(DashedLineSeries::new(points.clone(), *dash, GAP, stroke))?;
                legend.draw(&DashedPathElement::new(sample, *dash, GAP, stroke))?;
            }
            if self.marks {
                let mark = |point| Circle::new(point, 2, color.filled());
                chart.draw_series(points.into_iter().map(mark))?;
            }
            legend.draw(&Text::new(name.clone(), (40, y - 7), FONT))?;
        }
        Ok(())
    }
}
