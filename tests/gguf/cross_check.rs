//! Cross-checks with gguf-rs, an independent parser: both read the same values from a file.

use gguf_rs::writer::{GGUFWriter, MetadataValue, TensorInfo, calculate_tensor_size};
use proptest::prelude::*;
use rope_cpu::gguf::{Gguf, cross_check};

use rope_cpu_testing::builder::{Builder, F32, STRING, U8, U32, model, string};

#[test]
fn what_gguf_rs_writes_is_read() {
    for (version, alignment) in [(2, 32), (3, 32), (3, 256)] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = GGUFWriter::new(file.path(), version).unwrap().with_alignment(alignment);
        writer.add_metadata("general.architecture", "llama");
        writer.add_metadata_u32("llama.block_count", 12);
        writer.add_metadata_f32("llama.rope.freq_base", 500_000.0);
        writer.add_metadata_bool("tokenizer.ggml.add_bos_token", true);
        let tokens = ["<s>", "▁the"].map(|text| MetadataValue::String(text.into())).to_vec();
        writer.add_metadata_array("tokenizer.ggml.tokens", tokens);
        for (name, shape, dtype) in
            [("a", vec![64, 5], 2), ("b", vec![7], 0), ("c", vec![256, 2, 3], 14)]
        {
            writer.add_tensor(TensorInfo { name: name.into(), shape, dtype });
        }
        writer.write().unwrap();
        let data: Vec<u8> = (1..=28).collect();
        writer.write_tensor_data(1, &data).unwrap();
        writer.finalize().unwrap();

        let bytes = std::fs::read(file.path()).unwrap();
        let gguf = Gguf::parse(&bytes, &[]).unwrap();
        let metadata = gguf.metadata();
        assert_eq!(gguf.version(), version as u32);
        assert_eq!(gguf.alignment(), alignment);
        assert_eq!(metadata.string("general.architecture").unwrap(), Some("llama"));
        assert_eq!(metadata.u32("llama.block_count").unwrap(), Some(12));
        assert_eq!(metadata.f32("llama.rope.freq_base").unwrap(), Some(500_000.0));
        assert_eq!(metadata.bool("tokenizer.ggml.add_bos_token").unwrap(), Some(true));
        let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap();
        assert_eq!(tokens, ["<s>".as_bytes(), "▁the".as_bytes()]);
        assert_eq!(gguf.tensor("a").unwrap().bytes.len(), 5 * 2 * 18);
        assert_eq!(gguf.tensor("b").unwrap().bytes, data);
        assert_eq!(gguf.tensor("c").unwrap().shape(), [256, 2, 3]);
        cross_check::compare(&bytes, &gguf).unwrap();
    }
}

/// The sizes of gguf-rs are computed from the structure of each block, ours from ggml's tables.
/// gguf-rs uses a block length of 256 for all types from 10 on, and 40 bytes for q8_1; the sizes of
/// all other types must agree.
#[test]
fn sizes_of_types_agree() {
    const WRONG: [u32; 9] = [9, 20, 24, 25, 26, 27, 28, 30, 39];
    for dtype in (0..=39).filter(|n| !WRONG.contains(n)) {
        let info = TensorInfo { name: "x".into(), shape: vec![256], dtype };
        let Ok(size) = calculate_tensor_size(&info) else { continue };
        let bytes = Builder::new().tensor("x", &[256], dtype, 0).data(size as usize).bytes();
        let gguf = Gguf::parse(&bytes, &[]).unwrap();
        assert_eq!(gguf.tensor("x").unwrap().bytes.len() as u64, size, "type {dtype}");
    }
    // Bytes of 256 values, from the sizes of the structs in ggml-common.h.
    let others = [(9, 288), (20, 144), (24, 256), (25, 512), (26, 1024), (27, 2048), (28, 2048)];
    let newer = [(30, 512), (39, 136), (40, 144), (41, 36), (42, 72)];
    for (dtype, size) in others.into_iter().chain(newer) {
        let bytes = Builder::new().tensor("x", &[256], dtype, 0).data(size).bytes();
        let gguf = Gguf::parse(&bytes, &[]).unwrap();
        assert_eq!(gguf.tensor("x").unwrap().bytes.len(), size, "type {dtype}");
    }
}

#[test]
fn a_difference_is_named() {
    let base = Builder::new()
        .key("a", U8, [1])
        .key("b", STRING, string("x"))
        .tensor("t", &[32], 8, 0)
        .data(64);
    let bytes = base.bytes();
    let ours = Gguf::parse(&bytes, &[]).unwrap();
    cross_check::compare(&bytes, &ours).unwrap();

    let with_tensor = |tensor: Builder| Builder { keys: base.keys.clone(), ..tensor }.data(64);
    let cases = [
        (Builder { version: 2, ..base.clone() }, "the version as v2, where it is v3"),
        (
            Builder { keys: base.keys[1..].to_vec(), ..base.clone() },
            "the number of metadata keys as 1, where it is 2",
        ),
        (
            Builder { keys: vec![], ..base.clone() }.key("a", U8, [1]).key(
                "c",
                STRING,
                string("x"),
            ),
            "a metadata key as \"c\", where it is \"b\"",
        ),
        (Builder { tensors: vec![], ..base.clone() }, "the number of tensors as 0, where it is 1"),
        (
            with_tensor(Builder::new().tensor("u", &[32], 8, 0)),
            "a tensor's name as \"u\", where it is \"t\"",
        ),
        (
            with_tensor(Builder::new().tensor("t", &[64], 8, 0)),
            "the dimensions of tensor \"t\" as [64], where it is [32]",
        ),
        (
            with_tensor(Builder::new().tensor("t", &[32], 2, 0)),
            "the type of tensor \"t\" as 2, where it is 8",
        ),
        (
            with_tensor(Builder::new().tensor("t", &[32], 8, 32)),
            "the offset of tensor \"t\" as 32, where it is 0",
        ),
    ];
    // The same keys and tensors, but the data starts elsewhere.
    let aligned = |value: u32| {
        Builder { alignment: value as usize, ..base.clone() }
            .key("general.alignment", U32, value.to_le_bytes())
            .bytes()
    };
    let (near, far) = (aligned(32), aligned(4096));
    let error = cross_check::compare(&far, &Gguf::parse(&near, &[]).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "gguf-rs reads the start of the data as 4096, where it is 128");

    for (theirs, expected) in cases {
        let error = cross_check::compare(&theirs.bytes(), &ours).unwrap_err();
        assert_eq!(error.to_string(), format!("gguf-rs reads {expected}"));
    }
}

#[test]
fn types_that_gguf_rs_lacks_are_not_the_fault_of_the_file() {
    for (type_number, reason) in [
        (40, "internal error: entered unreachable code: GGMLType::Count is not a real data format"),
        (41, "invalid GGML type"),
        (42, "invalid GGML type"),
    ] {
        let bytes = Builder::new().tensor("x", &[128], type_number, 0).data(72).bytes();
        let gguf = Gguf::parse(&bytes, &[]).unwrap();
        let error = cross_check::compare(&bytes, &gguf).unwrap_err();
        assert_eq!(error.to_string(), format!("gguf-rs cannot read this file: {reason}"));
    }
}

proptest! {
    #[test]
    fn any_valid_file_is_read_alike(
        version in 2..4u32,
        shift in 3..9u32,
        keys in prop::collection::btree_set("[a-z]{1,8}(\\.[a-z_]{1,12}){0,3}", 0..6),
        shapes in prop::collection::vec(prop::collection::vec(1..5u64, 1..5), 0..6),
    ) {
        let alignment = 1u32 << shift;
        let mut builder = Builder { version, alignment: alignment as usize, ..model() }
            .key("general.alignment", U32, alignment.to_le_bytes());
        builder.tensors.clear();
        for key in keys {
            builder = builder.key(format!("x.{key}"), F32, 1f32.to_le_bytes());
        }
        let mut offset = 0;
        for (index, shape) in shapes.iter().enumerate() {
            builder = builder.tensor(&format!("blk.{index}.weight"), shape, 0, offset);
            let bytes = 4 * shape.iter().product::<u64>();
            offset = (offset + bytes).next_multiple_of(u64::from(alignment));
        }
        let bytes = builder.data(offset as usize).bytes();
        let gguf = Gguf::parse(&bytes, &[]).unwrap();
        cross_check::compare(&bytes, &gguf).unwrap();
        prop_assert_eq!(gguf.tensors().len(), shapes.len());
    }
}
