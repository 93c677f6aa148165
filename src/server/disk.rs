//! The cache on disk: sequences for which the memory is too small, and those of a server that has ended.
//!
//! This is the part of the scheduler, which knows what the files have. A thread of its own reads and
//! writes them, so that no step waits for the disk.

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

use rope_cpu::{
    Token,
    model::{Sequence, saved::Archive},
    tokenizer::common_prefix,
};

use files::{Done, Files, Work};

/// The fewest tokens that are worth a file.
const LEAST: usize = 256;

/// The longest time that the scheduler waits for a file when it has nothing else to do, after which it
/// looks for commands.
const WAIT: Duration = Duration::from_millis(2);

/// The cache on disk.
pub struct Disk {
    entries: Vec<Entry>,
    /// The most bytes of all files.
    limit: u64,
    archive: Arc<Archive>,
    work: Sender<Work>,
    done: Receiver<Done>,
    thread: JoinHandle<()>,
}

/// A file.
struct Entry {
    name: String,
    /// The tokens; none if the file is of another model or of other settings.
    tokens: Vec<Token>,
    bytes: u64,
    /// When it was last used.
    used: SystemTime,
    state: State,
}

/// A file that has first tokens of a text.
pub struct Found {
    /// The number of these tokens.
    pub shared: usize,
    /// The size of the file.
    pub bytes: u64,
    /// Whether it is being loaded.
    pub loading: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Saving,
    Ready,
    Loading,
}

impl Disk {
    /// Opens the cache in a folder, which is created if it does not exist. Its files have at most
    /// `limit` bytes.
    ///
    /// # Errors
    /// If the folder cannot be read or created, or there is no further thread.
    pub fn open(folder: PathBuf, limit: u64, archive: Archive) -> io::Result<Self> {
        let archive = Arc::new(archive);
        let files = Files::open(folder, archive.clone())?;
        let entries = files.list()?;
        let (work, received) = channel();
        let (report, done) = channel();
        let thread = thread::Builder::new()
            .name("cache-disk".into())
            .spawn(move || files.work(&received, &report))?;
        let mut disk = Disk { entries, limit, archive, work, done, thread };
        disk.limit_size();
        Ok(disk)
    }

    /// Returns whether sequences with these scales of adapters may have files: only those with the scales
    /// that the model was opened with, since a file does not tell its scales.
    pub fn keeps(&self, scales: &[f32]) -> bool {
        self.archive.has_scales(scales)
    }

    /// Returns the file that has the most first tokens of a text.
    pub fn longest(&self, tokens: &[Token]) -> Option<Found> {
        self.best(tokens).map(|(index, shared)| Found {
            shared,
            bytes: self.entries[index].bytes,
            loading: self.entries[index].state == State::Loading,
        })
    }

    /// Begins to load the file that has the most first tokens of a text.
    pub fn load(&mut self, tokens: &[Token]) {
        if let Some((index, _)) = self.best(tokens) {
            let entry = &mut self.entries[index];
            entry.state = State::Loading;
            entry.used = SystemTime::now();
            let name = entry.name.clone();
            self.send(Work::Load { name });
        }
    }

    /// Returns whether a sequence has, or will have, a file or needs none.
    pub fn has(&self, sequence: &Sequence) -> bool {
        let tokens = sequence.tokens();
        let needs_none = tokens.len() < LEAST || !self.keeps(sequence.adapter_scales());
        needs_none || self.entries.iter().any(|entry| entry.tokens.starts_with(tokens))
    }

    /// Begins to save a sequence that was last used at this time, unless there is a file that has it.
    pub fn save(&mut self, sequence: &Sequence, used: SystemTime) {
        if self.has(sequence) {
            return;
        }
        let tokens = sequence.tokens().to_vec();
        let name = self.archive.name(&tokens);
        let state = State::Saving;
        self.entries.push(Entry { name: name.clone(), tokens, bytes: 0, used, state });
        self.send(Work::Save { name, sequence: Box::new(sequence.clone()), used });
    }

    /// Returns whether a sequence is being saved.
    pub fn saving(&self) -> bool {
        self.entries.iter().any(|entry| entry.state == State::Saving)
    }

    /// Waits a little if a sequence is being loaded or saved. Returns the sequences that were loaded.
    pub fn loaded(&mut self, wait: bool) -> Vec<Sequence> {
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

    /// Waits until all sequences are saved, but not beyond `end`. Returns the number of those that are not.
    pub fn close(mut self, end: Option<Instant>) -> usize {
        while self.saving() {
            let now = Instant::now();
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
            let Ok(done) = self.done.recv_timeout(left) else {
                // The thread ends with the program.
                return self.entries.iter().filter(|entry| entry.state == State::Saving).count();
            };
            drop(self.finish_one(done));
        }
        let Disk { work, thread, .. } = self;
        drop(work);
        // A panic of the thread was reported, and is no reason for another one.
        let _ = thread.join();
        0
    }

    fn finish_one(&mut self, done: Done) -> Option<Sequence> {
        let position = |name: &str| self.entries.iter().position(|entry| entry.name == name);
        match done {
            Done::Saved { name, bytes } => {
                let index = position(&name)?;
                if bytes == 0 {
                    self.entries.remove(index);
                    return None;
                }
                self.entries[index].bytes = bytes;
                self.entries[index].state = State::Ready;
                let tokens = self.entries[index].tokens.clone();
                // What it continues is not needed any more.
                self.remove(|entry| {
                    let first = !entry.tokens.is_empty() && tokens.starts_with(&entry.tokens);
                    first && entry.tokens.len() < tokens.len()
                });
                self.limit_size();
                None
            }
            Done::Loaded { name, sequence } => {
                let index = position(&name)?;
                match sequence {
                    Some(sequence) => {
                        self.entries[index].state = State::Ready;
                        Some(*sequence)
                    }
                    None => {
                        self.entries.remove(index);
                        None
                    }
                }
            }
        }
    }

    /// Removes the least recently used files, until the others fit.
    fn limit_size(&mut self) {
        self.entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        let (limit, mut bytes) = (self.limit, 0);
        self.remove(|entry| {
            bytes += entry.bytes;
            bytes > limit
        });
    }

    /// Removes those files for which `condition` holds and that are not in use.
    fn remove(&mut self, mut condition: impl FnMut(&Entry) -> bool) {
        let mut removed = Vec::new();
        self.entries.retain(|entry| {
            let remove = condition(entry) && entry.state == State::Ready;
            if remove {
                removed.push(entry.name.clone());
            }
            !remove
        });
        removed.into_iter().for_each(|name| self.send(Work::Remove { name }));
    }

    /// Returns the entry that has the most first tokens of a text, with their number.
    fn best(&self, tokens: &[Token]) -> Option<(usize, usize)> {
        let of_entry =
            |(index, entry): (usize, &Entry)| (index, common_prefix(&entry.tokens, tokens));
        let there = |(_, entry): &(usize, &Entry)| entry.state != State::Saving;
        self.entries
            .iter()
            .enumerate()
            .filter(there)
            .map(of_entry)
            .max_by_key(|(_, shared)| *shared)
    }

    fn send(&self, work: Work) {
        // The thread ends only when the sender is dropped.
        let _ = self.work.send(work);
    }
}
