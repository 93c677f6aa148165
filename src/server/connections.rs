//! Accepts and serves connections, and closes them when the client is too slow.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::Router;
use hyper::{
    server::conn::http1::{self, Parts},
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{Sleep, sleep},
};

use super::app::Options;

/// Delay before a failed `accept` is tried again: closed connections may have freed file
/// descriptors by then.
const RETRY: Duration = Duration::from_millis(500);

/// Response when a request has started to arrive, but is incomplete after the timeout.
const LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Response when there are too many connections.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
                      content-length: 0\r\n\r\n";

/// Maximum connections besides running and waiting requests.
const OTHERS_MAX: usize = 256;

/// Serves connections until `stop` changes, then completes their answers. The head of a request
/// must arrive within `timeout`, and a client must not pause reading for longer.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    places: Arc<Semaphore>,
    timeout: Duration,
    mut stop: watch::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = stop.changed() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => match places.clone().try_acquire_owned() {
                Ok(place) => {
                    let connection = connection(stream, router.clone(), timeout, stop.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(_) => drop(connections.spawn(refuse(stream))),
            },
            Err(_) => sleep(RETRY).await,
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Returns one permit per allowed connection: for running and waiting requests, and others.
pub fn places(options: &Options) -> Arc<Semaphore> {
    let most = options.queue_max.saturating_add(options.slots).saturating_add(OTHERS_MAX);
    Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))
}

/// Answers a connection without a permit.
async fn refuse(stream: TcpStream) {
    let written = async {
        stream.writable().await?;
        stream.try_write(FULL)
    };
    // A failure is ignored: the closed connection tells the client enough.
    let _ = tokio::time::timeout(RETRY, written).await;
}

async fn connection(
    stream: TcpStream,
    router: Router,
    timeout: Duration,
    mut stop: watch::Receiver<()>,
) {
    // Sends each token at once. If this fails, tokens only arrive later.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |request| Box::pin(service.call(request)));
    let stream = TokioIo::new(Timed { stream, timeout, pending: None });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(timeout);
    // Some clients look for names of llama-server's headers as it writes them.
    builder.title_case_headers(true);
    let mut connection = builder.serve_connection(stream, service);
    let mut stopping = false;
    let result = loop {
        tokio::select! {
            result = poll_fn(|context| connection.poll_without_shutdown(context)) => break result,
            _ = stop.changed(), if !stopping => {
                stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let Parts { io, read_buf, .. } = connection.into_parts();
    let mut stream = io.into_inner();
    // An idle connection is closed without a response: the client would take it for the response to
    // its next request.
    if result.is_err_and(|e| e.is_timeout()) && !read_buf.is_empty() {
        let _ = stream.stream.try_write(LATE);
    }
    // The client may be gone.
    let _ = poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await;
}

/// A connection that fails a write when the client reads nothing for `timeout`.
struct Timed {
    stream: TcpStream,
    timeout: Duration,
    /// Timer of the waiting write.
    pending: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    /// Returns the result of a write, or an error after `timeout`.
    fn limit<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.pending = None;
            return written;
        }
        let timeout = self.timeout;
        let pending = self.pending.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(pending.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.limit(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
