//! The stream of a connection to a server. A reply that is larger than any expected reply ends the
//! connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use futures_util::future::select_ok;
use redis::RedisError;
use redis::io::tcp::{TcpSettings, socket2};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};

use super::first_error::FirstError;
use super::replies::Replies;

/// The number of bytes to read after a failed write. An error that a server sends before it closes
/// the connection has fewer bytes.
const READ_AHEAD: usize = 512;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// Connects to all addresses of a name at the same time, because one of them may be unreachable.
pub(super) async fn tcp(
    host: &str,
    port: u16,
    settings: &TcpSettings,
) -> Result<TcpStream, RedisError> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err(io::Error::other("failed to lookup address: the name has none").into());
    }
    let connecting = addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)));
    let (tcp, _) = select_ok(connecting).await?;
    tcp.set_nodelay(settings.nodelay())?;
    let socket = socket2::SockRef::from(&tcp);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(tcp)
}

/// A stream that limits the size of replies.
pub(crate) struct Bounded {
    stream: Box<dyn Duplex>,
    replies: Replies,
    /// Bytes that were read when a write failed.
    read_ahead: Vec<u8>,
    has_written: bool,
    /// The reader, which waits for the first write.
    reader: Option<Waker>,
}

impl Bounded {
    pub(super) fn new(stream: Box<dyn Duplex>) -> Self {
        let (replies, read_ahead) = (Replies::default(), Vec::new());
        Self { stream, replies, read_ahead, has_written: false, reader: None }
    }

    pub(super) fn first_error(&self) -> FirstError {
        self.replies.first_error()
    }

    /// Handles a failed write. A server sends a reason before it closes the connection, but the
    /// write may fail before the reason is read. If a reason has arrived, the write counts as done,
    /// because the reader gets the reason.
    fn find_reason(&mut self, cx: &mut Context<'_>, error: io::Error) -> io::Result<()> {
        if self.read_ahead.is_empty() {
            let mut bytes = [0; READ_AHEAD];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
            self.read_ahead.extend_from_slice(buffer.filled());
            if let Poll::Ready(Err(reason)) = read {
                return Err(reason);
            }
        }
        if self.read_ahead.is_empty() { Err(error) } else { Ok(()) }
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A server that rejects the connection sends its error before the first command. redis-rs
        // drops replies that arrive so early. So the error is read only after the first command is
        // written, and counts as the reply to this command.
        if !self.has_written {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        if self.read_ahead.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        } else {
            let length = self.read_ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.read_ahead[..length]);
            self.read_ahead.drain(..length);
        }
        Poll::Ready(self.replies.read(&buffer.filled()[before..]))
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.has_written = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        let length = bytes.len();
        Poll::Ready(written.or_else(|error| self.find_reason(cx, error).map(|()| length)))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        Poll::Ready(flushed.or_else(|error| self.find_reason(cx, error)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
