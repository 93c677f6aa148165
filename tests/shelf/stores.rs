//! The stores, and what a damaged or hostile one may contain.

use std::fs;

use rope_cpu::shelf::Store;

use super::{Stores, link_to};

const HASH: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[test]
fn every_store_gives_names() {
    let stores = Stores::new();
    stores.model("models/mine.gguf");
    stores.model("models/deep/other.gguf");
    stores.model("models/deep/mine.gguf");
    stores.write("models/mmproj-mine.gguf", "no model");
    stores.write("models/notes.txt", "no model");
    stores.hub("user/tiny-GGUF", "tiny-Q4_K_M.gguf", HASH);
    stores.model("llama.cpp/org_small-GGUF_small-Q8_0.gguf");
    stores.model("lmstudio/user/big-GGUF/big.Q6_K.gguf");
    stores.model("jan/llamacpp/models/org/chat/model.gguf");
    stores.write(
        "jan/llamacpp/models/org/chat/model.yml",
        "name: x\nmodel_path: llamacpp/models/org/chat/model.gguf\n",
    );
    stores.model(&format!("ollama/blobs/sha256-{HASH}"));
    stores.ollama("registry.ollama.ai/library/smol/135m", &format!("sha256:{HASH}"));
    stores.ollama("registry.ollama.ai/me/smol/latest", &format!("sha256:{HASH}"));
    stores.ollama("hf.co/user/repo/Q4_0", &format!("sha256:{HASH}"));
    let expected = [
        "deep/mine",
        "hf.co/user/repo:Q4_0",
        "me/smol:latest",
        "mine",
        "org/chat",
        "org/small-GGUF:Q8_0",
        "other",
        "smol:135m",
        "user/big-GGUF:Q6_K",
        "user/tiny-GGUF:Q4_K_M",
    ];
    // The file that is found first has the short name.
    let names = stores.names();
    let names: Vec<&str> = names.iter().map(|name| &name[..]).collect();
    assert_eq!(names, expected);
    assert_eq!(stores.notes(), "");

    let entry = stores.shelf().find("smol:135m").unwrap();
    assert_eq!((entry.store, entry.digest.as_deref()), (Store::Ollama, Some(HASH)));
    assert_eq!(entry.bytes, stores.model.len() as u64);
    let hub = stores.shelf().find("tiny").unwrap();
    assert_eq!((hub.store, hub.digest.is_some()), (Store::Hub, cfg!(unix)));
    let details = hub.details().unwrap();
    assert_eq!(details.architecture, "llama");
    assert!(details.context.is_some() && details.parameters > 0 && !details.embedding);
    assert!(hub.fit().unwrap().fits);
}

#[test]
fn names_are_found_by_case_quant_and_part() {
    let stores = Stores::new();
    for quant in ["Q4_K_M", "Q8_0"] {
        stores.model(&format!("lmstudio/User/Tiny-GGUF/t-{quant}.gguf"));
    }
    for file in ["a-Q5_0", "a-Q6_K", "unique", "alike-1", "alike-2"] {
        stores.model(&format!("lmstudio/user/b-GGUF/{file}.gguf"));
    }
    assert_eq!(stores.found("User/Tiny-GGUF:Q8_0"), "User/Tiny-GGUF:Q8_0");
    assert_eq!(stores.found("user/tiny-gguf:q8_0"), "User/Tiny-GGUF:Q8_0");
    // Without a quant, as for a download.
    assert_eq!(stores.found("user/tiny-gguf"), "User/Tiny-GGUF:Q4_K_M");
    assert_eq!(stores.found("UNIQ"), "user/b-GGUF:unique");
    // As ollama's clients complete a name.
    stores.model("models/mine.gguf");
    assert_eq!(stores.found("mine:latest"), "mine");
    let several = stores.found("alike");
    assert!(several.contains("stands for several models"), "{several}");
    assert!(several.contains("user/b-GGUF:alike-1, user/b-GGUF:alike-2"), "{several}");
    let none = stores.found("uniqeu");
    assert!(none.contains("did you mean user/b-GGUF:unique?") || none.contains("rope-cpu pull"));
    let none = stores.found("tiny-ggfu");
    assert!(none.contains("did you mean User/Tiny-GGUF:"), "{none}");
    for wrong in ["", " ", "a\nb", "\u{1b}[2J", &"x".repeat(301)] {
        let said = stores.found(wrong);
        assert!(said.contains("is not the name of a model"), "{said}");
        assert!(!said.contains(['\n', '\u{1b}']), "{said:?}");
    }
}

#[test]
fn a_name_of_two_stores_is_the_first_ones() {
    let stores = Stores::new();
    stores.model("lmstudio/user/m/m-Q4_0.gguf");
    stores.model("llama.cpp/user_m-GGUF_m-Q4_0.gguf");
    stores.model("lmstudio/user/m-GGUF/m-Q4_0.gguf");
    let expected = ["user/m-GGUF:Q4_0", "user/m-GGUF:Q4_0@lm-studio", "user/m:Q4_0"];
    assert_eq!(stores.names(), expected);
    assert_eq!(stores.shelf().find("user/m-GGUF:Q4_0").unwrap().store, Store::LlamaCpp);
}

#[test]
fn a_manifest_cannot_name_a_file_outside_of_its_store() {
    let stores = Stores::new();
    let secret = stores.model("secret.gguf");
    let absolute = secret.to_str().unwrap();
    for (at, digest) in
        ["../../secret.gguf", "sha256:../../secret.gguf", absolute, "sha256:", "sha256:zz", HASH]
            .into_iter()
            .enumerate()
    {
        stores.ollama(&format!("registry.ollama.ai/library/bad/{at}"), &digest.replace('\\', "/"));
    }
    stores.ollama("registry.ollama.ai/library/gone/1", &format!("sha256:{HASH}"));
    stores.write("ollama/manifests/registry.ollama.ai/library/none/1", "{");
    let yml = |name: &str, path: &str| {
        stores.write(&format!("jan/models/{name}/model.yml"), format!("model_path: {path}\n"))
    };
    yml("up", "../secret.gguf");
    yml("absolute", absolute);
    yml("none", "");
    assert_eq!(stores.names(), [""; 0]);
    let notes = stores.notes();
    assert_eq!(notes.lines().count(), 11, "{notes}");
    assert!(notes.contains("\"../../secret.gguf\" is not a digest"), "{notes}");
    assert!(notes.contains("its model_path is not a file in Jan's folder"), "{notes}");
    let said = stores.found("../secret.gguf");
    assert!(said.contains("no file and no model is named"), "{said}");
}

#[test]
#[cfg(unix)]
fn links_out_of_a_store_are_not_followed() {
    let stores = Stores::new();
    let secret = stores.model("secret.gguf");
    fs::create_dir_all(stores.path("ollama/blobs")).unwrap();
    link_to(&secret, &stores.path(&format!("ollama/blobs/sha256-{HASH}")));
    stores.ollama("registry.ollama.ai/library/out/1", &format!("sha256:{HASH}"));
    let snapshot = stores.path("hub/models--u--m/snapshots/c0ffee");
    fs::create_dir_all(&snapshot).unwrap();
    link_to(&secret, &snapshot.join("m-Q4_0.gguf"));
    stores.write("jan/models/out/model.yml", "model_path: models/out/m.gguf\n");
    link_to(&secret, &stores.path("jan/models/out/m.gguf"));
    assert_eq!(stores.names(), [""; 0]);
    let notes = stores.notes();
    assert_eq!(notes.lines().count(), 3, "{notes}");
    assert!(notes.contains("a link out of the store"), "{notes}");
    // A circle of folders ends.
    fs::create_dir_all(stores.path("models/a")).unwrap();
    link_to(&stores.path("models"), &stores.path("models/a/b"));
    stores.model("models/a/m.gguf");
    assert!(stores.names().contains(&"m".into()));
}

/// Returns layers of ollama's manifests, as (kind, digest).
fn layers(layers: &[(&str, &str)]) -> String {
    let layer = |(kind, hash): &(&str, &str)| {
        let kind = format!("application/vnd.ollama.image.{kind}");
        format!(r#"{{"mediaType":"{kind}","digest":"sha256:{hash}"}}"#)
    };
    format!(r#"{{"layers":[{}]}}"#, layers.iter().map(layer).collect::<Vec<_>>().join(","))
}

#[test]
fn layers_of_ollama_are_options() {
    let stores = Stores::new();
    stores.model(&format!("ollama/blobs/sha256-{HASH}"));
    let hash = |digit: &str| digit.repeat(64);
    let blob = |digit: &str, text: &str| {
        stores.write(&format!("ollama/blobs/sha256-{}", hash(digit)), text);
    };
    blob("1", r#"{"temperature":0.5,"stop":["<a>","<b>"],"num_ctx":64,"num_gpu":9,"tfs_z":1}"#);
    blob("2", "You help.");
    blob("3", "GGUF");
    blob("4", "{{ .Prompt }}");
    let manifest = "ollama/manifests/registry.ollama.ai/library/tuned";
    let [params, system, adapter, template, missing] = ["1", "2", "3", "4", "5"].map(hash);
    let whole = [
        ("model", HASH),
        ("template", &template),
        ("license", &missing),
        ("params", &params),
        ("system", &system),
        ("adapter", &adapter),
        ("messages", &template),
    ];
    stores.write(&format!("{manifest}/1"), layers(&whole));
    let broken =
        [("model", HASH), ("params", &system), ("system", &missing), ("adapter", &missing)];
    stores.write(&format!("{manifest}/2"), layers(&broken));
    assert_eq!(stores.names(), ["tuned:1", "tuned:2"]);

    let entry = stores.shelf().find("tuned:1").unwrap();
    assert!(entry.presets.is_empty() && entry.alias_of().is_none());
    let [options] = &entry.options()[..] else { panic!("{:?}", entry.options()) };
    let shown: Vec<_> =
        options.choices.iter().map(|choice| (&choice.key[..], choice.values.join("|"))).collect();
    let adapter = stores.path(&format!("ollama/blobs/sha256-{adapter}"));
    let expected = [
        ("temp", "0.5".into()),
        ("reverse-prompt", "<a>|<b>".into()),
        ("ctx", "64".into()),
        ("system-prompt", "You help.".into()),
        ("lora", adapter.to_str().unwrap().into()),
    ];
    assert_eq!(shown, expected);
    assert!(stores.shelf().find("tuned:2").unwrap().options().is_empty());
    let notes = stores.notes();
    for note in [
        "tuned:1 is listed without its layer messages: rope-cpu does not read it",
        "tuned:1 is listed without parameters that have no option: tfs_z",
        "tuned:2 is listed without its layer params: ",
        "tuned:2 is listed without its layer system: ",
        "tuned:2 is listed without its layer adapter: ",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
    assert_eq!(notes.lines().count(), 5, "{notes}");
    // A preset of the file has priority, and its options come first.
    stores.write("presets.toml", "[\"tuned:1\"]\ntemp = 1\n");
    let keys: Vec<_> = stores.shelf().find("tuned:1").unwrap().options();
    assert_eq!((keys.len(), &keys[0].choices[0].values[0][..]), (2, "1"));
    // ollama's files are its own.
    let error = stores.shelf().remove("tuned:2").unwrap_err().to_string();
    assert!(error.contains("ollama rm tuned:2"), "{error}");
}

#[test]
fn missing_parts_are_not_listed() {
    let stores = Stores::new();
    stores.model("models/m-00001-of-00002.gguf");
    assert_eq!(stores.names(), [""; 0]);
    let notes = stores.notes();
    assert!(notes.contains("m-00002-of-00002.gguf: not listed"), "{notes}");
    stores.model("models/m-00002-of-00002.gguf");
    assert_eq!(stores.shelf().find("m").unwrap().paths.len(), 2);
}

#[test]
fn a_file_that_is_no_model_has_an_error_of_its_own() {
    let stores = Stores::new();
    stores.write("models/broken.gguf", "GGUF");
    stores.model("models/good.gguf");
    assert_eq!(stores.names(), ["broken", "good"]);
    let broken = stores.shelf().find("broken").unwrap();
    assert!(broken.details().unwrap_err().to_string().contains("broken.gguf"));
    // A header is read again when the file has changed.
    let shelf = stores.shelf();
    let entry = shelf.find("good").unwrap();
    entry.details().unwrap();
    stores.write("models/good.gguf", "GGUF, but shorter");
    assert!(shelf.find("good").unwrap().details().is_err());
}

#[test]
fn a_folder_that_is_given_must_exist() {
    let stores = Stores::new();
    let options =
        rope_cpu::shelf::Options { models_dir: Some(stores.path("none")), ..stores.options() };
    let error = rope_cpu::shelf::Shelf::new(options).entries().unwrap_err().to_string();
    assert!(error.contains("cannot read") && error.contains("none"), "{error}");
}

#[test]
fn variables_give_the_folders() {
    let home = tempfile::tempdir().unwrap();
    let own = home.path().join(".local/share/rope-cpu/models");
    let set = |more: &'static [(&str, &str)]| {
        let home = home.path().to_str().unwrap().to_string();
        rope_cpu::shelf::Options::from_variables(move |name| match name {
            "HOME" => Some(home.clone()),
            name => more.iter().find(|(known, _)| *known == name).map(|(_, v)| v.to_string()),
        })
    };
    assert_eq!(set(&[]).models_dir, None);
    fs::create_dir_all(&own).unwrap();
    let options = set(&[]);
    assert_eq!(options.models_dir, Some(own));
    assert_eq!(options.hub_cache, Some(home.path().join(".cache/huggingface/hub")));
    assert_eq!(options.ollama[0], home.path().join(".ollama/models"));
    assert_eq!(options.presets, Some(home.path().join(".config/rope-cpu/presets.toml")));
    let given = set(&[
        ("OLLAMA_MODELS", "/o"),
        ("ROPE_CPU_MODELS_DIR", "/m"),
        ("ROPE_CPU_PRESETS", "/p.ini"),
    ]);
    assert_eq!(given.ollama, [std::path::PathBuf::from("/o")]);
    assert_eq!(given.models_dir, Some("/m".into()));
    assert_eq!(given.presets, Some("/p.ini".into()));
}

#[test]
fn models_are_removed_unless_other_programs_own_them() {
    let stores = Stores::new();
    let file = stores.model("models/mine.gguf");
    stores.model(&format!("ollama/blobs/sha256-{HASH}"));
    stores.ollama("registry.ollama.ai/library/smol/135m", &format!("sha256:{HASH}"));
    let shelf = stores.shelf();
    let error = shelf.remove("smol:135m").unwrap_err().to_string();
    assert!(error.contains("belongs to ollama") && error.contains("`ollama rm smol:135m`"));
    // A part of a name finds a model, but removes none.
    let error = shelf.remove("min").unwrap_err().to_string();
    assert!(error.contains("did you mean mine?"), "{error}");
    let removed = shelf.remove("mine").unwrap();
    assert_eq!((removed.bytes, removed.files), (stores.model.len() as u64, vec![file.clone()]));
    assert!(!file.exists());
}

#[test]
#[cfg(unix)]
fn the_last_name_of_a_download_removes_its_file() {
    let stores = Stores::new();
    let (blob, link) = stores.hub("u/m-GGUF", "m-Q4_0.gguf", HASH);
    // Another commit with the same file, and another name of it.
    let second = stores.path("hub/models--u--m-GGUF/snapshots/beef/m-Q4_0.gguf");
    fs::create_dir_all(second.parent().unwrap()).unwrap();
    link_to(&blob, &second);
    let shelf = stores.shelf();
    shelf.copy("u/m-GGUF", "small").unwrap();
    let removed = shelf.remove("u/m-GGUF:Q4_0").unwrap();
    assert_eq!(removed.shared, ["small"]);
    assert!(blob.exists() && !link.is_symlink() && !second.is_symlink());
    assert_eq!(stores.names(), ["small"]);
    assert!(shelf.find("small").unwrap().details().is_ok());
    let removed = shelf.remove("small").unwrap();
    assert_eq!((removed.shared.len(), removed.bytes), (0, stores.model.len() as u64));
    assert!(!blob.exists());
    assert_eq!(stores.names(), [""; 0]);
}
