//! Line charts as SVG; `heat_map` draws grids of shares.

mod axis;
mod heat_map;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use plotters::{
    element::DashedPathElement,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{args::named, error::Error};
use axis::Axis;
pub use heat_map::{HeatMap, heat_maps};
use rope_cpu::whole_file::{whole_file, writable};

/// A curve of a chart.
pub struct Curve {
    pub name: String,
    pub style: Style,
    pub points: Vec<(f64, f64)>,
    /// Vertical lines: x, and the lower and the upper end.
    pub intervals: Vec<(f64, f64, f64)>,
}

impl Curve {
    /// Creates a curve without vertical lines.
    pub fn new(
        name: impl Into<String>,
        style: Style,
        points: impl Iterator<Item = (f64, f64)>,
    ) -> Self {
        Curve { name: name.into(), style, points: points.collect(), intervals: Vec::new() }
    }
}

/// Curves over one pair of axes.
#[derive(Default)]
pub struct Chart {
    pub title: String,
    pub x: String,
    pub y: String,
    /// The end of the x axis, which starts at 0.
    pub x_to: f64,
    /// The trained length in tokens, drawn as a dashed line if the x axis counts tokens.
    pub trained: Option<f64>,
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

/// Returns the style of curve `i`: each color as a solid line, then dashed, then with longer
/// dashes.
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
const CAPTION: (&str, u32) = ("sans-serif", 17);

/// The file of a drawing.
pub struct Drawing(PathBuf);

impl Drawing {
    /// Checks that the file can be written. Call it before a long computation.
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
/// The width of the lines from the curves to their names in points.
const LEADER: i32 = 64;
/// Maximum width of a letter in points.
const LETTER: i32 = 8;
/// Minimum distance between the names of curves in points.
const LEADING: i32 = 18;
/// The space above and below the curves in points.
const AROUND: (i32, i32) = (40, 60);

/// Returns the width of the longest of `names`, in points.
fn width<'n>(names: impl Iterator<Item = &'n String>) -> i32 {
    names.map(|name| LETTER * name.chars().count() as i32).max().unwrap_or_default()
}

/// Draws charts below each other, each 400 points high, or more if the names of curves need it.
///
/// # Errors
/// If drawing fails.
pub fn draw(charts: &[Chart]) -> Result<String, String> {
    let mut svg = String::new();
    {
        let most = charts.iter().map(|chart| chart.lines.len()).max().unwrap_or_default();
        let height = 400.max(AROUND.0 + LEADING * most as i32 + AROUND.1);
        let names = charts.iter().flat_map(|chart| &chart.lines).map(|line| &line.name);
        let legend = 200.max(LEADER + 8 + width(names));
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
        let all = || {
            self.lines.iter().flat_map(|line| {
                let ends = line.intervals.iter().flat_map(|(_, low, high)| [*low, *high]);
                line.points.iter().map(|(_, y)| *y).chain(ends)
            })
        };
        let highest = all().fold(f64::MIN_POSITIVE, f64::max);
        let (from, to) = match self.logarithmic {
            true => (0.95 * all().fold(highest, f64::min), 1.05 * highest),
            false => (1.05 * all().fold(0.0, f64::min), 1.05 * highest),
        };
        let (area, legend) = area.split_horizontally(WIDTH);
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .caption(&self.title, CAPTION)
            .x_label_area_size(44)
            .y_label_area_size(90)
            .build_cartesian_2d(
                Axis { from: 0.0, to: self.x_to, logarithmic: false },
                Axis { from, to, logarithmic: self.logarithmic },
            )?;
        chart
            .configure_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .axis_desc_style(FONT)
            .label_style(FONT)
            .light_line_style(TRANSPARENT)
            .draw()?;
        if let Some(trained) = self.trained.filter(|trained| (0.0..self.x_to).contains(trained)) {
            let line = [(trained, from), (trained, to)];
            chart.draw_series([DashedPathElement::new(line, 2, GAP, BLACK.stroke_width(1))])?;
            let name = Text::new(format!("trained: {trained}"), (4, 0), FONT);
            chart.draw_series([EmptyElement::at((trained, to)) + name])?;
        }
        let mut ends = Vec::new();
        for Curve { style: Style(color, dash), points, intervals, .. } in &self.lines {
            let thin = color.mix(0.6).stroke_width(1);
            chart.draw_series(
                intervals
                    .iter()
                    .map(|&(x, low, high)| PathElement::new([(x, low), (x, high)], thin)),
            )?;
            let stroke = color.stroke_width(2);
            match *dash {
                0 => chart.draw_series(LineSeries::new(points.clone(), stroke))?,
                dash => {
                    chart.draw_series(DashedLineSeries::new(points.clone(), dash, GAP, stroke))?
                }
            };
            if self.marks {
                let mark = |point: &(f64, f64)| Circle::new(*point, 2, color.filled());
                chart.draw_series(points.iter().map(mark))?;
            }
            ends.push(points.last().map_or((WIDTH, 0), |end| chart.backend_coord(end)));
        }
        self.name_curves(&legend, &ends)
    }

    /// Writes the name of each curve next to its end, with a line from there.
    fn name_curves<'s>(&self, area: &Area<'s>, ends: &[(i32, i32)]) -> Result<(), Failure<'s>> {
        let ((left, top), (_, height)) = (area.get_base_pixel(), area.dim_in_pixel());
        let ends: Vec<_> = ends.iter().map(|(x, y)| (x - left, y - top)).collect();
        let wanted: Vec<_> = ends.iter().map(|(_, y)| *y).collect();
        let bottom = height as i32 - AROUND.1;
        for ((curve, end), y) in self.lines.iter().zip(ends).zip(spread(&wanted, bottom)) {
            let Style(color, dash) = curve.style;
            let from = LEADER - 30;
            let thin = color.mix(0.6).stroke_width(1);
            area.draw(&PathElement::new([end, (4, end.1), (from, y)], thin))?;
            let (sample, stroke) = ([(from, y), (LEADER, y)], color.stroke_width(2));
            match dash {
                0 => area.draw(&PathElement::new(sample, stroke))?,
                dash => area.draw(&DashedPathElement::new(sample, dash, GAP, stroke))?,
            }
            let style = FONT.into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(curve.name.clone(), (LEADER + 6, y), style.color(&color)))?;
        }
        Ok(())
    }
}

/// Moves places apart, in the same order, to a distance of [`LEADING`].
fn spread(wanted: &[i32], bottom: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|i| wanted[*i]);
    let mut places = wanted.to_vec();
    let mut free = AROUND.0;
    for &i in &order {
        places[i] = places[i].max(free);
        free = places[i] + LEADING;
    }
    let mut free = bottom;
    for &i in order.iter().rev() {
        places[i] = places[i].min(free);
        free = places[i] - LEADING;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn names_keep_their_order_and_a_distance() {
        assert_eq!(spread(&[100, 300, 200], 400), [100, 300, 200]);
        assert_eq!(spread(&[200, 100, 100, 105], 400), [200, 100, 118, 136]);
        assert_eq!(spread(&[395, 400, 398], 400), [364, 400, 382]);
        assert_eq!(spread(&[0, 0], 400), [40, 58]);
    }
}
