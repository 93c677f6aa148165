//! Downloads models from the Hugging Face Hub, into the cache that Hugging Face's programs use.
//!
//! ```text
//! models--USER--MODEL/blobs/SHA256             a file
//! models--USER--MODEL/snapshots/COMMIT/NAME    a link to it
//! models--USER--MODEL/refs/main                the commit that was downloaded last
//! ```
//!
//! The crate hf-hub provides the hub's addresses and this layout, but it does not download the
//! files here. As of 0.5, it writes bytes twice if a resumed download breaks again, and verifies no
//! checksums. It has no timeouts, and sends the token to hosts that the hub redirects to.

mod choice;
mod environment;
mod error;
mod listing;
mod ranges;
mod transfer;

use std::{
    cmp::Reverse,
    fmt::Display,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{Api, ApiBuilder},
};

pub(crate) use choice::accompanies_model;
pub use choice::{Wanted, without_hub};
pub use error::Error;
use listing::Listing;
use transfer::Transfer;

use crate::platform;

/// A client of the hub: its address, the cache folder and the access token.
///
/// ```no_run
/// use rope_cpu::hub::{Hub, Options, Wanted};
///
/// # fn main() -> Result<(), rope_cpu::hub::Error> {
/// let hub = Hub::new(Options {
///     endpoint: "https://huggingface.co".into(),
///     cache: "models".into(),
///     token: None,
///     offline: false,
/// })?;
/// let wanted: Wanted = "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M".parse()?;
/// let path = hub.model(&wanted, &mut |_| {})?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Hub {
    endpoint: String,
    cache: Cache,
    token: Option<String>,
    offline: bool,
    cancelled: Option<Arc<Cancelled>>,
}

/// Returns whether a download ends.
type Cancelled = dyn Fn() -> bool + Send + Sync;

/// How often a download that waits asks whether it is cancelled.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// The options of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The address of the hub, such as `https://huggingface.co`.
    pub endpoint: String,
    /// The folder of downloaded files.
    pub cache: PathBuf,
    /// The access token for private and gated models.
    pub token: Option<String>,
    /// Uses only files in the cache.
    pub offline: bool,
}

/// An event of a download, to show progress.
#[allow(missing_docs, reason = "the names explain the fields; sizes are in bytes")]
pub enum Event<'a> {
    /// The download of a file has started, or has resumed after `done` of its bytes.
    Started { file: &'a str, repo: &'a str, hub: &'a str, done: u64, bytes: u64 },
    /// The first `done` bytes of the file have been received.
    Received { done: u64 },
    /// A connection failed, and the download will be retried.
    Retrying { error: &'a Error },
    /// Another program is downloading the same file; the download waits for it.
    Waiting,
    /// The hub cannot be reached, and the cached file is used.
    UsingCached { error: &'a Error, path: &'a Path },
}

/// A function that is called with every event.
pub type OnEvent<'a> = &'a mut dyn FnMut(Event);

impl Hub {
    /// Creates a client.
    ///
    /// # Errors
    ///
    /// Returns an error if the address or the token is invalid.
    pub fn new(options: Options) -> Result<Self, Error> {
        let Options { endpoint, cache, token, offline } = options;
        let address = endpoint.parse::<ureq::http::Uri>();
        if !address.is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https"))) {
            return Err(Error::Endpoint { endpoint });
        }
        let token = token.map(|token| token.trim().to_string()).filter(|token| !token.is_empty());
        if token.as_ref().is_some_and(|token| !token.chars().all(|c| c.is_ascii_graphic())) {
            return Err(Error::Token);
        }
        Ok(Hub {
            endpoint: endpoint.trim_end_matches('/').into(),
            cache: Cache::new(cache),
            token,
            offline,
            cancelled: None,
        })
    }

    /// Ends downloads with [`Error::Cancelled`] once `cancelled` returns true. What has arrived stays,
    /// and the next download of the model resumes from it.
    ///
    /// It is asked after each piece of a file, and while a download waits for another program or for
    /// the next try. If a connection stalls, it is asked when the connection times out.
    #[must_use]
    pub fn cancelled_by(self, cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Hub { cancelled: Some(Arc::new(cancelled)), ..self }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled())
    }

    /// Waits, unless the download of `what` is cancelled.
    ///
    /// # Errors
    /// If it is cancelled.
    fn wait(&self, what: impl Fn() -> String, time: Duration) -> Result<(), Error> {
        let end = Instant::now() + time;
        loop {
            if self.is_cancelled() {
                return Err(Error::Cancelled { what: what() });
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(WAIT_STEP));
        }
    }

    /// Returns the path of a model, or of its first part. Downloads the files that are not in the
    /// cache. If the hub cannot be reached, uses the cached model.
    ///
    /// # Errors
    ///
    /// Returns an error if the hub does not have the model, refuses access to it, or sends other
    /// data, or if the download is [cancelled](Hub::cancelled_by).
    pub fn model(&self, wanted: &Wanted, on_event: OnEvent) -> Result<PathBuf, Error> {
        if self.offline {
            return self.cached(wanted);
        }
        let repo = &wanted.repo;
        let api = ApiBuilder::from_cache(self.cache.clone())
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .build()
            .map_err(|e| self.unreachable(repo, e))?;
        let listing = match self.listing(&api, repo) {
            Err(error) if error.is_temporary() => {
                let Ok(path) = self.cached(wanted) else { return Err(error) };
                on_event(Event::UsingCached { error: &error, path: &path });
                return Ok(path);
            }
            listing => listing?,
        };
        let chosen = wanted.choose(&listing.names())?;
        let cache = self.cache.model(repo.clone());
        let snapshot = cache.pointer_path(&listing.commit);
        let at_commit = Repo::with_revision(repo.clone(), RepoType::Model, listing.commit.clone());
        let at_commit = api.repo(at_commit);
        let disk = |path: &Path| {
            let path = path.to_path_buf();
            move |source| Error::Disk { path, source }
        };
        let blobs = chosen.iter().filter(|name| !snapshot.join(name).exists()).map(|name| {
            let file = listing.file(name)?;
            Ok((cache.blob_path(&file.hash), file.bytes))
        });
        self.check_space(repo, &blobs.collect::<Result<Vec<_>, Error>>()?)?;
        let agent = transfer::agent();
        for name in &chosen {
            let file = listing.file(name)?;
            let path = snapshot.join(name);
            if path.exists() {
                continue;
            }
            let blob = cache.blob_path(&file.hash);
            for folder in [blob.parent(), path.parent()].into_iter().flatten() {
                fs::create_dir_all(folder).map_err(disk(folder))?;
            }
            self.wait(|| repo.clone(), Duration::ZERO)?;
            let url = at_commit.url(&percent_encoded(name));
            let agent = agent.clone();
            Transfer { hub: self, repo, file, url, agent }.fetch(&blob, on_event)?;
            link(&blob, &snapshot, name).map_err(disk(&path))?;
        }
        cache.create_ref(&listing.commit).map_err(disk(self.cache.path()))?;
        Ok(snapshot.join(&chosen[0]))
    }

    /// Checks that the disk has space for what is missing of `blobs`, files with their sizes.
    fn check_space(&self, repo: &str, blobs: &[(PathBuf, u64)]) -> Result<(), Error> {
        let missing = blobs.iter().filter(|(blob, _)| !blob.exists());
        let need = missing.map(|(blob, bytes)| ranges::missing(blob, *bytes));
        let need = need.fold(0u64, u64::saturating_add);
        let folder = self.cache.path();
        let there = folder.ancestors().find(|folder| folder.exists());
        match there.and_then(platform::free_bytes) {
            Some(free) if need > free => {
                Err(Error::Space { repo: repo.into(), need, free, folder: folder.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Returns the path of a model in the cache. Prefers the current commit, then the last one that
    /// has the model.
    fn cached(&self, wanted: &Wanted) -> Result<PathBuf, Error> {
        let repo = self.cache.path().join(Repo::model(wanted.repo.clone()).folder_name());
        let main = fs::read_to_string(repo.join("refs/main")).unwrap_or_default();
        let folders = fs::read_dir(repo.join("snapshots")).into_iter().flatten().flatten();
        let mut folders: Vec<_> = folders.collect();
        folders.sort_by_cached_key(|folder| {
            let is_main = folder.file_name() == main.trim();
            Reverse((is_main, folder.metadata().and_then(|data| data.modified()).ok()))
        });
        let chosen = folders.iter().find_map(|folder| {
            let mut names = Vec::new();
            files(&folder.path(), "", &mut names).ok()?;
            names.sort();
            let chosen = wanted.choose(&names).ok()?;
            Some(folder.path().join(&chosen[0]))
        });
        chosen.ok_or_else(|| Error::NotCached {
            wanted: wanted.to_string(),
            cache: self.cache.path().clone(),
        })
    }

    fn listing(&self, api: &Api, repo: &str) -> Result<Listing, Error> {
        let request = api.model(repo.into()).info_request().query("blobs", "true");
        let request = request.config().timeout_global(Some(transfer::PATIENCE)).build();
        let text = request.call().and_then(|mut answer| answer.body_mut().read_to_string());
        let text = text.map_err(|e| self.refused(repo, e))?;
        Listing::parse(&text).map_err(|reason| Error::Listing {
            hub: self.endpoint.clone(),
            repo: repo.into(),
            reason,
        })
    }

    /// Converts the error of a request for `what`.
    fn refused(&self, what: &str, error: ureq::Error) -> Error {
        match error {
            ureq::Error::StatusCode(status) => {
                let (hub, token) = (self.endpoint.clone(), self.token.is_some());
                Error::Status { hub, what: what.into(), status, token }
            }
            error => self.unreachable(what, error),
        }
    }

    fn unreachable(&self, what: &str, reason: impl Display) -> Error {
        let (hub, reason) = (self.endpoint.clone(), reason.to_string());
        Error::Unreachable { hub, what: what.into(), reason }
    }
}

/// Returns a file name encoded for an address.
fn percent_encoded(name: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
    let encoded = name.bytes().map(|byte| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.collect()
}

/// Creates `name` in `snapshot` as a link to `blob`. The link is relative, so that the cache can be
/// moved.
fn link(blob: &Path, snapshot: &Path, name: &str) -> io::Result<()> {
    let path = snapshot.join(name);
    if path.exists() {
        return Ok(()); // by another program, meanwhile
    }
    if path.symlink_metadata().is_ok() {
        fs::remove_file(&path)?; // a dangling link
    }
    let up = "../".repeat(1 + Path::new(name).components().count());
    let hash = blob.file_name().unwrap_or_default();
    match platform::link(&Path::new(&up).join("blobs").join(hash), &path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.exists() => Ok(()),
        linked => linked,
    }
}

/// Appends the names of all files in `folder`. Files in subfolders are named `FOLDER/NAME`.
fn files(folder: &Path, before: &str, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = format!("{before}{}", path.file_name().unwrap_or_default().display());
        match path.is_dir() {
            true => files(&path, &format!("{name}/"), names)?,
            false if path.exists() => names.push(name),
            false => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(endpoint: &str, token: &str) -> Result<Hub, Error> {
        let token = Some(token.into());
        Hub::new(Options { endpoint: endpoint.into(), cache: "/hub".into(), token, offline: true })
    }

    #[test]
    fn the_address_is_checked() {
        assert_eq!(hub("http://mirror.example/", "").unwrap().endpoint, "http://mirror.example");
        for wrong in ["mirror.example", "ftp://mirror.example", "/mirror"] {
            assert!(matches!(hub(wrong, ""), Err(Error::Endpoint { .. })), "{wrong}");
        }
    }

    #[test]
    fn the_token_is_trimmed_and_checked() {
        let token = |text| hub("https://mirror.example", text).map(|hub| hub.token);
        assert_eq!(token(" a \n").unwrap().as_deref(), Some("a"));
        assert_eq!(token(" \n").unwrap(), None);
        assert!(matches!(token("two words"), Err(Error::Token)));
    }
}
