//! Advisories about the header, metadata and tensors of a file.

use rope_cpu::gguf::Gguf;
use rope_cpu_testing::builder::{ARRAY, Builder, I32, U8, U32, string};

const F32: u32 = 0;
const Q4_0: u32 = 2;
const I8: u32 = 24;

fn refused(b: &Builder, message: &str) {
    let error = Gguf::parse(&b.bytes(), &[]).unwrap_err().to_string();
    assert!(error.contains(message), "{error:?} does not say {message:?}");
}

/// CVE-2025-53630: the sum of the sizes of tensors wraps to a small buffer.
#[test]
fn cve_2025_53630() {
    let quarter = 1 << 62;
    let mut b = Builder::new();
    for (name, place) in ["a", "b", "c", "d"].into_iter().zip(0..) {
        b = b.tensor(name, &[1 << 60], F32, place * quarter);
    }
    refused(&b.tensor("e", &[8], F32, 0).data(64), "lies outside the file");
    let halves = Builder::new().tensor("a", &[1 << 63], I8, 0).tensor("b", &[1 << 63], I8, 1 << 63);
    refused(&halves.tensor("c", &[32], I8, 0).data(64), "tensor \"a\"");
}

/// CVE-2026-27940: a size that padding wraps to 0 passes the check of the sum.
#[test]
fn cve_2026_27940() {
    // 2^64 - 16 bytes, and 2^64 - 4.
    for dims in [&[4, (1 << 30) - 1, (1 << 30) + 1][..], &[(1 << 62) - 1]] {
        let b = Builder::new().tensor("a", dims, F32, 0).tensor("b", &[8], F32, 0).data(64);
        refused(&b, "tensor \"a\"");
    }
    // The largest size that no arithmetic wraps.
    refused(
        &Builder::new().tensor("a", &[i64::MAX as u64], I8, 0).data(64),
        "tensor \"a\" lies outside the file",
    );
}

/// CVE-2026-33298: the product of dimensions and bytes wraps, so that a large tensor takes few bytes.
#[test]
fn cve_2026_33298() {
    // 18 bytes for each 32 weights are 64 bytes, modulo 2^64, before the division by 32.
    let b = Builder::new().tensor("a", &[5_124_095_576_030_431_008], Q4_0, 0).data(64);
    refused(&b, "tensor \"a\"");
    let b = Builder::new().tensor("a", &[1 << 31, 1 << 31, 4], F32, 0).data(64);
    refused(&b, "tensor \"a\" is too large for any file");
    // A product that is negative as a signed number.
    let b = Builder::new().tensor("a", &[i64::MAX as u64, 2], I8, 0).data(64);
    refused(&b, "tensor \"a\"");
}

/// GHSA-3p75-pq92-q28f, llama.cpp #24263: a dimension of 0 divides, and a key may be empty.
#[test]
fn ghsa_3p75_pq92_q28f() {
    for dims in [&[0u64][..], &[4, 0], &[4, 0, 1], &[4, 1, 0], &[4, 1, 1, 0], &[0, 0, 0, 0]] {
        refused(&Builder::new().tensor("a", dims, F32, 0).data(64), "tensor \"a\" has no values");
    }
    refused(&Builder::new().key("", U32, [0; 4]), "metadata key number 0 is empty");
}

/// CVE-2025-0317: an alignment of 0 divides. llama.cpp #24997 and #26318: one of 2^31 wraps, and one of
/// another type is read as it is.
#[test]
fn cve_2025_0317() {
    let aligned = |kind, value: u32| {
        let b = Builder::new().key("general.alignment", kind, value.to_le_bytes());
        b.tensor("a", &[8], F32, 0).data(64)
    };
    for value in [0, 1, 3, 1 << 21, 1 << 30, 1 << 31, u32::MAX] {
        refused(&aligned(U32, value), "it must be a power of two from 8 to 1048576");
    }
    refused(&aligned(I32, 32), "where a u32 is expected");
}

/// llama.cpp #27188: an array of 2^63 elements in a file of some 50 bytes.
#[test]
fn llama_cpp_27188() {
    let array = [&U8.to_le_bytes()[..], &(1u64 << 63).to_le_bytes()].concat();
    let b = Builder::new().key("abc", ARRAY, array);
    assert_eq!(b.bytes().len(), 51);
    refused(&b, "an array of 9223372036854775808 values of type u8, but 0 bytes remain");
}

/// CVE-2025-0315, ollama #17042: a count or a length decides how much memory is allocated.
/// `tests/gguf_memory.rs` measures the memory of a large header.
#[test]
fn cve_2025_0315() {
    for count in [1 << 20, 1 << 32, 1 << 62, u64::MAX] {
        refused(
            &Builder { key_count: Some(count), ..Builder::new() },
            "metadata keys, but at most",
        );
        refused(&Builder { tensor_count: Some(count), ..Builder::new() }, "tensors, but at most");
        let long = [&count.to_le_bytes()[..], b"abc"].concat();
        refused(&Builder::new().key("a", 8, &long), "but 3 remain in the file");
        for element in [8u32, 10, 12] {
            let array = [&element.to_le_bytes()[..], &long].concat();
            refused(&Builder::new().key("a", ARRAY, array), "but 3 bytes remain in the file");
        }
    }
}

/// CVE-2024-12055: a length beyond the end of the file, in every place that has one.
#[test]
fn cve_2024_12055() {
    let b = Builder::new()
        .key("a", 8, string("text"))
        .key("b", ARRAY, rope_cpu_testing::builder::strings(&["x", "y"]))
        .tensor("t", &[8], F32, 0)
        .data(32);
    let bytes = b.bytes();
    assert!(Gguf::parse(&bytes, &[]).is_ok());
    for at in 24..b.header().len() - 8 {
        for length in [1 << 16, 1 << 31, 1 << 63, u64::MAX] {
            let mut bytes = bytes.clone();
            bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(length));
            if let Ok(gguf) = Gguf::parse(&bytes, &[]) {
                let read = gguf.tensors().iter().map(|tensor| tensor.bytes.len());
                assert!(read.sum::<usize>() <= bytes.len(), "{at}");
            }
        }
    }
}
