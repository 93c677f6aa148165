//! Downloads a file: resumes after a broken connection, and verifies the checksum.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::Path,
    thread::sleep,
    time::Duration,
};

use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::{Agent, config::RedirectAuthHeaders};

use super::{Error, Event, Hub, OnEvent, listing};

/// How long to wait for data before closing the connection.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The number of connections without data, in a row, after which the download fails.
const TRIES: u32 = 5;
/// The pause after the first failed connection. It doubles each time.
const PAUSE: Duration = Duration::from_millis(250);

/// The download of one file.
pub struct Transfer<'a> {
    pub hub: &'a Hub,
    pub repo: &'a str,
    pub file: listing::File<'a>,
    pub url: String,
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
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => {
                on_event(Event::Waiting);
                lock.lock().map_err(disk)?;
            }
            result => result.map_err(|e| disk(e.into()))?,
        }
        if path.exists() {
            return Ok(()); // downloaded by another program, or for another commit or name
        }
        let part = path.with_extension("part");
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
            sleep(PAUSE * 2u32.pow(failures - 1));
        }
        let found = sum(&mut file, &self.file).map_err(disk)?;
        if found != self.file.hash {
            fs::remove_file(&part).map_err(disk)?;
            return Err(Error::Sum { file: self.name(), found, expected: self.file.hash.clone() });
        }
        // Otherwise the name could be on the disk before the bytes are, if the machine stops now.
        file.sync_all().map_err(disk)?;
        fs::rename(&part, path).map_err(disk)
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
        let agent: Agent = Agent::config_builder()
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("rope-cpu/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_per_read(Some(PATIENCE))
            .build()
            .into();
        let mut request = agent.get(&self.url);
        if let Some(token) = &self.hub.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let rest = 0 < done && done < bytes;
        if rest {
            request = request.header("Range", format!("bytes={done}-"));
        }
        let answer = request.call().map_err(|e| self.hub.refused(&self.name(), e))?;
        if !(rest && answer.status() == 206) {
            // The hub sends the whole file, so discard the bytes received before.
            file.set_len(0).map_err(disk)?;
            done = 0;
        }
        let (name, repo, hub) = (self.file.name, self.repo, &self.hub.endpoint[..]);
        on_event(Event::Started { file: name, repo, hub, done, bytes });
        let mut body = answer.into_body().into_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let broken = |reason| Error::Broken { file: self.name(), done, bytes, reason };
            let read = match body.read(&mut buffer) {
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
        }
    }

    fn name(&self) -> String {
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
        match file.read(&mut buffer)? {
            0 => break,
            read => digest.update(&buffer[..read]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
