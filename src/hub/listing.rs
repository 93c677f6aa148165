//! The hub's list of files in a repository: /api/models/USER/MODEL/revision/main?blobs=true.

use std::path::{Component, Path};

use serde::Deserialize;

use super::Error;
use crate::json;

/// The files of a repository at a commit.
pub struct Listing {
    /// The commit, 40 hexadecimal digits.
    pub commit: String,
    files: Vec<Sibling>,
}

/// A file of the repository.
pub struct File<'a> {
    /// The path in the repository.
    pub name: &'a str,
    pub bytes: u64,
    /// The SHA-256 of a large file, 64 hexadecimal digits, or the git blob hash of a small file, 40
    /// digits.
    pub hash: String,
}

#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
}

impl Listing {
    /// Parses the hub's answer. The error is the reason why it is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let info: Info = json::parse(text).map_err(|e| e.to_string())?;
        match is_hash(&info.sha, 40) {
            true => Ok(Listing { commit: info.sha, files: info.siblings }),
            false => Err(format!("{:?} is not a commit", info.sha)),
        }
    }

    /// Returns the paths of all files.
    pub fn names(&self) -> Vec<String> {
        self.files.iter().map(|file| file.rfilename.clone()).collect()
    }

    /// Returns the file with this name, one of [`Self::names`].
    ///
    /// # Errors
    ///
    /// If the listing lacks the file's size or checksum, or the name is not a relative path within
    /// a folder.
    pub fn file<'a>(&self, name: &'a str) -> Result<File<'a>, Error> {
        let is_name = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
            && !name.chars().any(char::is_control);
        let found = self.files.iter().find(|file| file.rfilename == name).filter(|_| is_name);
        let file = found.and_then(|file| {
            let hash = match &file.lfs {
                Some(lfs) => Some(&lfs.sha256).filter(|hash| is_hash(hash, 64)),
                None => file.blob_id.as_ref().filter(|hash| is_hash(hash, 40)),
            };
            Some(File { name, bytes: file.size?, hash: hash?.to_lowercase() })
        });
        file.ok_or_else(|| Error::Unchecked { file: name.into() })
    }
}

fn is_hash(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
