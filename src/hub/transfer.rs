//! Downloads a file: resumes after a broken connection, and verifies the checksum.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Seek, Write},
    path::Path,
    time::Duration,
};

use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::{Agent, Body, config::RedirectAuthHeaders, http::Response};

use super::{
    Error, Event, Hub, OnEvent, WAIT_STEP, listing,
    ranges::{self, Stopped},
};
use crate::platform::interrupt;

/// How long to wait for data before closing the connection.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The number of connections without data, in a row, after which the download fails.
pub const TRIES: u32 = 5;
/// The pause after the first failed connection. It doubles each time.
pub const PAUSE: Duration = Duration::from_millis(250);

/// The download of one file.
pub struct Transfer<'a> {
    pub hub: &'a Hub,
    pub repo: &'a str,
    pub file: listing::File<'a>,
    pub url: String,
    pub agent: Agent,
}

/// Returns the client of all connections of a download.
pub fn agent() -> Agent {
    Agent::config_builder()
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .user_agent(concat!("rope-cpu/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .timeout_connect(Some(PATIENCE))
        .timeout_recv_response(Some(PATIENCE))
        .timeout_per_read(Some(PATIENCE))
        .build()
        .into()
}

impl Transfer<'_> {
    /// Downloads the file to `path`. Until the file is complete and verified, the received bytes
    /// are in `PATH.part`, and the next call resumes from it.
    ///
    /// # Errors
    ///
    /// Returns an error if the hub refuses the file, the connection breaks repeatedly, the checksum
    /// is wrong, or the disk cannot be written to.
    pub fn fetch(&self, path: &Path, on_event: OnEvent) -> Result<(), Error> {
        let disk = |source| Error::Disk { path: path.into(), source };
        let lock = File::create(path.with_extension("lock")).map_err(disk)?;
        let mut waits = false;
        while let Err(error) = lock.try_lock() {
            let TryLockError::WouldBlock = error else { return Err(disk(error.into())) };
            if !waits {
                on_event(Event::Waiting);
            }
            waits = true;
            self.hub.wait(|| self.name(), WAIT_STEP)?;
        }
        if path.exists() {
            return Ok(()); // downloaded by another program, or for another commit or name
        }
        let (part, list) = (path.with_extension("part"), path.with_extension("ranges"));
        if self.file.bytes >= ranges::BYTES_MIN {
            match ranges::fetch(self, path, on_event) {
                Ok(()) => return self.verified(path),
                Err(Stopped::Failed(error)) => return Err(error),
                // One connection receives the whole file.
                Err(Stopped::NoRanges) => fs::remove_file(&part).map_err(disk)?,
            }
        }
        // What an interrupted download of ranges received is not the start of the file.
        if fs::remove_file(&list).is_ok() {
            let _ = fs::remove_file(&part);
        }
        let file = OpenOptions::new().read(true).append(true).create(true).open(&part);
        let mut file = file.map_err(disk)?;
        let mut failures = 0;
        loop {
            let before = file.metadata().map_err(disk)?.len();
            if before == self.file.bytes {
                break;
            }
            let Err(error) = self.resume(&mut file, before, on_event, &disk) else { continue };
            let received = file.metadata().map_err(disk)?.len() > before;
            failures = if received { 1 } else { failures + 1 };
            if !error.is_temporary() || failures == TRIES {
                return Err(error);
            }
            on_event(Event::Retrying { error: &error });
            self.hub.wait(|| self.name(), PAUSE * 2u32.pow(failures - 1))?;
        }
        self.verified(path)
    }

    /// Verifies the received file, and gives it its name.
    fn verified(&self, path: &Path) -> Result<(), Error> {
        let disk = |source| Error::Disk { path: path.into(), source };
        let part = path.with_extension("part");
        // Windows flushes only files that are open for writing.
        let mut file = OpenOptions::new().read(true).write(true).open(&part).map_err(disk)?;
        let found = sum(&mut file, &self.file).map_err(disk)?;
        // Already removed if one connection received the file.
        let _ = fs::remove_file(path.with_extension("ranges"));
        if found != self.file.hash {
            fs::remove_file(&part).map_err(disk)?;
            return Err(Error::Sum { file: self.name(), found, expected: self.file.hash.clone() });
        }
        // Otherwise the name could be on the disk before the bytes are, if the machine stops now.
        file.sync_all().map_err(disk)?;
        fs::rename(&part, path).map_err(disk)
    }

    /// Requests the file, or the bytes from the first number to before the second.
    ///
    /// # Errors
    /// If the hub refuses it or cannot be reached.
    pub fn request(&self, range: Option<(u64, Option<u64>)>) -> Result<Response<Body>, Error> {
        let mut request = self.agent.get(&self.url);
        if let Some(token) = &self.hub.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if let Some((start, end)) = range {
            let last = end.map(|end| (end - 1).to_string()).unwrap_or_default();
            request = request.header("Range", format!("bytes={start}-{last}"));
        }
        request.call().map_err(|e| self.hub.refused(&self.name(), e))
    }

    /// Returns the event at the start of the download, after `done` bytes.
    pub fn started(&self, done: u64) -> Event<'_> {
        let (file, repo, hub) = (self.file.name, self.repo, &self.hub.endpoint[..]);
        Event::Started { file, repo, hub, done, bytes: self.file.bytes }
    }

    /// Makes one request for the bytes after the first `done`, and appends them.
    fn resume(
        &self,
        file: &mut File,
        mut done: u64,
        on_event: OnEvent,
        disk: &impl Fn(io::Error) -> Error,
    ) -> Result<(), Error> {
        let bytes = self.file.bytes;
        let rest = 0 < done && done < bytes;
        let answer = self.request(rest.then_some((done, None)))?;
        if !(rest && answer.status() == 206) {
            // The hub sends the whole file, so discard the bytes received before.
            file.set_len(0).map_err(disk)?;
            done = 0;
        }
        on_event(self.started(done));
        let mut body = answer.into_body().into_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let broken = |reason| Error::Broken { file: self.name(), done, bytes, reason };
            let read = match interrupt::read(&mut body, &mut buffer) {
                Ok(0) if done == bytes => return Ok(()),
                Ok(0) => return Err(broken("it was closed".into())),
                Ok(read) => read,
                Err(e) => return Err(broken(e.to_string())),
            };
            done += read as u64;
            if done > bytes {
                file.set_len(0).map_err(disk)?;
                return Err(Error::Larger { file: self.name(), bytes });
            }
            file.write_all(&buffer[..read]).map_err(disk)?;
            on_event(Event::Received { done });
            self.hub.wait(|| self.name(), Duration::ZERO)?;
        }
    }

    pub fn name(&self) -> String {
        format!("{} of {}", self.file.name, self.repo)
    }
}

/// Computes the hash of `file`, by the algorithm of the expected hash.
fn sum(file: &mut File, expected: &listing::File) -> io::Result<String> {
    match expected.hash.len() {
        64 => digest(Sha256::new(), file),
        _ => digest(Sha1::new_with_prefix(format!("blob {}\0", expected.bytes)), file),
    }
}

fn digest(mut digest: impl Digest, file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match interrupt::read(file, &mut buffer)? {
            0 => break,
            read => digest.update(&buffer[..read]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
