//! `quantize`: the types of tensors, the file, and errors.

use std::{collections::HashMap, fs, path::Path};

use rope_cpu::{
    gguf::{File, GgmlType, Gguf, Value},
    imatrix::{Entry, Imatrix},
    quantize::{Options, Planned, Target, plan},
};
use rope_cpu_kernels::{Cpu, DType, Encoder, Matrix};
use serde_json::Value as Json;

use crate::cli::run;
use rope_cpu_testing::{
    builder::{Builder, F32, STRING, U32, string},
    reader::{tiny, tiny_in_parts, tiny_reader},
};

/// A tensor of zeros in f32.
fn model(description: &Json) -> Builder {
    let architecture = description["architecture"].as_str().unwrap();
    let mut b = Builder::new().key("general.architecture", STRING, string(architecture));
    for (key, number) in description["numbers"].as_object().unwrap() {
        let number = number.as_u64().unwrap() as u32;
        b = b.key(format!("{architecture}.{key}"), U32, number.to_le_bytes());
    }
    let list = |part: &str| -> Vec<(String, Vec<u64>)> {
        serde_json::from_value(description[part].clone()).unwrap()
    };
    let mut tensors = list("outside");
    for layer in 0..description["numbers"]["block_count"].as_u64().unwrap() {
        let named = |(name, dims)| (format!("blk.{layer}.{name}.weight"), dims);
        tensors.extend(list("in_layer").into_iter().map(named));
    }
    let mut bytes = 0;
    for (name, dims) in tensors {
        b = b.tensor(&name, &dims, 0, bytes);
        bytes += 4 * dims.iter().product::<u64>();
    }
    b.data = vec![0; bytes as usize];
    b
}

/// Returns an importance matrix of ones for all tensors.
fn ones(gguf: &Gguf<'_>) -> Imatrix {
    let mut imatrix = Imatrix::new(1, 512);
    for tensor in gguf.tensors() {
        let matrices = tensor.dims[2] as usize;
        let ones = Entry::new(vec![1.0; tensor.row_len() as usize * matrices], vec![1.0; matrices]);
        imatrix.insert(tensor.name, ones).unwrap();
    }
    imatrix
}

/// Returns the letters of all tensors: those outside of layers, then layer by layer.
fn letters(types: &Json) -> String {
    let (outside, layers): (String, Vec<(usize, String)>) =
        serde_json::from_value(types.clone()).unwrap();
    outside + &layers.iter().map(|(count, layer)| layer.repeat(*count)).collect::<String>()
}

#[test]
fn every_tensor_gets_the_type_that_llama_quantize_gives_it() {
    let golden: Json = include_str!("../data/quantize.json").parse().unwrap();
    for description in golden["models"].as_array().unwrap() {
        let bytes = model(description).bytes();
        let gguf = Gguf::parse(&bytes, &[]).unwrap();
        let imatrix = ones(&gguf);
        for (key, imatrix) in [("types", None), ("important", Some(&imatrix))] {
            let types = description[key].as_object().unwrap();
            assert_eq!(types.len(), Target::names().count());
            for (target, types) in types {
                let options = Options { imatrix, ..Options::default() };
                let planned = plan(&gguf, Target::named(target).unwrap(), &options).unwrap();
                let lacks_importance = planned.iter().any(Planned::lacks_importance);
                let named = format!("{}, {target}, {key}", description["name"]);
                // llama-quantize fails if Q1_0 does not divide the rows.
                if types.is_null() {
                    assert!(lacks_importance || target == "Q1_0", "{named}");
                    continue;
                }
                assert!(!lacks_importance, "{named}");
                let letters = letters(types);
                assert_eq!(planned.len(), letters.len());
                for (tensor, letter) in planned.iter().zip(letters.chars()) {
                    let expected = golden["letters"][letter.to_string()].as_str().unwrap();
                    let (found, name) = (tensor.ggml_type.name, tensor.source.name);
                    assert_eq!(found, expected, "{named}: {name}");
                }
            }
        }
    }
}

/// Runs `quantize` and returns what it printed.
#[track_caller]
fn quantize(arguments: &[&str]) -> String {
    let run = run(&[&["quantize"], arguments].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.stdout
}

fn types(path: &Path) -> HashMap<String, GgmlType> {
    let file = File::open(path).unwrap();
    let gguf = file.parse(&[]).unwrap();
    gguf.tensors().iter().map(|tensor| (tensor.name.into(), tensor.ggml_type)).collect()
}

#[test]
fn a_quantized_model_runs_and_is_the_same_but_for_its_matrices() {
    let (model, folder) = (tiny_reader(1, true), tempfile::tempdir().unwrap());
    let (input, output) = (model.path().to_str().unwrap(), folder.path().join("out.gguf"));
    let output = output.to_str().unwrap();
    let said = quantize(&[input, output, "q8_0", "1"]);
    let line = said.lines().find(|line| line.contains("blk.1.ffn_down.weight")).unwrap();
    let (_, error) = line.split_once("f32 -> q8_0").unwrap().1.split_once("rms error ").unwrap();
    // Weights of up to 0.5: at most half of 0.5 / 127 each, and evenly spread below that.
    let error: f64 = error.parse().unwrap();
    let bound = 0.5 / 127.0 / 2.0;
    assert!(error > 0.3 * bound && error < 0.7 * bound, "{error}");
    assert!(said.ends_with(" bits per weight\n"), "{said}");

    let files = [File::open(input).unwrap(), File::open(output).unwrap()];
    let [a, b] = files.each_ref().map(|file| file.parse(&[]).unwrap());
    for (key, value) in a.metadata().iter() {
        assert_eq!(b.metadata().get(key), Some(value), "{key}");
    }
    assert_eq!(b.metadata().get("general.file_type"), Some(Value::U32(7)));
    assert_eq!(b.metadata().get("general.quantization_version"), Some(Value::U32(2)));
    for (before, after) in a.tensors().iter().zip(b.tensors()) {
        assert_eq!((before.name, before.shape()), (after.name, after.shape()));
        let is_norm = before.name.contains("norm");
        assert_eq!(after.ggml_type.name, if is_norm { "f32" } else { "q8_0" });
        assert_eq!(before.bytes == after.bytes, is_norm, "{}", after.name);
    }

    // The same bytes with any number of threads, also if a file is replaced. In Windows, a mapped one
    // can't be.
    drop((a, b));
    drop(files);
    let first = fs::read(output).unwrap();
    quantize(&[input, output, "Q8_0", "-t", "3"]);
    assert!(fs::read(output).unwrap() == first);
    let text = run(&["-m", output, "-p", "the rain", "-n", "4", "-no-cnv", "--temp", "0"]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing partial is left");
}

#[test]
fn options_change_what_is_chosen() {
    let (model, folder) = (tiny(), tempfile::tempdir().unwrap());
    let input = model.path().to_str().unwrap();
    let output = folder.path().join("out.gguf");
    let out = output.to_str().unwrap();

    // Rows of 64 and 96 weights cannot be divided into blocks of 256.
    let dry = run(&["quantize", "--dry-run", input, out, "Q4_K"]);
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    dry.said(&[
        "14 of 20 tensors get a type with smaller blocks",
        "cannot be divided into blocks of q4_k",
    ]);
    assert!(dry.stdout.contains("f32 -> q5_0"), "{}", dry.stdout);
    assert!(dry.stdout.contains(" would become "), "{}", dry.stdout);
    assert!(!output.exists());

    quantize(&["--pure", input, out, "q4_0"]);
    assert_eq!(types(&output)["token_embd.weight"].name, "q4_0");
    let again = folder.path().join("again.gguf");
    let twice = run(&["quantize", out, again.to_str().unwrap(), "q4_0"]);
    assert_eq!(twice.code, Some(0));
    twice.said(&["warning: weights are already quantized (q4_0)"]);
    assert_eq!(types(&again)["token_embd.weight"].name, "q8_0");
    assert_eq!(types(&again)["blk.0.attn_q.weight"].name, "q4_0");
    let quiet = run(&["quantize", "--allow-requantize", out, again.to_str().unwrap(), "F16"]);
    assert_eq!((quiet.code, &quiet.stderr[..]), (Some(0), ""));
    assert_eq!(types(&again)["blk.1.ffn_up.weight"].name, "f16");
}

#[test]
fn rows_that_are_too_short_for_one_or_two_bits_get_q4_0() {
    let (model, folder) = (tiny_reader(1, true), tempfile::tempdir().unwrap());
    let (input, output) = (model.path().to_str().unwrap(), folder.path().join("out.gguf"));
    let out = output.to_str().unwrap();
    for (target, of_64, of_96) in [("Q1_0", "q4_0", "q4_0"), ("Q2_0", "q2_0", "q4_0")] {
        quantize(&["--pure", input, out, target]);
        assert_eq!(types(&output)["blk.0.attn_q.weight"].name, of_64);
        assert_eq!(types(&output)["blk.0.ffn_down.weight"].name, of_96);
        let inspected = run(&["inspect", out]);
        assert!(inspected.stdout.contains(of_64), "{}", inspected.stdout);
        let text = run(&["-m", out, "-p", "the rain", "-n", "4", "-no-cnv", "--temp", "0"]);
        assert_eq!(text.code, Some(0), "{}", text.stderr);
    }
}

#[test]
fn weights_of_every_type_are_read() {
    let q8_0 = Encoder::new(DType::Q8_0).unwrap();
    let (rows, columns) = (3, 512);
    let mut b = Builder::new().key("general.architecture", STRING, string("llama"));
    let mut sources = Vec::new();
    for dtype in DType::ALL {
        let ggml_type = GgmlType::named(dtype.name()).unwrap();
        let name = format!("{}.weight", dtype.name());
        let bytes = rows * columns / ggml_type.block_len * ggml_type.block_bytes;
        // Bytes below 0x40 make floats of any width that are below 2.
        let bytes: Vec<u8> = (0..bytes).map(|i| (i * 37 % 61) as u8).collect();
        b = b.append(&name, &[columns, rows], ggml_type.number, bytes.iter().copied());
        sources.push((name, dtype, bytes));
    }
    let (input, folder) = (b.file(), tempfile::tempdir().unwrap());
    let output = folder.path().join("out.gguf");
    let paths = [input.path(), &output].map(|path| path.to_str().unwrap());
    quantize(&["--pure", "--allow-requantize", paths[0], paths[1], "q8_0"]);
    let file = File::open(&output).unwrap();
    let gguf = file.parse(&[]).unwrap();
    for (name, dtype, bytes) in sources {
        let found = gguf.tensor(&name).unwrap();
        assert_eq!(found.ggml_type.name, "q8_0", "{name}");
        let matrix = Matrix::new(dtype, rows as usize, columns as usize, &bytes).unwrap();
        let mut weights = vec![0.0; columns as usize];
        for (row, found) in found.bytes.chunks(found.bytes.len() / rows as usize).enumerate() {
            matrix.decode_row(row, &mut weights);
            assert!(weights.iter().any(|weight| *weight != 0.0), "{name}");
            let mut expected = vec![0; found.len()];
            q8_0.encode(Cpu::best(), &weights, None, &mut expected);
            match dtype {
                DType::Q8_0 => assert!(found == &bytes[row * found.len()..][..found.len()]),
                _ => assert!(found == expected, "{name}, row {row}"),
            }
        }
    }
}

/// A matrix of 8 rows of 256 weights. One column of eight is important.
struct Important {
    model: tempfile::NamedTempFile,
    folder: tempfile::TempDir,
    weights: Vec<f32>,
}

const MATRIX: &str = "blk.0.attn_q.weight";

impl Important {
    fn new() -> Self {
        let weights: Vec<f32> =
            (0..8 * 256).map(|i| (i * i * 31 % 509) as f32 / 509.0 - 0.5).collect();
        let bytes = bytemuck::cast_slice(&weights).to_vec();
        let model = Builder::new().key("general.architecture", STRING, string("llama"));
        let model = model.append(MATRIX, &[256, 8], 0, bytes).file();
        Important { model, folder: tempfile::tempdir().unwrap(), weights }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().into()
    }

    /// Returns the mean squares of all columns.
    fn means() -> Vec<f32> {
        (0..256).map(|column| if column % 8 == 0 { 100.0 } else { 0.01 }).collect()
    }

    /// Writes an importance matrix for a tensor of this name.
    fn imatrix(&self, file: &str, tensor: &str, means: &[f32]) -> String {
        let mut imatrix = Imatrix::new(7, 512);
        imatrix.datasets.push("text.txt".into());
        let sums = means.iter().map(|mean| mean * 64.0).collect();
        imatrix.insert(tensor, Entry::new(sums, vec![64.0])).unwrap();
        let path = self.path(file);
        imatrix.write(fs::File::create(&path).unwrap()).unwrap();
        path
    }

    /// Quantizes the model. Returns the sum of squares of the errors in important columns.
    fn error(&self, options: &[&str], target: &str) -> f64 {
        let output = self.path("out.gguf");
        let model = self.model.path().to_str().unwrap();
        quantize(&[options, &[model, &output, target]].concat());
        let file = File::open(&output).unwrap();
        let gguf = file.parse(&[]).unwrap();
        let tensor = gguf.tensor(MATRIX).unwrap();
        let dtype = DType::named(tensor.ggml_type.name).unwrap();
        let matrix = Matrix::new(dtype, 8, 256, tensor.bytes).unwrap();
        let mut row = vec![0.0; 256];
        let rows = self.weights.chunks(256).enumerate().map(|(i, weights)| {
            matrix.decode_row(i, &mut row);
            let errors = row.iter().zip(weights).map(|(a, b)| f64::from(a - b));
            errors.step_by(8).map(|error| error * error).sum::<f64>()
        });
        rows.sum()
    }
}

#[test]
fn important_weights_become_more_precise() {
    let case = Important::new();
    let imatrix = case.imatrix("imatrix.gguf", MATRIX, &Important::means());
    for target in ["Q2_K", "Q3_K_S", "Q4_0", "Q4_K_S", "IQ3_S", "IQ4_XS", "Q6_K"] {
        let [without, with] =
            [&["--pure"][..], &["--pure", "--imatrix", &imatrix]].map(|o| case.error(o, target));
        assert!(with < 0.97 * without, "{target}: {with} {without}");
    }
    // Closed before it is replaced, which Windows requires.
    {
        let file = File::open(case.path("out.gguf")).unwrap();
        let gguf = file.parse(&[]).unwrap();
        let key = |name: &str| gguf.metadata().get(&format!("quantize.imatrix.{name}"));
        assert_eq!(key("file"), Some(Value::String(imatrix.as_bytes())));
        assert_eq!(key("dataset"), Some(Value::String(b"text.txt")));
        assert_eq!(key("entries_count"), Some(Value::U32(1)));
        assert_eq!(key("chunks_count"), Some(Value::U32(7)));
    }

    // The older form has the same importance, and gives the same file but for the name.
    let means = Important::means().into_iter().map(|mean| (mean * 5.0).to_le_bytes());
    let dat = [
        &1i32.to_le_bytes()[..],
        &(MATRIX.len() as i32).to_le_bytes(),
        MATRIX.as_bytes(),
        &5i32.to_le_bytes(),
        &256i32.to_le_bytes(),
        &means.flatten().collect::<Vec<u8>>(),
        &7i32.to_le_bytes(),
        &8i32.to_le_bytes(),
        b"text.txt",
    ]
    .concat();
    let old = case.path("old.dat");
    fs::write(&old, &dat).unwrap();
    let of_gguf = case.error(&["--pure", "--imatrix", &imatrix], "Q4_K_S");
    let of_dat = case.error(&["--pure", "--imatrix", &old], "Q4_K_S");
    assert!((of_gguf - of_dat).abs() <= 1e-6 * of_gguf, "{of_gguf} {of_dat}");

    // Two entries for a tensor are refused.
    let entry = &dat[4..dat.len() - 16];
    fs::write(&old, [&2i32.to_le_bytes()[..], entry, entry].concat()).unwrap();
    let twice = Imatrix::open(&old).unwrap_err().to_string();
    assert!(twice.contains(MATRIX) && twice.contains("two entries"), "{twice}");

    // Cut anywhere, it is refused; only the parts at its end may be missing.
    let whole = [dat.len() - 16, dat.len() - 12];
    for length in (1..dat.len()).step_by(101).chain(dat.len() - 15..dat.len()) {
        fs::write(&old, &dat[..length]).unwrap();
        let result = Imatrix::open(&old);
        assert_eq!(result.is_ok(), whole.contains(&length), "{length} bytes: {result:?}");
    }
}

#[test]
fn low_types_need_an_importance_matrix_of_this_model() {
    let case = Important::new();
    let (model, out) = (case.model.path().to_str().unwrap(), case.path("out.gguf"));
    let tip = "rope-cpu imatrix -m MODEL -f TEXT -o imatrix.gguf";
    for target in ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "Q2_K_S"] {
        let arguments = ["quantize", model, &out, target];
        run(&arguments).refused(2, &[MATRIX, "needs an importance matrix", tip, "--imatrix"]);
        let dry = run(&[&arguments[..], &["--dry-run"]].concat());
        assert_eq!(dry.code, Some(0));
        dry.said(&["warning: ", MATRIX, tip]);
        let imatrix = case.imatrix("imatrix.gguf", MATRIX, &Important::means());
        assert!(case.error(&["--imatrix", &imatrix], target).is_finite());
    }

    let with = |imatrix: &str| run(&["quantize", "--imatrix", imatrix, model, &out, "IQ2_XXS"]);
    let other = case.imatrix("other.gguf", "blk.1.attn_q.weight", &[1.0; 256]);
    with(&other).refused(2, &["other.gguf", MATRIX, "belongs to another model"]);
    let narrow = case.imatrix("narrow.gguf", MATRIX, &[1.0; 128]);
    with(&narrow).refused(2, &["narrow.gguf", MATRIX, "has 256 columns", "has 128"]);
    with(model).refused(2, &[model, "it has no entries"]);
    with("/no/such/imatrix").refused(2, &["/no/such/imatrix"]);

    let entries = |value: f32, type_number: u32, kind: &str| {
        let mut sums = [1f32; 256];
        sums[3] = value;
        let file = Builder::new().key("general.type", STRING, string(kind));
        let sums = bytemuck::cast_slice(&sums).to_vec();
        let name = |part: &str| format!("{MATRIX}.{part}");
        let file = file.append(&name("in_sum2"), &[256, 1], type_number, sums);
        file.append(&name("counts"), &[1, 1], 0, 1f32.to_le_bytes()).file()
    };
    let refused = |file: tempfile::NamedTempFile, parts: &[&str]| {
        with(file.path().to_str().unwrap()).refused(2, parts);
    };
    for value in [f32::NAN, f32::INFINITY, -1.0] {
        refused(entries(value, 0, "imatrix"), &[MATRIX, "importance 3 is", "finite"]);
    }
    refused(entries(1.0, 26, "imatrix"), &[MATRIX, "has type i32", "must be f32"]);
    refused(entries(1.0, 0, "model"), &["general.type is \"model\", not imatrix"]);
    let alone = Builder::new().append(&format!("{MATRIX}.counts"), &[1, 1], 0, [0; 4]).file();
    refused(alone, &[MATRIX, "the sum of squares is missing"]);
    let none = case.imatrix("none.gguf", MATRIX, &[0.0; 256]);
    assert!(case.error(&["--imatrix", &none], "IQ2_XXS").is_finite());
}

#[test]
fn parts_become_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = tiny_in_parts(1, folder.path());
    let output = folder.path().join("out.gguf");
    quantize(&[first.to_str().unwrap(), output.to_str().unwrap(), "q8_0"]);
    assert_eq!(types(&output).len(), 20);
    let file = File::open(&output).unwrap();
    let gguf = file.parse(&[]).unwrap();
    assert!(gguf.metadata().iter().all(|(key, _)| !key.starts_with("split.")));
    let over = run(&["quantize", first.to_str().unwrap(), second.to_str().unwrap(), "q8_0"]);
    over.refused(2, &["-00002-of-00002.gguf is also the input file"]);
}

#[test]
fn what_cannot_be_quantized_is_refused_and_leaves_nothing() {
    let (model, folder) = (tiny(), tempfile::tempdir().unwrap());
    let input = model.path().to_str().unwrap();
    let output = folder.path().join("out.gguf");
    let out = output.to_str().unwrap();
    run(&["quantize", input, out, "Q9_K"]).refused(2, &["Q9_K", "choose one of F32, F16"]);
    run(&["quantize", input, input, "Q8_0"])
        .refused(2, &[input, "choose another name for the output"]);
    #[cfg(unix)]
    {
        let link = folder.path().join("link.gguf");
        std::os::unix::fs::symlink(input, &link).unwrap();
        run(&["quantize", input, link.to_str().unwrap(), "Q8_0"])
            .refused(2, &["is also the input file"]);
        fs::remove_file(link).unwrap();
    }
    let here = folder.path().to_str().unwrap();
    run(&["quantize", input, here, "Q8_0"]).refused(2, &["is a directory"]);
    run(&["quantize", input, "/no/such/folder/x", "Q8_0"])
        .refused(2, &["the folder /no/such/folder does not exist"]);
    run(&["quantize", "/no/such/file", out, "Q8_0"]).refused(2, &["/no/such/file"]);
    let vocabulary = Builder::new().key("general.architecture", STRING, string("llama")).file();
    let empty = vocabulary.path().to_str().unwrap();
    run(&["quantize", empty, out, "Q8_0"]).refused(2, &["has no tensors", "nothing to quantize"]);
    run(&["quantize", "-t", "1", input, out, "Q8_0", "2"]).refused(2, &["cannot be used with"]);

    let with = |name: &str, kind: u32, bytes: &[u8], row: u64| {
        let mut b = Builder::new().key("general.architecture", STRING, string("llama"));
        b = b.key("test.f32", F32, 1f32.to_le_bytes()).tensor(name, &[row, 2], kind, 0);
        b.data = bytes.to_vec();
        b.file()
    };
    let mut weights = [0f32; 64];
    weights[40] = f32::NAN;
    let nan = with("blk.0.attn_q.weight", 0, bytemuck::cast_slice(&weights), 32);
    let nan = run(&["quantize", nan.path().to_str().unwrap(), out, "Q8_0"]);
    assert_eq!(nan.code, Some(2));
    nan.said(&["tensor \"blk.0.attn_q.weight\": row 1 has a weight that is not finite"]);
    let large = with("blk.0.attn_q.weight", 0, bytemuck::cast_slice(&[1e9f32; 64]), 32);
    let large = run(&["quantize", large.path().to_str().unwrap(), out, "F16"]);
    assert_eq!(large.code, Some(2));
    large.said(&["row 0", "too large for f16"]);
    let numbers = with("blk.0.attn_q.weight", 26, &[0; 256], 32);
    let numbers = run(&["quantize", numbers.path().to_str().unwrap(), out, "Q8_0"]);
    numbers.refused(2, &["tensor \"blk.0.attn_q.weight\" has type i32, which is not supported"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
