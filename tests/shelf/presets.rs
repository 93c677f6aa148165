//! Presets and aliases.

use std::fs;

use rope_cpu::shelf::presets::{Choice, OfOllama, Presets};

use super::Stores;

/// The options of a preset, as `key value...`.
fn options(stores: &Stores, name: &str) -> Vec<String> {
    let entry = stores.shelf().find(name).unwrap();
    let choices = entry.presets.iter().flat_map(|preset| &preset.choices);
    choices.map(|choice| format!("{} {}", choice.key, choice.values.join(" "))).collect()
}

fn error(stores: &Stores) -> String {
    stores.shelf().entries().unwrap_err().to_string()
}

#[test]
fn presets_give_options_to_models() {
    let stores = Stores::new();
    stores.model("models/tiny.gguf");
    stores.model("elsewhere/a.gguf");
    stores.write(
        "presets.toml",
        "[\"*\"]\nthreads = 2\n\n[big]\nmodel = \"tiny\"\nctx = 65536\nlora = [\"a\", \"b\"]\n\
         jinja = true\n[bigger]\nmodel = \"big\"\nctx = 131072\n[tiny]\ntemp = 0.5\n\
         [file]\nmodel = \"elsewhere/a.gguf\"\nthreads = 3\n",
    );
    assert_eq!(stores.names(), ["big", "bigger", "file", "tiny"]);
    // The options of the model's own section follow.
    let expected = ["ctx 65536", "lora a b", "jinja true", "threads 2", "temp 0.5", "threads 2"];
    assert_eq!(options(&stores, "big"), expected);
    assert_eq!(options(&stores, "bigger")[0], "ctx 131072");
    assert_eq!(options(&stores, "tiny"), ["temp 0.5", "threads 2"]);
    assert_eq!(options(&stores, "file"), ["threads 3"]);
    let big = stores.shelf().find("big").unwrap();
    assert_eq!(big.path, stores.path("models/tiny.gguf"));
    assert_eq!((big.alias_of(), big.presets[0].choices[0].line), (Some("tiny"), 6));
}

#[test]
fn faults_have_the_line() {
    let stores = Stores::new();
    for (text, line, reason) in [
        ("ctx = 1\n", 1, "outside of a preset"),
        ("[a]\nmodel = \"x\"\nctx = {}\n", 3, "must be a text, a number"),
        ("[a]\nctx = [[1]]\n", 2, "must be a text, a number"),
        ("[a]\nctx = 1979-05-27\n", 2, "must be a text, a number"),
        ("[a]\n\nctx = \n", 3, ""),
        ("[a]\nmodel = [\"x\", \"y\"]\n", 2, "must be one name"),
        ("[a]\nmodel = \"x\"\nhf-repo = \"u/m\"\n", 3, "has two models"),
        ("[\"*\"]\nmodel = \"x\"\n", 1, "cannot have a model"),
        ("[\"a\\u001B\"]\nctx = 1\n", 1, "is not the name of a model"),
    ] {
        stores.write("presets.toml", text);
        let said = error(&stores);
        assert!(said.contains(&format!("presets.toml:{line}: ")), "{said}");
        assert!(said.contains(reason) && !said.contains('\u{1b}'), "{said}");
    }
    stores.write("presets.toml", "#".repeat((1 << 20) + 1));
    assert!(error(&stores).contains("up to 1048576 bytes"));
    // Presets that lead nowhere are noted; the others are listed.
    stores.model("models/m.gguf");
    let text =
        "[a]\nmodel = \"b\"\n[b]\nmodel = \"a\"\n[c]\nmodel = \"none\"\n[d]\nmodel = \"m\"\n";
    stores.write("presets.toml", text);
    assert_eq!(stores.names(), ["d", "m"]);
    let notes = stores.notes();
    assert!(notes.contains("[a] is not listed: presets refer to each other"), "{notes}");
    assert!(notes.contains("[c] is not listed: no file and no model is named none"), "{notes}");
    assert!(stores.found("a").contains("in a circle: a, b, a"));
}

#[test]
fn presets_of_llama_server_are_read_and_not_written() {
    let stores = Stores::new();
    stores.model("lmstudio/u/m-GGUF/m-Q4_0.gguf");
    let text =
        "version = 1\n[*]\nc = 8192 ; all\n[u/m-GGUF:Q4_0]\ntemp = 0.5\n[mine]\nhf = u/m-GGUF\n";
    let path = stores.write("presets.ini", text);
    let options = rope_cpu::shelf::Options { presets: Some(path), ..stores.options() };
    let shelf = rope_cpu::shelf::Shelf::new(options);
    let mine = shelf.find("mine").unwrap();
    assert_eq!(mine.alias_of(), Some("u/m-GGUF"));
    assert_eq!(mine.presets[0].choices[0].key, "c");
    assert_eq!(shelf.find("u/m-GGUF:Q4_0").unwrap().presets[0].choices.len(), 2);
    let error = shelf.copy("mine", "other").unwrap_err().to_string();
    assert!(error.contains("only reads"), "{error}");
    assert_eq!(fs::read_to_string(stores.path("presets.ini")).unwrap(), text);
}

#[test]
fn aliases_are_presets_and_comments_stay() {
    let stores = Stores::new();
    stores.model("models/tiny.gguf");
    stores.write("presets.toml", "# mine\n[big] # large\nmodel = \"tiny\"\nctx = 9\n");
    let shelf = stores.shelf();
    assert_eq!(shelf.copy("tin", "small: one").unwrap().alias_of(), Some("tiny"));
    assert_eq!(stores.names(), ["big", "small: one", "tiny"]);
    for taken in ["tiny", "big", "small: one"] {
        let error = shelf.copy("tiny", taken).unwrap_err().to_string();
        assert!(error.contains("already the name of a model"), "{error}");
    }
    assert!(shelf.copy("tiny", "a\u{7}").is_err());
    assert!(shelf.copy("none", "x").is_err());
    let error = shelf.remove("tiny").unwrap_err().to_string();
    assert!(error.contains("remove big, small: one as well"), "{error}");
    let removed = shelf.remove("small: one").unwrap();
    assert_eq!((removed.bytes, removed.shared), (0, vec!["big".into(), "tiny".into()]));
    let text = fs::read_to_string(stores.path("presets.toml")).unwrap();
    assert_eq!(text.trim(), "# mine\n[big] # large\nmodel = \"tiny\"\nctx = 9");
}

#[test]
fn an_inserted_preset_is_read_as_it_was_written() {
    let stores = Stores::new();
    let path = stores.path("new/presets.toml");
    let choice = |key: &str, values: &[&str]| Choice {
        key: key.into(),
        values: values.iter().map(|value| value.to_string()).collect(),
        line: 0,
    };
    let choices = [
        choice("ctx", &["4096"]),
        choice("temp", &["0.70"]),
        choice("jinja", &["true"]),
        choice("reverse-prompt", &["</s>", "\n\"'\\"]),
        choice("seed", &["007"]),
    ];
    Presets::insert(&path, "a \"quoted\" name", "m", &choices).unwrap();
    let read = Presets::read(&path).unwrap();
    let preset = read.get("a \"quoted\" name").unwrap();
    for (read, written) in preset.choices.iter().zip(&choices) {
        assert_eq!((&read.key, &read.values), (&written.key, &written.values));
    }
    assert_eq!(preset.choices.len(), choices.len());
}

#[test]
fn a_draft_is_written_in_place_of_its_preset() {
    let stores = Stores::new();
    stores.model("models/tiny.gguf");
    stores.write(
        "presets.toml",
        "# mine\n[other]\nmodel = \"tiny\"\nctx = 9\n[\"*\"]\nthreads = 2\n",
    );
    let shelf = stores.shelf();
    let choices = |text: &str| OfOllama::parameters(text).unwrap().choices;
    let create = |from: &str, to: &str, parameters: &str| {
        let draft = shelf.draft(from, to, choices(parameters)).map_err(|e| e.to_string())?;
        shelf.write(&draft).map_err(|e| e.to_string())
    };
    // A draft is in no file.
    let draft = shelf.draft("tin", "new", choices(r#"{"num_ctx": 64}"#)).unwrap();
    assert_eq!((&draft.name[..], draft.alias_of()), ("new", Some("tiny")));
    assert!(shelf.find("new").is_err());
    shelf.write(&draft).unwrap();
    assert_eq!(options(&stores, "new"), ["ctx 64", "threads 2"]);
    // Further options of the same name.
    create("new", "new", r#"{"temperature": 1, "num_ctx": 32}"#).unwrap();
    assert_eq!(options(&stores, "new"), ["temp 1", "ctx 32", "threads 2"]);
    create("tiny", "new", r#"{"seed": 1}"#).unwrap();
    assert_eq!(options(&stores, "new"), ["seed 1", "threads 2"]);
    create("new", "newest", r#"{"seed": 2}"#).unwrap();
    assert_eq!(shelf.find("newest").unwrap().presets.len(), 2);
    for (from, to, said) in [
        ("newest", "new", "in a circle: new, newest, new"),
        ("new", "tiny", "already the name of a model"),
        ("new", "*", "already the name of a model"),
        ("none", "x", "no model is named none"),
        ("tiny", "a\nb", "is not the name of a model"),
    ] {
        let error = create(from, to, "{}").unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    let text = fs::read_to_string(stores.path("presets.toml")).unwrap();
    assert!(text.starts_with("# mine\n[other]\nmodel = \"tiny\"\nctx = 9\n"), "{text}");
    assert_eq!(text.matches("threads").count(), 1, "{text}");
    // A file that could not be read again is not written.
    let mut large = OfOllama::default();
    large.add_system(&"x".repeat(1 << 20));
    let draft = shelf.draft("tiny", "large", large.choices).unwrap();
    let error = shelf.write(&draft).unwrap_err().to_string();
    assert!(error.contains("more than 1048576 bytes"), "{error}");
    assert_eq!(fs::read_to_string(stores.path("presets.toml")).unwrap(), text);
}
