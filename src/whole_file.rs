//! Files that are there as a whole or not at all.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Makes a file that has its name only when it is complete: until then it is `PATH.partial`, and if
/// `write` fails, it is removed.
///
/// # Errors
/// Those of `write`, or what the file system says.
pub fn whole_file<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    let mut partial = path.to_path_buf().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&partial)?);
    let result = write(&mut file).and_then(|written| {
        file.flush()?;
        fs::rename(&partial, path)?;
        Ok(written)
    });
    if result.is_err() {
        let _ = fs::remove_file(&partial);
    }
    result
}
