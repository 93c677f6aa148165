//! Owners of cached tokens. With several API keys, a client can reuse, save and erase only the
//! tokens of its key. Otherwise the time of an answer and `cached_tokens` would reveal what others
//! have sent.

use sha2::{Digest, Sha256};

tokio::task_local! {
    static OWNER: Owner;
}

/// The owner of a request's tokens, as an extension of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner(pub u64);

impl Owner {
    /// Returns the owner for an API key. It stays the same after a restart.
    pub fn of_key(key: &str) -> Self {
        let hash = Sha256::new().chain_update("rope-cpu owner ").chain_update(key).finalize();
        let first = hash.first_chunk().copied().unwrap_or_default();
        // 0 is the owner without keys.
        Owner(u64::from_le_bytes(first).max(1))
    }

    /// Returns the owner of the request that the current task handles.
    pub fn current() -> Self {
        OWNER.try_with(|owner| *owner).unwrap_or_default()
    }

    /// Returns a task that handles a request of this owner.
    pub async fn scope<T>(self, task: impl Future<Output = T>) -> T {
        OWNER.scope(self, task).await
    }

    /// Returns the name of the owner's folder; `None` for the owner without keys.
    pub fn folder(self) -> Option<String> {
        (self.0 != 0).then(|| format!("{:016x}", self.0))
    }
}
