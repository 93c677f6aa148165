//! Files that scripts download, and tests that are skipped without them.

use std::{
    env,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    thread,
};

/// Returns a file in `models/`. Without it, the test is skipped: `script` downloads the file.
///
/// # Panics
/// As [`skip`].
pub fn fetched(name: &str, script: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?.join("models").join(name);
    if !path.exists() {
        skip(&format!("models/{name} is missing: scripts/{script} downloads it"));
        return None;
    }
    Some(path)
}

/// Says that the current test cannot run here. The file named by `CHECK_SKIPPED` gets a line with
/// the test and the reason.
///
/// # Panics
/// With `CI=true`, where every test must run.
pub fn skip(reason: &str) {
    assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "{reason}");
    println!("skipped: {reason}");
    if let Some(list) = env::var_os("CHECK_SKIPPED") {
        // The test harness gives each thread the name of its test.
        let test = thread::current().name().unwrap_or("unknown test").to_string();
        let list = OpenOptions::new().append(true).create(true).open(list);
        list.unwrap().write_all(format!("{test}: {reason}\n").as_bytes()).unwrap();
    }
}
