//! Models of the Hugging Face Hub, in the cache that its other programs share.
//!
//! ```text
//! models--USER--MODEL/blobs/SHA256             a file
//! models--USER--MODEL/snapshots/COMMIT/NAME    a link to it
//! models--USER--MODEL/refs/main                the commit that was fetched last
//! ```
//!
//! hf-hub knows the hub's addresses and this layout. It does not fetch the files here, since as of 0.5
//! it writes bytes twice where a resumed download breaks again, checks no sums, waits without end, and
//! shows the token to the hosts that the hub redirects to.

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

/// Where the hub is, where its files are kept, and who asks.
#[derive(Clone)]
pub struct Hub {
    endpoint: String,
    cache: Cache,
    token: Option<String>,
    offline: bool,
}

/// What those who wait may want to know.
#[allow(missing_docs, reason = "the fields are what they are called; sizes are in bytes")]
pub enum Event<'a> {
    /// Fetching a file begins, or goes on after `done` of its bytes.
    Begins { file: &'a str, repo: &'a str, hub: &'a str, done: u64, bytes: u64 },
    /// So many bytes are there.
    Came { done: u64 },
    /// It failed, and is tried again.
    Again { error: &'a Error },
    /// Another program fetches the same file: its end is waited for.
    Waits,
    /// The hub does not answer, and what was fetched before is taken.
    Kept { error: &'a Error, path: &'a Path },
}

/// What is called with every event.
pub type Tell<'a> = &'a mut dyn FnMut(Event);

impl Hub {
    /// As the variables of the hub's own programs and llama.cpp's say: HF_ENDPOINT; LLAMA_CACHE,
    /// HF_HUB_CACHE or HF_HOME; `token`, HF_TOKEN or what `hf auth login` has left; HF_HUB_OFFLINE.
    ///
    /// # Errors
    /// If no variable says where files are kept, or the endpoint or the token can be none.
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
        let left = || {
            let file = folder("HF_TOKEN_PATH").or(Some(home?.join("token")))?;
            fs::read_to_string(file).ok()
        };
        let token = token.or_else(|| set("HF_TOKEN")).or_else(left);
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

    /// The path of a model, or of the first of its parts, after fetching what is not there. Where the
    /// hub cannot be reached, what was fetched before is taken.
    ///
    /// # Errors
    /// If the hub does not have it, does not give it, or gives something else.
    pub fn model(&self, wanted: &Wanted, tell: Tell) -> Result<PathBuf, Error> {
        if self.offline {
            return self.kept(wanted);
        }
        let repo = &wanted.repo;
        let api = ApiBuilder::from_cache(self.cache.clone())
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .build()
            .map_err(|e| self.unreachable(repo, e))?;
        let listing = match self.listing(&api, repo) {
            Err(error) if error.passes() => {
                let Ok(path) = self.kept(wanted) else { return Err(error) };
                tell(Event::Kept { error: &error, path: &path });
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
            Transfer { hub: self, repo, file, url }.fetch(&blob, tell)?;
            link(&blob, &snapshot, name).map_err(disk(&path))?;
            cache.create_ref(&listing.commit).map_err(disk(self.cache.path()))?;
        }
        Ok(snapshot.join(&chosen[0]))
    }

    /// The same among what was fetched before.
    fn kept(&self, wanted: &Wanted) -> Result<PathBuf, Error> {
        let nothing =
            || Error::NotKept { wanted: wanted.to_string(), cache: self.cache.path().clone() };
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

    /// What is wrong where a request for `what` gets no answer or a bad one.
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

/// A name as it stands in an address.
fn percent_encoded(name: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
    let encoded = name.bytes().map(|byte| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.collect()
}

/// Makes `name` in `snapshot` a link to `blob`, from folder to folder so that the cache can be moved.
fn link(blob: &Path, snapshot: &Path, name: &str) -> io::Result<()> {
    let path = snapshot.join(name);
    if path.symlink_metadata().is_ok() {
        fs::remove_file(&path)?; // it leads nowhere
    }
    let up = "../".repeat(1 + Path::new(name).components().count());
    let hash = blob.file_name().unwrap_or_default();
    platform::link(&Path::new(&up).join("blobs").join(hash), &path)
}

/// Adds the names of all files in `folder`, those in folders within as `FOLDER/NAME`.
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

    /// Looks a variable up, of which the last goes first.
    fn among(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| {
            let found = variables.iter().rfind(|(known, _)| *known == name);
            found.map(|(_, value)| String::from(*value))
        }
    }

    fn hub(variables: &[(&str, &str)]) -> Result<Hub, Error> {
        Hub::from_environment(among(variables), None, false)
    }

    /// Each goes before those above it.
    #[test]
    fn variables_say_where_files_are_kept() {
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
    fn variables_say_who_asks() {
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
    fn variables_say_where_the_hub_is_and_whether_to_ask_it() {
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
