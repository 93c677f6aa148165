//! Names of models: list, show, cp, rm, import, and in place of paths.

use std::{fs, path::PathBuf};

use crate::cli::{Run, finish, rope_cpu};
use rope_cpu_testing::reader::tiny_reader;

/// A home with a model.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let home = Home { folder: tempfile::tempdir().unwrap() };
        let model = fs::read(tiny_reader(5, true).path()).unwrap();
        home.write(".local/share/rope-cpu/models/tiny.gguf", &model);
        home.write(".lmstudio/models/user/other-GGUF/other-Q8_0.gguf", &model);
        home
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().into()
    }

    fn presets(&self, text: &str) {
        self.write(".config/rope-cpu/presets.toml", text);
    }

    fn with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Run {
        let mut command = rope_cpu(arguments);
        for name in [
            "XDG_DATA_HOME",
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "OLLAMA_MODELS",
            "APPDATA",
            "LOCALAPPDATA",
        ] {
            command.env_remove(name);
        }
        command.env("HOME", self.folder.path()).env("USERPROFILE", self.folder.path());
        command.envs(variables.iter().copied()).current_dir(self.folder.path());
        finish(command)
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.with(&[], arguments)
    }
}

#[track_caller]
fn done(run: &Run) -> &str {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    &run.stdout
}

const ASK: [&str; 6] = ["-p", "on the train", "-n", "8", "--temp", "0"];

#[test]
fn a_name_stands_for_its_file() {
    let home = Home::new();
    let path = home.path(".local/share/rope-cpu/models/tiny.gguf");
    let expected =
        done(&home.run(&[&["-m", path.to_str().unwrap()], &ASK[..]].concat())).to_string();
    for name in [
        &["-m", "tiny"][..],
        &["run", "tiny"],
        &["tiny"],
        &["run", "-m", "TINY"],
        &["other"],
        &["-m", "user/other-gguf"],
    ] {
        assert_eq!(done(&home.run(&[name, &ASK[..]].concat())), expected, "{name:?}");
    }
    // Options may come first, and a variable may give the name.
    assert_eq!(done(&home.run(&[&ASK[..], &["tiny"]].concat())), expected);
    assert_eq!(done(&home.with(&[("ROPE_CPU_MODEL", "tiny")], &ASK)), expected);
    assert_eq!(done(&home.run(&["tokenize", "-m", "tiny", "-p", "the", "--ids"])), "[0, 20, 34]\n");
    assert!(done(&home.run(&["inspect", "-m", "tiny"])).contains("llama"));
    // A file of that name has precedence.
    home.write("tiny", "no model");
    home.run(&[&["-m", "tiny"], &ASK[..]].concat()).refused(2, &["tiny: "]);
}

#[test]
fn a_name_that_is_none_has_the_nearest() {
    let home = Home::new();
    let none = home.run(&["-m", "otter-gguf", "-p", "x"]);
    none.refused(
        2,
        &[
            "no file and no model is named otter-gguf",
            "did you mean user/other-GGUF:Q8_0?",
            "rope-cpu pull",
        ],
    );
    home.run(&["run", "nothing-like-it", "-p", "x"])
        .refused(2, &["no file and no model is named nothing-like-it"]);
    home.run(&["user/none"]).refused(2, &["no file and no model is named user/none"]);
    home.run(&["nothing-like-it"])
        .refused(2, &["no such command, file or model: 'nothing-like-it'"]);
    // What looks like a path is one.
    for path in ["./none", "none.gguf", "/none", "../none"] {
        home.run(&["-m", path, "-p", "x"]).refused(2, &[path, "(os error 2)"]);
    }
    home.run(&["-m", "a\u{7}b", "-p", "x"]).refused(2, &["is not the name of a model"]);
    home.run(&["show", "t"])
        .refused(2, &["t stands for several models: name one of tiny, user/other-GGUF:Q8_0"]);
}

#[test]
fn models_are_listed_and_shown() {
    let home = Home::new();
    home.write(".lmstudio/models/user/broken/broken.gguf", "GGUF");
    let listed = home.run(&["list"]);
    let lines: Vec<Vec<&str>> =
        done(&listed).lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "SIZE", "FORMAT", "FAMILY", "CONTEXT", "KIND", "FITS", "STORE"]);
    assert_eq!((lines[1][0], lines[1].last()), ("tiny", Some(&"folder")));
    assert_eq!(lines[2][0], "user/broken:broken");
    assert_eq!((lines[3][0], lines[3].last()), ("user/other-GGUF:Q8_0", Some(&"lm-studio")));
    assert!(lines[1].contains(&"llama") && lines[1].contains(&"yes"), "{}", listed.stdout);
    listed.said(&["note: user/broken:broken: "]);
    let json: serde_json::Value =
        rope_cpu::json::parse(done(&home.run(&["list", "--json"]))).unwrap();
    assert_eq!(json[0]["name"], "tiny");
    assert_eq!((&json[0]["architecture"], &json[0]["fits"]), (&"llama".into(), &true.into()));
    assert!(json[1]["error"].as_str().unwrap().contains("broken"));
    let shown = home.run(&["show", "tiny"]);
    home.write(".lmstudio/models/user/wrong/wrong.gguf", "GGUF");
    let several = "note: 2 of the models cannot run; `rope-cpu show NAME` says why";
    home.run(&["list"]).said(&[several]);
    for part in ["name", "tiny.gguf", "folder", "llama", "trained context", "fits in memory"] {
        assert!(done(&shown).contains(part), "{part}: {}", shown.stdout);
    }
    let json: serde_json::Value =
        rope_cpu::json::parse(done(&home.run(&["show", "tiny", "--json"]))).unwrap();
    assert_eq!(json["store"], "folder");
    let empty = tempfile::tempdir().unwrap();
    let empty =
        [("HOME", empty.path().to_str().unwrap()), ("USERPROFILE", empty.path().to_str().unwrap())];
    let none = home.with(&empty, &["list"]);
    done(&none);
    none.said(&["there are no models: download one with `rope-cpu pull"]);
    home.run(&["list", "--models-dir", "none"]).refused(1, &["cannot read none"]);
}

#[test]
fn a_first_start_suggests_models_that_fit() {
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().to_str().unwrap();
    let run = Home::new().with(&[("HOME", empty), ("USERPROFILE", empty)], &[]);
    run.refused(2, &["There is no model on the disk yet", "rope-cpu pull bartowski/"]);
    let with = Home::new().run(&[]);
    with.refused(2, &["rope-cpu runs GGUF"]);
    assert!(!with.stderr.contains("There is no model"), "{}", with.stderr);
}

#[test]
fn aliases_are_added_and_removed() {
    let home = Home::new();
    let copied = home.run(&["cp", "tiny", "small"]);
    done(&copied);
    copied.said(&["small stands for tiny"]);
    assert!(done(&home.run(&["list"])).contains("small "));
    home.run(&["cp", "tiny", "small"]).refused(2, &["small is already the name of a model"]);
    home.run(&["rm", "tiny"])
        .refused(2, &["tiny has other names that need its files: remove small"]);
    home.run(&["rm", "other"]).refused(2, &["did you mean user/other-GGUF:Q8_0?"]);
    home.run(&["rm", "user/other-GGUF:Q8_0"])
        .refused(2, &["belongs to lm-studio", "under My Models"]);
    let removed = home.run(&["rm", "small"]);
    done(&removed);
    removed.said(&["removed the name small; the model stays, as tiny"]);
    done(&home.run(&["rm", "tiny"]));
    assert!(!home.path(".local/share/rope-cpu/models/tiny.gguf").exists());
}

#[test]
fn presets_give_options_before_those_that_are_typed() {
    let home = Home::new();
    home.presets("[big]\nmodel = \"tiny\"\nctx = 48\nctk = \"q8_0\"\nconversation = false\n\n[bigger]\nmodel = \"big\"\nctx = 80\nn-gpu-layers = 99\n");
    let plan = |arguments: &[&str]| {
        let run = home.run(&[arguments, &["-p", "x", "--dry-run=json"]].concat());
        let json: serde_json::Value = rope_cpu::json::parse(done(&run)).unwrap();
        json
    };
    assert_eq!(plan(&["big"])["context"]["value"], 48);
    assert_eq!(plan(&["big"])["cache_types"]["keys"], "q8_0");
    assert_eq!(plan(&["bigger"])["context"]["value"], 80);
    assert_eq!(plan(&["big", "-c", "96"])["context"]["value"], 96);
    let noted = home.run(&["bigger", "-p", "x", "--dry-run"]);
    done(&noted);
    noted.said(&["presets.toml:10: n-gpu-layers is ignored"]);
    // An option of other commands.
    let tokens = home.run(&["tokenize", "-m", "big", "-p", "the", "--ids"]);
    assert_eq!(done(&tokens), "[0, 20, 34]\n");
    tokens.said(&["presets.toml:3: ctx has no effect in tokenize"]);
}

#[test]
fn faults_of_presets_have_file_line_and_name() {
    let home = Home::new();
    let ask = || home.run(&["big", "-p", "x", "-n", "1"]);
    home.presets("[big]\nmodel = \"tiny\"\nrope-scalings = \"yarn\"\n");
    ask().refused(
        2,
        &["presets.toml:3: no option is named rope-scalings; did you mean rope-scaling?"],
    );
    home.presets("[big]\nmodel = \"tiny\"\n\nctx = \"many\"\n");
    ask().refused(2, &["presets.toml:4: ", "many", "--ctx"]);
    home.presets("[big]\nmodel = \"tiny\"\nconversation = \"maybe\"\n");
    ask().refused(2, &["presets.toml:3 is \"maybe\"", "must be on or off"]);
    home.presets("[big]\nmodel = \"tiny\"\nimage = \"x\"\n");
    ask().refused(2, &["presets.toml:3: --image is a "]);
    home.presets("[big\n");
    ask().refused(2, &["presets.toml:1: "]);
    let ini = home.write(
        "my.ini",
        "[*]\nn = 2\n[small]\nmodel = none.gguf\n[big]\nm = tiny\nLLAMA_ARG_CTX_SIZE = 64\n",
    );
    let run = home.run(&["big", "-p", "x", "--presets", &ini, "--dry-run"]);
    assert!(done(&run).contains("for a context of 64 "), "{}", run.stdout);
}

#[test]
fn a_modelfile_becomes_a_preset() {
    let home = Home::new();
    let file = home.write(
        "helper/Modelfile",
        "# mine\nFROM tiny\nPARAMETER num_ctx 64\nPARAMETER temperature 0\nPARAMETER stop \"<x>\"\n\
         PARAMETER stop <y>\nSYSTEM \"\"\"You\nhelp.\"\"\"\nTEMPLATE \"\"\"{{ .Prompt }}\"\"\"\nLICENSE MIT\n",
    );
    let imported = home.run(&["import", &file]);
    done(&imported);
    imported.said(&[
        "helper is a preset in ",
        "Modelfile:9: TEMPLATE is not read",
        "Modelfile:10: LICENSE has no effect",
    ]);
    let text = fs::read_to_string(home.path(".config/rope-cpu/presets.toml")).unwrap();
    for part in [
        "[helper]\nmodel = \"tiny\"\nctx = 64\ntemp = 0\n",
        "reverse-prompt = [\"<x>\", \"<y>\"]",
        "You\nhelp.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    done(&home.run(&["helper", "-p", "x", "-n", "2", "-st", "--chat-template", "chatml"]));
    home.run(&["import", &file]).refused(2, &["helper is already the name of a model"]);
    for (text, said) in [
        ("SYSTEM x\n", "Modelfile:1: there is no FROM"),
        ("FROM tiny\nPARAMETER num_ctxx 1\n", "Modelfile:2: no option is named num-ctxx"),
        ("FROM none\n", "no model is named none"),
        ("FROM tiny\nPARAMETER seed\n", "Modelfile:2: PARAMETER needs a name and a value"),
    ] {
        let file = home.write("helper/Modelfile", text);
        home.run(&["import", &file, "new"]).refused(2, &[said]);
    }
    home.run(&["import", "/none", "x"]).refused(2, &["/none: "]);
}

#[test]
fn a_server_that_does_not_answer_has_a_sentence() {
    let home = Home::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    for command in [&["ps"][..], &["stop", "tiny"]] {
        let run = home.run(&[command, &["--port", &port]].concat());
        run.refused(
            1,
            &[&format!("no server answers at http://127.0.0.1:{port}"), "rope-cpu serve"],
        );
    }
    // The variables of `serve` say where it is.
    home.with(&[("ROPE_CPU_PORT", &port)], &["ps"]).refused(1, &[&format!(":{port}: ")]);
}

#[test]
#[cfg(unix)]
fn the_keys_of_a_server_are_options_and_variables() {
    use crate::server::harness::Server;

    let home = Home::new();
    let mut command = Server::bare(&["serve", "--port", "0"]);
    command.args(["--manage-key", "boss", "--api-key", "guest", "--models-dir"]);
    command.arg(home.path(".local/share/rope-cpu/models")).env("HOME", home.folder.path());
    let server = Server::run(command, "listening on http://");
    let port = server.address().rsplit(':').next().unwrap();
    let boss = [("x-manage-key", "boss")];
    let loaded = server.send("POST", "/models/load", &boss, "{\"model\": \"tiny\"}");
    assert_eq!(loaded.status, 200, "{}", loaded.text);
    let is_loaded = |server: &Server| {
        let model = server.send("GET", "/v1/models/tiny", &boss, "").json();
        model["status"]["value"] == "loaded"
    };
    server.wait_until(is_loaded);
    let ask = |variables: &[(&str, &str)], words: &[&str]| {
        home.with(variables, &[words, &["--port", port]].concat())
    };
    ask(&[], &["stop", "tiny"]).refused(1, &["Invalid API Key"]);
    ask(&[], &["stop", "tiny", "--api-key", "guest"]).refused(1, &["--manage-key KEY"]);
    let wrong = ["stop", "tiny", "--api-key", "guest", "--manage-key", "wrong"];
    ask(&[], &wrong).refused(1, &["--manage-key KEY"]);
    assert!(is_loaded(&server));
    // It counts as an API key.
    let stopped = ask(&[], &["stop", "tiny", "--manage-key", "boss"]);
    done(&stopped);
    stopped.said(&["tiny is unloaded"]);
    server.wait_until(|server| !is_loaded(server));
    for variable in [("ROPE_CPU_MANAGE_KEY", "boss"), ("ROPE_CPU_API_KEY", "guest")] {
        let running = ask(&[variable], &["ps"]);
        done(&running);
        running.said(&["no model is loaded"]);
    }
    done(&ask(&[("ROPE_CPU_MANAGE_KEY", "boss")], &["stop", "tiny"]));
    ask(&[("ROPE_CPU_API_KEY", "guest")], &["stop", "tiny"]).refused(1, &["--manage-key KEY"]);
}
