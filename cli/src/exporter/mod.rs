//! `exporter`: what Prometheus is told of the semaphores.
//!
//! Read `look.rs` first: what is looked at, at each scrape. `shared.rs` bounds that in time and
//! shares it among scrapes, `text.rs` writes it down, and `web.rs` hands it out.

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
use crate::server::block_on;
use crate::server::options::Server;

pub fn run(server: Server, asked: Exporter) -> Result<ExitCode, Failure> {
    block_on(serve(server, asked))?
}

async fn serve(server: Server, asked: Exporter) -> Result<ExitCode, Failure> {
    let cannot_listen =
        |error: io::Error| Failure::usage(format!("--listen: {}: {error}", asked.listen));
    let listener = listen(&asked.listen).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let interrupted = interruption()?;
    if let Some(advice) = asked.only.as_ref().and_then(|only| only.advice(&server.prefix, &[])) {
        note(format_args!("--only fits no name: {advice}"));
    }
    let looks = Arc::new(Looks::new(server, asked));
    let served = async {
        note(format_args!("listening on http://{address}/metrics"));
        web::serve(listener, looks.clone()).await
    };
    tokio::select! {
        // What is wrong with the options is known before it says that it listens.
        biased;
        failure = refused(&looks) => return Err(failure),
        served = served => served.map_err(Failure::system("no more answers"))?,
        _ = interrupted => {}
    }
    looks.shut_down().await;
    Ok(ExitCode::SUCCESS)
}

/// Without a host: at all addresses, those of IPv6 included where the system has them.
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

/// A wrong option is told at once. For Redis it can wait: that may be started later.
async fn refused(looks: &Looks) -> Failure {
    match looks.connect().await {
        Err(failure) if failure.status == USAGE => return failure,
        connected => looks.tell_changes(connected.err().as_ref()),
    }
    std::future::pending().await
}
