//! Serves models over the interfaces of llama-server, OpenAI, Anthropic and ollama.
//!
//! Two threads serve connections, and never do the work of a request: handlers run on other threads
//! (`work`). A body is parsed as a type of its interface (`read`). Each chat interface fills one
//! `ChatRequest` (`chat`), which becomes the prompt and the parameters. Handlers send jobs to the
//! scheduler and receive updates. The scheduler owns the engine and runs on a separate thread. A
//! server has one model, or opens and closes those of the shelf (`models`).

mod adapters;
mod answers;
mod anthropic;
mod app;
mod blocks;
mod body;
mod changing;
mod chat;
mod compiling;
mod connections;
mod echoes;
mod embeddings;
mod error;
mod fields;
mod framing;
mod grammars;
mod guided;
mod histogram;
mod http;
mod latency;
mod lazy;
mod log;
mod manage;
mod memory;
mod models;
mod native;
mod ollama;
mod openai;
mod options;
mod origins;
mod owner;
mod page;
mod parameters;
mod pdf;
mod probabilities;
mod prompts;
mod read;
mod request_fields;
mod rerank;
mod sampling;
mod slot_action;
mod state;
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

use rope_cpu::platform::interrupt;
use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
    task::JoinSet,
};

pub use adapters::scales_of;
pub use app::{App, Longer, Opened};
pub use compiling::Compiling;
pub use memory::Memory;
pub use models::{KeepAlive, Unopened, Wanted};
pub use options::{Listen, Options, Requests, Shelved};
pub use slot_action::remove_incomplete;
pub use state::Server;

/// How often a stopping server checks whether answers are still being generated.
const DRAIN_STEP: Duration = Duration::from_millis(20);

/// Program name and version, as reported in answers.
const FINGERPRINT: &str = concat!("rope-cpu-", env!("CARGO_PKG_VERSION"));

/// Serves requests on all `listeners` until `stop` is ready. Then finishes open answers for at most
/// `drain_max`. Returns when that time is over; `None` if the clock cannot represent it.
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
        let timeout = server.options.listen.timeout;
        let (router, places, draining) = (router.clone(), places.clone(), draining.clone());
        served.spawn(connections::serve(listener, router, places, timeout, draining));
    }
    stop.await;
    let end = Instant::now().checked_add(drain_max);
    server.stopping.store(true, Relaxed);
    server.models.refuse();
    let drained = async {
        // New requests are still accepted, and refused with the reason.
        while server.busy() {
            tokio::time::sleep(DRAIN_STEP).await;
        }
        let _ = stopped.send(());
        while served.join_next().await.is_some() {}
    };
    // Answers that take longer are truncated.
    let _ = tokio::time::timeout(drain_max, drained).await;
    end
}

/// Returns a future that is ready after SIGTERM, or after Ctrl-C if `interrupts`. A second one exits
/// immediately. Without `interrupts`, Ctrl-C does nothing.
///
/// # Errors
/// If the system rejects a handler.
pub fn stop_signal(interrupts: bool) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let stop = Arc::new(Notify::new());
    let stopped = stop.clone();
    interrupt::install_with(interrupts, move || stop.notify_one())?;
    Ok(async move { stopped.notified().await })
}

/// Returns the time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns a random identifier with a prefix.
fn identifier(prefix: &str) -> String {
    let mut bytes = [0; 16];
    // If there are no random numbers, identifiers repeat. No answer depends on them.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().fold(prefix.to_string(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
