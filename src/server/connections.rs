//! Accepts and serves connections, and closes them when the client is too slow.

mod timed;

use std::{
    future::poll_fn,
    io::ErrorKind,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, extract::Request, response::Response};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::AsyncWrite,
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::sleep,
};
use tracing::warn;

use self::timed::Timed;
use super::options::Options;

/// Delay before a failed `accept` is retried: closed connections may have freed file descriptors by
/// then.
const RETRY: Duration = Duration::from_millis(500);

/// How often the log says that connections cannot be accepted.
const WARN_AGAIN: Duration = Duration::from_secs(60);

/// Response to a request that is still incomplete after the timeout.
const LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Response when there are too many connections.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
                      content-length: 0\r\n\r\n";

/// Interim response to a client that has shut down its side of the connection.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How soon a client is checked again. It doubles up to `LOOK_MAX`.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Maximum time to drop data that a client sends after its answer.
const DRAIN: Duration = Duration::from_secs(5);

/// Maximum connections in addition to running and waiting requests.
const OTHERS_MAX: usize = 256;

/// Serves connections until `stop` changes, then completes their answers. The head of a request
/// must arrive within `timeout`. A client must not stop reading for longer.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    places: Arc<Semaphore>,
    timeout: Duration,
    mut stop: watch::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    let mut warned = None;
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
            // The client closed its connection before it was accepted.
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
            Err(e) => {
                if warned.is_none_or(|warned: Instant| warned.elapsed() >= WARN_AGAIN) {
                    warned = Some(Instant::now());
                    warn!(
                        target: "request",
                        "cannot accept connections: {e}; clients wait until others are closed; to \
                         allow more, raise the limit on open files (ulimit -n)"
                    );
                }
                sleep(RETRY).await;
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Returns one permit for each allowed connection.
pub fn places(options: &Options) -> Arc<Semaphore> {
    let (running, waiting) = (options.requests.slots(), options.requests.max_queue);
    let most = waiting.saturating_add(running).saturating_add(OTHERS_MAX);
    Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))
}

/// Refuses a connection without a permit.
async fn refuse(stream: TcpStream) {
    let written = async {
        stream.writable().await?;
        stream.try_write(FULL)
    };
    // Ignore failures: the client sees that the connection is closed.
    let _ = tokio::time::timeout(RETRY, written).await;
}

async fn connection(
    stream: TcpStream,
    router: Router,
    timeout: Duration,
    mut stop: watch::Receiver<()>,
) {
    // Send each token immediately. If this fails, tokens only arrive later.
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    let service = TowerToHyperService::new(router);
    let peer = stream.clone();
    let service =
        service_fn(move |request| Box::pin(answer(service.clone(), request, peer.clone())));
    let timed = TokioIo::new(Timed::new(stream.clone(), timeout));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(timeout).half_close(true);
    // Some clients expect the case of llama-server's header names.
    builder.title_case_headers(true);
    let mut connection = builder.serve_connection(timed, service);
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
    let read_buf = connection.into_parts().read_buf;
    // Close an idle connection without a response: the client would take it for the response to its
    // next request.
    if result.is_err_and(|e| e.is_timeout()) && !read_buf.is_empty() {
        let _ = stream.try_write(LATE);
    }
    // The stream has no other users now.
    let Some(mut stream) = Arc::into_inner(stream) else { return };
    // The client may be gone.
    let _ = poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await;
    if !stopping {
        tokio::select! {
            () = drain(&stream) => {}
            _ = stop.changed() => {}
        }
    }
}

/// Answers a request, unless the client closes its connection first.
async fn answer(
    service: TowerToHyperService<Router>,
    request: Request<Incoming>,
    client: Arc<TcpStream>,
) -> Result<Response, Gone> {
    tokio::select! {
        answer = service.call(request) => answer.map_err(|never| match never {}),
        () = gone(&client) => Err(Gone),
    }
}

/// The client has closed its connection.
#[derive(Debug, thiserror::Error)]
#[error("the client has closed its connection")]
struct Gone;

/// Waits until a client has closed its connection. A client that has only shut down its side still
/// reads the answer. An interim response distinguishes the two: a closed connection resets it.
async fn gone(client: &TcpStream) {
    loop {
        match client.peek(&mut [0]).await {
            Ok(0) => break,
            // The body, or another request.
            Ok(_) => sleep(LOOK).await,
            Err(_) => return,
        }
    }
    let _ = client.try_write(INTERIM);
    let mut interval = LOOK;
    while matches!(client.take_error(), Ok(None)) {
        sleep(interval).await;
        interval = LOOK_MAX.min(2 * interval);
    }
}

/// Drops data that a client still sends after its answer. If a connection with unread data is
/// closed, it is reset, and the client loses the answer.
async fn drain(stream: &TcpStream) {
    let drained = async {
        let mut buffer = vec![0; 64 << 10];
        while stream.readable().await.is_ok() {
            match stream.try_read(&mut buffer) {
                Ok(bytes) if bytes > 0 => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN, drained).await;
}
