//! Functions that Linux and macOS share.

pub mod mapping_fault;
#[cfg(feature = "program")]
mod signals;

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::{
        fd::AsFd,
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, symlink},
    },
    path::Path,
};

use nix::{
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        statvfs::statvfs,
        termios::{LocalFlags, SetArg, tcgetattr, tcsetattr},
    },
};

#[cfg(feature = "program")]
pub use signals::{handle_signals, report_file_size_limit};

use rustix::mm::{Advice, madvise};

use super::{Access, pages::Reading};

/// The character that shells put before a space in a path.
pub const PATH_ESCAPE: Option<char> = Some('\\');

/// Linux reads this many bytes ahead at a time from most disks. It ignores the rest of longer
/// advice.
const WINDOW_BYTES: usize = 512 << 10;

/// Advises the system when bytes of a mapped file will be read. Ignores errors, since it is only
/// advice.
#[allow(unsafe_code, reason = "advice is given by address")]
pub fn advise(bytes: &[u8], reading: Reading) {
    let page = rustix::param::page_size();
    let (advice, each) = match reading {
        // The page where a part starts counts as well.
        Reading::Soon => (Advice::WillNeed, WINDOW_BYTES - page),
        #[cfg(target_os = "linux")]
        Reading::Late => (Advice::LinuxPageOut, usize::MAX),
        #[cfg(not(target_os = "linux"))]
        Reading::Late => return,
    };
    for part in bytes.chunks(each) {
        let before = part.as_ptr().addr() % page;
        let start = part.as_ptr().wrapping_sub(before).cast_mut().cast();
        // SAFETY: none of these changes the contents of memory, whatever is at the address.
        let _ = unsafe { madvise(start, part.len() + before, advice) };
    }
}

/// Returns the bytes that this user may write to the disk with `path`, if the system reports them.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let disk = statvfs(path).ok()?;
    // Their types differ between systems.
    #[allow(clippy::useless_conversion, reason = "it is one on some systems")]
    let (blocks, size) = (u64::from(disk.blocks_available()), u64::from(disk.fragment_size()));
    Some(blocks.saturating_mul(size))
}

/// Creates a directory and its parents, which only the owner can read. An existing directory is not
/// changed.
///
/// # Errors
/// If the file system cannot create it.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)
}

/// Returns whether users other than this one may create or remove files in a directory.
pub fn others_may_write(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| {
        let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
        !is_own || metadata.mode() & 0o022 != 0
    })
}

/// Creates a symbolic link at `link` to `target`, a path relative to the directory of `link`.
///
/// # Errors
/// If the file system cannot create the link.
pub fn link(target: &Path, link: &Path) -> io::Result<()> {
    symlink(target, link)
}

/// Makes opening fail on a link, and not wait on a pipe.
pub fn open_without_following(options: &mut OpenOptions) {
    options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
}

/// Sets who can read a file that is created.
pub fn set_new_file_access(options: &mut OpenOptions, access: Access) {
    options.mode(match access {
        Access::All => 0o666,
        Access::Owner => 0o600,
    });
}

/// Returns whether standard input, if it is a pipe or a file, can be read without blocking. False
/// for terminals and other devices.
pub fn input_is_ready() -> bool {
    let stdin = io::stdin();
    let is_device = match stdin.as_fd().try_clone_to_owned().map(File::from) {
        Ok(file) => file.metadata().is_ok_and(|m| m.file_type().is_char_device()),
        Err(_) => return false, // it is closed
    };
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    !is_device
        && poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds[0].revents().is_some_and(|found| found.contains(PollFlags::POLLIN))
}

/// Sets whether the terminal shows what is typed. Returns whether that changed.
pub fn set_echo(echo: bool) -> bool {
    let stdin = io::stdin();
    let Ok(mut settings) = tcgetattr(&stdin) else { return false };
    let changes = settings.local_flags.contains(LocalFlags::ECHO) != echo;
    settings.local_flags.set(LocalFlags::ECHO, echo);
    changes && tcsetattr(&stdin, SetArg::TCSANOW, &settings).is_ok()
}

/// Does nothing: terminals interpret escape sequences.
pub fn prepare_terminal() {}

/// Lowers the priority of this thread, and of each thread that it starts.
pub fn lower_priority(nice: u8) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice.into())?)
}
