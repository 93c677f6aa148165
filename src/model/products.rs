//! Products of activations with weights, and with the adapters of weights.

use rope_cpu_kernels::{Input, Output, multiply};

use super::{
    batch::RoleRows,
    forward::{Forward, Step},
    state::{Activations, WorkerBuffers},
    weights::Linear,
};
use crate::threads::{Columns, Phased};

impl Step<'_, '_> {
    /// Computes `out = W x`, plus `s B A x` for each adapter, for the first rows of `x`. The weights
    /// of a task are read from memory once, and then for the second role from the CPU cache.
    pub fn product(
        &mut self,
        weights: &Linear<'_>,
        rows: RoleRows,
        x: &Activations,
        out: &Phased<f32>,
    ) {
        let pass = self.pass;
        let all_low_rank = &pass.state.low_rank;
        if let Some(down) = &weights.adapter_down {
            self.product(down, rows, x, all_low_rank);
        }
        let unit = Linear::unit(rows.total());
        let phase = self.worker.phase(weights.width.div_ceil(unit));
        let (floats, spans) = (x.floats.read(&phase), x.spans.read(&phase));
        let low_rank = weights.adapter_down.as_ref().map_or(&[][..], |_| all_low_rank.read(&phase));
        while let Some(mut claim) = phase.claim() {
            let mut to = SegmentOutput::new(out.columns(&mut claim, unit));
            for (role, rows) in rows.ranges() {
                if rows.is_empty() {
                    continue;
                }
                let low_rank = low_rank.get(rows.start * all_low_rank.width()..).unwrap_or(&[]);
                to.first_row = rows.start;
                let input = weights.input(role, rows, floats, spans);
                pass.multiply_segments(self.buffers, weights, input, low_rank, &mut to);
            }
        }
    }
}

impl Forward<'_> {
    /// Computes the products with all weights whose outputs are among the columns of `to`, and adds
    /// the terms of adapters, whose inputs are `low_rank`: (tokens, low-rank width).
    pub fn multiply_segments<'w>(
        &self,
        buffers: &mut WorkerBuffers,
        weights: &Linear<'w>,
        input: Input<'_>,
        low_rank: &[f32],
        to: &mut SegmentOutput<'_, 'w>,
    ) {
        let cpu = self.cpu;
        let range = to.columns.range();
        for segment in &weights.segments {
            let end = segment.column + segment.matrix.rows();
            let (start, end) = (range.start.max(segment.column), range.end.min(end));
            if start < end {
                to.shift = segment.column as isize - range.start as isize;
                to.bias = segment.bias.filter(|_| !weights.bias_later);
                (to.adds, to.scale) = (false, segment.scale);
                let rows = start - segment.column..end - segment.column;
                multiply(cpu, &segment.matrix, rows.clone(), input, &mut buffers.product, to);
                for addition in &segment.additions {
                    (to.adds, to.scale) = (true, addition.scale);
                    let input = buffers.low_rank.read(cpu, addition, low_rank, input);
                    multiply(cpu, &addition.up, rows.clone(), input, &mut buffers.product, to);
                }
            }
        }
    }
}

/// An output that adds the products, multiplied by `scale`, to a row.
pub struct Scaled<'a> {
    pub to: &'a mut [f32],
    pub scale: f32,
}

impl Output for Scaled<'_> {
    fn put(&mut self, _: usize, row: usize, values: &[f32]) {
        self.to[row..].iter_mut().zip(values).for_each(|(to, x)| *to += self.scale * x);
    }
}

/// An output that writes to the columns of the tasks of one claim. The settings besides the columns
/// are those of the current segment of a [`Linear`].
pub struct SegmentOutput<'p, 'b> {
    columns: Columns<'p, f32>,
    /// The row of the buffer that belongs to the first token.
    pub first_row: usize,
    /// The difference from rows of the segment to columns of the claim.
    shift: isize,
    bias: Option<&'b [f32]>,
    /// Whether products are added to the columns instead of replacing them.
    adds: bool,
    /// The factor of the products.
    scale: f32,
}

impl<'p> SegmentOutput<'p, '_> {
    /// Creates an output whose first token has row 0.
    pub fn new(columns: Columns<'p, f32>) -> Self {
        SegmentOutput { columns, first_row: 0, shift: 0, bias: None, adds: false, scale: 1.0 }
    }
}

impl Output for SegmentOutput<'_, '_> {
    fn put(&mut self, token: usize, row: usize, values: &[f32]) {
        let column = row.wrapping_add_signed(self.shift);
        let out = &mut self.columns.row(self.first_row + token)[column..column + values.len()];
        if self.adds {
            out.iter_mut().zip(values).for_each(|(out, x)| *out += self.scale * x);
            return;
        }
        if self.scale == 1.0 {
            out.copy_from_slice(values);
        } else {
            out.iter_mut().zip(values).for_each(|(out, x)| *out = self.scale * x);
        }
        if let Some(bias) = self.bias {
            for (out, bias) in out.iter_mut().zip(&bias[row..]) {
                *out += bias;
            }
        }
    }
}
