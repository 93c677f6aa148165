//! The folder of models: any GGUF files, also in subfolders.

use std::{io, path::Path};

use super::{DEPTH_MAX, Scan, models, names::stem};
use crate::shelf::Store;

/// Adds the models of a folder. Links are followed: the user made them.
///
/// # Errors
/// If the folder cannot be read.
pub fn scan(folder: &Path, scan: &mut Scan) -> io::Result<()> {
    for path in models(folder, DEPTH_MAX)? {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let name = stem(name);
        let inside = || path.parent()?.strip_prefix(folder).ok()?.to_str();
        // The second file of a name is called by its subfolder.
        let name = match inside().filter(|inside| !inside.is_empty()) {
            Some(inside) if scan.has(Store::Folder, name) => {
                format!("{}/{name}", inside.replace('\\', "/"))
            }
            _ => name.into(),
        };
        scan.add(name, &path, Store::Folder, None);
    }
    Ok(())
}
