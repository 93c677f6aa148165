//! Model files that are shortened while they are in use.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rope_cpu_testing::reader::{tiny_reader, tiny_with_embeddings};

fn start(arguments: &[&str]) -> Child {
    Command::new(assert_cmd::cargo::cargo_bin!("rope-cpu"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Shortens the model that the program is using to one page.
#[track_caller]
fn shorten(model: &Path, program: Child) {
    File::options().write(true).open(model).unwrap().set_len(4096).unwrap();
    let output = program.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{:?}: {stderr}", output.status);
    let expected = format!("error: {}: the file was shortened", model.display());
    // Printed once, although several threads read the file.
    assert_eq!(stderr.matches(&expected).count(), 1, "{stderr}");
}

#[test]
fn a_run_names_the_file() {
    let model = tiny_reader(7, true);
    let path = model.path().to_str().unwrap();
    let options = ["-n", "1000000", "--ignore-eos", "-c", "300", "--context-shift", "-t", "2"];
    let mut program = start(&[&["-m", path, "-p", "the rain"], &options[..]].concat());
    program.stdout.as_mut().unwrap().read_exact(&mut [0; 64]).unwrap();
    shorten(model.path(), program);
}

/// Also while tensors are copied.
#[test]
fn no_half_written_file_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output.gguf");
    let output = output.to_str().unwrap();
    let scaling = ["--rope-scaling", "linear", "--rope-scale", "8", "-c", "2048"];
    let bake = [&["rope", "bake", "-o", output, "-m"][..], &scaling[..]];
    let quantize = [&["quantize"][..], &[output, "q4_0"][..]];
    for [before, after] in [bake, quantize] {
        let model = tiny_with_embeddings(1 << 21);
        let path = [model.path().to_str().unwrap()];
        let program = start(&[before, &path, after].concat());
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::read_dir(folder.path()).unwrap().next().is_none() {
            assert!(Instant::now() < deadline, "nothing was written");
            sleep(Duration::from_millis(1));
        }
        shorten(model.path(), program);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
