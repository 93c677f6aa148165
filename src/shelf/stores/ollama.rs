//! ollama's store: `manifests/HOST/NAMESPACE/NAME/TAG` is JSON that names `blobs/sha256-HEX`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Scan, is_within, small_text};
use crate::{json, shelf::Store};

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

const MODEL: &str = "application/vnd.ollama.image.model";
const ADAPTER: &str = "application/vnd.ollama.image.adapter";

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
        match blob(&path, store, &name, scan) {
            Ok(Some((blob, digest))) => scan.add(name, &blob, Store::Ollama, Some(digest)),
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

/// Returns the file of the model that a manifest names, with its SHA-256.
fn blob(
    manifest: &Path,
    store: &Path,
    name: &str,
    scan: &mut Scan,
) -> Result<Option<(PathBuf, String)>, String> {
    let text = small_text(manifest).map_err(|e| e.to_string())?;
    let manifest_of: Manifest = json::parse(&text).map_err(|e| e.to_string())?;
    let layer = |kind: &str| manifest_of.layers.iter().find(|layer| layer.media_type == kind);
    let Some(model) = layer(MODEL) else { return Ok(None) };
    let (path, hash) = file(&model.digest, store)?;
    if let Some(adapter) = layer(ADAPTER) {
        let (adapter, _) = file(&adapter.digest, store)?;
        scan.note(
            manifest,
            format_args!("{name} is listed without its adapter, {}", adapter.display()),
        );
    }
    let mut magic = [0; 4];
    let read =
        fs::File::open(&path).and_then(|mut file| io::Read::read_exact(&mut file, &mut magic));
    read.map_err(|e| e.to_string())?;
    Ok((magic == *b"GGUF").then_some((path, hash)))
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
