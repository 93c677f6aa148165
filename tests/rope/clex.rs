//! CLEX against the reference, and errors in its weights.

use std::path::PathBuf;

use rope_cpu::rope::{
    Flags, Layers, SCALE, SCALING, Table,
    clex::{self, Activation},
    yarn,
};
use safetensors::{Dtype, tensor::TensorView};
use tempfile::NamedTempFile;

use crate::rope::{Case, close, floats, golden};

/// The relative precision of the reference, as it states.
const EXACT: f64 = 1e-11;

/// Writes a safetensors file of f64 tensors, each with its name and shape.
fn file(tensors: &[(&str, [usize; 2], &[f64])]) -> NamedTempFile {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, _, values)| values.iter().flat_map(|x| x.to_le_bytes()).collect())
        .collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        (*name, TensorView::new(Dtype::F64, shape.to_vec(), bytes).unwrap())
    });
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), safetensors::serialize(views, None).unwrap()).unwrap();
    file
}

fn weights(pairs: usize, up: &[f64], down: &[f64]) -> NamedTempFile {
    let hidden = up.len() / pairs;
    file(&[
        ("model.clex_layer.proj_func.ode_up_proj", [pairs, hidden], up),
        ("model.clex_layer.proj_func.ode_down_proj", [hidden, pairs], down),
        ("model.embed", [1, 1], &[0.0]),
    ])
}

fn clex(weights: &NamedTempFile, flags: Flags) -> Flags {
    flags.with(&SCALING, "clex").with(&clex::WEIGHTS, weights.path().to_path_buf())
}

/// Returns a model of 4 pairs with a trained length of 64 tokens, in a context of 250.
fn case() -> Case {
    Case { n_rot: 8, context_train: 64, context: Some(250), ..Case::default() }
}

#[test]
fn frequencies_equal_the_reference() {
    let golden = golden();
    let mut compared = 0;
    for reference in golden["clex"].as_array().unwrap() {
        let number = |name: &str| reference[name].as_f64().unwrap();
        assert_eq!((number("n_rot"), number("ntk_base_const")), (8.0, 10000.0));
        let [up, down] = ["up_rowmajor_4x8", "down_rowmajor_8x4"].map(|m| floats(&reference[m]));
        let named = |activation: &Activation| reference["act"] == activation.name();
        let activation = Activation::ALL.into_iter().find(named).unwrap();
        let flags = Flags::default()
            .with(&SCALE, number("max_t"))
            .with(&clex::STEP, number("dt"))
            .with(&clex::ACTIVATION, activation.name());
        let case = case().float("freq_base", number("base") as f32);
        let plan = case.flags(clex(&weights(4, &up, &down), flags)).plan().unwrap();
        for (t, expected) in reference["inv_freq_by_t"].as_object().unwrap() {
            let t: usize = t[1..].parse().unwrap();
            // The first and the last length with this t.
            for length in [64 * t - 63, 64 * t] {
                let table = Table::new(&plan, Layers::Global, plan.effective_length(length));
                for (found, expected) in table.inv_freq.iter().zip(floats(expected)) {
                    close(&format!("t {t}"), *found, expected, EXACT);
                }
                assert_eq!(table.scale, 1.0);
                compared += 1;
            }
        }
        let line = plan.to_string();
        assert!(line.starts_with(
            "RoPE: clex (`rope_scaling` clex), factor 4 (`rope_scale` 4), weights `clex_weights`"
        ));
    }
    assert_eq!(compared, 16);
}

/// With weights of zero, dz/dt is the drift dn/dt only. Its integral is NTK's exponent with α = 2t
/// - 1. The error of the solver is 1.5e-10 with steps of 0.01.
#[test]
fn weights_of_zero_are_ntk() {
    let zeros = weights(4, &[0.0; 8], &[0.0; 8]);
    let plan = case().flags(clex(&zeros, Flags::default())).plan().unwrap();
    for t in 1..=4 {
        let alpha = 2.0 * t as f64 - 1.0;
        let ntk = Flags::method("ntk").with(&SCALE, alpha);
        let ntk = Table::new(&case().flags(ntk).plan().unwrap(), Layers::Global, 1);
        let clex = Table::new(&plan, Layers::Global, 64 * t);
        for (found, expected) in clex.inv_freq.iter().zip(&ntk.inv_freq) {
            close(&format!("t {t}"), *found, *expected, 1e-9);
        }
    }
}

#[test]
fn lengths_are_rounded_up_to_multiples_of_the_trained_one() {
    let zeros = || weights(4, &[0.0; 8], &[0.0; 8]);
    let lengths = |flags| {
        let plan = case().flags(clex(&zeros(), flags)).plan().unwrap();
        [1, 64, 65, 128, 129, 250, 1000].map(|tokens| plan.effective_length(tokens))
    };
    // The context of 250 needs four times 64.
    assert_eq!(lengths(Flags::default()), [64, 64, 128, 128, 192, 256, 256]);
    let two = Flags::default().with(&SCALE, 2.0);
    assert_eq!(lengths(two), [64, 64, 128, 128, 128, 128, 128]);
    let original = Flags::default().with(&yarn::ORIG_CTX, 100);
    assert_eq!(lengths(original), [100, 100, 100, 200, 200, 300, 300]);
}

#[test]
fn errors_name_the_flag() {
    let error = |flags: Flags| case().flags(flags).error();
    let none = Flags::method("clex");
    assert_eq!(error(none), "`rope_scaling` clex needs `clex_weights` FILE");
    let zeros = || weights(4, &[0.0; 8], &[0.0; 8]);
    let with = |flags| error(clex(&zeros(), flags));
    let scale = |scale| Flags::default().with(&SCALE, scale);
    for (flags, expected) in [
        (scale(2.5), "`rope_scale` 2.5: must be a whole number from 1 to 1024"),
        (scale(2000.0), "`rope_scale` 2000: must be a whole number"),
        (Flags::default().with(&clex::STEP, 0.0), "`clex_step` 0: must be a number from"),
    ] {
        let error = with(flags);
        assert!(error.contains(expected), "{error}");
    }
    let other = error(clex(&weights(2, &[0.0; 4], &[0.0; 4]), Flags::default()));
    assert!(
        other.contains("the matrices are for 2 pairs: must be for 4, one for each rotated pair"),
        "{other}"
    );
    let idle = clex(&zeros(), Flags::default()).with(&SCALING, "linear");
    assert!(error(idle).contains("`clex_weights` has no effect with RoPE scaling linear"));
    let wild = error(clex(&weights(4, &[1e3; 4], &[1e3; 4]), Flags::default()));
    assert!(wild.contains("for 2 times the original context"), "{wild}");
    let unknown = with(Flags::default().with(&clex::ACTIVATION, "relu"));
    assert_eq!(unknown, "`clex_activation` relu: must be one of tanh, silu");
}

#[test]
fn files_without_the_matrices_are_errors() {
    let read = |file: &NamedTempFile| {
        let error = case().flags(clex(file, Flags::default())).error();
        let start = format!("`clex_weights` {}: ", file.path().display());
        error.strip_prefix(&start).unwrap().to_string()
    };
    let (up, down) =
        (("a.ode_up_proj", [2, 3], &[0.0; 6][..]), ("a.ode_down_proj", [3, 2], &[0.0; 6][..]));
    assert_eq!(read(&file(&[up])), "has no tensor ode_down_proj");
    let twice = read(&file(&[up, ("b.ode_up_proj", [2, 3], &[0.0; 6]), down]));
    assert!(twice.starts_with("has both"), "{twice}");
    let shapes = read(&file(&[up, ("a.ode_down_proj", [2, 3], &[0.0; 6])]));
    assert!(shapes.contains("ode_up_proj is 2 x 3, ode_down_proj 2 x 3"), "{shapes}");
    let nan = read(&file(&[("a.ode_up_proj", [2, 3], &[0.0, 0.0, 0.0, f64::NAN, 0.0, 0.0]), down]));
    assert_eq!(nan, "tensor a.ode_up_proj has a value that is not finite at row 1, column 0");
    let empty = NamedTempFile::new().unwrap();
    assert!(!read(&empty).is_empty());
    let none = Flags::method("clex").with(&clex::WEIGHTS, PathBuf::from("/no/such/file"));
    assert!(case().flags(none).error().starts_with("`clex_weights` /no/such/file: "));
    // The same values in f32 and in f16 give the same frequencies.
    let bytes: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let half: Vec<u8> = [0x3e00u16, 0xc000].iter().flat_map(|x| x.to_le_bytes()).collect();
    let of = |dtype, bytes: &[u8]| {
        let view = |shape: [usize; 2]| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
        let file = NamedTempFile::new().unwrap();
        let views = [("ode_up_proj", view([2, 1])), ("ode_down_proj", view([1, 2]))];
        std::fs::write(file.path(), safetensors::serialize(views, None).unwrap()).unwrap();
        let case = Case { n_rot: 4, ..case() };
        let plan = case.flags(clex(&file, Flags::default())).plan().unwrap();
        Table::new(&plan, Layers::Global, 256).inv_freq
    };
    assert_eq!(of(Dtype::F32, &bytes), of(Dtype::F16, &half));
    let integers = file(&[]);
    let view = TensorView::new(Dtype::I32, vec![1, 1], &[0; 4]).unwrap();
    std::fs::write(integers.path(), safetensors::serialize([("ode_up_proj", view)], None).unwrap())
        .unwrap();
    assert!(read(&integers).contains("must be f64, f32, f16 or bf16"));
}
