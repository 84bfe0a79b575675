//! The way to a server. Each step has the response timeout for itself, and a
//! reply that is larger than any of ours ends the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::select_ok;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{ConnectionAddr, RedisError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};

use super::call_error::within;
use super::replies::Replies;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// Nothing for what redis-rs must connect to itself.
pub(super) async fn open(
    address: &ConnectionAddr,
    settings: &TcpSettings,
    limit: Duration,
) -> Result<Option<Bounded>, RedisError> {
    let stream: Box<dyn Duplex> = match address {
        ConnectionAddr::Tcp(host, port) => {
            Box::new(within(limit, tcp(host, *port, settings)).await?)
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let connect =
                async { Ok::<_, RedisError>(tokio::net::UnixStream::connect(path).await?) };
            Box::new(within(limit, connect).await?)
        }
        _ => return Ok(None),
    };
    Ok(Some(Bounded { stream, replies: Replies::default(), read_ahead: None }))
}

/// To all addresses of a name at the same time: one of them may be unreachable.
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

/// Reads no reply without end.
pub(crate) struct Bounded {
    stream: Box<dyn Duplex>,
    replies: Replies,
    read_ahead: Option<u8>,
}

impl Bounded {
    /// Why a write has failed. A server that refuses a certificate says so before it closes, and
    /// the write may find out first. What is read instead of a reason is kept for the reader.
    fn reason(&mut self, cx: &mut Context<'_>, error: io::Error) -> io::Error {
        if self.read_ahead.is_some() {
            return error;
        }
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        self.read_ahead = buffer.filled().first().copied();
        match read {
            Poll::Ready(Err(reason)) => reason,
            _ => error,
        }
    }

    #[cfg(feature = "tls")]
    pub(super) fn new(stream: impl Duplex + 'static) -> Self {
        Self { stream: Box::new(stream), replies: Replies::default(), read_ahead: None }
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match self.read_ahead.take() {
            Some(byte) => buffer.put_slice(&[byte]),
            None => ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?,
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
        Poll::Ready(written.map_err(|error| self.reason(cx, error)))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        Poll::Ready(flushed.map_err(|error| self.reason(cx, error)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, parts));
        Poll::Ready(written.map_err(|error| self.reason(cx, error)))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
