//! Split models: joining the parts, and the message of every fault.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use rope_cpu::gguf::File;

use rope_cpu_testing::builder::{Builder, I32, STRING, string};

const U16: u32 = 2;

/// Returns a part with one tensor of 8 values; `number` is counted from 1.
fn part(number: u16, count: u16, tensors: i32, tensor: &str) -> Builder {
    Builder::new()
        .key("split.no", U16, (number - 1).to_le_bytes())
        .key("split.count", U16, count.to_le_bytes())
        .key("split.tensors.count", I32, tensors.to_le_bytes())
        .append(tensor, &[8], 0, 0..32)
}

fn path(folder: &Path, number: u16) -> PathBuf {
    folder.join(format!("model-{number:05}-of-00003.gguf"))
}

/// Returns three valid parts.
fn parts() -> [Builder; 3] {
    let first = part(1, 3, 3, "a").key("general.architecture", STRING, string("llama"));
    [first, part(2, 3, 3, "b"), part(3, 3, 3, "c")]
}

fn write(folder: &Path, parts: &[Builder]) {
    for (number, part) in (1..).zip(parts) {
        std::fs::write(path(folder, number), part.bytes()).unwrap();
    }
}

#[test]
fn the_first_part_brings_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = parts();
    parts[2].data = vec![7; 32];
    write(folder.path(), &parts);
    let file = File::open(path(folder.path(), 1)).unwrap();
    for _ in 0..2 {
        let gguf = file.parse(&[]).unwrap();
        let names: Vec<_> = gguf.tensors().iter().map(|tensor| tensor.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(gguf.tensor("b").unwrap().bytes, parts[1].data);
        assert_eq!(gguf.tensor("c").unwrap().bytes, [7; 32]);
        assert_eq!(gguf.metadata().string("general.architecture").unwrap(), Some("llama"));
    }
    let paths: Vec<_> = file.parts().map(File::path).collect();
    assert_eq!(paths, [1, 2, 3].map(|number| path(folder.path(), number)));
}

/// llama-gguf-split writes such a model with --no-tensor-first-split.
#[test]
fn the_first_part_may_have_no_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = [part(1, 3, 2, "a"), part(2, 3, 2, "b"), part(3, 3, 2, "c")];
    parts[0].tensors.clear();
    parts[0].data.clear();
    write(folder.path(), &parts);
    let file = File::open(path(folder.path(), 1)).unwrap();
    let gguf = file.parse(&[]).unwrap();
    let names: Vec<_> = gguf.tensors().iter().map(|tensor| tensor.name).collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!(gguf.tensor("b").unwrap().bytes, parts[1].data);
}

#[test]
fn inspect_shows_the_parts() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &parts());
    let shown = |json: bool| {
        let file = path(folder.path(), 1);
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("rope-cpu"));
        command.arg("inspect").arg(file).arg("--verify").args(json.then_some("--json"));
        String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
    };
    let text = shown(false);
    let bytes = |number| path(folder.path(), number).metadata().unwrap().len();
    for number in 1..=3 {
        let line = format!("{} ({} bytes)", path(folder.path(), number).display(), bytes(number));
        assert!(text.contains(&line), "{text}");
    }
    let value: serde_json::Value = shown(true).parse().unwrap();
    assert_eq!(value["parts"].as_array().unwrap().len(), 3);
    assert_eq!(value["bytes"].as_u64(), Some((1..=3).map(bytes).sum()));
    assert_eq!(value["tensors"].as_array().unwrap().len(), 3);
}

#[test]
fn each_fault_names_the_file() {
    let sound = parts();
    let [first, second, third] = &sound;
    let without = |builder: &Builder, key: usize| {
        let mut builder = builder.clone();
        builder.keys.remove(key);
        builder
    };
    let version1 = Builder { version: 1, ..second.clone() };
    // The parts, the number of the faulty part, and the message.
    let cases: [(Vec<Builder>, u16, &str); 9] = [
        (vec![first.clone(), second.clone()], 3, "is missing, but"),
        (vec![first.clone(), part(3, 3, 3, "b"), third.clone()], 2, "is not part 2 of 3"),
        (vec![first.clone(), part(2, 4, 3, "b"), third.clone()], 2, "is not part 2 of 3"),
        (vec![first.clone(), part(2, 3, 9, "b"), third.clone()], 2, "is not part 2 of 3"),
        (vec![first.clone(), Builder::new(), third.clone()], 2, "is not part 2 of 3"),
        (
            vec![first.clone(), second.clone(), part(3, 3, 3, "a")],
            3,
            "\"a\" is also in an earlier part",
        ),
        (vec![first.clone(), version1, third.clone()], 2, "version 1 is obsolete"),
        (vec![without(first, 0), second.clone(), third.clone()], 1, "split.no"),
        (
            [4; 3]
                .iter()
                .zip(["a", "b", "c"])
                .zip(1..)
                .map(|((n, t), i)| part(i, 3, *n, t))
                .collect(),
            1,
            "is 4, but the 3 parts of the model hold 3 tensors",
        ),
    ];
    for (parts, faulty, message) in cases {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &parts);
        let error = File::open(path(folder.path(), 1)).unwrap().parse(&[]).unwrap_err().to_string();
        let start = path(folder.path(), faulty).display().to_string();
        assert!(error.starts_with(&start) && error.contains(message), "{error}");
    }
}

#[test]
fn another_part_and_another_name_are_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &parts());
    let refused = |path: &Path| File::open(path).unwrap().parse(&[]).unwrap_err().to_string();
    let found = refused(&path(folder.path(), 2));
    let (second, first) = (path(folder.path(), 2), path(folder.path(), 1));
    let expected = format!(
        "{} is part 2 of 3 of a model: give the first part, {}",
        second.display(),
        first.display()
    );
    assert_eq!(found, expected);

    let renamed = folder.path().join("model.gguf");
    std::fs::rename(&first, &renamed).unwrap();
    let found = refused(&renamed);
    assert!(found.starts_with(&renamed.display().to_string()), "{found}");
    assert!(found.contains("does not end in -00001-of-00003.gguf"), "{found}");
}
