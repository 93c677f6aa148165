//! Signals interrupt system calls, as in a program that handles them without `SA_RESTART`, such as
//! Python: nothing fails, and nothing is lost.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    libc::{self, c_char, c_int, c_void, mode_t, off64_t, size_t, ssize_t},
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
};
use rope_cpu_testing::reader::tiny_reader;

use crate::{ALONE, run};

/// Whether calls are interrupted.
static INTERRUPTING: AtomicBool = AtomicBool::new(false);
/// The number of calls that were interrupted or could have been.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// The number of signals that were handled.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// Returns whether a call is interrupted before it has an effect: each second one.
fn interrupted() -> bool {
    let now = INTERRUPTING.load(Relaxed) && CALLS.fetch_add(1, Relaxed).is_multiple_of(2);
    if now {
        Errno::EINTR.set();
    }
    now
}

/// Takes the place of functions of the C library, for the crates that are linked into this program.
/// The kernel rarely interrupts them for files of a local disk.
macro_rules! interruptible {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $($number:expr),+;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> $result {
            if interrupted() {
                return -1;
            }
            // SAFETY: the caller's arguments, for the call that they are meant for. The system reads
            // only as many bits of each as its type has.
            (unsafe { libc::syscall($($number,)+ $($argument),*) }) as $result
        }
    )*};
}

interruptible! {
    read(file: c_int, to: *mut c_void, len: size_t) -> ssize_t = libc::SYS_read;
    write(file: c_int, from: *const c_void, len: size_t) -> ssize_t = libc::SYS_write;
    pread64(file: c_int, to: *mut c_void, len: size_t, at: off64_t) -> ssize_t = libc::SYS_pread64;
    fsync(file: c_int) -> c_int = libc::SYS_fsync;
    // The C library's function takes the mode as a variable argument, which is in the same register.
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int
        = libc::SYS_openat, libc::AT_FDCWD;
}

extern "C" fn count(_: c_int) {
    SIGNALS.fetch_add(1, Relaxed);
}

/// Sends a signal to every thread, which interrupts waiting for others.
fn signal_threads() {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    for thread in threads.map(|thread| thread.unwrap().file_name()) {
        let thread: c_int = thread.to_str().unwrap().parse().unwrap();
        // SAFETY: the signal has a handler. A thread that has ended is an error without an effect.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGALRM) };
    }
}

#[test]
fn interrupted_calls_change_nothing() {
    let _alone = ALONE.lock().unwrap();
    let model = tiny_reader(7, true);
    let expected = run(model.path()).unwrap();
    let handler = SigHandler::Handler(count);
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler only adds to a number.
    unsafe { sigaction(Signal::SIGALRM, &action) }.unwrap();
    INTERRUPTING.store(true, Relaxed);
    let results: Vec<_> = thread::scope(|scope| {
        scope.spawn(|| {
            while INTERRUPTING.load(Relaxed) {
                signal_threads();
                thread::sleep(Duration::from_micros(300));
            }
        });
        let results = (0..20).map(|_| run(model.path())).collect();
        INTERRUPTING.store(false, Relaxed);
        results
    });
    for result in results {
        assert_eq!(result.unwrap(), expected);
    }
    let (calls, signals) = (CALLS.load(Relaxed), SIGNALS.load(Relaxed));
    assert!(calls > 400 && signals > 400, "{calls} calls, {signals} signals");
}
