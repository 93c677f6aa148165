//! Products of weights with activations.

use bytemuck::Zeroable;
use rope_cpu_kernels::{
    Cpu, DType, Input, Matrix, Output, Regime, Scratch,
    activations::{Span, quantize, spans_for},
    multiply,
};

use crate::common::{Random, on_every_isa, scalar, weights};

/// Products of (tokens, rows), initially NaN to detect products that are not written.
struct Table {
    rows: usize,
    values: Vec<f32>,
}

impl Output for Table {
    fn put(&mut self, token: usize, row: usize, values: &[f32]) {
        for (i, value) in values.iter().enumerate() {
            let to = &mut self.values[token * self.rows + row + i];
            assert!(to.is_nan(), "row {} of token {token} is written twice", row + i);
            *to = *value;
        }
    }
}

#[derive(Clone)]
struct Case {
    dtype: DType,
    regime: Regime,
    rows: usize,
    columns: usize,
    tokens: usize,
    bytes: Vec<u8>,
    floats: Vec<f32>,
    spans: Vec<Span>,
}

impl Case {
    fn new(dtype: DType, regime: Regime, [rows, columns, tokens]: [usize; 3]) -> Self {
        let mut random = Random((rows * columns + tokens) as u64);
        let bytes = weights(&mut random, dtype, rows, columns);
        let floats = random.floats(tokens * columns);
        let n = spans_for(columns);
        let mut spans = vec![Span::zeroed(); tokens * n];
        for (x, out) in floats.chunks(columns).zip(spans.chunks_mut(n)) {
            quantize(scalar(), x, out);
        }
        Case { dtype, regime, rows, columns, tokens, bytes, floats, spans }
    }

    /// Computes the product in two parts, as two threads would.
    fn run(&self, cpu: Cpu) -> Vec<f32> {
        let Case { dtype, regime, rows, columns, tokens, .. } = *self;
        let matrix = Matrix::new(dtype, rows, columns, &self.bytes).unwrap();
        let mut out = Table { rows, values: vec![f32::NAN; tokens * rows] };
        let input = Input { regime, tokens, floats: &self.floats, spans: &self.spans };
        let mut scratch = Scratch::new(columns, tokens).unwrap();
        let half = (rows / 2).next_multiple_of(16).min(rows);
        for part in [0..half, half..rows] {
            multiply(cpu, &matrix, part, input, &mut scratch, &mut out);
        }
        out.values
    }

    fn name(&self) -> String {
        let Case { dtype, regime, rows, columns, tokens, .. } = self;
        format!("{} {rows} x {columns}, {tokens} tokens, {regime:?}", dtype.name())
    }
}

/// Returns shapes around the sizes of tiles, panels and spans.
fn cases() -> impl Iterator<Item = Case> {
    use Regime::{Few, Many};
    let shapes = [
        (Few, [1, 256, 1]),
        (Few, [15, 512, 3]),
        (Many, [16, 288, 4]),
        (Many, [17, 576, 5]),
        (Many, [33, 640, 8]),
        (Many, [7, 32, 9]),
        (Few, [40, 1536, 1]),
        (Many, [16, 96, 17]),
        (Many, [31, 2048, 6]),
        (Many, [273, 1280, 7]),
        (Few, [21, 608, 1]),
        (Few, [21, 640, 1]),
        (Few, [9, 896, 3]),
        (Few, [9, 288, 3]),
        (Few, [17, 288, 5]),
        (Few, [35, 1312, 18]),
        (Many, [40, 288, 1]),
        (Many, [15, 512, 3]),
        (Many, [35, 1312, 2]),
    ];
    DType::ALL.into_iter().flat_map(move |dtype| {
        let fits = move |columns: usize| columns.is_multiple_of(dtype.block().0);
        let shapes = shapes.into_iter().filter(move |(_, shape)| fits(shape[1]));
        shapes.map(move |(regime, shape)| Case::new(dtype, regime, shape))
    })
}

fn products_equal_the_scalar_ones_bit_for_bit(cpu: Cpu) {
    for case in cases() {
        assert_eq!(case.run(scalar()), case.run(cpu), "{}", case.name());
    }
}

/// A row that ends within a span is read together with the start of the next row.
fn rows_do_not_see_each_other(cpu: Cpu) {
    for case in cases() {
        let row = case.bytes.len() / case.rows;
        let values = case.run(cpu);
        // Scales of these bytes are NaN.
        let bytes = case.bytes.chunks(row).enumerate();
        let bytes = bytes.flat_map(|(r, b)| if r % 2 == 0 { b.to_vec() } else { vec![0x7f; row] });
        let other = Case { bytes: bytes.collect(), ..case };
        for (i, (value, other_value)) in values.iter().zip(other.run(cpu)).enumerate() {
            if (i % other.rows).is_multiple_of(2) {
                assert_eq!(*value, other_value, "{} row {}", other.name(), i % other.rows);
            }
        }
    }
}

/// Tested with scalar code only, as all instruction sets give the same bits, for one token as for
/// several.
#[test]
fn tokens_together_give_the_bits_that_each_gives_alone() {
    for case in cases().filter(|case| case.tokens > 1) {
        let spans = spans_for(case.columns);
        let alone = (0..case.tokens).flat_map(|t| {
            let floats = case.floats[t * case.columns..][..case.columns].to_vec();
            let spans = case.spans[t * spans..][..spans].to_vec();
            Case { tokens: 1, floats, spans, ..case.clone() }.run(scalar())
        });
        assert_eq!(case.run(scalar()), alone.collect::<Vec<_>>(), "{}", case.name());
    }
}

/// Compares with the sum, in double precision, of decoded weights times rounded activations. Tested
/// with scalar code only, as all instruction sets return the same bits.
///
/// Integer sums are exact. For each group, three results are rounded: the products with both
/// scales, and the running total. The same holds for offsets. With at most 72 groups of at most 32
/// products, the error is at most (72 + 8) units in the last place of the sum of magnitudes.
/// Unsigned formats have offsets as large as the scaled quants, so magnitudes of both are added.
#[test]
fn products_mean_what_decode_says() {
    for case in cases() {
        let matrix = Matrix::new(case.dtype, case.rows, case.columns, &case.bytes).unwrap();
        let found = case.run(scalar());
        let n = spans_for(case.columns);
        let mut row = vec![0.0; case.columns];
        for r in 0..case.rows {
            matrix.decode_row(r, &mut row);
            let largest = row.iter().fold(0.0f64, |m, w| m.max(f64::from(w.abs())));
            for t in 0..case.tokens {
                let x = |c: usize| {
                    if case.dtype.is_quantized() {
                        let span = &case.spans[t * n + c / 256];
                        let group = c % 256 / 32;
                        f64::from(span.quants[group][c % 32] as i8) * f64::from(span.scale[group])
                    } else {
                        f64::from(case.floats[t * case.columns + c])
                    }
                };
                let terms = row.iter().enumerate().map(|(c, w)| f64::from(*w) * x(c));
                let magnitude: f64 = (0..case.columns).map(|c| 2.0 * largest * x(c).abs()).sum();
                let (expected, got) = (terms.sum::<f64>(), f64::from(found[t * case.rows + r]));
                let bound = 80.0 * f64::from(f32::EPSILON) * magnitude;
                assert!((expected - got).abs() <= bound, "{}: {expected} {got}", case.name());
            }
        }
    }
}

fn quantizing_equals_the_scalar_one_bit_for_bit(cpu: Cpu) {
    let mut random = Random(3);
    for columns in [32, 256, 288, 576, 1000] {
        let mut x = random.floats(columns);
        x[columns / 2] = 0.0;
        x[..20].fill(0.0);
        let run = |cpu: Cpu| {
            let mut out = vec![Span::zeroed(); spans_for(columns)];
            quantize(cpu, &x, &mut out);
            out
        };
        let (expected, found) = (run(scalar()), run(cpu));
        assert_eq!(bytemuck::cast_slice::<_, u8>(&expected), bytemuck::cast_slice::<_, u8>(&found));
        for (i, x) in x.iter().enumerate() {
            let (span, group) = (&found[i / 256], i % 256 / 32);
            let value = f32::from(span.quants[group][i % 32] as i8) * span.scale[group];
            assert!((value - x).abs() <= 0.5001 * span.scale[group], "{value} {x}");
        }
    }
}

/// If the inverse of a scale is infinite, activations become 0 rather than of the wrong sign.
fn the_smallest_activations_keep_their_signs(cpu: Cpu) {
    for magnitude in [1e-30, 1e-36, 1e-37, 3e-39, 1e-44] {
        let x: Vec<f32> =
            (0..256).map(|i| magnitude * if i % 3 == 0 { -1.0 } else { 0.9 }).collect();
        let mut out = [Span::zeroed()];
        quantize(cpu, &x, &mut out);
        for (q, x) in out[0].quants.as_flattened().iter().zip(&x) {
            let q = f32::from(*q as i8);
            assert!(q * x.signum() >= 0.0 && q.abs() <= 127.0, "{x:e}: {q}");
        }
    }
}

on_every_isa!(
    the_smallest_activations_keep_their_signs,
    products_equal_the_scalar_ones_bit_for_bit,
    rows_do_not_see_each_other,
    quantizing_equals_the_scalar_one_bit_for_bit,
);
