//! Deadlines for computations with grammars. Size limits do not bound their time: an ambiguous
//! grammar of three rules can take minutes for one token.

use std::{
    io,
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use llguidance::{CancellationHandle, Matcher};

/// The time between two checks of all deadlines.
const TICK: Duration = Duration::from_millis(20);

struct Watched {
    id: u64,
    deadline: Instant,
    handle: CancellationHandle,
}

/// The computations in progress.
static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());
/// Notified when a computation is added.
static ADDED: Condvar = Condvar::new();

fn watched() -> MutexGuard<'static, Vec<Watched>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a computation. If it takes longer than `limit`, cancels the matcher for good. A matcher
/// that cannot be cancelled has no limit.
///
/// # Errors
/// If the thread that watches the deadlines cannot be started.
pub fn within<T>(
    matcher: &mut Matcher,
    limit: Duration,
    compute: impl FnOnce(&mut Matcher) -> T,
) -> io::Result<T> {
    static IDS: AtomicU64 = AtomicU64::new(0);
    start()?;
    let id = IDS.fetch_add(1, Relaxed);
    if let Some(handle) = matcher.cancellation_handle() {
        watched().push(Watched { id, deadline: Instant::now() + limit, handle });
        ADDED.notify_one();
    }
    // The matcher catches panics.
    let result = compute(matcher);
    watched().retain(|watched| watched.id != id);
    Ok(result)
}

/// Starts the thread that watches the deadlines, unless it runs already.
fn start() -> io::Result<()> {
    static STARTED: OnceLock<bool> = OnceLock::new();
    let spawn = || thread::Builder::new().name("deadlines".into()).spawn(watch).is_ok();
    match STARTED.get_or_init(spawn) {
        true => Ok(()),
        false => Err(io::Error::other("cannot start the thread that watches its time")),
    }
}

fn watch() {
    loop {
        let running = ADDED.wait_while(watched(), |watched| watched.is_empty());
        drop(running.unwrap_or_else(PoisonError::into_inner));
        thread::sleep(TICK);
        let now = Instant::now();
        for Watched { handle, .. } in watched().iter().filter(|watched| watched.deadline <= now) {
            handle.cancel();
        }
    }
}
