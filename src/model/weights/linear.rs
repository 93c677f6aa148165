//! Products with weights: matrices that share an input, and the terms that adapters add.

use std::ops::Range;

use rope_cpu_kernels::{
    Input, Matrix,
    activations::{Span, spans_for},
};

use crate::model::{
    adapter::{Factor, LowRank},
    batch::Role,
};

/// Matrices that multiply the same input. The outputs of a token are in one row, each segment at a
/// multiple of [`Linear::BLOCK`].
pub struct Linear<'a> {
    pub segments: Vec<Segment<'a>>,
    pub width: usize,
    /// Whether each segment has different inputs: all tokens of the first, then of the next.
    pub own_inputs: bool,
    /// Whether the reader of the outputs adds the biases: attention adds them to a head when it
    /// rotates the head, or reads it from the cache.
    pub bias_later: bool,
    /// The down-projections (A) of all adapters, side by side. Their outputs are the inputs of
    /// [`Segment::additions`].
    pub adapter_down: Option<Box<Linear<'a>>>,
}

/// One matrix of a [`Linear`], and its outputs' columns.
pub struct Segment<'a> {
    /// The first column of the outputs.
    pub column: usize,
    pub matrix: Matrix<'a>,
    /// The factor of the outputs, applied before the bias.
    pub scale: f32,
    pub bias: Option<&'a [f32]>,
    pub additions: Vec<Addition<'a>>,
}

/// The term that an adapter adds to the outputs of a segment.
pub struct Addition<'a> {
    /// The first column of its inputs among the outputs of [`Linear::adapter_down`].
    pub column: usize,
    pub up: Matrix<'a>, // (rows of the segment, rank)
    pub factor: Factor,
}

/// The tensors of a segment: the matrix, its optional scale and bias, and the adapters' terms.
pub struct SegmentTensors<'a> {
    pub matrix: Matrix<'a>,
    pub scale: f32,
    pub bias: Option<&'a [f32]>,
    pub low_rank: Vec<LowRank<'a>>,
}

impl<'a> SegmentTensors<'a> {
    /// Returns a matrix without scale, bias and adapters.
    pub fn plain(matrix: Matrix<'a>) -> Self {
        SegmentTensors { matrix, scale: 1.0, bias: None, low_rank: Vec::new() }
    }

    /// Returns some of the rows.
    pub fn rows(&self, rows: Range<usize>) -> Self {
        SegmentTensors {
            matrix: self.matrix.part(rows.clone()),
            scale: self.scale,
            bias: self.bias.map(|bias| &bias[rows.clone()]),
            low_rank: self.low_rank.iter().map(|low| low.rows(rows.clone())).collect(),
        }
    }
}

impl<'a> Linear<'a> {
    /// The number of outputs that are computed together.
    pub const BLOCK: usize = 16;

    /// Returns the number of outputs of a task. For many tokens several blocks share one read of
    /// the tokens; for few tokens tasks are small, so that all workers are done at about the same
    /// time.
    pub fn unit(tokens: usize) -> usize {
        if tokens < 32 { Self::BLOCK } else { 4 * Self::BLOCK }
    }

    pub fn new(tensors: impl IntoIterator<Item = SegmentTensors<'a>>) -> Self {
        let (mut width, mut low_rank_width) = (0, 0);
        let next = |width: &mut usize, matrix: &Matrix<'_>| {
            let column = *width;
            *width += matrix.rows().next_multiple_of(Self::BLOCK);
            column
        };
        let mut downs = Vec::new();
        let segments =
            tensors.into_iter().map(|SegmentTensors { matrix, scale, bias, low_rank }| {
                let additions = low_rank.into_iter().map(|LowRank { down, up, factor }| {
                    downs.push(SegmentTensors::plain(down));
                    Addition { column: next(&mut low_rank_width, &down), up, factor }
                });
                let additions = additions.collect();
                Segment { column: next(&mut width, &matrix), matrix, scale, bias, additions }
            });
        let segments = segments.collect();
        let adapter_down = (!downs.is_empty()).then(|| Box::new(Linear::new(downs)));
        Linear { segments, width, own_inputs: false, bias_later: false, adapter_down }
    }

    /// Returns the products of heads, each with its own inputs and matrix. The outputs of a head start at
    /// column `first` of its `stride` columns.
    pub fn of_heads(
        tensors: impl IntoIterator<Item = SegmentTensors<'a>>,
        first: usize,
        stride: usize,
    ) -> Self {
        let mut all = Linear { own_inputs: true, ..Linear::new(tensors) };
        for (head, segment) in all.segments.iter_mut().enumerate() {
            segment.column = head * stride + first;
        }
        all.width = all.segments.len() * stride;
        all
    }

    /// Returns the width of [`Linear::adapter_down`]; 0 without adapters.
    pub fn low_rank_width(&self) -> usize {
        self.adapter_down.as_ref().map_or(0, |down| down.width)
    }

    /// Returns some rows of its inputs, with tokens of one role. A row has as many elements as the
    /// matrices have columns, maybe less than the widest row of a buffer.
    pub fn input<'x>(
        &self,
        role: Role,
        rows: Range<usize>,
        floats: &'x [f32],
        spans: &'x [Span],
    ) -> Input<'x> {
        let columns = self.segments[0].matrix.columns();
        Input {
            regime: role.regime(),
            tokens: rows.len(),
            floats: &floats[rows.start * columns..],
            spans: &spans[rows.start * spans_for(columns)..],
        }
    }

    /// Returns the first output column of each segment.
    pub fn columns<const N: usize>(&self) -> [usize; N] {
        std::array::from_fn(|i| self.segments[i].column)
    }
}
