//! A connection with a limit on the time in which its client reads nothing.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

/// A connection whose write fails if the client reads nothing for `timeout`. It shares the stream
/// with the code that watches the client.
pub struct Timed {
    stream: Arc<TcpStream>,
    timeout: Duration,
    /// Timer of the waiting write.
    pending: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    /// Creates a connection.
    pub fn new(stream: Arc<TcpStream>, timeout: Duration) -> Self {
        Timed { stream, timeout, pending: None }
    }

    /// Returns the result of a write, or an error after `timeout`.
    fn write(
        &mut self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        while let Poll::Ready(ready) = self.stream.poll_write_ready(context) {
            let written = ready.and_then(|()| write(&self.stream));
            if !is_pending(&written) {
                self.pending = None;
                return Poll::Ready(written);
            }
        }
        let timeout = self.timeout;
        let pending = self.pending.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(pending.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let read = self.stream.try_read(buffer.initialize_unfilled());
            if !is_pending(&read) {
                return Poll::Ready(read.map(|bytes| buffer.advance(bytes)));
            }
        }
    }
}

impl AsyncWrite for Timed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write_vectored(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has no buffer to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The owner of the stream closes it.
        Poll::Ready(Ok(()))
    }
}

/// Returns whether the system was not ready.
fn is_pending<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}
