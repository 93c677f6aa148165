//! Queries in the layouts from which scores are computed.
//!
//! A few queries keep their shape (heads, queries, dim), as floats or as [`QueryUnit`]s of 32
//! integers with a scale. Many queries are transposed to panels of 16, with a query in each lane,
//! as floats or as [`PanelUnit`]s.

use std::{collections::TryReserveError, ops::Range};

use bytemuck::{Pod, Zeroable, must_cast};

use super::{
    Lanes, Queries, Reading,
    rounded::{Panels, RoundQueries},
};
use crate::{
    activations::quantize_group,
    buffer::filled,
    cache::{CacheType, UNIT},
    hadamard::mix_rows,
    isa::{Cpu, Isa, Kernel, LANES},
    regime::Regime,
};

/// From this number of queries on, unpacking rows is faster.
const MANY_QUERIES: usize = 12;
/// From this number of queries on, unpacking rows is faster for integer scores.
const MANY_INTEGER_QUERIES: usize = 8;

/// Returns the faster regime for `queries` queries that attend to the same keys of the format
/// `keys`.
pub fn faster_regime(queries: usize, keys: CacheType, reading: Reading) -> Regime {
    let many = match are_integers(keys, reading, Regime::Many) {
        true => MANY_INTEGER_QUERIES,
        false => MANY_QUERIES,
    };
    if queries < many { Regime::Few } else { Regime::Many }
}

/// Returns whether scores are computed from integers: for quantized keys that do not rotate. A few
/// queries are multiplied with the keys' bias separately.
fn are_integers(keys: CacheType, reading: Reading, regime: Regime) -> bool {
    keys.is_quantized()
        && match reading {
            Reading::Stored => true,
            Reading::Biased => regime == Regime::Few,
            Reading::Rotated => false,
        }
}

/// 32 values of a query, rounded to `scale * quant`, for products with single rows.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct QueryUnit {
    pub quants: [u8; UNIT],
    /// The value that cancels [`Isa::SIGNED_BIAS`].
    pub bias: i32,
    pub scale: f32,
}

/// 32 values of 16 queries. Lane `i` of every vector belongs to query `i`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct PanelUnit {
    /// Element `j` holds values `4 j .. 4 j + 4` of all queries.
    pub quants: [[u8; 4 * LANES]; UNIT / 4],
    pub bias: [i32; LANES],
    pub scale: [f32; LANES],
}

/// Queries that are ready for scores.
pub(super) struct Prepared {
    /// The number of KV heads.
    pub heads: usize,
    /// The number of queries of each head.
    pub count: usize,
    pub dim: usize,
    /// The first element of values that is summed.
    pub values_from: usize,
    pub soft_cap: Option<f32>,
    pub regime: Regime,
    /// How keys are read.
    pub reading: Reading,
    /// Whether the queries are stored as integers, for quantized keys.
    pub quantized: bool,
    /// Whether many queries are also stored in 8 bits.
    pub eight_bits: bool,
    /// A few queries: (heads, queries, dim), in addition to integers if keys have a bias. Many:
    /// panels of 16 queries, (panels, dim), where lanes are queries.
    pub floats: Vec<Lanes>,
    /// A few queries as integers: (heads, queries, units).
    pub units: Vec<QueryUnit>,
    /// Many queries as integers: (panels, units).
    pub panels: Vec<PanelUnit>,
    /// Many queries in 8 bits. `floats` also holds them.
    pub rounded: Panels,
}

impl Prepared {
    /// Creates buffers for up to `queries` queries of `dim` values.
    pub fn new(queries: usize, dim: usize) -> Result<Self, TryReserveError> {
        let unit = QueryUnit { quants: [0; UNIT], bias: 0, scale: 0.0 };
        let (panels, units) = (queries.div_ceil(LANES), dim.div_ceil(UNIT));
        Ok(Prepared {
            heads: 1,
            count: 0,
            dim: 0,
            values_from: 0,
            soft_cap: None,
            regime: Regime::Few,
            reading: Reading::Stored,
            quantized: false,
            eight_bits: false,
            floats: filled(Lanes([0.0; LANES]), panels * dim)?,
            units: filled(unit, queries * units)?,
            panels: filled(PanelUnit::zeroed(), panels * units)?,
            rounded: Panels::new(queries, dim)?,
        })
    }

    /// Stores the queries `q` for keys of the format `keys`. If the keys are mixed, so are the
    /// integers. `panel` is a buffer: (dim).
    pub fn fill(
        &mut self,
        cpu: Cpu,
        q: Queries<'_>,
        keys: CacheType,
        reading: Reading,
        panel: &mut [Lanes],
    ) {
        (self.heads, self.count) = (q.heads, q.queries.len() / q.dim / q.heads);
        assert!(self.heads == 1 || q.regime == Regime::Few);
        assert!(q.values_from.is_multiple_of(UNIT));
        (self.dim, self.values_from) = (q.dim, q.values_from);
        (self.soft_cap, self.regime) = (q.soft_cap, q.regime);
        self.reading = reading;
        self.quantized = are_integers(keys, reading, q.regime);
        self.eight_bits = q.eight_bits && q.regime == Regime::Many;
        if self.quantized && reading == Reading::Biased {
            cpu.call(Fill { to: self, queries: q.queries, quantized: false });
        }
        let mixed = keys.is_mixed() && self.quantized;
        if mixed {
            mix_rows(cpu, q.queries, q.dim);
        }
        let queries = &*q.queries;
        if self.eight_bits {
            let (panel, floats) = (&mut panel[..q.dim], &mut self.floats[..]);
            cpu.call(RoundQueries { queries, panel, floats, mixed, rounded: &mut self.rounded });
        }
        let quantized = self.quantized;
        if quantized || !self.eight_bits {
            cpu.call(Fill { to: self, queries, quantized });
        }
    }

    /// Panics if the queries were not stored for such keys, or `visible` is not for all of them.
    pub fn check(&self, visible: &[Range<usize>], keys: CacheType, reading: Reading) {
        assert_eq!(visible.len(), self.count);
        assert_eq!(reading, self.reading);
        assert_eq!(are_integers(keys, reading, self.regime), self.quantized);
    }
}

struct Fill<'a> {
    to: &'a mut Prepared,
    queries: &'a [f32],
    quantized: bool,
}

impl Kernel for Fill<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Fill { to, queries, quantized } = self;
        let dim = to.dim;
        match (to.regime, quantized) {
            (Regime::Few, false) => {
                for (x, to) in queries.as_chunks().0.iter().zip(&mut to.floats) {
                    to.0 = *x;
                }
            }
            (Regime::Few, true) => {
                for (x, to) in queries.as_chunks().0.iter().zip(&mut to.units) {
                    *to = unit(isa, x);
                }
            }
            (Regime::Many, false) => {
                let panels = to.floats.chunks_exact_mut(dim);
                for (queries, panel) in queries.chunks(LANES * dim).zip(panels) {
                    for (lane, query) in queries.chunks_exact(dim).enumerate() {
                        for (x, to) in query.iter().zip(&mut *panel) {
                            to.0[lane] = *x;
                        }
                    }
                }
            }
            (Regime::Many, true) => {
                let panels = to.panels.chunks_exact_mut(dim / UNIT);
                for (queries, panel) in queries.chunks(LANES * dim).zip(panels) {
                    for (lane, query) in queries.chunks_exact(dim).enumerate() {
                        for (x, to) in query.as_chunks().0.iter().zip(&mut *panel) {
                            write_lane(unit(isa, x), lane, to);
                        }
                    }
                }
            }
        }
    }
}

/// Rounds 32 values of a query to 8 bits.
#[inline(always)]
fn unit<I: Isa>(isa: I, x: &[f32; UNIT]) -> QueryUnit {
    let (quants, scale) = quantize_group(isa, x);
    let bias = -i32::from(I::SIGNED_BIAS)
        * quants.as_flattened().iter().map(|&q| i32::from(q)).sum::<i32>();
    QueryUnit { quants: must_cast(quants), bias, scale }
}

/// Writes a unit into lane `lane` of a panel.
#[inline(always)]
fn write_lane(unit: QueryUnit, lane: usize, to: &mut PanelUnit) {
    for (four, to) in unit.quants.as_chunks::<4>().0.iter().zip(&mut to.quants) {
        to.as_chunks_mut().0[lane] = *four;
    }
    to.bias[lane] = unit.bias;
    to.scale[lane] = unit.scale;
}
