//! Products of activations with weights, and with the adapters of weights.

use rope_cpu_kernels::{Input, Output, activations::Span, multiply};

use super::{
    batch::RoleRows,
    forward::{Forward, Step},
    state::{Activations, WorkerBuffers},
    weights::{Linear, Segment},
};
use crate::threads::{Columns, Phase, Phased};

impl Step<'_, '_> {
    /// Computes `out = W x`, plus `s B A x` for each adapter, for the first rows of `x`. The
    /// weights of a task come from memory once, and for the second role from the CPU cache.
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
        let Some(phase) = self.worker.phase(weights.width.div_ceil(unit)) else { return };
        let low_rank = weights.adapter_down.as_ref().map(|_| all_low_rank);
        let inputs = Inputs::read(&phase, x, low_rank);
        while let Some(mut claim) = phase.claim() {
            let mut to = SegmentOutput::new(out.columns(&mut claim, unit));
            pass.multiply_roles(self.buffers, weights, inputs, 0, rows, &mut to);
        }
    }
}

/// The inputs of a product in a phase that reads them.
#[derive(Clone, Copy)]
pub struct Inputs<'p> {
    floats: &'p [f32],
    spans: &'p [Span],
    /// The inputs of adapters' up-projections, (rows, width), and their width.
    low_rank: (&'p [f32], usize),
}

impl<'p> Inputs<'p> {
    /// Reads the inputs, with the inputs of adapters if the weights have any.
    pub fn read(
        phase: &'p Phase<'_>,
        x: &'p Activations,
        low_rank: Option<&'p Phased<f32>>,
    ) -> Self {
        let low_rank = low_rank.map_or((&[][..], 0), |all| (all.read(phase), all.width()));
        Inputs { floats: x.floats.read(phase), spans: x.spans.read(phase), low_rank }
    }
}

impl Forward<'_> {
    /// Computes the products with the rows of each role. The first row is row `first` of the inputs
    /// and of the output.
    pub fn multiply_roles<'w>(
        &self,
        buffers: &mut WorkerBuffers,
        weights: &Linear<'w>,
        inputs: Inputs<'_>,
        first: usize,
        rows: RoleRows,
        to: &mut SegmentOutput<'_, 'w>,
    ) {
        let Inputs { floats, spans, low_rank: (low_rank, width) } = inputs;
        let total = rows.total();
        for (role, rows) in rows.ranges() {
            let rows = first + rows.start..first + rows.end;
            to.first_row = rows.start;
            let low_rank = low_rank.get(rows.start * width..).unwrap_or_default();
            if !weights.own_inputs {
                let input = weights.input(role, rows, floats, spans);
                self.multiply_segments(buffers, weights, &weights.segments, input, low_rank, to);
                continue;
            }
            for (index, segment) in weights.segments.iter().enumerate() {
                let (start, end) = (rows.start + index * total, rows.end + index * total);
                let input = weights.input(role, start..end, floats, spans);
                let segment = std::slice::from_ref(segment);
                self.multiply_segments(buffers, weights, segment, input, low_rank, to);
            }
        }
    }

    /// Computes the products of some segments for the columns of `to`, and adds the terms of adapters.
    /// `low_rank`, (tokens, low-rank width), has the inputs of adapters.
    fn multiply_segments<'w>(
        &self,
        buffers: &mut WorkerBuffers,
        weights: &Linear<'w>,
        segments: &[Segment<'w>],
        input: Input<'_>,
        low_rank: &[f32],
        to: &mut SegmentOutput<'_, 'w>,
    ) {
        let cpu = self.cpu;
        let range = to.columns.range();
        for segment in segments {
            let end = segment.column + segment.matrix.rows();
            let (start, end) = (range.start.max(segment.column), range.end.min(end));
            if start < end {
                to.shift = segment.column as isize - range.start as isize;
                to.bias = segment.bias.filter(|_| !weights.bias_later);
                (to.adds, to.scale) = (false, segment.scale);
                let rows = start - segment.column..end - segment.column;
                if let Some(inputs) = self.inputs.filter(|_| rows.start == 0) {
                    inputs.add(&segment.matrix, input);
                }
                multiply(cpu, &segment.matrix, rows.clone(), input, &mut buffers.product, to);
                for addition in &segment.additions {
                    (to.adds, to.scale) = (true, addition.factor.at(self.scales));
                    if to.scale == 0.0 {
                        continue;
                    }
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

/// An output that writes to the columns of the tasks of one claim. The other settings belong to the
/// current segment of a [`Linear`].
pub struct SegmentOutput<'p, 'b> {
    columns: Columns<'p, f32>,
    /// The row of the buffer that belongs to the first token.
    first_row: usize,
    /// The difference from rows of the segment to columns of the claim.
    shift: isize,
    bias: Option<&'b [f32]>,
    /// Whether products are added to the columns instead of replacing them.
    adds: bool,
    /// The factor of the products.
    scale: f32,
}

impl<'p> SegmentOutput<'p, '_> {
    /// Creates an output with row 0 for the first token.
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
