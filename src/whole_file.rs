//! Atomic writing of files.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process,
};

use crate::platform::{interrupt, mapping_fault};

/// Writes a file that gets its name only when it is complete; until then it is `PATH.PID.partial`. If
/// `write` fails, the program exits immediately, or a mapped file that `write` reads is shortened, the
/// partial file is removed. A replaced file keeps its permissions, and if `path` is a link, the link
/// stays and its target is replaced. An existing `path` that is not a regular file, such as a pipe, is
/// written to directly.
///
/// # Errors
/// The errors of `write` and of the file system.
pub fn whole_file<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    let buffered = |file| BufWriter::with_capacity(1 << 20, file);
    let path = target(path);
    let existing = fs::metadata(&path).ok();
    if existing.as_ref().is_some_and(|existing| !existing.is_file()) {
        let mut file = buffered(File::options().write(true).open(&path)?);
        let written = write(&mut file)?;
        file.flush()?;
        return Ok(written);
    }
    let partial = partial(&path);
    let unfinished = interrupt::unfinished(&partial);
    let file = File::create_new(&partial)?;
    let _registered = mapping_fault::remove_on_fault(&partial);
    // Set before the file has content that others must not read.
    let permitted =
        existing.map_or(Ok(()), |existing| file.set_permissions(existing.permissions()));
    let mut file = buffered(file);
    let result = permitted.map_err(E::from).and_then(|()| write(&mut file)).and_then(|written| {
        file.flush()?;
        file.get_ref().sync_all()?;
        fs::rename(&partial, &path)?;
        Ok(written)
    });
    if result.is_err() {
        let _ = fs::remove_file(&partial);
    }
    drop(unfinished);
    result
}

/// Checks that [`whole_file`] can write a file, before a long computation of its content. A file that exists
/// stays as it is.
///
/// # Errors
/// If `path` is a folder, or its folder cannot be written to.
pub fn writable(path: &Path) -> io::Result<()> {
    let path = target(path);
    match fs::metadata(&path) {
        Ok(existing) if existing.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        // Opening a pipe could wait for its reader.
        Ok(existing) if !existing.is_file() => return Ok(()),
        _ => {}
    }
    let partial = partial(&path);
    File::create_new(&partial)?;
    fs::remove_file(&partial)
}

/// Returns the file that is replaced: where a link leads, else `path`.
fn target(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.into())
}

/// Returns the path of a file until it is complete.
fn partial(path: &Path) -> PathBuf {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", process::id()));
    partial.into()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn written(path: &Path) -> io::Result<()> {
        whole_file(path, |file| file.write_all(b"new"))
    }

    #[test]
    fn links_and_permissions_stay() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink("file", &link).unwrap();
        written(&link).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_check_changes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        fs::write(&old, "old").unwrap();
        for path in [&old, &new, Path::new("/dev/null")] {
            writable(path).unwrap();
        }
        assert_eq!(fs::read_to_string(&old).unwrap(), "old");
        assert!(!new.exists());
        for path in [folder.path(), Path::new("/no/such/file")] {
            assert!(writable(path).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn a_device_is_written_to_directly() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        symlink("/dev/null", &link).unwrap();
        written(&link).unwrap();
        assert!(link.is_symlink() && !Path::new("/dev/null").is_file());
    }

    #[test]
    fn a_failure_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let [file, other] = ["file", "file.partial"].map(|name| folder.path().join(name));
        for path in [&file, &other] {
            fs::write(path, "old").unwrap();
        }
        let failed = whole_file(&file, |file| {
            file.write_all(b"half")?;
            Err::<(), _>(io::Error::other("no more"))
        });
        assert!(failed.is_err());
        for path in [&file, &other] {
            assert_eq!(fs::read_to_string(path).unwrap(), "old");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
