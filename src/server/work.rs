//! Threads for the work between the arrival of a request and its first token: parsing, templates, tokens,
//! grammars.
//!
//! Handlers of requests run on these threads. The threads of connections never wait for them, so `/health`
//! and streams go on, however much work arrives.

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

/// The number of threads. What waits for one of them costs no time of a processor.
const THREADS: usize = 2;

tokio::task_local! {
    /// The threads of the connection that the current task handles a request of.
    static CONNECTIONS: Handle;
}

/// The threads.
pub struct Work(Option<Runtime>);

impl Work {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system rejects them.
    pub fn start() -> io::Result<Self> {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(THREADS).thread_name("requests").build().map(Some).map(Work)
    }

    /// Does some work. If the future is dropped, work that has not started never starts.
    ///
    /// # Errors
    /// If the work panics, or the server has stopped.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let stopped = || ApiError::unavailable("the server stops");
        let runtime = self.0.as_ref().ok_or_else(stopped)?;
        let mut running = JoinSet::new();
        running.spawn_on(CONNECTIONS.scope(Handle::current(), work), runtime.handle());
        running.join_next().await.ok_or_else(stopped)?.map_err(ApiError::internal)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Without waiting for work that has started.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Handles a request on the threads for work. What is only looked up needs none.
pub async fn handle(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    if request.method() == Method::GET {
        return next.run(request).await;
    }
    let handled = Record::with_current(next.run(request));
    server.work.run(handled).await.unwrap_or_else(IntoResponse::into_response)
}

/// Returns the threads of connections, for what a handler leaves to them: tasks and timers of a stream.
pub fn connections() -> Handle {
    CONNECTIONS.try_with(Handle::clone).unwrap_or_else(|_| Handle::current())
}
