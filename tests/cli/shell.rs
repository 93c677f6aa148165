//! Completions for shells, and manual pages.

use crate::cli::run;
use rope_cpu_testing::models::skip;

#[test]
fn every_shell_script_has_the_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(&["completions", shell]);
        assert_eq!((said.code, &said.stderr[..]), (Some(0), ""), "{shell}");
        for word in ["rope-cpu", "rope-scaling", "perplexity"] {
            assert!(said.stdout.contains(word), "{shell}: no {word}");
        }
    }
    run(&["completions", "cmd"]).refused(2, &["cmd", "bash, elvish, fish, powershell, zsh"]);
}

#[test]
#[cfg(unix)]
fn bash_completes_an_option() {
    let script = run(&["completions", "bash"]).stdout;
    let ask = "COMP_WORDS=(rope-cpu --rope-freq-s); COMP_CWORD=1; _rope__cpu rope-cpu --rope-freq-s rope-cpu; \
        echo \"${COMPREPLY[@]}\"";
    // In a file: it is longer than an argument may be.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, format!("{script}\n{ask}")).unwrap();
    let bash = match std::process::Command::new("bash").arg(file.path()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return skip("there is no bash");
        }
        bash => bash.unwrap(),
    };
    let said = String::from_utf8(bash.stdout).unwrap();
    assert_eq!(said.trim(), "--rope-freq-scale", "{}", String::from_utf8_lossy(&bash.stderr));
}

/// The program is found in PATH, as it is by the script's user.
#[test]
#[cfg(unix)]
fn bash_completes_the_name_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("my-model.gguf"), "GGUF").unwrap();
    std::fs::create_dir_all(folder.path().join("lm/.lmstudio/models/u/m")).unwrap();
    std::fs::write(folder.path().join("lm/.lmstudio/models/u/m/m-Q4_0.gguf"), "GGUF").unwrap();
    // Bash expands the words of a list.
    let traces = folder.path().join("lm/traces");
    std::fs::write(folder.path().join("my-$(echo>traces).gguf"), "GGUF").unwrap();
    let program = assert_cmd::cargo::cargo_bin!("rope-cpu");
    let script = run(&["completions", "bash"]).stdout;
    let ask = |line: &str| {
        let ask = format!(
            "COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _rope_cpu_with_names rope-cpu x y; \
             echo \"${{COMPREPLY[@]}}\""
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, format!("{script}\n{ask}")).unwrap();
        let mut bash = std::process::Command::new("bash");
        let path =
            format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
        bash.arg(file.path()).env("PATH", path).env("ROPE_CPU_MODELS_DIR", folder.path());
        bash.env("HOME", folder.path().join("lm")).current_dir(folder.path().join("lm"));
        let bash = bash.output().ok()?;
        Some(String::from_utf8(bash.stdout).unwrap().trim().to_string())
    };
    let Some(said) = ask("rope-cpu run my") else { return skip("there is no bash") };
    assert_eq!(said, "my-model");
    assert_eq!(ask("rope-cpu -c 5 -m my-m").unwrap(), "my-model");
    // Bash replaces what is after the colon.
    assert_eq!(ask("rope-cpu show u/m:Q").unwrap(), "Q4_0");
    assert!(!traces.exists(), "the name of a file ran as a command");
}

#[test]
fn manual_pages_are_printed_and_written() {
    let page = run(&["man"]);
    assert_eq!(page.code, Some(0), "{}", page.stderr);
    for part in [".TH rope-cpu 1", "\\-\\-rope\\-scaling", "rope\\-cpu\\-bench(1)"] {
        assert!(page.stdout.contains(part), "{part} is not in:\n{}", page.stdout);
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = run(&["man", folder.path().to_str().unwrap()]);
    assert_eq!((pages.code, &pages.stdout[..]), (Some(0), ""), "{}", pages.stderr);
    for name in ["rope-cpu.1", "rope-cpu-bench.1", "rope-cpu-rope-explain.1"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
    // The folder is created, but not below a file.
    let [new, below] = ["new", "rope-cpu.1/pages"].map(|name| folder.path().join(name));
    assert_eq!(run(&["man", new.to_str().unwrap()]).code, Some(0));
    assert!(new.join("rope-cpu.1").exists());
    let below = below.to_str().unwrap();
    run(&["man", below]).refused(1, &[below]);
}
