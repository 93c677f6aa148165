//! Jan's folder: `llamacpp/models/NAME/model.yml`, which names the model file.
//!
//! ```text
//! model_path: llamacpp/models/org/model/model.gguf
//! name: org/model
//! ```

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use super::{DEPTH_MAX, Scan, is_within, small_text};
use crate::shelf::Store;

/// Adds the models of Jan's data folder. A file outside of the folder gives a note.
///
/// # Errors
/// If the folder cannot be read.
pub fn scan(data: &Path, scan: &mut Scan) -> io::Result<()> {
    for models in ["llamacpp/models", "models"] {
        let folder = data.join(models);
        if folder.is_dir() {
            folders(&folder, &folder, data, DEPTH_MAX, scan)?;
        }
    }
    Ok(())
}

/// Adds the model of `folder`, if it has one, or those of its subfolders.
fn folders(
    folder: &Path,
    top: &Path,
    data: &Path,
    depth: usize,
    scan: &mut Scan,
) -> io::Result<()> {
    let listed = folder.join("model.yml");
    if listed.is_file() {
        let name = folder.strip_prefix(top).unwrap_or(folder).to_string_lossy().replace('\\', "/");
        match small_text(&listed) {
            Err(error) => scan.note(&listed, format_args!("not listed: {error}")),
            Ok(text) => match value(&text, "model_path").and_then(|path| inside(data, path)) {
                Some(path) => {
                    scan.add(
                        name,
                        &path,
                        Store::Jan,
                        value(&text, "model_sha256").and_then(digest),
                    );
                }
                None => {
                    scan.note(&listed, "not listed: its model_path is not a file in Jan's folder")
                }
            },
        }
        return Ok(());
    }
    let mut inside: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    inside.sort();
    for path in inside.into_iter().filter(|path| path.is_dir() && depth > 0) {
        folders(&path, top, data, depth - 1, scan)?;
    }
    Ok(())
}

/// Returns the value of a key at the top of a YAML file, which is a plain or quoted word on its
/// line.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let value = line?.trim();
    let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value)).filter(|value| !value.is_empty())
}

/// Returns the path of a file in the data folder.
fn inside(data: &Path, path: &str) -> Option<PathBuf> {
    let is_inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    let path = data.join(path);
    (is_inside && is_within(&path, data)).then_some(path)
}

fn digest(text: &str) -> Option<String> {
    let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then(|| text.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_words_at_the_top() {
        let text = "size_bytes: 4\nmodel_path: \"a/b c.gguf\"\nx:\n  name: no\nname: 'n'\nempty:\n";
        assert_eq!(value(text, "model_path"), Some("a/b c.gguf"));
        assert_eq!(value(text, "name"), Some("n"));
        assert_eq!(value(text, "size"), None);
        assert_eq!(value(text, "empty"), None);
    }
}
