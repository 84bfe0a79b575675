//! Reports from a database, which three processes query with sqlx. Each process has a pool of
//! connections for small queries. A heavy query also needs a permit, which limits the number of
//! concurrent heavy queries of all processes.
//!
//! ```text
//! scripts/with-redis cargo run --example sqlx
//! ```

use std::path::Path;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use futures_util::future::try_join_all;
use redis_semaphore::{Semaphore, SemaphoreClient};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::process::Command;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PROCESSES: usize = 3;
const REPORTS: usize = 4;
const CREATE: &str = "CREATE TABLE sales AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 \
                      FROM n WHERE i < 20000) SELECT i % 100 AS shop, i * 7919 % 1000 AS price FROM n";
const HEAVY: &str = "SELECT count(*) FROM sales AS a JOIN sales AS b USING (shop)";

/// Query a database from three processes, and print the largest number of concurrent heavy queries
#[derive(Parser)]
struct Options {
    /// Number of concurrent heavy queries that the database can take
    #[arg(default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[arg(default_value = "reports")]
    name: String,
    /// Used when the program starts itself
    #[arg(hide = true)]
    database: Option<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { limit, name, database } = Options::parse();
    if let Some(database) = database {
        return reports(limit, &name, &database).await;
    }
    let path = std::env::temp_dir().join(format!("sqlx-{}.sqlite", std::process::id()));
    let queried = query_all(limit, &name, &path).await;
    let removed = std::fs::remove_file(&path);
    queried?;
    Ok(removed?)
}

async fn query_all(limit: u32, name: &str, path: &Path) -> Result<()> {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    sqlx::query(CREATE).execute(&SqlitePool::connect_with(options).await?).await?;
    let times = try_join_all((0..PROCESSES).map(|_| in_process(limit, name, path))).await?;
    let times = times.concat();
    let running = |at: u64| times.iter().filter(|(from, to)| (*from..*to).contains(&at)).count();
    let most = times.iter().map(|(from, _)| running(*from)).max().unwrap_or(0);
    println!("{} heavy queries of {PROCESSES} processes, at most {most} at once", times.len());
    Ok(())
}

/// Starts this program again. Returns the times at which its heavy queries began and ended.
async fn in_process(limit: u32, name: &str, path: &Path) -> Result<Vec<(u64, u64)>> {
    let mut process = Command::new(std::env::current_exe()?);
    process.arg(limit.to_string()).arg(name).arg(path).kill_on_drop(true);
    let ended = process.stdout(Stdio::piped()).spawn()?.wait_with_output().await?;
    if !ended.status.success() {
        return Err(format!("a process: {}", ended.status).into());
    }
    let lines = String::from_utf8(ended.stdout)?;
    let times = lines.lines().filter_map(|line| line.split_once(' '));
    times.map(|(from, to)| Ok((from.parse()?, to.parse()?))).collect()
}

fn redis_url() -> Result<String> {
    std::env::var("REDIS_URL").map_err(|_| "REDIS_URL is not set: see scripts/with-redis".into())
}

/// Runs a process, which starts all its reports at the same time.
async fn reports(limit: u32, name: &str, database: &str) -> Result<()> {
    let client = SemaphoreClient::connect(&redis_url()?).await?;
    let semaphore = client.semaphore(name).limit(limit).build()?;
    let options = SqliteConnectOptions::new().filename(database).read_only(true);
    let pool = SqlitePool::connect_with(options).await?;
    try_join_all((0..REPORTS).map(|_| report(&semaphore, &pool))).await?;
    client.shutdown().await;
    Ok(())
}

/// Acquires the permit before the connection: a waiting report takes no connection from small
/// queries.
async fn report(semaphore: &Semaphore, pool: &SqlitePool) -> Result<()> {
    let permit = semaphore.acquire().await?;
    let began = now()?;
    let pairs: i64 = tokio::select! {
        pairs = sqlx::query_scalar(HEAVY).fetch_one(pool) => pairs?,
        () = permit.lost() => return Err("the permit was lost during a query".into()),
    };
    println!("{began} {}", now()?);
    permit.release().await?;
    assert_eq!(pairs, 100 * 200 * 200);
    Ok(())
}

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64)
}
