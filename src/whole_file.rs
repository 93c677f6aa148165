//! Writes files atomically, also in folders that others may write to.

use std::{
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process,
};

use crate::platform::{self, Access, interrupt, mapping_fault};

/// The extension of files that are not complete yet.
const PARTIAL: &str = "partial";

/// Writes a file that gets its name only when it is complete. Until then it is `PATH.PID.partial`.
/// The partial file is removed if `write` fails, if the program exits immediately, or if a mapped
/// file that `write` reads is shortened. If the program is killed, the next one that writes the
/// file removes it.
///
/// A replaced file keeps its permissions. If `path` is a link, its target is replaced. If `path` is
/// not a regular file, such as a pipe, it is written to directly.
///
/// # Errors
/// The errors of `write` and of the file system.
pub fn whole_file<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    follow(path, Access::All, write)
}

/// Writes a file like [`whole_file`]. If the file is new, only its owner can read it. Use it for
/// personal texts.
///
/// # Errors
/// As for [`whole_file`].
pub fn private_file<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    follow(path, Access::Owner, write)
}

/// Writes a file like [`private_file`] in a folder that others may write to. Refuses a `path` that
/// is a link, a pipe, or anything other than a regular file. A replaced file becomes private as
/// well.
///
/// # Errors
/// As for [`whole_file`], and if `path` exists and is not a regular file.
pub fn regular_file<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return Err(not_regular().into()),
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
        _ => {}
    }
    // If someone puts another file in its place from now on, that is replaced, and never written
    // to.
    replace(path, Access::Owner, None, write)
}

/// Opens a file in a folder that others may write to. Does not follow links, and never waits for
/// the other end of a pipe.
///
/// # Errors
/// If `path` is not a regular file, or cannot be opened.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    platform::open_without_following(options);
    if fs::symlink_metadata(path)?.is_symlink() {
        return Err(not_regular());
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

/// Removes a file that [`whole_file`] left incomplete because its program was killed. Returns
/// whether it removed the file. It does not if `path` has another name, or its program is still
/// writing.
///
/// # Errors
/// If the file cannot be opened or removed.
pub fn remove_abandoned(path: &Path) -> io::Result<bool> {
    let process = path.extension().filter(|extension| *extension == PARTIAL);
    let process = process.and_then(|_| Path::new(path.file_stem()?).extension()?.to_str());
    if process.and_then(|process| process.parse::<u32>().ok()).is_none() {
        return Ok(false);
    }
    let gone = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Ok(false),
        _ => Err(e),
    };
    // The writer holds a lock until it finishes.
    let file = match open_regular(path, File::options().read(true)) {
        Ok(file) => file,
        Err(e) => return gone(e),
    };
    match file.try_lock() {
        Ok(()) => fs::remove_file(path).map(|()| true).or_else(gone),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

fn not_regular() -> io::Error {
    let message = "it is not a regular file, and links are not followed here";
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Writes the file that `path` or a link there names.
fn follow<T, E: From<io::Error>>(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    let path = target(path);
    let existing = fs::metadata(&path).ok();
    if existing.as_ref().is_some_and(|existing| !existing.is_file()) {
        let mut file = buffered(File::options().write(true).open(&path)?);
        let written = write(&mut file)?;
        file.flush()?;
        return Ok(written);
    }
    remove_abandoned_of(&path);
    replace(&path, access, existing, write)
}

/// Removes what killed programs have left of a file, to free the disk and the name that a program
/// with the same PID needs. Nothing depends on its success.
fn remove_abandoned_of(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let files = folder.unwrap_or(Path::new(".")).read_dir().into_iter().flatten().flatten();
    for partial in files.map(|file| file.path()) {
        let written = partial.file_stem().and_then(|stem| Path::new(stem).file_stem());
        if written == path.file_name() {
            let _ = remove_abandoned(&partial);
        }
    }
}

/// A large buffer could be refused, and a `BufWriter` without memory aborts the program.
fn buffered(file: File) -> BufWriter<File> {
    BufWriter::with_capacity(64 << 10, file)
}

/// Writes a file, then gives it its name. It gets the permissions of an `existing` file.
fn replace<T, E: From<io::Error>>(
    path: &Path,
    access: Access,
    existing: Option<Metadata>,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, E>,
) -> Result<T, E> {
    let partial = partial(path);
    let unfinished = interrupt::unfinished(&partial);
    let mut options = File::options();
    options.write(true).create_new(true);
    platform::set_new_file_access(&mut options, access);
    let file = create_locked(&partial, &options)?;
    let _registered = mapping_fault::remove_on_fault(&partial);
    // Set the permissions before the file has content that others must not read.
    let permitted =
        existing.map_or(Ok(()), |existing| file.set_permissions(existing.permissions()));
    let mut file = buffered(file);
    let result = permitted.map_err(E::from).and_then(|()| write(&mut file)).and_then(|written| {
        file.flush()?;
        file.get_ref().sync_all()?;
        fs::rename(&partial, path)?;
        Ok(written)
    });
    if result.is_err() {
        let _ = fs::remove_file(&partial);
    }
    drop(unfinished);
    result
}

/// Creates a file with a lock for `remove_abandoned`. If the file system has no locks, that removes
/// nothing.
fn create_locked(partial: &Path, options: &OpenOptions) -> io::Result<File> {
    let file = options.open(partial)?;
    let _ = file.try_lock();
    // Another program can have removed the file before it was locked.
    match partial.try_exists() {
        Ok(false) => options.open(partial).inspect(|file| drop(file.try_lock())),
        _ => Ok(file),
    }
}

/// Checks that [`whole_file`] can write a file, before a long computation. Does not change an
/// existing file.
///
/// # Errors
/// If `path` is a folder, or its folder cannot be written to.
pub fn writable(path: &Path) -> io::Result<()> {
    let path = target(path);
    match fs::metadata(&path) {
        Ok(existing) if existing.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        // Do not open a pipe: that could wait for its reader.
        Ok(existing) if !existing.is_file() => return Ok(()),
        _ => {}
    }
    remove_abandoned_of(&path);
    let partial = partial(&path);
    File::create_new(&partial)?;
    fs::remove_file(&partial)
}

/// Returns the file to replace: the target of a link, or `path` itself.
fn target(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.into())
}

/// Returns the path of an incomplete file.
fn partial(path: &Path) -> PathBuf {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.{PARTIAL}", process::id()));
    partial.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_changes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        fs::write(&old, "old").unwrap();
        writable(&old).unwrap();
        writable(&new).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "old");
        assert!(!new.exists());
        for path in [folder.path(), Path::new("/no/such/file")] {
            assert!(writable(path).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn incomplete_files_are_removed_unless_they_are_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let in_folder = |name: &str| folder.path().join(name);
        for name in ["dead.7.partial", "of.someone.partial", "other.7"] {
            fs::write(in_folder(name), "").unwrap();
        }
        whole_file(&in_folder("file"), |_| {
            let mine = in_folder(&format!("file.{}.partial", process::id()));
            assert!(mine.exists() && !remove_abandoned(&mine).unwrap());
            for (name, removed) in
                [("dead.7.partial", true), ("of.someone.partial", false), ("other.7", false)]
            {
                assert_eq!(remove_abandoned(&in_folder(name)).unwrap(), removed);
                assert_eq!(in_folder(name).exists(), !removed);
            }
            io::Result::Ok(())
        })
        .unwrap();
        assert!(!remove_abandoned(&in_folder("missing.7.partial")).unwrap());
    }

    #[test]
    fn the_next_file_removes_what_killed_programs_left_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let in_folder = |name: &str| folder.path().join(name);
        let mine = format!("a.gguf.{}.partial", process::id());
        let others =
            ["b.gguf.7.partial", "a.gguf", "a.7.partial", "a.gguf.partial", "a.gguf.x.partial"];
        let write = |left: &str, write: &dyn Fn(&Path)| {
            for name in others.iter().chain([&left]) {
                fs::write(in_folder(name), "old").unwrap();
            }
            write(&in_folder("a.gguf"));
            assert!(!in_folder(left).exists(), "{left}");
            assert!(others.iter().all(|name| in_folder(name).exists()));
        };
        for left in ["a.gguf.7.partial", &mine] {
            write(left, &|path| whole_file(path, |file| file.write_all(b"new")).unwrap());
            assert_eq!(fs::read_to_string(in_folder("a.gguf")).unwrap(), "new");
            write(left, &|path| writable(path).unwrap());
        }
        // Two writers of one file: the second one leaves what the first one writes.
        let result = whole_file(&in_folder("a.gguf"), |file| {
            let other = whole_file(&in_folder("a.gguf"), |_| io::Result::Ok(()));
            assert_eq!(other.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            file.write_all(b"first")
        });
        result.unwrap();
        assert_eq!(fs::read_to_string(in_folder("a.gguf")).unwrap(), "first");
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

#[cfg(all(test, unix))]
mod unix_tests {
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
    fn new_private_files_are_for_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        private_file(&path, |file| file.write_all(b"new")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        private_file(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(mode(&path), 0o640);
        regular_file(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn links_and_pipes_are_no_regular_files() {
        let folder = tempfile::tempdir().unwrap();
        let [target, link, dangling, pipe] =
            ["target", "link", "dangling", "pipe"].map(|name| folder.path().join(name));
        fs::write(&target, "old").unwrap();
        symlink("target", &link).unwrap();
        symlink("nowhere", &dangling).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&link, &dangling, &pipe, &folder.path().into()] {
            let written = regular_file(path, |file| file.write_all(b"new"));
            let opened = open_regular(path, File::options().read(true)).map(drop);
            for result in [written, opened] {
                let error = result.unwrap_err().to_string();
                assert!(error.contains("not a regular file"), "{}: {error}", path.display());
            }
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
        open_regular(&target, File::options().read(true)).unwrap();
    }

    #[test]
    fn a_device_is_written_to_directly() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        writable(Path::new("/dev/null")).unwrap();
        symlink("/dev/null", &link).unwrap();
        written(&link).unwrap();
        assert!(link.is_symlink() && !Path::new("/dev/null").is_file());
    }
}
