//! Handles a mapped file that is shortened while in use.
//!
//! Reading the missing part raises SIGBUS, which by default kills the program without a message.
//! This handler prints the name of the file, removes incomplete files, and exits with code 2.
//!
//! The handler can run between any two instructions of the program. So it reads only lists that
//! grow at their end, and calls only functions that POSIX allows in a handler: sigaction, unlink,
//! write and _exit.

#![allow(unsafe_code, reason = "signals have no safe interface")]

use std::{
    ffi::CString,
    io,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::{
    libc,
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
    unistd::{unlink, write},
};

/// The exit code for an invalid file.
const EXIT_CODE: i32 = 2;

static MAPS: Link<Map> = Link::new();
static PARTIAL: Link<CString> = Link::new();
/// The action for SIGBUS before [`watch`].
static PREVIOUS: OnceLock<SigAction> = OnceLock::new();
static REPORTED: AtomicBool = AtomicBool::new(false);

/// A mapped file.
struct Map {
    addresses: Range<usize>,
    /// The error message, formatted in advance since the handler cannot allocate.
    message: String,
}

/// A link of a list. Entries are never freed, since the handler may read them.
type Link<T> = OnceLock<&'static Entry<T>>;

struct Entry<T: 'static> {
    value: T,
    active: AtomicBool,
    next: Link<T>,
}

/// A registration with the handler, until it is dropped.
#[derive(Debug)]
pub struct Registered(&'static AtomicBool);

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Registers `map`, the contents of the file at `path`. After a fault in it, the program exits with
/// a message.
pub fn watch(map: &[u8], path: &Path) -> Registered {
    PREVIOUS.get_or_init(|| {
        let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
        set(&SigAction::new(SigHandler::SigAction(handle), flags, SigSet::empty()))
    });
    let start = map.as_ptr().addr();
    // Starts with a newline, since a line of other output may be incomplete.
    let message = format!(
        "\nerror: {}: the file was shortened while it was in use, or its disk failed: restore the file \
         and run the command again\n",
        path.display()
    );
    register(&MAPS, Map { addresses: start..start + map.len(), message })
}

/// Registers an incomplete file. A fault in any map removes it.
pub fn remove_on_fault(path: &Path) -> Option<Registered> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    Some(register(&PARTIAL, path))
}

fn register<T: Send + Sync>(mut link: &'static Link<T>, value: T) -> Registered {
    let entry = Entry { value, active: AtomicBool::new(true), next: Link::new() };
    let entry: &'static Entry<T> = Box::leak(Box::new(entry));
    loop {
        let existing = *link.get_or_init(|| entry);
        if ptr::eq(existing, entry) {
            return Registered(&entry.active);
        }
        link = &existing.next;
    }
}

fn registered<T>(link: &'static Link<T>) -> impl Iterator<Item = &'static T> {
    let entries = std::iter::successors(link.get(), |entry| entry.next.get());
    entries.filter(|entry| entry.active.load(Ordering::Acquire)).map(|entry| &entry.value)
}

extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the system passes a pointer that is valid until the handler returns.
    let info = unsafe { &*info };
    // SAFETY: the system sets the address for SIGBUS. In a signal that a program sent it is another
    // number; it is only compared, never dereferenced.
    let address = unsafe { info.si_addr() }.addr();
    let Some(map) = registered(&MAPS).find(|map| map.addresses.contains(&address)) else {
        // Then the instruction faults again, with the previous action for SIGBUS.
        let default = || SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        set(&PREVIOUS.get().copied().unwrap_or_else(default));
        return;
    };
    // Another thread is handling a fault. This thread faults again until the program exits.
    if REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    for path in registered(&PARTIAL) {
        let _ = unlink(path.as_c_str());
    }
    let _ = write(io::stderr(), map.message.as_bytes());
    // SAFETY: `_exit` may be called from a handler, and does not return.
    unsafe { libc::_exit(EXIT_CODE) }
}

/// Sets the action of SIGBUS, and returns the previous one.
fn set(action: &SigAction) -> SigAction {
    // SAFETY: `handle` calls only functions that are allowed in a handler; the other actions are
    // the default one and the previous one.
    let previous = unsafe { sigaction(Signal::SIGBUS, action) };
    // This cannot fail: the signal exists, and its action may be changed.
    previous.unwrap_or(SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty()))
}
