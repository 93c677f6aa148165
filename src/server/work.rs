//! Threads for the work before the first token: parsing, templates, tokens, grammars.
//!
//! Request handlers run on these threads. The threads of connections never wait for them, so
//! `/health` and streams respond under any load.

use std::{future::Future, io, sync::Arc};

use axum::{
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinSet,
};

use super::{app::Server, error::ApiError, log::Record};

/// Number of threads. Work that waits for one uses no CPU time.
const THREADS: usize = 2;

tokio::task_local! {
    /// The threads that serve the current request's connection.
    static CONNECTIONS: Handle;
}

/// The threads.
pub struct Work(Option<Runtime>);

impl Work {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system cannot start them.
    pub fn start() -> io::Result<Self> {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(THREADS).thread_name("requests").build().map(Some).map(Work)
    }

    /// Runs some work. Dropping the future cancels work that has not started.
    ///
    /// # Errors
    /// If the work panics, or the server has stopped.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let stopped = || ApiError::unavailable("the server is stopping");
        let runtime = self.0.as_ref().ok_or_else(stopped)?;
        let mut running = JoinSet::new();
        running.spawn_on(CONNECTIONS.scope(Handle::current(), work), runtime.handle());
        running.join_next().await.ok_or_else(stopped)?.map_err(ApiError::internal)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Does not wait for running work.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Handles a request on these threads. GET requests only look something up, so they stay on the
/// connection's thread.
pub async fn handle(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    if request.method() == Method::GET {
        return next.run(request).await;
    }
    let handled = Record::with_current(next.run(request));
    server.work.run(handled).await.unwrap_or_else(IntoResponse::into_response)
}

/// Returns the threads of connections, for the tasks and timers of a stream.
pub fn connections() -> Handle {
    CONNECTIONS.try_with(Handle::clone).unwrap_or_else(|_| Handle::current())
}
