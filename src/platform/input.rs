//! Polling of standard input.

/// Returns whether standard input, if it is a pipe or a file, can be read without blocking. False for
/// terminals and other devices.
#[cfg(unix)]
pub fn is_ready() -> bool {
    use std::{fs::File, io, os::fd::AsFd, os::unix::fs::FileTypeExt};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

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

/// Returns false: polling is not supported on this system.
#[cfg(not(unix))]
pub fn is_ready() -> bool {
    false
}
