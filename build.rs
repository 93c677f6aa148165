//! Gives release builds the commit of their source, for `--version` and `bench`. Other builds have none, so
//! that a commit does not rebuild all tests.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let target = env::var("TARGET").unwrap_or_default();
    let (shown, id) = match release.then(commit).flatten() {
        Some(commit) => (format!("{version} ({commit}, {target})"), format!("{version}-{commit}")),
        None => (format!("{version} ({target})"), version.into()),
    };
    println!("cargo:rustc-env=BUILD_VERSION={shown}");
    println!("cargo:rustc-env=BUILD_ID=rope-cpu-{id}");
}

/// Returns the short hash of the commit that is checked out; `None` for the source of an archive or a
/// package, and without Git.
fn commit() -> Option<String> {
    if !Path::new(".git").exists() {
        return None; // a folder above may be another repository
    }
    // Git appends to this log at each commit and each checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    // Git's own choice of a length depends on what else the clone has, and so would the program's bytes.
    git(&["rev-parse", "--short=10", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim().into())
}
