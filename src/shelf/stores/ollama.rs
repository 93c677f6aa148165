//! ollama's store: `manifests/HOST/NAMESPACE/NAME/TAG` is JSON that names `blobs/sha256-HEX`, the layers
//! of a model: its weights, parameters, system message and adapters.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Scan, is_within, small_text};
use crate::{
    json,
    shelf::{
        Store,
        presets::{Choice, OfOllama},
    },
};

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
}

/// Media types of layers, before their kind.
const KIND: &str = "application/vnd.ollama.image.";

/// Layers without an effect: the template is in the model file too.
const WITHOUT_EFFECT: [&str; 2] = ["template", "license"];

/// A model in the store.
struct Model {
    path: PathBuf,
    hash: String,
    choices: Vec<Choice>,
    /// Notes about layers and parameters that are left out, one sentence each.
    notes: Vec<String>,
}

/// Adds the models of a store.
///
/// # Errors
/// If the folder cannot be read.
pub fn scan(store: &Path, scan: &mut Scan) -> io::Result<()> {
    let manifests = store.join("manifests");
    // HOST/NAMESPACE/NAME/TAG
    let mut paths = vec![manifests.clone()];
    for _ in 0..4 {
        let mut inside = Vec::new();
        for folder in paths.iter().filter(|path| path.is_dir()) {
            inside.extend(fs::read_dir(folder)?.flatten().map(|entry| entry.path()));
        }
        paths = inside;
    }
    paths.sort();
    for path in paths.into_iter().filter(|path| path.is_file()) {
        let Some(name) = name(&path, &manifests) else { continue };
        match model(&path, store) {
            Ok(Some(model)) => {
                for text in model.notes {
                    scan.note(&path, format_args!("{name} is listed {text}"));
                }
                let found = scan.add(name, &model.path, Store::Ollama, Some(model.hash));
                found.into_iter().for_each(|found| found.choices.clone_from(&model.choices));
            }
            // A model in another format, which ollama runs in another way.
            Ok(None) => scan.note(&path, "not listed: it has no GGUF model"),
            Err(reason) => scan.note(&path, format_args!("not listed: {reason}")),
        }
    }
    Ok(())
}

/// Returns the name that ollama shows: `NAME:TAG`, with the namespace and the host unless they are
/// the usual ones.
fn name(manifest: &Path, manifests: &Path) -> Option<String> {
    let inside = manifest.strip_prefix(manifests).ok()?;
    let parts: Vec<&str> = inside.iter().filter_map(|part| part.to_str()).collect();
    match parts[..] {
        ["registry.ollama.ai", "library", name, tag] => Some(format!("{name}:{tag}")),
        ["registry.ollama.ai", namespace, name, tag] => Some(format!("{namespace}/{name}:{tag}")),
        [host, namespace, name, tag] => Some(format!("{host}/{namespace}/{name}:{tag}")),
        _ => None,
    }
}

/// Returns the model of a manifest; `None` if it is in another format.
fn model(manifest: &Path, store: &Path) -> Result<Option<Model>, String> {
    let text = small_text(manifest).map_err(|e| e.to_string())?;
    let Manifest { layers } = json::parse(&text).map_err(|e| e.to_string())?;
    let of_kind = |layer: &Layer| layer.media_type.strip_prefix(KIND) == Some("model");
    let Some(weights) = layers.iter().find(|layer| of_kind(layer)) else { return Ok(None) };
    let (path, hash) = file(&weights.digest, store)?;
    let mut magic = [0; 4];
    let read =
        fs::File::open(&path).and_then(|mut file| io::Read::read_exact(&mut file, &mut magic));
    read.map_err(|e| e.to_string())?;
    if magic != *b"GGUF" {
        return Ok(None);
    }
    let (choices, notes) = options(&layers, store);
    Ok(Some(Model { path, hash, choices, notes }))
}

/// Returns the options of a model's layers, and what is left out.
fn options(layers: &[Layer], store: &Path) -> (Vec<Choice>, Vec<String>) {
    let (mut read, mut notes) = (OfOllama::default(), Vec::new());
    let (mut system, mut adapters) = (String::new(), Vec::new());
    for Layer { media_type, digest } in layers {
        let kind = media_type.strip_prefix(KIND).unwrap_or(media_type);
        let text = || {
            let (path, _) = file(digest, store)?;
            small_text(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let result = match kind {
            "model" => Ok(()),
            kind if WITHOUT_EFFECT.contains(&kind) => Ok(()),
            "params" => {
                text().and_then(|text| OfOllama::parameters(&text)).map(|layer| read = layer)
            }
            "system" => text().map(|text| system = text),
            "adapter" => file(digest, store)
                .map(|(path, _)| adapters.push(path.to_string_lossy().into_owned())),
            _ => Err("rope-cpu does not read it".into()),
        };
        if let Err(reason) = result {
            notes.push(format!("without its layer {}: {reason}", kind.escape_debug()));
        }
    }
    read.add_system(&system);
    read.add_adapters(adapters);
    if !read.unknown.is_empty() {
        let names: Vec<_> =
            read.unknown.iter().map(|name| name.escape_debug().to_string()).collect();
        notes.push(format!("without parameters that have no option: {}", names.join(", ")));
    }
    (read.choices, notes)
}

/// Returns the file of a digest `sha256:HEX`, with the digits. A digest that is no such number could
/// name any file.
fn file(digest: &str, store: &Path) -> Result<(PathBuf, String), String> {
    let hash = digest.strip_prefix("sha256:").or_else(|| digest.strip_prefix("sha256-"));
    let is_hash =
        |hash: &&str| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hash = hash.filter(is_hash).ok_or_else(|| format!("{digest:?} is not a digest"))?;
    let path = store.join("blobs").join(format!("sha256-{}", hash.to_lowercase()));
    if !path.exists() {
        return Err(format!("{} does not exist", path.display()));
    }
    match is_within(&path, store) {
        true => Ok((path, hash.to_lowercase())),
        false => Err(format!("{} is a link out of the store", path.display())),
    }
}
