//! The cache of the Hugging Face Hub: `models--USER--MODEL/snapshots/COMMIT/FILE`.

use std::{cmp::Reverse, fs, io, path::Path};

use super::{DEPTH_MAX, Scan, is_within, models, names::of_repo};
use crate::shelf::Store;

/// Adds the models of all repositories in a cache.
///
/// # Errors
/// If the folder cannot be read.
pub fn scan(cache: &Path, scan: &mut Scan) -> io::Result<()> {
    let mut folders: Vec<_> = fs::read_dir(cache)?.flatten().collect();
    folders.sort_by_key(|folder| folder.file_name());
    for folder in folders {
        let name = folder.file_name();
        let parts = name.to_str().and_then(|name| name.strip_prefix("models--")?.split_once("--"));
        if let Some((user, model)) = parts {
            let repo = format!("{user}/{model}");
            if let Err(error) = self::repo(&folder.path(), &repo, scan) {
                scan.note(&folder.path(), format_args!("not listed: {error}"));
            }
        }
    }
    Ok(())
}

/// Adds the models of a repository. If two commits have a file of one name, the current commit's is
/// listed.
fn repo(folder: &Path, repo: &str, scan: &mut Scan) -> io::Result<()> {
    let main = fs::read_to_string(folder.join("refs/main")).unwrap_or_default();
    let snapshots = match fs::read_dir(folder.join("snapshots")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        snapshots => snapshots?,
    };
    let mut snapshots: Vec<_> = snapshots.flatten().collect();
    snapshots.sort_by_cached_key(|snapshot| {
        let is_main = snapshot.file_name() == main.trim();
        Reverse((is_main, snapshot.metadata().and_then(|data| data.modified()).ok()))
    });
    for snapshot in snapshots {
        for path in models(&snapshot.path(), DEPTH_MAX)? {
            let inside = path.strip_prefix(snapshot.path()).unwrap_or(&path);
            let Some(file) = inside.to_str() else { continue };
            let name = of_repo(repo, &file.replace('\\', "/"));
            if scan.has(Store::Hub, &name) {
                continue;
            }
            if !path.exists() {
                continue; // a link to a file that was removed
            }
            if !is_within(&path, folder) {
                scan.note(&path, "not listed: it is a link out of the cache");
                continue;
            }
            let digest = path.canonicalize().ok().and_then(|blob| {
                let name = blob.file_name()?.to_str()?;
                (name.len() == 64).then(|| name.to_string())
            });
            scan.add(name, &path, Store::Hub, digest);
        }
    }
    Ok(())
}
