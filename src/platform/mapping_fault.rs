//! A mapped file that becomes shorter while it is in use.
//!
//! Reading what is no longer there raises SIGBUS, which by itself ends the program without a message.
//! A handler names the file instead, removes files that are not complete, and exits with code 2.
//!
//! The handler may run between any two instructions of the program. It reads lists that only grow
//! at their end, and calls what POSIX permits in a handler: sigaction, unlink, write and _exit.

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

/// The exit code, that of a file that cannot be used.
const EXIT_CODE: i32 = 2;

static MAPS: Link<Map> = Link::new();
static PARTIAL: Link<CString> = Link::new();
/// What SIGBUS did before.
static PREVIOUS: OnceLock<SigAction> = OnceLock::new();
static REPORTED: AtomicBool = AtomicBool::new(false);

/// A mapped file.
struct Map {
    addresses: Range<usize>,
    /// What is written when it cannot be read, made beforehand since the handler cannot allocate.
    message: String,
}

/// A place in a list: an entry, or its end. Entries are never freed: the handler may be reading them.
type Link<T> = OnceLock<&'static Entry<T>>;

struct Entry<T: 'static> {
    value: T,
    in_force: AtomicBool,
    next: Link<T>,
}

/// Something that the handler acts on until this is dropped.
#[derive(Debug)]
pub struct Registered(&'static AtomicBool);

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// From now on, a fault in `map`, which is the file at `path`, ends the program with a message.
pub fn watch(map: &[u8], path: &Path) -> Registered {
    PREVIOUS.get_or_init(|| {
        let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
        set(&SigAction::new(SigHandler::SigAction(handle), flags, SigSet::empty()))
    });
    let start = map.as_ptr().addr();
    // A line of other output may have begun.
    let message = format!(
        "\nerror: {}: the file was shortened while it was in use, or its disk failed: run this again \
         when the file is whole\n",
        path.display()
    );
    register(&MAPS, Map { addresses: start..start + map.len(), message })
}

/// From now on, a fault in any map removes the file at `path`.
pub fn remove_on_fault(path: &Path) -> Option<Registered> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    Some(register(&PARTIAL, path))
}

fn register<T: Send + Sync>(mut link: &'static Link<T>, value: T) -> Registered {
    let entry = Entry { value, in_force: AtomicBool::new(true), next: Link::new() };
    let entry: &'static Entry<T> = Box::leak(Box::new(entry));
    loop {
        let there = *link.get_or_init(|| entry);
        if ptr::eq(there, entry) {
            return Registered(&entry.in_force);
        }
        link = &there.next;
    }
}

fn registered<T>(link: &'static Link<T>) -> impl Iterator<Item = &'static T> {
    let entries = std::iter::successors(link.get(), |entry| entry.next.get());
    entries.filter(|entry| entry.in_force.load(Ordering::Acquire)).map(|entry| &entry.value)
}

extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the system passes a pointer that is valid until the handler returns.
    let info = unsafe { &*info };
    // SAFETY: the system sets the address for SIGBUS. In one that a program sent it is another
    // number, which is compared and never followed.
    let address = unsafe { info.si_addr() }.addr();
    let Some(map) = registered(&MAPS).find(|map| map.addresses.contains(&address)) else {
        // Then the same instruction faults again, and has the effect that it would have without us.
        let default = || SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        set(&PREVIOUS.get().copied().unwrap_or_else(default));
        return;
    };
    // Another thread may be at it: this one faults until the program has ended.
    if REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    for path in registered(&PARTIAL) {
        let _ = unlink(path.as_c_str());
    }
    let _ = write(io::stderr(), map.message.as_bytes());
    // SAFETY: it ends the program and may be called from a handler.
    unsafe { libc::_exit(EXIT_CODE) }
}

/// Sets what SIGBUS does; returns what it did.
fn set(action: &SigAction) -> SigAction {
    // SAFETY: `handle` does nothing but what a handler may do; the other actions are the default
    // one and one that was in force before.
    let previous = unsafe { sigaction(Signal::SIGBUS, action) };
    // No error is possible: the signal exists, and its action may be changed.
    previous.unwrap_or(SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty()))
}
