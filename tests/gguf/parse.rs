//! Valid files.

use rope_cpu::gguf::{Array, File, Gguf, Value, ValueType};

use rope_cpu_testing::builder::{Builder, F32, STRING, U32, model, string};

#[test]
fn every_type_of_value_is_read_as_written() {
    let bytes = model().bytes();
    let gguf = Gguf::parse(&bytes, &[]).unwrap();
    let values: Vec<_> = gguf.metadata().iter().skip(10).collect();
    let expected = [
        ("tokenizer.ggml.add_bos_token", Value::Bool(true)),
        ("test.u8", Value::U8(200)),
        ("test.i8", Value::I8(-56)),
        ("test.u16", Value::U16(60_000)),
        ("test.i16", Value::I16(-300)),
        ("test.i32", Value::I32(-70_000)),
        ("test.u64", Value::U64(u64::MAX)),
        ("test.i64", Value::I64(i64::MIN)),
        ("test.f64", Value::F64(0.1)),
        ("test.bools", Value::Array(Array { element: ValueType::Bool, len: 3, bytes: &[1, 0, 1] })),
    ];
    assert_eq!(values, expected);

    let metadata = gguf.metadata();
    assert_eq!(metadata.string("general.architecture").unwrap(), Some("llama"));
    assert_eq!(metadata.u32("llama.context_length").unwrap(), Some(4096));
    assert_eq!(metadata.f32("llama.rope.freq_base").unwrap(), Some(10000.0));
    assert_eq!(metadata.f32s("tokenizer.ggml.scores").unwrap(), Some(vec![0.0, -1.5]));
    assert_eq!(metadata.integers("tokenizer.ggml.token_type").unwrap(), Some(vec![1, -3]));
    let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!(tokens, [b"a".as_slice(), b"b", "\u{120}c".as_bytes()]);
}

#[test]
fn elements_of_arrays_come_one_by_one() {
    let bytes = model().bytes();
    let gguf = Gguf::parse(&bytes, &[]).unwrap();
    let values = |key| match gguf.metadata().get(key) {
        Some(Value::Array(array)) => array.values().collect::<Vec<_>>(),
        other => panic!("{key}: {other:?}"),
    };
    assert_eq!(values("tokenizer.ggml.scores"), [Value::F32(0.0), Value::F32(-1.5)]);
    assert_eq!(values("test.bools"), [true, false, true].map(Value::Bool));
    let tokens = [b"a".as_slice(), b"b", "\u{120}c".as_bytes()].map(Value::String);
    assert_eq!(values("tokenizer.ggml.tokens"), tokens);
}

#[test]
fn tensors_are_views_of_their_bytes() {
    let bytes = model().bytes();
    let gguf = Gguf::parse(&bytes, &[]).unwrap();
    let data = &bytes[gguf.data_offset() as usize..];

    let norm = gguf.tensor("output_norm.weight").unwrap();
    assert_eq!((norm.dims, norm.shape(), norm.ggml_type.name), ([4, 1, 1, 1], &[4][..], "f32"));
    assert_eq!((norm.elements(), norm.rows(), norm.row_bytes()), (4, 1, 16));
    assert_eq!(norm.bytes, &data[..16]);

    let embedding = gguf.tensor("token_embd.weight").unwrap();
    assert_eq!((embedding.dims, embedding.ggml_type.number), ([32, 3, 1, 1], 8));
    assert_eq!((embedding.elements(), embedding.rows(), embedding.row_bytes()), (96, 3, 34));
    assert_eq!(embedding.bytes, &data[32..]);
    // Borrowed, not copied.
    assert!(bytes.as_ptr_range().contains(&embedding.bytes.as_ptr()));

    let names: Vec<_> = gguf.tensors().iter().map(|tensor| tensor.name).collect();
    assert_eq!(names, ["output_norm.weight", "token_embd.weight"]);
    assert!(gguf.tensor("output.weight").is_none());
}

#[test]
fn version_2_is_read_alike() {
    let bytes = Builder { version: 2, ..model() }.bytes();
    let gguf = Gguf::parse(&bytes, &[]).unwrap();
    assert_eq!(gguf.version(), 2);
    assert_eq!(gguf.tensors().len(), 2);
}

#[test]
fn tensors_may_lie_in_any_order_and_apart() {
    let file = Builder::new()
        .tensor("second", &[8], 0, 64)
        .tensor("first", &[2, 2, 2, 2], 1, 0)
        .tensor("third", &[1], 24, 192)
        .data(193);
    let bytes = file.bytes();
    let gguf = Gguf::parse(&bytes, &[]).unwrap();
    let data = &bytes[gguf.data_offset() as usize..];
    assert_eq!(gguf.tensor("first").unwrap().bytes, &data[..32]);
    assert_eq!(gguf.tensor("second").unwrap().bytes, &data[64..96]);
    assert_eq!(gguf.tensor("third").unwrap().bytes, &data[192..]);
}

#[test]
fn a_vocabulary_alone_needs_no_data() {
    let bytes = Builder::new().key("general.architecture", STRING, string("llama")).bytes();
    let gguf = Gguf::parse(&bytes, &[]).unwrap();
    assert_eq!(gguf.tensors().len(), 0);
    assert!(Gguf::parse(&Builder::new().bytes(), &[]).is_ok(), "nor any key");
}

#[test]
fn the_alignment_of_the_file_places_the_data() {
    for alignment in [8u32, 16, 64, 4096, 1 << 20] {
        let file = Builder { alignment: alignment as usize, ..Builder::new() }
            .key("general.alignment", U32, alignment.to_le_bytes())
            .tensor("x", &[2], 0, 0)
            .data(8);
        let bytes = file.bytes();
        let gguf = Gguf::parse(&bytes, &[]).unwrap();
        assert_eq!(gguf.alignment(), u64::from(alignment));
        assert_eq!(gguf.data_offset() % u64::from(alignment), 0);
        assert_eq!(gguf.tensor("x").unwrap().bytes, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}

#[test]
fn tensors_of_a_mapped_file_can_be_cast() {
    let builder = Builder { alignment: 8, ..Builder::new() }
        .key("general.alignment", U32, 8u32.to_le_bytes())
        .key("odd", F32, 0f32.to_le_bytes())
        .tensor("x", &[3], 28, 8)
        .data(32);
    let file = builder.file();
    let file = File::open(file.path()).unwrap();
    let gguf = file.parse(&[]).unwrap();
    let expected: Vec<_> =
        builder.data[8..].as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
    assert_eq!(bytemuck::cast_slice::<u8, f64>(gguf.tensor("x").unwrap().bytes), expected);
}

#[test]
fn strings_may_be_any_bytes_but_are_not_text_then() {
    let bytes = Builder::new().key("test.raw", STRING, string(b"\xff\x00")).bytes();
    let gguf = Gguf::parse(&bytes, &[]).unwrap();
    assert_eq!(gguf.metadata().get("test.raw"), Some(Value::String(b"\xff\x00")));
    assert_eq!(
        gguf.metadata().string("test.raw").unwrap_err().to_string(),
        "metadata key test.raw is a string, where a string of valid UTF-8 is expected"
    );
}
