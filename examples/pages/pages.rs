//! A batch job with paging: a parent counts the pages of a table, and starts a process for each
//! page. Only a limited number of these processes may query the database at the same time.
//!
//! ```text
//! scripts/with-redis cargo run --release --example pages
//! ```
//!
//! This example runs two such jobs with an older design, and two with this crate. In the older
//! design, a script (`old.lua`) decides about each request. If the request is not granted, the
//! client waits in a blocking pop from a list, to which each release pushes. The design has three
//! faults, the first of which is visible in the second job:
//!
//! - If no client waits, a release leaves its wake-up in the list, so the next job exceeds the
//!   limit.
//! - A process that dies between its pop and its release never returns its permit.
//! - Every waiter needs its own connection.

use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};
use futures_util::future::try_join_all;
use redis_semaphore::SemaphoreClient;
use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{AsyncConnectionConfig, Client, Script, cmd, pipe};
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Clone, Copy, ValueEnum)]
enum Design {
    Old,
    Here,
}

/// Run a batch job with an older design and with this crate, and print how long the pages waited
#[derive(Parser)]
struct Options {
    /// Number of pages that may be queried at the same time
    #[arg(default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[arg(default_value = "pages")]
    name: String,
    /// Used when the program starts itself, once for each page
    #[arg(hide = true, requires_all = ["database", "page"])]
    design: Option<Design>,
    #[arg(hide = true)]
    database: Option<String>,
    #[arg(hide = true)]
    page: Option<u32>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pages: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(Options { limit, name, design, database, page }: Options) -> Result<()> {
    if let (Some(design), Some(path), Some(page)) = (design, database, page) {
        let database = Database::at(path);
        let report = match design {
            Design::Old => query_as_of_old(&database, page, &name, limit).await?,
            Design::Here => query_with_permit(&database, page, &name, limit).await?,
        };
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    clear(&name).await?;
    let database = Database::create()?;
    for (design, title) in [("old", "blocking list"), ("here", "redis-semaphore")] {
        for job in ["first", "second"] {
            let reports = query_all(&database, design, &name, limit).await?;
            println!("{title}, {job} job: {}", summary(&reports, limit));
        }
    }
    println!("blocking list: {} unused wake-ups are left over", left_over(&name).await?);
    Ok(())
}

async fn query_all(
    database: &Database,
    design: &str,
    name: &str,
    limit: u32,
) -> Result<Vec<Report>> {
    let in_process = async |page: u32| -> Result<Report> {
        let mut process = Command::new(std::env::current_exe()?);
        process.arg(limit.to_string()).args([name, design, database.path()]).arg(page.to_string());
        process.stdout(Stdio::piped()).kill_on_drop(true);
        let ended = process.spawn()?.wait_with_output().await?;
        match ended.status.success() {
            true => Ok(serde_json::from_slice(&ended.stdout)?),
            false => Err(format!("page {page}: {}", ended.status).into()),
        }
    };
    try_join_all((0..database.pages()?).map(in_process)).await
}

fn redis_url() -> Result<String> {
    std::env::var("REDIS_URL").map_err(|_| "REDIS_URL is not set: see scripts/with-redis".into())
}

/// Queries a page with a permit of this crate.
async fn query_with_permit(
    database: &Database,
    page: u32,
    name: &str,
    limit: u32,
) -> Result<Report> {
    let asked = Instant::now();
    let client = SemaphoreClient::connect(&redis_url()?).await?;
    let semaphore = client.semaphore(name).limit(limit).build()?;

    let permit = semaphore.acquire().await?;
    let report = tokio::select! {
        report = Report::of_query(database, page, asked) => report?,
        () = permit.lost() => return Err("the permit was lost, so the query was stopped".into()),
    };
    permit.release().await?;
    Ok(report)
}

const TIMEOUT_MS: u32 = 30_000;

/// Queries a page with the older design: a script that decides, and a list on which clients wait.
async fn query_as_of_old(database: &Database, page: u32, name: &str, limit: u32) -> Result<Report> {
    let asked = Instant::now();
    let mut redis = connect().await?;
    let [times, holders, counter, wake_ups] = keys(name);
    let id = std::process::id();
    let now = now()? / 1000;
    let script = Script::new(include_str!("old.lua"));
    let mut call = script.key(&times);
    call.key(&holders).key(counter).arg(id).arg(now).arg(TIMEOUT_MS).arg(limit);
    let is_granted: bool = call.invoke_async(&mut redis).await?;
    if !is_granted {
        // Any popped value counts as a permit that another client has released.
        cmd("BRPOP").arg(&wake_ups).arg(0).exec_async(&mut redis).await?;
    }
    let report = Report::of_query(database, page, asked).await?;
    let mut release = pipe();
    release.atomic().zrem(times, id).zrem(holders, id).lpush(wake_ups, id);
    release.exec_async(&mut redis).await?;
    Ok(report)
}

async fn clear(name: &str) -> Result<()> {
    Ok(cmd("DEL").arg(&keys(name)).exec_async(&mut connect().await?).await?)
}

async fn left_over(name: &str) -> Result<u32> {
    let [.., wake_ups] = keys(name);
    Ok(cmd("LLEN").arg(wake_ups).query_async(&mut connect().await?).await?)
}

fn keys(name: &str) -> [String; 4] {
    ["times", "holders", "counter", "wake-ups"].map(|key| format!("{name}:{key}"))
}

/// Connects without a response timeout, because a wait on the list has no end.
async fn connect() -> Result<MultiplexedConnection> {
    let settings = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(redis_url()?)?;
    Ok(client.get_multiplexed_async_connection_with_config(&settings).await?)
}

/// The report of a process about its page. Times are in microseconds.
#[derive(Serialize, Deserialize)]
struct Report {
    /// The time from the start until the grant, including the time to connect.
    waited: u64,
    /// The beginning of the query by the machine's clock.
    began: u64,
    ended: u64,
    sum: i64,
}

impl Report {
    /// Queries the page. The caller holds a permit.
    async fn of_query(database: &Database, page: u32, asked: Instant) -> Result<Self> {
        let waited = asked.elapsed().as_micros() as u64;
        let began = now()?;
        let sum = database.sum_of(page).await?;
        Ok(Self { waited, began, ended: now()?, sum })
    }
}

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64)
}

fn summary(reports: &[Report], limit: u32) -> String {
    let sum: i64 = reports.iter().map(|report| report.sum).sum();
    let waits = || reports.iter().map(|report| Duration::from_micros(report.waited));
    let mean = waits().sum::<Duration>() / reports.len().max(1) as u32;
    let longest = waits().max().unwrap_or_default();
    let began = reports.iter().map(|report| report.began).min().unwrap_or_default();
    let ended = reports.iter().map(|report| report.ended).max().unwrap_or_default();
    let inside =
        |at: u64| reports.iter().filter(move |other| (other.began..other.ended).contains(&at));
    let most = reports.iter().map(|report| inside(report.began).count() as u32).max().unwrap_or(0);
    let too_many = match most.saturating_sub(limit) {
        0 => String::new(),
        too_many => format!(": {too_many} TOO MANY"),
    };
    format!(
        "{} pages in {} ms, sum {sum}; waited {} ms on average, {} ms at most; \
         {most} of {limit} at once{too_many}",
        reports.len(),
        (ended - began) / 1000,
        mean.as_millis(),
        longest.as_millis()
    )
}

const PAGE: u32 = 800;

const CREATE: &str = "
    CREATE TABLE sales (id INTEGER PRIMARY KEY, amount INTEGER);
    INSERT INTO sales WITH RECURSIVE numbers (i) AS
        (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 9500)
        SELECT i, i * 7919 % 1000 FROM numbers;";

/// A database with a table of sales: SQLite.
struct Database {
    path: String,
    is_ours: bool,
}

impl Database {
    /// Creates a database, which is deleted when the value is dropped.
    fn create() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pages-{}.sqlite", std::process::id()));
        let path = path.into_os_string().into_string().map_err(|_| "a path that is not UTF-8")?;
        let database = Self { path, is_ours: true };
        Connection::open(&database.path)?.execute_batch(CREATE)?;
        Ok(database)
    }

    fn at(path: String) -> Self {
        Self { path, is_ours: false }
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn pages(&self) -> Result<u32> {
        let count = Connection::open(&self.path)?;
        let rows: u32 = count.query_row("SELECT count(*) FROM sales", [], |row| row.get(0))?;
        Ok(rows.div_ceil(PAGE))
    }

    /// Returns the sum of a page. The query also compares all pairs of rows, so that it takes as
    /// long as a real query.
    async fn sum_of(&self, page: u32) -> Result<i64> {
        let query = format!(
            "WITH page AS (SELECT amount FROM sales ORDER BY id LIMIT {PAGE} OFFSET {})
             SELECT sum(amount) FROM page
             WHERE (SELECT count(*) FROM page a, page b WHERE abs(a.amount - b.amount) < 1) > 0",
            page * PAGE
        );
        let database = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        // If the caller stops waiting for the sum, the query is stopped.
        let stop = Stop(database.get_interrupt_handle());
        let sum =
            tokio::task::spawn_blocking(move || database.query_row(&query, [], |row| row.get(0)));
        let sum = sum.await??;
        drop(stop);
        Ok(sum)
    }
}

struct Stop(rusqlite::InterruptHandle);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.interrupt();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.is_ours {
            // If the file could not be created, there is nothing to remove.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
