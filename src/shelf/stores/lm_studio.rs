//! LM Studio's folder: `USER/REPO/FILE.gguf`.

use std::{io, path::Path};

use super::{
    DEPTH_MAX, Scan, models,
    names::{of_repo, stem},
};
use crate::shelf::Store;

/// Adds the models of LM Studio's folder. Links are followed: users share files by them.
///
/// # Errors
/// If the folder cannot be read.
pub fn scan(folder: &Path, scan: &mut Scan) -> io::Result<()> {
    for path in models(folder, DEPTH_MAX)? {
        let Some(inside) = path.strip_prefix(folder).ok().and_then(Path::to_str) else { continue };
        let inside = inside.replace('\\', "/");
        let name = match inside.splitn(3, '/').collect::<Vec<_>>()[..] {
            [user, repo, file] => of_repo(&format!("{user}/{repo}"), file),
            _ => stem(&inside).into(),
        };
        let name = match scan.has(Store::LmStudio, &name) {
            true => stem(&inside).into(),
            false => name,
        };
        scan.add(name, &path, Store::LmStudio, None);
    }
    Ok(())
}
