//! Queries in the forms that scores are computed from.

use bytemuck::{Pod, Zeroable, must_cast};

use super::{Lanes, Queries};
use crate::{
    activations::quantize_group,
    cache::{CacheType, UNIT},
    isa::{Cpu, Isa, Kernel, LANES},
    regime::Regime,
};

/// Queries from which unpacking rows pays.
const MANY_QUERIES: usize = 12;
/// Likewise, where they are compared with quantized keys as integers.
const MANY_INTEGER_QUERIES: usize = 8;

/// The faster regime for so many queries that read the same keys, which are stored as `keys` and
/// rotated as they are read if `rotating`.
pub fn faster_regime(queries: usize, keys: CacheType, rotating: bool) -> Regime {
    let many = if are_integers(keys, rotating) { MANY_INTEGER_QUERIES } else { MANY_QUERIES };
    if queries < many { Regime::Few } else { Regime::Many }
}

/// Whether queries are compared as integers with keys.
pub(super) fn are_integers(keys: CacheType, rotating: bool) -> bool {
    keys.is_quantized() && !rotating
}

/// 32 values of a query, rounded to `scale * quant`, for products with one row.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct QueryUnit {
    pub quants: [u8; UNIT],
    /// What takes [`Isa::SIGNED_BIAS`] back, for each sum of four products.
    pub bias: [i32; 8],
    pub scale: f32,
}

/// 32 values of 16 queries; lane `i` of every vector belongs to query `i`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct PanelUnit {
    /// Values `4 j ..` of all queries.
    pub quants: [[u8; 4 * LANES]; UNIT / 4],
    pub bias: [i32; LANES],
    pub scale: [f32; LANES],
}

pub(super) struct Prepared {
    pub heads: usize,
    /// Queries of each head.
    pub count: usize,
    pub dim: usize,
    pub soft_cap: Option<f32>,
    pub regime: Regime,
    /// Whether as integers, for quantized keys.
    pub quantized: bool,
    /// A few: (heads, queries, dim). Many: panels of 16 queries, (panels, dim), lanes being queries.
    pub floats: Vec<Lanes>,
    /// A few: (heads, queries, units).
    pub units: Vec<QueryUnit>,
    /// Many: (panels, units).
    pub panels: Vec<PanelUnit>,
}

impl Prepared {
    /// For up to `queries` of `dim` values.
    pub fn new(queries: usize, dim: usize) -> Self {
        let unit = QueryUnit { quants: [0; UNIT], bias: [0; 8], scale: 0.0 };
        let (panels, units) = (queries.div_ceil(LANES), dim.div_ceil(UNIT));
        Prepared {
            heads: 1,
            count: 0,
            dim: 0,
            soft_cap: None,
            regime: Regime::Few,
            quantized: false,
            floats: vec![Lanes([0.0; LANES]); panels * dim],
            units: vec![unit; queries * units],
            panels: vec![PanelUnit::zeroed(); panels * units],
        }
    }

    pub fn fill(&mut self, cpu: Cpu, q: Queries<'_>, quantized: bool) {
        (self.heads, self.count) = (q.heads, q.queries.len() / q.dim / q.heads);
        assert!(self.heads == 1 || q.regime == Regime::Few);
        (self.dim, self.soft_cap, self.regime) = (q.dim, q.soft_cap, q.regime);
        self.quantized = quantized;
        cpu.call(Fill { to: self, queries: q.queries });
    }
}

struct Fill<'a> {
    to: &'a mut Prepared,
    queries: &'a [f32],
}

impl Kernel for Fill<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Fill { to, queries } = self;
        let dim = to.dim;
        match (to.regime, to.quantized) {
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
                            put(unit(isa, x), lane, to);
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn unit<I: Isa>(isa: I, x: &[f32; UNIT]) -> QueryUnit {
    let (quants, scale) = quantize_group(isa, x);
    let fours: [[i8; 4]; 8] = must_cast(quants);
    let bias = fours.map(
        #[inline(always)]
        |four| -i32::from(I::SIGNED_BIAS) * four.iter().map(|&q| i32::from(q)).sum::<i32>(),
    );
    QueryUnit { quants: must_cast(quants), bias, scale }
}

/// Writes a unit into lane `lane` of a panel.
#[inline(always)]
fn put(unit: QueryUnit, lane: usize, to: &mut PanelUnit) {
    for (four, to) in unit.quants.as_chunks::<4>().0.iter().zip(&mut to.quants) {
        to.as_chunks_mut().0[lane] = *four;
    }
    to.bias[lane] = unit.bias.iter().sum();
    to.scale[lane] = unit.scale;
}
