//! A depthwise causal convolution: each channel has its own weights.
//!
//! ```text
//! y[t][c] = sum of w[c][j] x[t - taps + 1 + j][c] for j in 0..taps
//! ```

use crate::{
    array::from_fn,
    isa::{Cpu, Isa, Kernel, LANES},
};

/// Maximum weights of a channel.
pub const TAPS_MAX: usize = 8;

/// Replaces inputs by outputs. `window` has the previous inputs, oldest first, one fewer than there
/// are taps; it is updated to the last inputs. `weights` are (channels, taps), for at most
/// [`LANES`] channels.
///
/// # Panics
/// If there are more than [`TAPS_MAX`] taps.
///
/// ```
/// use rope_cpu_kernels::{Cpu, isa::LANES, recurrence::convolve};
///
/// // One channel with two taps.
/// let (mut window, mut tokens) = ([[2.0; LANES]], [[3.0; LANES]]);
/// convolve(Cpu::best(), &[0.5, 1.0], &mut window, &mut tokens);
/// assert_eq!(tokens[0][0], 0.5 * 2.0 + 1.0 * 3.0);
/// assert_eq!(window[0][0], 3.0);
/// ```
pub fn convolve(
    cpu: Cpu,
    weights: &[f32],
    window: &mut [[f32; LANES]],
    tokens: &mut [[f32; LANES]],
) {
    let taps = window.len() + 1;
    assert!(taps <= TAPS_MAX, "{taps} taps");
    let mut columns = [[0.0; LANES]; TAPS_MAX];
    for (channel, weights) in weights.chunks_exact(taps).enumerate() {
        for (column, weight) in columns.iter_mut().zip(weights) {
            column[channel] = *weight;
        }
    }
    cpu.call(Convolve { weights: &columns, window, tokens });
}

struct Convolve<'a> {
    weights: &'a [[f32; LANES]; TAPS_MAX],
    window: &'a mut [[f32; LANES]],
    tokens: &'a mut [[f32; LANES]],
}

impl Kernel for Convolve<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Convolve { weights, window, tokens } = self;
        let before = window.len();
        let weights = from_fn::<_, TAPS_MAX>(
            #[inline(always)]
            |j| isa.wide_load_f32(&weights[j]),
        );
        for token in tokens {
            let mut sum = isa.wide_mul(isa.wide_load_f32(token), weights[before]);
            for j in 0..before {
                sum = isa.wide_mul_add(isa.wide_load_f32(&window[j]), weights[j], sum);
            }
            for j in 1..before {
                window[j - 1] = window[j];
            }
            if let Some(last) = window.last_mut() {
                *last = *token;
            }
            *token = isa.wide_to_f32s(sum);
        }
    }
}
