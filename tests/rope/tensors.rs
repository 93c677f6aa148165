//! Divisor tensors of a file.

use rope_cpu::{
    gguf::Gguf,
    rope::{Error, Factors},
};

/// Returns a GGUF file of one-dimensional tensors: (name, type number, data).
fn file(tensors: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend(0u64.to_le_bytes()); // no metadata
    let mut data = Vec::new();
    for (name, type_number, content) in tensors {
        bytes.extend((name.len() as u64).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(1u32.to_le_bytes());
        let size = if *type_number == F32 { 4 } else { 2 };
        bytes.extend((content.len() as u64 / size).to_le_bytes());
        bytes.extend(type_number.to_le_bytes());
        bytes.extend((data.len() as u64).to_le_bytes());
        data.extend_from_slice(content);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend(data);
    bytes
}

const F32: u32 = 0;
const F16: u32 = 1;

fn read(tensors: &[(&str, u32, &[u8])]) -> Result<Factors, Error> {
    let bytes = file(tensors);
    Factors::read(&Gguf::parse(&bytes, &[]).unwrap())
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn tensors_are_read_by_name() {
    assert_eq!(read(&[("other", F32, &f32s(&[1.0]))]).unwrap(), Factors::default());
    let all = read(&[
        ("rope_factors_long.weight", F32, &f32s(&[3.0, 4.0])),
        ("rope_freqs.weight", F32, &f32s(&[1.0, 2.0])),
        ("rope_factors_short.weight", F32, &f32s(&[5.0])),
    ]);
    let expected = Factors {
        rope_freqs: Some(vec![1.0, 2.0]),
        long: Some(vec![3.0, 4.0]),
        short: Some(vec![5.0]),
    };
    assert_eq!(all.unwrap(), expected);
}

#[test]
fn other_types_are_errors() {
    let error = read(&[("rope_freqs.weight", F16, &[0; 64])]).unwrap_err();
    let expected = "tensor rope_freqs.weight is of type f16: must be f32";
    assert_eq!(error.to_string(), expected);
}
