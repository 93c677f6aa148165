//! Errors of opening a file. Each names the path.

use rope_cpu::gguf::File;

use rope_cpu_testing::builder::{Builder, file, model};

#[test]
fn what_is_no_file_is_said_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let error = |path| File::open(path).unwrap_err().to_string();
    assert_eq!(
        error(path),
        format!("{} is a directory: give the .gguf file in it", path.display())
    );

    let missing = path.join("missing.gguf");
    let message = error(&missing);
    assert!(message.starts_with(&format!("{}: ", missing.display())), "{message}");

    let empty = path.join("empty.gguf");
    std::fs::write(&empty, []).unwrap();
    assert_eq!(error(&empty), format!("{} is empty", empty.display()));
}

#[cfg(unix)]
#[test]
fn devices_and_pipes_are_refused_without_waiting() {
    let error = File::open("/dev/zero").unwrap_err().to_string();
    assert_eq!(error, "/dev/zero is not a regular file and cannot be mapped");
}

#[test]
fn faults_within_a_file_begin_with_its_path() {
    let file = Builder { version: 1, ..model() }.file();
    let error = File::open(file.path()).unwrap().parse(&[]).unwrap_err().to_string();
    let expected = "GGUF version 1 is obsolete and not supported: convert the model again";
    assert_eq!(error, format!("{}: {expected}", file.path().display()));
}

#[test]
fn a_file_keeps_its_bytes_and_path() {
    let file = file(b"GGUF of a kind");
    let mapped = File::open(file.path()).unwrap();
    assert_eq!((mapped.path(), mapped.bytes()), (file.path(), b"GGUF of a kind".as_slice()));
}
