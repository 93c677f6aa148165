//! Downloads models from the Hugging Face Hub into the cache that its other programs share.
//!
//! ```text
//! models--USER--MODEL/blobs/SHA256             a file
//! models--USER--MODEL/snapshots/COMMIT/NAME    a link to it
//! models--USER--MODEL/refs/main                the commit that was downloaded last
//! ```
//!
//! The crate hf-hub provides the hub's addresses and this layout. It does not download the files,
//! since as of 0.5 it writes bytes twice if a resumed download breaks again, verifies no checksums,
//! has no timeouts, and sends the token to the hosts that the hub redirects to.

mod choice;
mod error;
mod listing;
mod transfer;

use std::{
    fmt::Display,
    fs, io,
    path::{Path, PathBuf},
};

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{Api, ApiBuilder},
};

pub use choice::Wanted;
pub use error::Error;
use listing::Listing;
use transfer::Transfer;

use crate::platform;

/// A client of the hub: its address, the cache folder and the access token.
#[derive(Clone)]
pub struct Hub {
    endpoint: String,
    cache: Cache,
    token: Option<String>,
    offline: bool,
}

/// An event of a download, for showing its progress.
#[allow(missing_docs, reason = "the names explain the fields; sizes are in bytes")]
pub enum Event<'a> {
    /// The download of a file has started, or has resumed after `done` of its bytes.
    Started { file: &'a str, repo: &'a str, hub: &'a str, done: u64, bytes: u64 },
    /// The first `done` bytes of the file have been received.
    Received { done: u64 },
    /// A connection failed, and the download is tried again.
    Retrying { error: &'a Error },
    /// Another program is downloading the same file, and its end is awaited.
    Waiting,
    /// The hub cannot be reached, and the cached file is used.
    UsingCached { error: &'a Error, path: &'a Path },
}

/// A function that is called with every event.
pub type OnEvent<'a> = &'a mut dyn FnMut(Event);

impl Hub {
    /// Creates a client from the environment variables of the hub's own programs and llama.cpp.
    ///
    /// The address is HF_ENDPOINT; the cache LLAMA_CACHE, HF_HUB_CACHE or in HF_HOME; the token is
    /// `token`, HF_TOKEN or the one stored by `hf auth login`; HF_HUB_OFFLINE is the same as
    /// `offline`.
    ///
    /// # Errors
    ///
    /// Returns an error if no variable gives the cache folder, or if the address or the token is
    /// invalid.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
        token: Option<String>,
        offline: bool,
    ) -> Result<Self, Error> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let folder = |name: &str| set(name).map(PathBuf::from);
        let home = || folder("HOME").or_else(|| folder("USERPROFILE"));
        let home = folder("HF_HOME")
            .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("huggingface")))
            .or_else(|| Some(home()?.join(".cache/huggingface")));
        let cache = ["LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"];
        let cache = cache.into_iter().find_map(folder);
        let cache = cache.or_else(|| Some(home.as_ref()?.join("hub"))).ok_or(Error::NoCache)?;
        let stored = || {
            let file = folder("HF_TOKEN_PATH").or(Some(home?.join("token")))?;
            fs::read_to_string(file).ok()
        };
        let token = token.or_else(|| set("HF_TOKEN")).or_else(stored);
        let endpoint = set("HF_ENDPOINT").unwrap_or("https://huggingface.co".into());
        let address = endpoint.parse::<ureq::http::Uri>();
        if !address.is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https"))) {
            return Err(Error::Endpoint { endpoint });
        }
        let token = token.map(|token| token.trim().to_string()).filter(|token| !token.is_empty());
        if token.as_ref().is_some_and(|token| !token.chars().all(|c| c.is_ascii_graphic())) {
            return Err(Error::Token);
        }
        let yes = |value: String| ["1", "on", "yes", "true"].contains(&&*value.to_lowercase());
        Ok(Hub {
            endpoint: endpoint.trim_end_matches('/').into(),
            cache: Cache::new(cache),
            token,
            offline: offline || set("HF_HUB_OFFLINE").is_some_and(yes),
        })
    }

    /// Returns the path of a model, or of its first part, after downloading the files that are not
    /// in the cache. If the hub cannot be reached, the cached model is used.
    ///
    /// # Errors
    ///
    /// Returns an error if the hub does not have the model, refuses access to it, or sends other
    /// data.
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
            let url = at_commit.url(&percent_encoded(name));
            Transfer { hub: self, repo, file, url }.fetch(&blob, on_event)?;
            link(&blob, &snapshot, name).map_err(disk(&path))?;
            cache.create_ref(&listing.commit).map_err(disk(self.cache.path()))?;
        }
        Ok(snapshot.join(&chosen[0]))
    }

    /// Returns the path of a model in the cache.
    fn cached(&self, wanted: &Wanted) -> Result<PathBuf, Error> {
        let nothing =
            || Error::NotCached { wanted: wanted.to_string(), cache: self.cache.path().clone() };
        let repo = Repo::model(wanted.repo.clone());
        let main = self.cache.path().join(repo.folder_name()).join("refs/main");
        let commit = fs::read_to_string(main).map_err(|_| nothing())?;
        let snapshot = self.cache.repo(repo).pointer_path(commit.trim());
        let mut names = Vec::new();
        files(&snapshot, "", &mut names).map_err(|_| nothing())?;
        names.sort();
        let chosen = wanted.choose(&names).map_err(|_| nothing())?;
        Ok(snapshot.join(&chosen[0]))
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
    if path.symlink_metadata().is_ok() {
        fs::remove_file(&path)?; // a dangling link
    }
    let up = "../".repeat(1 + Path::new(name).components().count());
    let hash = blob.file_name().unwrap_or_default();
    platform::link(&Path::new(&up).join("blobs").join(hash), &path)
}

/// Appends the names of all files in `folder`; files in subfolders as `FOLDER/NAME`.
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

    /// Returns a lookup of variables, in which the last entry of a name takes precedence.
    fn among(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| {
            let found = variables.iter().rfind(|(known, _)| *known == name);
            found.map(|(_, value)| String::from(*value))
        }
    }

    fn hub(variables: &[(&str, &str)]) -> Result<Hub, Error> {
        Hub::from_environment(among(variables), None, false)
    }

    /// Each variable takes precedence over those above it.
    #[test]
    fn variables_choose_the_cache_folder() {
        let cases = [
            ("USERPROFILE", "/user", "/user/.cache/huggingface/hub"),
            ("HOME", "/home", "/home/.cache/huggingface/hub"),
            ("XDG_CACHE_HOME", "/xdg", "/xdg/huggingface/hub"),
            ("HF_HOME", "/hf", "/hf/hub"),
            ("HUGGINGFACE_HUB_CACHE", "/former", "/former"),
            ("HF_HUB_CACHE", "/hub", "/hub"),
            ("LLAMA_CACHE", "/llama", "/llama"),
        ];
        assert!(matches!(hub(&[]), Err(Error::NoCache)));
        let kept = |set: &[_]| hub(set).unwrap().cache.path().clone();
        let mut set = Vec::new();
        for (name, value, expected) in cases {
            assert_eq!(kept(&[(name, value)]), Path::new(expected), "{name}");
            set.push((name, value));
            assert_eq!(kept(&set), Path::new(expected), "{name} and those above");
        }
        for above in cases.windows(2).rev() {
            set.push((above[1].0, "")); // as if it were not set
            assert_eq!(kept(&set), Path::new(above[0].2), "without {}", above[1].0);
        }
    }

    #[test]
    fn variables_choose_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let [home, elsewhere] = ["token", "elsewhere"].map(|name| folder.path().join(name));
        fs::write(home, "of-home\n").unwrap();
        fs::write(&elsewhere, " of-path \n").unwrap();
        let mut set = vec![("HOME", "/no/such")];
        assert_eq!(hub(&set).unwrap().token, None);
        for (name, value, expected) in [
            ("HF_HOME", folder.path().to_str().unwrap(), "of-home"),
            ("HF_TOKEN_PATH", elsewhere.to_str().unwrap(), "of-path"),
            ("HF_TOKEN", "of-variable", "of-variable"),
        ] {
            set.push((name, value));
            assert_eq!(hub(&set).unwrap().token.as_deref(), Some(expected), "{name}");
        }
        let typed = Hub::from_environment(among(&set), Some("of-flag".into()), false);
        assert_eq!(typed.unwrap().token.as_deref(), Some("of-flag"));
        set.push(("HF_TOKEN", "two words"));
        assert!(matches!(hub(&set), Err(Error::Token)));
    }

    #[test]
    fn variables_choose_the_address_and_offline_mode() {
        let with = |name, value| hub(&[("HOME", "/home"), (name, value)]);
        assert_eq!(with("", "").unwrap().endpoint, "https://huggingface.co");
        let mirror = with("HF_ENDPOINT", "http://mirror.example/").unwrap();
        assert_eq!(mirror.endpoint, "http://mirror.example");
        for wrong in ["mirror.example", "ftp://mirror.example", "/mirror"] {
            assert!(matches!(with("HF_ENDPOINT", wrong), Err(Error::Endpoint { .. })), "{wrong}");
        }
        for (value, offline) in
            [("1", true), ("ON", true), ("Yes", true), ("true", true), ("0", false), ("", false)]
        {
            assert_eq!(with("HF_HUB_OFFLINE", value).unwrap().offline, offline, "{value}");
        }
    }
}
