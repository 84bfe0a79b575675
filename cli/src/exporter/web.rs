//! The HTTP server.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_io_timeout::TimeoutStream;

use crate::exporter::shared::Looks;
use crate::output::note;

const INDEX: &str = "<title>redis-semaphore</title><a href=\"metrics\">metrics</a>\n";
const OPEN_METRICS: &str = "application/openmetrics-text";

/// A connection that sends nothing for this time, and for the longest scrape, is closed, so that
/// vanished clients leave no open files.
const SILENCE: Duration = Duration::from_secs(120);

pub async fn serve(
    listener: TcpListener,
    looks: Arc<Looks>,
    longest_scrape: Duration,
) -> io::Result<()> {
    let index = get(async || Html(INDEX));
    let router = Router::new().route("/", index).route("/metrics", get(metrics));
    let listener = Listener { listener, has_failed: false, silence: SILENCE + longest_scrape };
    axum::serve(listener, router.with_state(looks)).await
}

struct Listener {
    listener: TcpListener,
    /// Whether the last attempt to accept a connection failed.
    has_failed: bool,
    silence: Duration,
}

impl axum::serve::Listener for Listener {
    type Io = Pin<Box<TimeoutStream<TcpStream>>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    self.has_failed = false;
                    let mut stream = TimeoutStream::new(stream);
                    stream.set_read_timeout(Some(self.silence));
                    return (Box::pin(stream), peer);
                }
                // The peer has already closed the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.has_failed, true) {
                        note(format_args!("no connection can be accepted: {error}"));
                    }
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

async fn metrics(State(looks): State<Arc<Looks>>, headers: HeaderMap) -> impl IntoResponse {
    let text = looks.text(patience(&headers)).await;
    ([(header::CONTENT_TYPE, content_type(&headers))], text.to_string())
}

/// Returns how long a reply may take. Prometheus sends its timeout in a header. A part of the
/// timeout is left for the network.
fn patience(headers: &HeaderMap) -> Duration {
    let reported = headers.get("x-prometheus-scrape-timeout-seconds");
    let seconds = reported.and_then(|reported| reported.to_str().ok()?.parse::<f64>().ok());
    let patience = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds * 0.9).ok());
    patience.unwrap_or(Duration::MAX)
}

/// Returns the content type. The text is valid in the formats of OpenMetrics and of Prometheus. A
/// client that does not accept OpenMetrics gets the format of Prometheus.
fn content_type(headers: &HeaderMap) -> String {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let is_open = |accepted: &str| accepted.contains(OPEN_METRICS);
    match accepted.filter_map(|accepted| accepted.to_str().ok()).any(is_open) {
        true => format!("{OPEN_METRICS}; version=1.0.0; charset=utf-8"),
        false => "text/plain; version=0.0.4; charset=utf-8".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::AsyncReadExt;
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_read_from_a_silent_connection_fails() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut listener = Listener { listener, has_failed: false, silence: SILENCE };
        let (mut connection, _) = axum::serve::Listener::accept(&mut listener).await;
        let began = Instant::now();
        let read = timeout(2 * SILENCE, connection.read_u8()).await.expect("the read ends");
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= SILENCE);
    }
}
