//! Faulty files: each fault is reported with the message expected for it.

use rope_cpu::gguf::Gguf;

use rope_cpu_testing::builder::{
    ARRAY, BOOL, Builder, STRING, U8, U32, U64, array, model, string, strings, tensor,
};

/// Parses each file and compares the error message; reports all differences at once.
fn check(cases: impl IntoIterator<Item = (&'static str, Vec<u8>, &'static str)>) {
    let mut wrong = String::new();
    for (case, bytes, expected) in cases {
        let found = match Gguf::parse(&bytes, &[]) {
            Ok(_) => "accepted".to_string(),
            Err(error) => error.to_string(),
        };
        if found != expected {
            wrong += &format!("{case}\n  expected: {expected}\n  found:    {found}\n");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn one_key(name: impl AsRef<[u8]>, value_type: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    Builder::new().key(name, value_type, value).bytes()
}

fn one_tensor(dims: &[u64], type_number: u32, offset: u64, data: usize) -> Vec<u8> {
    Builder::new().tensor("x", dims, type_number, offset).data(data).bytes()
}

#[test]
fn other_kinds_of_file() {
    let text = |text: &str| text.as_bytes().to_vec();
    check([
        ("nothing", vec![], "not a GGUF file: it does not begin with \"GGUF\""),
        ("part of the magic", text("GGU"), "not a GGUF file: it does not begin with \"GGUF\""),
        ("text", text("Hello, world"), "not a GGUF file: it does not begin with \"GGUF\""),
        (
            "swapped magic",
            text("FUGG"),
            "not a GGUF file: it is a GGUF file of swapped byte order, which is not supported",
        ),
        (
            "ggjt",
            text("tjgg\x03\0\0\0"),
            "not a GGUF file: it is a GGML (ggjt) model from before GGUF: convert it again",
        ),
        (
            "PyTorch",
            text("PK\x03\x04"),
            "not a GGUF file: it is a zip archive, such as a PyTorch model: convert it to GGUF",
        ),
        (
            "safetensors",
            text("\x10\0\0\0\0\0\0\0{\"a\":1}"),
            "not a GGUF file: it may be a safetensors file: convert it to GGUF",
        ),
        (
            "Git LFS",
            text("version https://git-lfs.github.com/spec/v1\n"),
            "not a GGUF file: it is a Git LFS pointer: fetch the file that it refers to",
        ),
        (
            "HTML",
            text("<!DOCTYPE html>"),
            "not a GGUF file: it is a web page: the download has failed",
        ),
    ]);
}

#[test]
fn versions_and_counts() {
    let version = |version| Builder { version, ..model() }.bytes();
    let counts =
        |key_count, tensor_count| Builder { key_count, tensor_count, ..Builder::new() }.bytes();
    check([
        ("0", version(0), "GGUF version 0 is unknown: versions 2 and 3 are supported"),
        ("1", version(1), "GGUF version 1 is obsolete and not supported: convert the model again"),
        ("4", version(4), "GGUF version 4 is unknown: versions 2 and 3 are supported"),
        (
            "3, big-endian",
            version(3u32.swap_bytes()),
            "GGUF version 3 of big-endian byte order is not supported: convert the file",
        ),
        (
            "no version",
            b"GGUF\x03\0".to_vec(),
            "the file ends within the version: 4 bytes are needed, 2 remain",
        ),
        (
            "no counts",
            b"GGUF\x03\0\0\0\x01".to_vec(),
            "the file ends within the count of tensors: 8 bytes are needed, 1 remain",
        ),
        (
            "keys beyond all",
            counts(Some(u64::MAX), None),
            "the header declares 18446744073709551615 metadata keys, \
             but at most 16384 are supported",
        ),
        (
            "tensors beyond all",
            counts(None, Some(1 << 63)),
            "the header declares 9223372036854775808 tensors, \
             but at most 65536 are supported",
        ),
        (
            "keys beyond the file",
            counts(Some(16384), None),
            "the header declares 16384 metadata keys, \
             which cannot fit in the 0 bytes after it",
        ),
        (
            "tensors beyond the file",
            Builder { tensor_count: Some(14), ..model() }.bytes(),
            "the header declares 14 tensors, which cannot fit in the 246 bytes after it",
        ),
    ]);
}

#[test]
fn keys() {
    let long = [b'k'; 65536];
    check([
        ("empty", one_key("", U32, [0; 4]), "metadata key number 0 is empty"),
        (
            "too long",
            one_key(long, U8, [0]),
            "metadata key number 0 has 65536 bytes, more than the 65535 allowed",
        ),
        (
            "longer than the file",
            one_key("k", U8, [0]).map_u64(24, 100),
            "the file ends within metadata key number 0: 100 bytes are needed, 6 remain",
        ),
        (
            "not UTF-8",
            one_key(b"a\xffb", U8, [0]),
            "metadata key number 0, \"a\u{fffd}b\", is not valid UTF-8",
        ),
        (
            "twice",
            Builder::new().key("k", U8, [1]).key("k", U32, [1, 0, 0, 0]).bytes(),
            "metadata key \"k\" appears twice",
        ),
        (
            "unknown type",
            one_key("k", 13, [0; 8]),
            "metadata key \"k\" has a value of the unknown type 13",
        ),
        (
            "control characters",
            one_key("\x1b[2J\u{202e}", 99, [0]),
            "metadata key \"\\u{1b}[2J\\u{202e}\" has a value of the unknown type 99",
        ),
        (
            "no value",
            Builder::new().key("key", U64, [0; 7]).bytes(),
            "the file ends within the value of metadata key \"key\": 8 bytes are needed, 7 remain",
        ),
        (
            "neither true nor false",
            one_key("b", BOOL, [2]),
            "metadata key \"b\" is a bool of value 2: it must be 0 or 1",
        ),
        (
            "string past the end",
            one_key("s", STRING, [&100u64.to_le_bytes()[..], b"abc"].concat()),
            "metadata key \"s\" has a string of 100 bytes, but 3 remain in the file",
        ),
        (
            "string of any length",
            one_key("s", STRING, u64::MAX.to_le_bytes()),
            "metadata key \"s\" has a string of 18446744073709551615 bytes, \
             but 0 remain in the file",
        ),
    ]);
    let name = "n".repeat(100);
    let error = Gguf::parse(&one_key(&name, 13, [0]), &[]).unwrap_err().to_string();
    let shown = format!("metadata key \"{}…\" has a value of the unknown type 13", &name[..80]);
    assert_eq!(error, shown);
}

#[test]
fn arrays() {
    check([
        (
            "of arrays",
            one_key("a", ARRAY, array(ARRAY, 1, [[0; 12]])),
            "metadata key \"a\" is an array of arrays, which is not supported",
        ),
        (
            "of an unknown type",
            one_key("a", ARRAY, array(77, 1, [[0; 8]])),
            "metadata key \"a\" is an array of the unknown type 77",
        ),
        (
            "longer than the file",
            one_key("a", ARRAY, array(U32, 3, [[0; 4]; 2])),
            "metadata key \"a\" is an array of 3 values of type u32, but 8 bytes remain in the file",
        ),
        (
            "of a length that wraps to 8 bytes",
            one_key("a", ARRAY, array(U64, (1 << 61) + 1, [[0; 8]])),
            "metadata key \"a\" is an array of 2305843009213693953 values of type u64, \
             but 8 bytes remain in the file",
        ),
        (
            "of 2^63 bytes",
            one_key("a", ARRAY, array(U8, 1 << 63, [[0; 8]])),
            "metadata key \"a\" is an array of 9223372036854775808 values of type u8, \
             but 8 bytes remain in the file",
        ),
        (
            "of more strings than the file has lengths for",
            one_key("a", ARRAY, [&STRING.to_le_bytes()[..], &[0xff; 8], &[0; 64]].concat()),
            "metadata key \"a\" is an array of 18446744073709551615 values of type string, \
             but 64 bytes remain in the file",
        ),
        (
            "of strings, the last too long",
            one_key("a", ARRAY, strings(&["abcdefgh", "b"]).map_u64(28, 2)),
            "metadata key \"a\" has a string of 2 bytes, but 1 remain in the file",
        ),
        (
            "of neither true nor false",
            one_key("a", ARRAY, array(BOOL, 3, [[1], [255], [0]])),
            "metadata key \"a\" is a bool of value 255: it must be 0 or 1",
        ),
        (
            "without its length",
            one_key("a", ARRAY, U8.to_le_bytes()),
            "the file ends within the value of metadata key \"a\": 8 bytes are needed, 0 remain",
        ),
    ]);
}

#[test]
fn alignment() {
    let aligned = |value: u32| one_key("general.alignment", U32, value.to_le_bytes());
    check([
        (
            "0",
            aligned(0),
            "metadata key general.alignment is 0: it must be a power of two from 8 to 1048576",
        ),
        (
            "4",
            aligned(4),
            "metadata key general.alignment is 4: it must be a power of two from 8 to 1048576",
        ),
        (
            "24",
            aligned(24),
            "metadata key general.alignment is 24: it must be a power of two from 8 to 1048576",
        ),
        (
            "2^21",
            aligned(1 << 21),
            "metadata key general.alignment is 2097152: \
             it must be a power of two from 8 to 1048576",
        ),
        (
            "u64",
            one_key("general.alignment", U64, 32u64.to_le_bytes()),
            "metadata key general.alignment is u64 32, where a u32 is expected",
        ),
        (
            "string",
            one_key("general.alignment", STRING, string("32")),
            "metadata key general.alignment is a string, where a u32 is expected",
        ),
    ]);
}

#[test]
fn entries_of_tensors() {
    let entry =
        |entry: Vec<u8>| Builder { tensors: vec![entry], ..Builder::new() }.data(64).bytes();
    check([
        ("no name", entry(tensor("", &[1], 0, 0)), "the name of tensor number 0 is empty"),
        (
            "long name",
            entry(tensor([b'n'; 65], &[1], 0, 0)),
            "the name of tensor number 0 has 65 bytes, more than the 64 allowed",
        ),
        (
            "name not UTF-8",
            entry(tensor(b"\xc3(", &[1], 0, 0)),
            "the name of tensor number 0, \"\u{fffd}(\", is not valid UTF-8",
        ),
        (
            "name twice",
            Builder::new().tensor("x", &[1], 0, 0).tensor("x", &[1], 0, 32).data(64).bytes(),
            "tensor \"x\" appears twice",
        ),
        (
            "no dimensions",
            one_tensor(&[], 0, 0, 64),
            "tensor \"x\" has 0 dimensions: it must have from 1 to 4",
        ),
        (
            "five dimensions",
            one_tensor(&[1; 5], 0, 0, 64),
            "tensor \"x\" has 5 dimensions: it must have from 1 to 4",
        ),
        (
            "2^32 - 1 dimensions",
            entry([&string("x")[..], &[0xff; 4], &[0; 32]].concat()),
            "tensor \"x\" has 4294967295 dimensions: it must have from 1 to 4",
        ),
        (
            "no values",
            one_tensor(&[32, 0], 0, 0, 64),
            "tensor \"x\" has no values: its dimensions are [32, 0]",
        ),
        (
            "product of dimensions wraps",
            one_tensor(&[1 << 32, 1 << 32], 24, 0, 64),
            "tensor \"x\" is too large for any file: its dimensions are [4294967296, 4294967296]",
        ),
        (
            "product of bytes wraps",
            one_tensor(&[1 << 62], 0, 0, 64),
            "tensor \"x\" is too large for any file: its dimensions are [4611686018427387904]",
        ),
        (
            "half a block",
            one_tensor(&[48], 8, 0, 64),
            "tensor \"x\": rows of 48 values are not a multiple of 32, the block length of q8_0",
        ),
        (
            "whole blocks, but not in a row",
            one_tensor(&[128, 2], 12, 0, 144),
            "tensor \"x\": rows of 128 values are not a multiple of 256, the block length of q4_k",
        ),
        ("unknown type", one_tensor(&[32], 43, 0, 64), "tensor \"x\" has the unknown type 43"),
        (
            "removed type",
            one_tensor(&[32], 31, 0, 64),
            "tensor \"x\" has type q4_0_4_4 (31), which was removed from GGUF: \
             use a file with q4_0 instead",
        ),
        (
            "foreign type",
            one_tensor(&[256], 144, 0, 64),
            "tensor \"x\" has type iq4_ks (144), which only ik_llama.cpp reads",
        ),
        (
            "cut off",
            Builder::new().tensor("name", &[1, 1], 0, 0).header()[..62].to_vec(),
            "the file ends within the entry of tensor \"name\": 8 bytes are needed, 2 remain",
        ),
    ]);
}

#[test]
fn places_of_tensors() {
    check([
        (
            "between alignments",
            one_tensor(&[4], 0, 8, 64),
            "tensor \"x\" has offset 8, which is not a multiple of the alignment, 32 bytes",
        ),
        (
            "no data",
            one_tensor(&[4], 0, 0, 0),
            "tensor \"x\" lies outside the file: it takes 16 bytes at offset 0 of the data, \
             which is 0 bytes long; is the download complete?",
        ),
        (
            "larger than its data",
            one_tensor(&[4096, 4096], 0, 0, 64),
            "tensor \"x\" lies outside the file: it takes 67108864 bytes at offset 0 of the \
             data, which is 64 bytes long; is the download complete?",
        ),
        (
            "one byte short",
            one_tensor(&[4], 0, 32, 47),
            "tensor \"x\" lies outside the file: it takes 16 bytes at offset 32 of the data, \
             which is 47 bytes long; is the download complete?",
        ),
        (
            "an end that wraps",
            one_tensor(&[16], 0, u64::MAX - 31, 64),
            "tensor \"x\" lies outside the file: it takes 64 bytes at offset \
             18446744073709551584 of the data, which is 64 bytes long; is the download complete?",
        ),
        (
            "overlap",
            Builder::new().tensor("b", &[1], 0, 32).tensor("a", &[9], 0, 0).data(64).bytes(),
            "tensors \"a\" and \"b\" overlap",
        ),
        (
            "same place",
            Builder::new().tensor("a", &[1], 0, 0).tensor("b", &[1], 0, 0).data(64).bytes(),
            "tensors \"a\" and \"b\" overlap",
        ),
        (
            "inside another",
            Builder::new()
                .tensor("large", &[64], 0, 0)
                .tensor("small", &[1], 0, 64)
                .data(256)
                .bytes(),
            "tensors \"large\" and \"small\" overlap",
        ),
        (
            "data of another file",
            one_tensor(&[8], 0, 0, 32 + (2 << 20) + 1),
            "2097153 bytes follow the last tensor, more than the 2097152 that padding can take",
        ),
    ]);
    // Padding of the tensor or of the file is permitted.
    assert!(Gguf::parse(&one_tensor(&[8], 0, 0, 32 + (2 << 20)), &[]).is_ok());
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = model().bytes();
    assert!(Gguf::parse(&bytes, &[]).is_ok());
    for end in 0..bytes.len() {
        assert!(Gguf::parse(&bytes[..end], &[]).is_err(), "{end} of {} bytes", bytes.len());
    }
}

/// Replaces a number within bytes.
trait MapU64 {
    fn map_u64(self, at: usize, value: u64) -> Self;
}

impl MapU64 for Vec<u8> {
    fn map_u64(mut self, at: usize, value: u64) -> Self {
        self[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }
}
