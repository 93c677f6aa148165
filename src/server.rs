//! The server: a model behind the interfaces of llama-server, OpenAI, Anthropic and ollama.
//!
//! Connections are served by two threads, which never do the work of a request: handlers run on threads
//! of their own (`work`). They send jobs to the scheduler, which owns the engine and runs on a further
//! thread, and receive updates.

mod adapters;
mod answers;
mod anthropic;
mod app;
mod blocks;
mod body;
mod chat;
mod command;
mod connections;
mod disk;
mod embeddings;
mod error;
mod fields;
mod grammars;
mod histogram;
mod http;
mod job;
mod log;
mod native;
mod ollama;
mod openai;
mod origins;
mod pace;
mod page;
mod parameters;
mod prefixes;
mod probabilities;
mod prompts;
mod reasoning;
mod request_fields;
mod sampling;
mod scheduler;
mod slot;
mod status;
mod task;
mod timings;
mod updates;
mod volatile;
mod work;

use std::{
    fmt::Write,
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::{net::TcpListener, sync::watch, task::JoinSet};

pub use adapters::scales_of;
pub use app::{App, Options, Server};
pub use command::{Command, remove_incomplete};
pub use disk::Disk;
pub use scheduler::Scheduler;
pub use status::Status;

/// The time after which a server that stops looks again whether answers are being generated.
const DRAIN_STEP: Duration = Duration::from_millis(20);

/// The name of the program in answers.
const FINGERPRINT: &str = concat!("rope-cpu-", env!("CARGO_PKG_VERSION"));

/// Serves requests on all `listeners` until `stop` is ready, and then until all answers have ended, but
/// at most for `drain_max`. Returns the end of that time, unless it is beyond that of clocks.
pub async fn serve(
    server: Arc<Server>,
    listeners: Vec<TcpListener>,
    stop: impl Future<Output = ()> + Send + 'static,
    drain_max: Duration,
) -> Option<Instant> {
    let router = http::router(server.clone());
    let (stopped, draining) = watch::channel(());
    let mut served = JoinSet::new();
    let places = connections::places(&server.options);
    for listener in listeners {
        let timeout = server.options.timeout;
        let (router, places, draining) = (router.clone(), places.clone(), draining.clone());
        served.spawn(connections::serve(listener, router, places, timeout, draining));
    }
    stop.await;
    let end = Instant::now().checked_add(drain_max);
    server.stopping.store(true, Relaxed);
    let drained = async {
        // Until then, requests are accepted, and refused with the reason.
        while server.busy() {
            tokio::time::sleep(DRAIN_STEP).await;
        }
        let _ = stopped.send(());
        while served.join_next().await.is_some() {}
    };
    // What takes longer is cut off.
    let _ = tokio::time::timeout(drain_max, drained).await;
    end
}

/// Returns a future that is ready after SIGINT or SIGTERM. A second signal exits immediately.
///
/// # Errors
/// If the system rejects a handler.
pub fn stop_signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tokio::spawn(async move {
            let code = tokio::select! {
                _ = terminate.recv() => 143,
                _ = interrupt.recv() => 130,
            };
            std::process::exit(code);
        });
    })
}

/// Returns the time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns a random identifier with a prefix.
fn identifier(prefix: &str) -> String {
    let mut bytes = [0; 16];
    // Without random numbers, identifiers are not unique, which no answer depends on.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().fold(prefix.to_string(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
