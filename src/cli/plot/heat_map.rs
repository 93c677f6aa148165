//! Heat maps: grids of shares, as colors.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{FONT, width};

/// A grid of shares from 0 to 1.
pub struct HeatMap {
    pub title: String,
    pub x: String,
    pub y: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The names of the rows, from the top.
    pub rows: Vec<String>,
    /// The shares, column by column.
    pub values: Vec<Vec<f64>>,
}

const CELL: (i32, i32) = (90, 36);
/// The least space to the left of the cells, in points.
const LEFT: i32 = 90;
const ABOVE: i32 = 44;
const BELOW: i32 = 56;

/// The width of a row of maps in points, unless one map alone is wider.
const ROW_WIDTH: i32 = 1440;

/// Draws heat maps side by side, in as many rows as they need.
///
/// # Errors
/// If drawing fails.
pub fn heat_maps(maps: &[HeatMap]) -> Result<String, String> {
    let columns = maps.iter().map(|map| map.columns.len()).max().unwrap_or_default();
    let rows = maps.iter().map(|map| map.rows.len()).max().unwrap_or_default();
    let wide = (CELL.0 * columns as i32).max(width(maps.iter().map(|map| &map.title)));
    let left = LEFT.max(width(maps.iter().flat_map(|map| &map.rows)) + 16);
    let (wide, high) = (left + wide + 16, ABOVE + CELL.1 * rows as i32 + BELOW);
    let in_row = ((ROW_WIDTH / wide) as usize).clamp(1, maps.len().max(1));
    let size = (wide * in_row as i32, high * maps.len().div_ceil(in_row) as i32);
    let mut svg = String::new();
    {
        let area =
            SVGBackend::with_string(&mut svg, (size.0 as u32, size.1 as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(|e| e.to_string())?;
        for (i, map) in maps.iter().enumerate() {
            let corner = (wide * (i % in_row) as i32, high * (i / in_row) as i32);
            map.draw(&area, corner, left).map_err(|e| e.to_string())?;
        }
        area.present().map_err(|e| e.to_string())?;
    }
    Ok(svg)
}

impl HeatMap {
    /// Draws the map at a corner, with `margin` points to the left of the cells.
    fn draw<'s>(
        &self,
        area: &super::Area<'s>,
        corner: (i32, i32),
        margin: i32,
    ) -> Result<(), super::Failure<'s>> {
        let text = |text: String, at: (i32, i32), h: HPos| {
            let style = FONT.into_text_style(area).pos(Pos::new(h, VPos::Center));
            area.draw(&Text::new(text, at, style))
        };
        let (left, first) = (corner.0 + margin, corner.1 + ABOVE);
        text(self.title.clone(), (left, corner.1 + 14), HPos::Left)?;
        text(self.y.clone(), (corner.0 + 8, corner.1 + 32), HPos::Left)?;
        for (i, row) in (0..).zip(&self.rows) {
            let y = first + i * CELL.1 + CELL.1 / 2;
            text(row.clone(), (left - 8, y), HPos::Right)?;
        }
        let below = first + self.rows.len() as i32 * CELL.1;
        for (i, column) in (0..).zip(&self.columns) {
            let x = left + i * CELL.0;
            text(column.clone(), (x + CELL.0 / 2, below + 14), HPos::Center)?;
            for (j, value) in (0..).zip(&self.values[i as usize]) {
                let y = first + j * CELL.1;
                let corners = [(x, y), (x + CELL.0 - 1, y + CELL.1 - 1)];
                area.draw(&Rectangle::new(corners, color(*value).filled()))?;
                let middle = (x + CELL.0 / 2, y + CELL.1 / 2);
                text(format!("{:.0} %", 100.0 * value), middle, HPos::Center)?;
            }
        }
        text(self.x.clone(), (left, below + 34), HPos::Left)
    }
}

/// Returns the color of a share: from red (0) through yellow to green (1).
fn color(value: f64) -> RGBColor {
    const ENDS: [[f64; 3]; 3] = [[226.0, 92.0, 80.0], [250.0, 224.0, 120.0], [96.0, 176.0, 96.0]];
    let value = 2.0 * value.clamp(0.0, 1.0);
    let from = (value as usize).min(1);
    let part = |i: usize| {
        let (a, b) = (ENDS[from][i], ENDS[from + 1][i]);
        (a + (b - a) * (value - from as f64)) as u8
    };
    RGBColor(part(0), part(1), part(2))
}
