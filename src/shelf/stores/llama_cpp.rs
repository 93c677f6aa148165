//! llama.cpp's cache: files `USER_REPO_FILE.gguf`, each with `FILE.gguf.json` or `FILE.gguf.etag`
//! beside it.

use std::{io, path::Path};

use super::{
    Scan, models,
    names::{of_repo, stem},
};
use crate::shelf::Store;

/// Adds the models of a cache.
///
/// # Errors
/// If the folder cannot be read.
pub fn scan(cache: &Path, scan: &mut Scan) -> io::Result<()> {
    for path in models(cache, 0)? {
        let Some(file) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let name = named(file).unwrap_or_else(|| stem(file).into());
        if !scan.has(Store::LlamaCpp, &name) {
            scan.add(name, &path, Store::LlamaCpp, None);
        }
    }
    Ok(())
}

/// Returns `USER/MODEL:QUANT`, if the parts of the file name are certain: names of users and models
/// may have underscores, too, but a repository usually ends in `-GGUF`.
fn named(file: &str) -> Option<String> {
    let (user, rest) = file.split_once('_')?;
    let end = rest.to_ascii_uppercase().find("-GGUF_")? + "-GGUF".len();
    let (repo, file) = (&rest[..end], &rest[end + 1..]);
    Some(of_repo(&format!("{user}/{repo}"), file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_where_they_are_certain() {
        let file = "ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf";
        assert_eq!(named(file).as_deref(), Some("ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"));
        assert_eq!(named("my_model.gguf"), None);
    }
}
