//! `exporter`: serves metrics of the semaphores for Prometheus.
//!
//! Read `look.rs` first: it reads the semaphores. `shared.rs` limits the time, and shares the
//! result among concurrent scrapes. `text.rs` formats the result, and `web.rs` serves the text.

mod look;
pub mod options;
mod shared;
mod text;
mod web;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::exporter::options::Exporter;
use crate::exporter::shared::Looks;
use crate::failure::{Failure, USAGE};
use crate::interruption::interruption;
use crate::output::note;
use crate::server::options::Server;
use crate::server::{block_on, read_files};

pub fn run(server: Server, asked: Exporter) -> Result<ExitCode, Failure> {
    read_files(&server)?;
    block_on(serve(server, asked))?
}

async fn serve(server: Server, asked: Exporter) -> Result<ExitCode, Failure> {
    let cannot_listen =
        |error: io::Error| Failure::usage(format!("--listen: {}: {error}", asked.listen));
    let listener = listen(&asked.listen).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let interrupted = interruption()?;
    if let Some(advice) = asked.only.as_ref().and_then(|only| only.advice(&server.prefix, &[])) {
        note(format_args!("--only may match no name: {advice}"));
    }
    let longest = asked.timeout;
    let looks = Arc::new(Looks::new(server, asked));
    let served = async {
        note(format_args!("listening on http://{address}/metrics"));
        web::serve(listener, looks.clone(), longest).await
    };
    tokio::select! {
        // A wrong option is reported first, before the address is printed.
        biased;
        failure = refused(&looks) => return Err(failure),
        served = served => served.map_err(Failure::system("cannot serve HTTP any more"))?,
        _ = interrupted => {}
    }
    looks.shut_down().await;
    Ok(ExitCode::SUCCESS)
}

/// Listens on this address. Without a host, listens on all addresses, including IPv6 addresses if
/// the system has any.
async fn listen(address: &str) -> io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else {
        return TcpListener::bind(address).await;
    };
    match TcpListener::bind(format!("[::]:{port}")).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(format!("0.0.0.0:{port}")).await
        }
        listener => listener,
    }
}

/// Completes if an option is wrong. An unavailable Redis is only reported, because it may start
/// later.
async fn refused(looks: &Looks) -> Failure {
    match looks.connect().await {
        Err(failure) if failure.status == USAGE => return failure,
        connected => looks.report_changes(connected.err().map(|failure| failure.to_string())),
    }
    std::future::pending().await
}
