//! Element-wise operations: equal bits on every instruction set, close to their formulas.

use rope_cpu_kernels::{
    Cpu,
    isa::Scalar,
    vector::{
        Activation, Ungated, activate, add, exp, gate, layer_norm, normalize, rms_norm, rotate,
        soft_cap,
    },
};

use crate::common::{Random, on_every_isa, scalar};

const LENGTHS: [usize; 6] = [1, 7, 8, 9, 64, 577];

/// Asserts that the error is at most 8 units relative to 1 or to the value: the approximation of
/// e^x, and three more roundings.
fn close(found: f32, expected: f64, what: &str) {
    let bound = 8.0 * f64::from(f32::EPSILON) * expected.abs().max(1.0);
    assert!((f64::from(found) - expected).abs() <= bound, "{what}: {found} {expected}");
}

/// Runs `work` with scalar code and with `cpu`, on `n` numbers up to +-`size`.
fn both(cpu: Cpu, n: usize, size: f32, work: impl Fn(Cpu, &mut [f32], &[f32])) -> [Vec<f32>; 3] {
    let mut random = Random(n as u64 + 1);
    let x: Vec<f32> = random.floats(n).into_iter().map(|x| x * size).collect();
    let y = random.floats(n);
    let run = |cpu| {
        let mut out = x.clone();
        work(cpu, &mut out, &y);
        out
    };
    let (expected, found) = (run(scalar()), run(cpu));
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&expected), bits(&found));
    [x, y, found]
}

fn norms(cpu: Cpu) {
    for n in LENGTHS {
        let [x, y, found] = both(cpu, n, 3.0, |cpu, x, y| rms_norm(cpu, x, y, 1e-5));
        let mean = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / n as f64;
        for i in 0..n {
            let expected = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(y[i]);
            close(found[i], expected, "norm");
        }
        let [x, y, found] = both(cpu, n, 3.0, |cpu, x, y| layer_norm(cpu, x, y, 1e-5));
        let x: Vec<_> = x.into_iter().map(f64::from).collect();
        let center = x.iter().sum::<f64>() / n as f64;
        let variance = x.iter().map(|x| (x - center).powi(2)).sum::<f64>() / n as f64;
        for i in 0..n {
            let expected = (x[i] - center) / (variance + 1e-5).sqrt() * f64::from(y[i]);
            close(found[i], expected, "norm of a layer");
        }
        let [x, _, found] = both(cpu, n, 3.0, |cpu, x, _| normalize(cpu, x, 0.5, 1e-6));
        let sum: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        for i in 0..n {
            close(found[i], 0.5 * f64::from(x[i]) / (sum + 1e-6).sqrt(), "unit norm");
        }
    }
}

fn gates(cpu: Cpu) {
    for n in LENGTHS {
        for size in [1.0, 20.0, 200.0] {
            let [x, y, found] = both(cpu, n, size, |c, x, y| gate(c, Activation::Silu, x, y));
            for i in 0..n {
                let x = f64::from(x[i]);
                close(found[i], x / (1.0 + (-x).exp()) * f64::from(y[i]), "silu");
            }
            let [x, y, found] = both(cpu, n, size, |c, x, y| gate(c, Activation::Sigmoid, x, y));
            for i in 0..n {
                close(found[i], f64::from(y[i]) / (1.0 + (-f64::from(x[i])).exp()), "sigmoid");
            }
            let [x, y, found] = both(cpu, n, size, |c, x, y| gate(c, Activation::GeluTanh, x, y));
            for i in 0..n {
                let x = f64::from(x[i]);
                let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                // The rounding error of u is proportional to u.
                let expected = 0.5 * x * (1.0 + u.tanh()) * f64::from(y[i]);
                let bound = 16.0 * f64::from(f32::EPSILON) * x.abs().max(1.0);
                assert!((f64::from(found[i]) - expected).abs() <= bound, "gelu {x}");
            }
        }
    }
}

/// Computes the probability that a number of the normal distribution is below `x`, by the series
/// of the error function.
fn normal(x: f64) -> f64 {
    let z = x / std::f64::consts::SQRT_2;
    let (mut term, mut sum) = (z, z);
    for n in 1..100 {
        term *= -z * z / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    0.5 + sum / std::f64::consts::PI.sqrt()
}

/// Large elements exceed the limits of gpt-oss's activation; xIELU has a case for each sign.
fn functions(cpu: Cpu) {
    for n in LENGTHS {
        let gate_by = |cpu: Cpu, x: &mut [f32], y: &[f32]| {
            let up: Vec<_> = y.iter().map(|y| 10.0 * y).collect();
            gate(cpu, Activation::ClampedSilu, x, &up);
        };
        let [x, y, found] = both(cpu, n, 10.0, gate_by);
        for i in 0..n {
            let gate = f64::from(x[i]).min(7.0);
            let up = f64::from(10.0 * y[i]).clamp(-7.0, 7.0);
            let expected = gate / (1.0 + (-1.702 * gate).exp()) * (up + 1.0);
            close(found[i], expected, "clamped silu");
        }
        let silu = |cpu: Cpu, x: &mut [f32], _: &[f32]| activate(cpu, Ungated::Silu, x);
        let [x, _, found] = both(cpu, n, 20.0, silu);
        for i in 0..n {
            close(found[i], f64::from(x[i]) / (1.0 + (-f64::from(x[i])).exp()), "silu alone");
        }
        let gelu = |cpu: Cpu, x: &mut [f32], _: &[f32]| activate(cpu, Ungated::Gelu, x);
        let [x, _, found] = both(cpu, n, 5.0, gelu);
        for i in 0..n {
            let x = f64::from(x[i]);
            // The approximation is off by 0.75e-7, which is less than an epsilon.
            let bound = 8.0 * f64::from(f32::EPSILON) * x.abs().max(1.0);
            assert!((f64::from(found[i]) - x * normal(x)).abs() <= bound, "gelu {x}");
        }
        let squared = |cpu: Cpu, x: &mut [f32], _: &[f32]| activate(cpu, Ungated::SquaredRelu, x);
        let [x, _, found] = both(cpu, n, 5.0, squared);
        assert!((0..n).all(|i| found[i] == x[i].max(0.0) * x[i].max(0.0)));
        let [positive, negative, linear, limit] = [0.75, 1.25, 0.5, -1e-6];
        let xielu = Ungated::Xielu { positive, negative, linear, limit };
        let [x, _, found] = both(cpu, n, 5.0, |cpu, x, _| activate(cpu, xielu, x));
        for i in 0..n {
            let x = f64::from(x[i]);
            let expected = match x >= 0.0 {
                true => 0.75 * x * x + 0.5 * x,
                false => 1.25 * (x.min(limit.into()).exp_m1() - x) + 0.5 * x,
            };
            // The terms are as large as x, and may cancel.
            let bound = 8.0 * f64::from(f32::EPSILON) * x.abs().max(1.0);
            assert!((f64::from(found[i]) - expected).abs() <= bound, "xielu {x}");
        }
    }
}

fn sums_and_caps(cpu: Cpu) {
    for n in LENGTHS {
        let [x, y, found] = both(cpu, n, 1.0, add);
        assert!((0..n).all(|i| found[i] == x[i] + y[i]));
        let [x, _, found] = both(cpu, n, 120.0, |cpu, x, _| soft_cap(cpu, x, 30.0));
        for i in 0..n {
            let bound = 30.0 * 8.0 * f64::from(f32::EPSILON);
            let expected = 30.0 * (f64::from(x[i]) / 30.0).tanh();
            assert!((f64::from(found[i]) - expected).abs() <= bound, "{} {expected}", found[i]);
        }
    }
}

fn rotations(cpu: Cpu) {
    for half in [1, 4, 8, 20, 32, 64] {
        let angles: Vec<f64> = (0..half).map(|i| 0.37 * (i * i) as f64).collect();
        let row: Vec<f32> = angles
            .iter()
            .map(|a| a.cos())
            .chain(angles.iter().map(|a| a.sin()))
            .map(|x| x as f32)
            .collect();
        // Three elements do not rotate, and must not change.
        let [x, _, found] = both(cpu, 2 * half + 3, 1.0, |cpu, x, _| rotate(cpu, x, &row));
        for i in 0..half {
            let (a, b) = (f64::from(x[i]), f64::from(x[half + i]));
            close(found[i], a * angles[i].cos() - b * angles[i].sin(), "first");
            close(found[half + i], a * angles[i].sin() + b * angles[i].cos(), "second");
        }
        assert_eq!(x[2 * half..], found[2 * half..]);
    }
}

on_every_isa!(norms, gates, functions, sums_and_caps, rotations);

#[test]
fn exp_is_right_to_two_units_in_the_last_place() {
    for i in -8768..=8800 {
        let x = i as f32 / 100.0;
        let found = f64::from(exp(Scalar, [[x; 8]; 2])[0][0]);
        let expected = f64::from(x).exp();
        let error = (found - expected).abs() / expected;
        assert!(error <= 2.0 * f64::from(f32::EPSILON), "e^{x} = {expected}, not {found}");
    }
    assert_eq!(exp(Scalar, [[f32::NEG_INFINITY; 8]; 2]), [[0.0; 8]; 2]);
    assert_eq!(exp(Scalar, [[-90.0; 8]; 2]), [[0.0; 8]; 2]);
}
