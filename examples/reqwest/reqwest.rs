//! An API that allows a limited number of concurrent calls, and four processes that call it with
//! reqwest. Each call has a permit, so all processes together keep the limit. The API is a small
//! server in this program, which counts the concurrent calls.
//!
//! ```text
//! scripts/with-redis cargo run --example reqwest
//! ```

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::{Router, routing::get};
use clap::Parser;
use futures_util::future::try_join_all;
use redis_semaphore::{Semaphore, SemaphoreClient};
use reqwest::Client;
use tokio::net::TcpListener;
use tokio::process::Command;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PROCESSES: usize = 4;
const CALLS: usize = 10;
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Call an API from four processes, and print the largest number of concurrent calls
#[derive(Parser)]
struct Options {
    /// Number of concurrent calls that the API allows
    #[arg(default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[arg(default_value = "api")]
    name: String,
    /// Used when the program starts itself
    #[arg(hide = true)]
    api: Option<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { limit, name, api } = Options::parse();
    if let Some(api) = api {
        return client(limit, &name, &api).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let api = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, Router::new().route("/", get(response))).into_future());
    let responses = try_join_all((0..PROCESSES).map(|_| in_process(limit, &name, &api))).await?;
    let responses: usize = responses.iter().sum();
    println!("{responses} calls of {PROCESSES} processes, at most {} at once", MOST.load(SeqCst));
    Ok(())
}

/// Starts this program as a client. Returns the number of responses.
async fn in_process(limit: u32, name: &str, api: &str) -> Result<usize> {
    let mut client = Command::new(std::env::current_exe()?);
    client.arg(limit.to_string()).args([name, api]).kill_on_drop(true);
    let ended = client.stdout(Stdio::piped()).spawn()?.wait_with_output().await?;
    match ended.status.success() {
        true => Ok(String::from_utf8(ended.stdout)?.lines().count()),
        false => Err(format!("a client: {}", ended.status).into()),
    }
}

/// The handler of the API.
async fn response() -> &'static str {
    MOST.fetch_max(INSIDE.fetch_add(1, SeqCst) + 1, SeqCst);
    tokio::time::sleep(Duration::from_millis(5)).await;
    INSIDE.fetch_sub(1, SeqCst);
    "done"
}

fn redis_url() -> Result<String> {
    std::env::var("REDIS_URL").map_err(|_| "REDIS_URL is not set: see scripts/with-redis".into())
}

/// Runs a client, which starts all its calls at the same time.
async fn client(limit: u32, name: &str, api: &str) -> Result<()> {
    let semaphores = SemaphoreClient::connect(&redis_url()?).await?;
    let semaphore = semaphores.semaphore(name).limit(limit).build()?;
    let client = Client::new();
    for response in try_join_all((0..CALLS).map(|_| call(&semaphore, &client, api))).await? {
        println!("{response}");
    }
    semaphores.shutdown().await;
    Ok(())
}

/// Makes a call, and holds the permit until the response is complete. If the permit is lost, the
/// call is aborted.
async fn call(semaphore: &Semaphore, client: &Client, api: &str) -> Result<String> {
    let permit = semaphore.acquire().await?;
    let response = async { client.get(api).send().await?.error_for_status()?.text().await };
    let response = tokio::select! {
        response = response => response?,
        () = permit.lost() => return Err("the permit was lost during the call".into()),
    };
    permit.release().await?;
    Ok(response)
}
