//! Threads for the work before the first token: parsing, templates, tokenization, grammars.
//!
//! Request handlers run on these threads. Connection threads never wait for them, so `/health` and
//! streams respond under any load. Large requests have a separate thread, so that small requests do
//! not wait for them.

use std::{future::Future, io, sync::Arc};

use axum::{
    body::HttpBody,
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinSet,
};

use super::{error::ApiError, log::Record, memory, owner::Owner, state::Server};

/// The number of threads for small requests. A task that waits uses no CPU time.
const SMALL_THREADS: usize = 2;

/// Maximum body of a small request in bytes.
const SMALL_MAX: usize = 64 << 10;

/// Upper bound on the memory of a large request before its answer, in bytes per byte of its body.
/// The worst case is a text of spaces: each has 64 bytes of merge candidates, twice while the list
/// grows, and 144 bytes of symbols.
const MEMORY_FACTOR: usize = 320;

tokio::task_local! {
    /// The threads that serve the current request's connection.
    static CONNECTIONS: Handle;
}

/// The threads that handle requests.
pub struct Work {
    small: Option<Runtime>,
    large: Option<Runtime>,
}

impl Work {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system cannot start them.
    pub fn start() -> io::Result<Self> {
        let threads = |count, name| {
            let mut runtime = Builder::new_multi_thread();
            runtime.worker_threads(count).thread_name(name).build().map(Some)
        };
        let small = threads(SMALL_THREADS, "requests")?;
        Ok(Work { small, large: threads(1, "large requests")? })
    }

    /// Runs the work of a request with a body of `bytes`. Dropping the future cancels work that has
    /// not started.
    ///
    /// # Errors
    /// If the work panics, or the server has stopped.
    async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let stopped = || ApiError::unavailable("the server is stopping");
        let runtime = if bytes > SMALL_MAX { &self.large } else { &self.small };
        let runtime = runtime.as_ref().ok_or_else(stopped)?;
        let mut running = JoinSet::new();
        running.spawn_on(CONNECTIONS.scope(Handle::current(), work), runtime.handle());
        running.join_next().await.ok_or_else(stopped)?.map_err(ApiError::internal)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Does not wait for running tasks.
        let all = [self.small.take(), self.large.take()];
        all.into_iter().flatten().for_each(Runtime::shutdown_background);
    }
}

/// Handles a request on these threads. GET requests only look something up, so they stay on the
/// connection's thread.
pub async fn handle(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let owner = request.extensions().get::<Owner>().copied().unwrap_or_default();
    if request.method() == Method::GET {
        return owner.scope(next.run(request)).await;
    }
    // A body of unknown size may be large.
    let bytes = request.body().size_hint().exact();
    let bytes = bytes.map_or(SMALL_MAX + 1, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let next = Record::with_current(owner.scope(next.run(request)));
    let handled = async move {
        match reserve(bytes) {
            Ok(()) => next.await,
            Err(refused) => refused.into_response(),
        }
    };
    server.work.run(bytes, handled).await.unwrap_or_else(IntoResponse::into_response)
}

/// Checks that the system has the memory for a large request. Only one large request runs at a
/// time, so none takes the memory in between. If a list could not be allocated, the process would
/// end.
///
/// # Errors
/// If the system refuses it.
fn reserve(bytes: usize) -> Result<(), ApiError> {
    if bytes <= SMALL_MAX {
        return Ok(());
    }
    let needed = bytes.saturating_mul(MEMORY_FACTOR);
    match memory::system_has(needed) {
        true => Ok(()),
        false => Err(ApiError::unavailable(format_args!(
            "the system refused {needed} bytes of memory to prepare a body of {bytes} bytes: divide \
             the request, or raise the server's limit of memory"
        ))),
    }
}

/// Returns the threads of connections, for the tasks and timers of a stream.
pub fn connections() -> Handle {
    CONNECTIONS.try_with(Handle::clone).unwrap_or_else(|_| Handle::current())
}

/// Returns a task whose [`connections`] are these.
pub fn on_connections<T>(
    threads: Handle,
    task: impl Future<Output = T>,
) -> impl Future<Output = T> {
    CONNECTIONS.scope(threads, task)
}
