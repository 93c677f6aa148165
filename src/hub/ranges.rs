//! Downloads a large file over several connections, each for a range of its bytes.
//!
//! `HASH.part` has the size of the whole file from the start. `HASH.ranges` lists the bytes that are
//! missing, one range `START END` on each line, and is renewed twice a second: after an interruption,
//! each range continues where it was. A connection that is done takes half of the longest range that
//! is left.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Error, Event, OnEvent,
    transfer::{PAUSE, TRIES, Transfer},
};
use crate::platform::interrupt;

/// Connections to one file.
const CONNECTIONS: usize = 4;

/// Files below this size are downloaded over one connection.
pub const BYTES_MIN: u64 = 16 << 20;

/// Ranges below this size are not divided.
const RANGE_MIN: u64 = 4 << 20;

/// The time between two writes of the list, and twice the time between two events.
const LISTED: Duration = Duration::from_millis(500);

/// Why the download of ranges ended.
pub enum Stopped {
    /// The server sends whole files only.
    NoRanges,
    Failed(Error),
}

/// Bytes that are missing: from `at` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    at: u64,
    end: u64,
    /// The connection that receives them. A connection has one range at a time.
    taken: Option<usize>,
}

impl Range {
    fn new(at: u64, end: u64) -> Self {
        Range { at, end, taken: None }
    }

    fn left(self) -> u64 {
        self.end - self.at
    }
}

/// A message of a connection.
enum Message {
    Retrying(Error),
    Stopped(Stopped),
}

/// The ranges that all connections share.
struct Ranges<'a> {
    transfer: &'a Transfer<'a>,
    part: PathBuf,
    state: Mutex<State>,
}

struct State {
    ranges: Vec<Range>,
    stopped: bool,
}

/// Returns the number of bytes of a file that are missing at `path`, the blob, as far as the files of an
/// earlier download tell.
pub fn missing(path: &Path, bytes: u64) -> u64 {
    ranges(path, bytes).iter().map(|range| range.left()).sum()
}

/// Downloads the missing bytes to `PATH.part`.
///
/// # Errors
/// As for [`Transfer::fetch`]; and if the server sends whole files only.
pub fn fetch(transfer: &Transfer, path: &Path, on_event: OnEvent) -> Result<(), Stopped> {
    let bytes = transfer.file.bytes;
    let disk = |source| Stopped::Failed(Error::Disk { path: path.into(), source });
    let (part, list) = (path.with_extension("part"), path.with_extension("ranges"));
    let ranges = ranges(path, bytes);
    // The list exists before the file has its size, which alone would count as complete.
    write_list(&list, &ranges).map_err(disk)?;
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&part);
    file.and_then(|file| file.set_len(bytes)).map_err(disk)?;
    let done = |ranges: &[Range]| bytes - ranges.iter().map(|range| range.left()).sum::<u64>();
    on_event(transfer.started(done(&ranges)));
    let shared = Ranges { transfer, part, state: Mutex::new(State { ranges, stopped: false }) };
    let (sender, messages) = mpsc::channel();
    let result = thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let (sender, shared) = (sender.clone(), &shared);
            scope.spawn(move || shared.connection(connection, &sender));
        }
        drop(sender);
        let mut listed = Instant::now();
        let mut result = Ok(());
        loop {
            match messages.recv_timeout(LISTED / 2) {
                Ok(Message::Retrying(error)) => on_event(Event::Retrying { error: &error }),
                Ok(Message::Stopped(reason)) if result.is_ok() => result = Err(reason),
                Ok(Message::Stopped(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break result,
            }
            let ranges = shared.lock().ranges.clone();
            on_event(Event::Received { done: done(&ranges) });
            if listed.elapsed() >= LISTED && result.is_ok() {
                listed = Instant::now();
                if let Err(source) = write_list(&list, &ranges) {
                    shared.lock().stopped = true;
                    result = Err(disk(source));
                }
            }
        }
    });
    let ranges = shared.lock().ranges.clone();
    on_event(Event::Received { done: done(&ranges) });
    let written = write_list(&list, &ranges).map_err(disk);
    let cancelled = transfer.hub.wait(|| transfer.name(), Duration::ZERO);
    result.and(cancelled.map_err(Stopped::Failed)).and(written)
}

impl Ranges<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a connection leaves whole ranges.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives ranges until none is left.
    fn connection(&self, connection: usize, sender: &Sender<Message>) {
        let mut failures = 0;
        while let Some(range) = self.take(connection) {
            let result = self.receive(connection, range);
            let at = self.release(connection);
            let Err(stopped) = result else {
                failures = 0;
                continue;
            };
            failures = if at > range.at { 1 } else { failures + 1 };
            match stopped {
                Stopped::Failed(error) if error.is_temporary() && failures < TRIES => {
                    // Nobody receives messages after the end.
                    let _ = sender.send(Message::Retrying(error));
                    // The next range is not taken if the download is cancelled.
                    let Transfer { hub, .. } = self.transfer;
                    let _ = hub.wait(String::new, PAUSE * 2u32.pow(failures - 1));
                }
                stopped => {
                    self.lock().stopped = true;
                    let _ = sender.send(Message::Stopped(stopped));
                    return;
                }
            }
        }
    }

    fn is_stopped(&self, state: &State) -> bool {
        state.stopped || self.transfer.hub.is_cancelled()
    }

    /// Takes a range that no connection receives, or half of the longest one.
    fn take(&self, connection: usize) -> Option<Range> {
        let mut state = self.lock();
        if self.is_stopped(&state) {
            return None;
        }
        state.ranges.retain(|range| range.left() > 0);
        if let Some(range) = state.ranges.iter_mut().find(|range| range.taken.is_none()) {
            range.taken = Some(connection);
            return Some(*range);
        }
        let longest = state.ranges.iter_mut().max_by_key(|range| range.left())?;
        if longest.left() < 2 * RANGE_MIN {
            return None;
        }
        let middle = longest.at + longest.left() / 2;
        let half = Range { taken: Some(connection), ..Range::new(middle, longest.end) };
        longest.end = half.at;
        state.ranges.push(half);
        Some(half)
    }

    /// Gives back what is left of a connection's range. Returns where that starts.
    fn release(&self, connection: usize) -> u64 {
        let mut state = self.lock();
        let range = state.ranges.iter_mut().find(|range| range.taken == Some(connection));
        range.map_or(u64::MAX, |range| {
            range.taken = None;
            range.at
        })
    }

    /// Receives a range until its end, or until another connection has taken the rest.
    fn receive(&self, connection: usize, range: Range) -> Result<(), Stopped> {
        let Transfer { file, .. } = self.transfer;
        let disk = |source| Stopped::Failed(Error::Disk { path: self.part.clone(), source });
        let answer = self.transfer.request(Some((range.at, Some(range.end))));
        let answer = answer.map_err(Stopped::Failed)?;
        let is_range = |value: &str| value.starts_with(&format!("bytes {}-", range.at));
        let content = answer.headers().get("Content-Range").and_then(|value| value.to_str().ok());
        if answer.status() != 206 || !content.is_some_and(is_range) {
            return Err(Stopped::NoRanges);
        }
        let mut out = OpenOptions::new().write(true).open(&self.part).map_err(disk)?;
        out.seek(SeekFrom::Start(range.at)).map_err(disk)?;
        let mut body = answer.into_body().into_reader();
        let mut buffer = vec![0; 1 << 16];
        let mut at = range.at;
        loop {
            let broken = |reason: String| {
                let name = self.transfer.name();
                Stopped::Failed(Error::Broken { file: name, done: at, bytes: file.bytes, reason })
            };
            let read = match interrupt::read(&mut body, &mut buffer) {
                Ok(0) => return Err(broken("it was closed".into())),
                Ok(read) => read,
                Err(error) => return Err(broken(error.to_string())),
            };
            let Some(end) = self.end(connection) else { return Ok(()) };
            let wanted = read.min(usize::try_from(end.saturating_sub(at)).unwrap_or(read));
            out.write_all(&buffer[..wanted]).map_err(disk)?;
            at += wanted as u64;
            if self.advance(connection, at) {
                return Ok(());
            }
        }
    }

    /// Returns the end of a connection's range; `None` if the download has stopped.
    fn end(&self, connection: usize) -> Option<u64> {
        let state = self.lock();
        let range = state.ranges.iter().find(|range| range.taken == Some(connection));
        range.filter(|_| !self.is_stopped(&state)).map(|range| range.end)
    }

    /// Moves the start of a connection's range. Returns whether nothing is left of it.
    fn advance(&self, connection: usize, at: u64) -> bool {
        let mut state = self.lock();
        match state.ranges.iter_mut().find(|range| range.taken == Some(connection)) {
            // Another connection may have taken half of it meanwhile, even what was just written.
            Some(range) => {
                range.at = at.min(range.end);
                range.left() == 0
            }
            None => true,
        }
    }
}

/// Returns the missing ranges of the file at `path`. Without a list, `PATH.part` has the first bytes.
fn ranges(path: &Path, bytes: u64) -> Vec<Range> {
    let length = path.with_extension("part").metadata().map_or(0, |metadata| metadata.len());
    let listed = read_list(&path.with_extension("ranges"), bytes);
    match listed.filter(|_| length == bytes) {
        Some(ranges) => ranges,
        None if length < bytes => vec![Range::new(length, bytes)],
        None if length == bytes => Vec::new(),
        // Another file's.
        None => vec![Range::new(0, bytes)],
    }
}

/// Reads a list; `None` if there is none or it is damaged.
fn read_list(path: &Path, bytes: u64) -> Option<Vec<Range>> {
    const LINES_MAX: usize = 10_000;
    const BYTES_MAX: u64 = 1 << 20;
    let mut text = String::new();
    File::open(path).ok()?.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    // Its last line is always there: a list that is cut off is damaged.
    let lines = text.strip_suffix("end\n")?;
    let mut ranges = Vec::new();
    for line in lines.lines().take(LINES_MAX) {
        let (at, end) = line.split_once(' ')?;
        let (at, end) = (at.parse().ok()?, end.parse().ok()?);
        (at < end && end <= bytes).then(|| ranges.push(Range::new(at, end)))?;
    }
    Some(ranges)
}

fn write_list(path: &Path, ranges: &[Range]) -> io::Result<()> {
    let lines = ranges.iter().filter(|range| range.left() > 0);
    let lines: String = lines.map(|range| format!("{} {}\n", range.at, range.end)).collect();
    // Renamed, so that a list is never half written.
    let new = path.with_extension("ranges-new");
    fs::write(&new, lines + "end\n")?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let list = path.with_extension("ranges");
        let written = [Range::new(5, 9), Range::new(20, 30)];
        write_list(&list, &[written[0], Range::new(12, 12), written[1]]).unwrap();
        assert_eq!(read_list(&list, 30).unwrap(), written);
        // It counts only together with a file of the whole size.
        assert_eq!(ranges(&path, 30), [Range::new(0, 30)]);
        fs::write(path.with_extension("part"), [0; 30]).unwrap();
        assert_eq!((missing(&path, 30), missing(&path, 29)), (14, 29));
        for damaged in ["", "5 9\n", "5 x\nend\n", "9 5\nend\n", "5 31\nend\n", "5\nend\n"] {
            fs::write(&list, damaged).unwrap();
            assert_eq!(read_list(&list, 30), None, "{damaged:?}");
        }
        // Without a list, the file has the first bytes.
        fs::remove_file(&list).unwrap();
        assert_eq!((missing(&path, 30), missing(&path, 40)), (0, 10));
    }
}
