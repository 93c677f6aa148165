//! The cache on disk. It holds sequences that no longer fit in the KV cache, and sequences of
//! earlier runs of the server.
//!
//! The scheduler owns a [`Disk`], which keeps the list of files. Another thread reads and writes
//! them, so no step waits for the disk.

mod files;

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use crate::{
    Token,
    model::{
        Sequence,
        saved::{self, Archive, Error, Folder, Kind, Saved},
    },
};

use super::Request;
use files::{Done, Work};

/// Minimum tokens of a file.
const LEAST: usize = 256;

/// Maximum wait for a file before the scheduler looks for commands, when it has nothing else to do.
const WAIT: Duration = Duration::from_millis(2);

/// A folder of saved sequences, which later prompts continue instead of computing their tokens
/// again.
///
/// The scheduler uses it if it is in [`Options::disk`](super::Options::disk). A file belongs to one
/// model with one set of RoPE settings, and is used only with these.
///
/// ```no_run
/// use rope_cpu::{batch::{Disk, Options}, model::{self, Engine, Model}, rope::{Flags, Rope}};
///
/// let model = Model::open("model.gguf")?;
/// let rope = Rope::new(model.rope_plan(&Flags::default(), 4096)?);
/// let engine = Engine::new(&model, rope, model::Options::new(4096))?;
/// let archive = engine.archive(model.fingerprint());
/// let disk = Disk::open("cache".into(), 8 << 30, archive)?;
/// let options = Options { disk: Some(disk), ..Options::new(4) };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Disk {
    entries: Vec<Entry>,
    /// Maximum bytes of all conversations.
    limit: u64,
    folder: Arc<Folder>,
    work: Sender<Work>,
    done: Receiver<Done>,
    thread: JoinHandle<()>,
}

/// A file, which may be for another model or other settings.
struct Entry {
    file: Saved,
    state: State,
}

/// A file with a reusable prefix of a prompt.
pub struct Found {
    /// The length of the reusable prefix, in tokens.
    pub reusable: usize,
    /// The size of the file.
    pub bytes: u64,
    /// Whether it is being loaded.
    pub loading: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Saving,
    Ready,
    /// For this owner.
    Loading(u64),
}

impl State {
    fn is_loading(self) -> bool {
        matches!(self, State::Loading(_))
    }
}

impl Disk {
    /// Opens the cache in a folder, and creates the folder if needed. Conversations in it take at
    /// most `limit` bytes: the least recently used ones are removed, and damaged ones as well.
    ///
    /// # Errors
    /// If the folder cannot be read or created, or no thread can be started.
    pub fn open(folder: PathBuf, limit: u64, archive: Archive) -> io::Result<Self> {
        let folder = Arc::new(Folder::new(folder, archive));
        folder.create()?;
        let mut entries = Vec::new();
        for file in folder.list()? {
            match &file.outline {
                Err(e) if !is_of_others(e) => files::discard(&folder, &file.name, file.kind, e),
                _ => entries.push(Entry { file, state: State::Ready }),
            }
        }
        let (work, received) = channel();
        let (report, done) = channel();
        let of_thread = folder.clone();
        let thread = thread::Builder::new()
            .name("cache-disk".into())
            .spawn(move || files::work(&of_thread, &received, &report))?;
        let mut disk = Disk { entries, limit, folder, work, done, thread };
        disk.limit_size();
        Ok(disk)
    }

    /// Returns why files are not used that are for another model or other settings, if there are any.
    pub fn mismatch(&self) -> Option<String> {
        saved::mismatch(self.entries.iter().map(|entry| &entry.file))
    }

    /// Returns whether sequences with these adapter scales can have files: see [`Folder::keeps`].
    pub fn keeps(&self, scales: &[f32]) -> bool {
        self.folder.keeps(scales)
    }

    /// Returns the file with the longest reusable prefix of a prompt.
    pub fn longest(&self, request: &Request) -> Option<Found> {
        self.best(request).map(|(index, reusable)| Found {
            reusable,
            bytes: self.entries[index].file.bytes,
            loading: self.entries[index].state.is_loading(),
        })
    }

    /// Starts to load the file with the longest reusable prefix of a prompt.
    pub fn load(&mut self, request: &Request) {
        if let Some((index, _)) = self.best(request) {
            self.load_entry(index, request.owner);
        }
    }

    /// Starts to load a file for an owner.
    pub fn load_file(&mut self, name: &str, owner: u64) {
        if let Some(index) = self.entries.iter().position(|entry| entry.file.name == name) {
            self.load_entry(index, owner);
        }
    }

    fn load_entry(&mut self, index: usize, owner: u64) {
        let entry = &mut self.entries[index];
        entry.state = State::Loading(owner);
        entry.file.used = SystemTime::now();
        let (name, kind) = (entry.file.name.clone(), entry.file.kind);
        self.send(Work::Load { name, kind });
    }

    /// Returns whether a sequence needs no new file: it has one, is being saved, or cannot be
    /// continued. After a context shift, a file cannot continue the whole sequence.
    pub fn has(&self, owner: u64, sequence: &Sequence) -> bool {
        let tokens = sequence.tokens();
        let needs_none = tokens.len() < LEAST
            || !self.keeps(sequence.adapter_scales())
            || self.folder.writable(sequence, tokens.len()) < tokens.len();
        let own = |entry: &&Entry| entry.file.kind.serves(owner);
        let mut own = self.entries.iter().filter(own);
        needs_none || own.any(|entry| self.folder.continues(&entry.file, tokens))
    }

    /// Starts to save a sequence that was last used at `used`, unless a file has it already.
    pub fn save(&mut self, owner: u64, sequence: &Sequence, used: SystemTime) {
        if self.has(owner, sequence) {
            return;
        }
        let len = sequence.tokens().len();
        let kind = Kind::Conversation { owner };
        let file = self.folder.planned(sequence, len, kind, used);
        let name = file.name.clone();
        self.entries.push(Entry { file, state: State::Saving });
        self.send(Work::Save { name, kind, sequence: Box::new(sequence.clone()), used });
    }

    /// Returns the files that can be loaded for an owner: name, tokens, size, and whether the file
    /// is being loaded.
    pub fn texts(&self, owner: u64) -> impl Iterator<Item = (&str, &[Token], u64, bool)> {
        let own = self.entries.iter().filter(move |entry| entry.file.kind.serves(owner));
        let there = own.filter(|entry| entry.state != State::Saving);
        there.filter_map(|Entry { file, state }| {
            let tokens = &file.outline.as_ref().ok()?.tokens;
            Some((&*file.name, &**tokens, file.bytes, state.is_loading()))
        })
    }

    /// Returns whether a file is being loaded.
    pub fn is_loading(&self, name: &str) -> bool {
        let loading = |entry: &Entry| entry.state.is_loading() && entry.file.name == name;
        self.entries.iter().any(loading)
    }

    /// Returns whether a sequence is being saved.
    pub fn saving(&self) -> bool {
        self.entries.iter().any(|entry| entry.state == State::Saving)
    }

    /// Returns the loaded sequences with their owners. With `wait`, waits a little until a sequence
    /// has been loaded or saved.
    pub fn loaded(&mut self, wait: bool) -> Vec<(u64, Sequence)> {
        let busy = self.entries.iter().any(|entry| entry.state != State::Ready);
        let first = match wait && busy {
            true => self.done.recv_timeout(WAIT).ok(),
            false => self.done.try_recv().ok(),
        };
        let mut loaded = Vec::new();
        let mut next = first;
        while let Some(done) = next {
            loaded.extend(self.finish_one(done));
            next = self.done.try_recv().ok();
        }
        loaded
    }

    /// Waits until all sequences are saved, or until `end`. Returns the number of unsaved
    /// sequences.
    pub fn close(mut self, end: Option<Instant>) -> usize {
        while self.saving() {
            let now = Instant::now();
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
            let Ok(done) = self.done.recv_timeout(left) else {
                // The thread stops with the program.
                return self.entries.iter().filter(|entry| entry.state == State::Saving).count();
            };
            drop(self.finish_one(done));
        }
        let Disk { work, thread, .. } = self;
        drop(work);
        // The thread has reported its own panic.
        let _ = thread.join();
        0
    }

    fn finish_one(&mut self, done: Done) -> Option<(u64, Sequence)> {
        let position = |name: &str| self.entries.iter().position(|entry| entry.file.name == name);
        match done {
            Done::Saved { name, bytes } => {
                let index = position(&name)?;
                if bytes == 0 {
                    self.entries.remove(index);
                    return None;
                }
                let Entry { file, .. } = self.entries.swap_remove(index);
                let (folder, file) = (self.folder.clone(), Saved { bytes, ..file });
                self.remove(|other| other.kind == file.kind && folder.supersedes(&file, other));
                self.entries.push(Entry { file, state: State::Ready });
                self.limit_size();
                None
            }
            Done::Loaded { name, sequence } => {
                let index = position(&name)?;
                let State::Loading(owner) = self.entries[index].state else { return None };
                match sequence {
                    Some(sequence) => {
                        self.entries[index].state = State::Ready;
                        Some((owner, *sequence))
                    }
                    None => {
                        self.entries.remove(index);
                        None
                    }
                }
            }
        }
    }

    /// Removes the least recently used conversations until the rest fits.
    fn limit_size(&mut self) {
        self.entries.sort_by_key(|entry| std::cmp::Reverse(entry.file.used));
        let (limit, mut bytes) = (self.limit, 0);
        self.remove(|file| {
            bytes += file.bytes;
            bytes > limit
        });
    }

    /// Removes the conversations that meet `condition` and are not in use.
    fn remove(&mut self, mut condition: impl FnMut(&Saved) -> bool) {
        let mut removed = Vec::new();
        self.entries.retain(|Entry { file, state }| {
            let is_conversation = matches!(file.kind, Kind::Conversation { .. });
            let remove = is_conversation && condition(file) && *state == State::Ready;
            if remove {
                removed.push(file.name.clone());
            }
            !remove
        });
        removed.into_iter().for_each(|name| self.send(Work::Remove { name }));
    }

    /// Returns the index of the entry with the longest reusable prefix of a prompt, and the prefix
    /// length.
    fn best(&self, Request { prompt, owner, .. }: &Request) -> Option<(usize, usize)> {
        let there = |(_, entry): &(usize, &Entry)| {
            entry.file.kind.serves(*owner) && entry.state != State::Saving
        };
        self.entries
            .iter()
            .enumerate()
            .filter(there)
            .map(|(index, entry)| (index, self.folder.reusable(&entry.file, prompt)))
            .max_by_key(|(_, reusable)| *reusable)
    }

    fn send(&self, work: Work) {
        // Sending cannot fail while the thread runs; it stops when the sender is dropped.
        let _ = self.work.send(work);
    }
}

/// Returns whether a file is for another model or other settings.
fn is_of_others(error: &Error) -> bool {
    use Error::{Cache, Context, Model, Prompt, Rope};
    matches!(error, Model | Rope { .. } | Cache { .. } | Prompt { .. } | Context { .. })
}
