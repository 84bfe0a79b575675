//! Four problems from textbooks on operating systems. The processes of each problem share nothing
//! except Redis.
//!
//! ```text
//! scripts/with-redis cargo run --example textbook -- plate
//! ```
//!
//! The solutions do not use the textbooks' record semaphore: a number, and a list of processes that
//! sleep until V wakes one of them. A record semaphore exists only in the memory of one machine. A
//! process that dies between P and V never returns its permit. Nothing shows which process waits
//! for what.
//!
//! - `plate`: the plate holds one fruit. The father puts apples on it, and the mother puts oranges
//!   on it. The daughter takes only apples, and the son takes only oranges.
//! - `buffer`: producers and consumers with a bounded buffer between them.
//! - `readers`: several readers may read at the same time, but a writer is alone.
//! - `philosophers`: each philosopher dines with the forks on both sides, and no philosopher
//!   starves.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use futures_util::future::try_join_all;
use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, cmd, pipe};
use redis_semaphore::{Error, Semaphore, SemaphoreClient};
use tokio::process::Command;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The number of times that each process repeats its work.
const ROUNDS: u32 = 10;

#[derive(Clone, Copy, ValueEnum)]
enum Problem {
    /// A plate for one fruit
    Plate,
    /// Producers and consumers with a bounded buffer
    Buffer,
    /// Readers and writers
    Readers,
    /// Dining philosophers
    Philosophers,
}

/// Let several processes solve a problem, and print what each of them does
///
/// The story stays in Redis as the list NAME:history.
#[derive(Parser)]
struct Options {
    problem: Problem,
    #[arg(default_value = "textbook")]
    name: String,
    /// Used when the program starts itself, as one of the processes
    #[arg(hide = true)]
    role: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("textbook: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(Options { problem, name, role }: Options) -> Result<()> {
    let mut table = Table::open(&name).await?;
    if let Some(role) = role {
        return match problem {
            Problem::Plate => plate(&role, &mut table).await,
            Problem::Buffer => buffer(&role, &mut table).await,
            Problem::Readers => readers(&role, &mut table).await,
            Problem::Philosophers => philosophers(&role, &mut table).await,
        };
    }
    let roles = match problem {
        Problem::Plate => &PLATE_ROLES[..],
        Problem::Buffer => &BUFFER_ROLES,
        Problem::Readers => &READERS_ROLES,
        Problem::Philosophers => &PHILOSOPHERS_ROLES,
    };
    // An earlier run may have been interrupted.
    table.clear().await?;
    let problem = problem.to_possible_value().expect("none is hidden");
    try_join_all(roles.iter().map(|role| in_process(problem.get_name(), &name, role))).await?;
    table.clear_signals().await
}

/// Starts this program as one of the processes. If a process fails, the other processes are killed.
async fn in_process(problem: &str, name: &str, role: &str) -> Result<()> {
    let mut process = Command::new(std::env::current_exe()?);
    match process.args([problem, name, role]).kill_on_drop(true).status().await? {
        ended if ended.success() => Ok(()),
        ended => Err(format!("{role}: {ended}").into()),
    }
}

fn redis_url() -> Result<String> {
    std::env::var("REDIS_URL").map_err(|_| "REDIS_URL is not set: see scripts/with-redis".into())
}

const PLATE_ROLES: [&str; 4] = ["father", "mother", "daughter", "son"];
const PLATE_SIGNALS: [&str; 3] = ["empty", "apple", "orange"];

/// Runs a member of the family. The plate holds one fruit: the children wait for signals of the
/// parents, and the parents wait for signals of the children.
async fn plate(role: &str, table: &mut Table) -> Result<()> {
    let empty = table.signal("empty", 1)?;
    let (fruit, puts) = match role {
        "father" => ("apple", true),
        "mother" => ("orange", true),
        "daughter" => ("apple", false),
        "son" => ("orange", false),
        _ => return Err(format!("unknown role: {role}").into()),
    };
    let is_there = table.signal(fruit, 0)?;
    for _ in 0..ROUNDS {
        if puts {
            p(&empty).await?;
            put(table, role, fruit).await?;
            v(&is_there).await?;
        } else {
            p(&is_there).await?;
            take(table, role, fruit).await?;
            v(&empty).await?;
        }
    }
    Ok(())
}

async fn put(table: &mut Table, role: &str, fruit: &str) -> Result<()> {
    let mut set = cmd("SET");
    set.arg(table.key("plate")).arg(fruit).arg("NX");
    let is_done = table.report::<Option<String>>(&format!("{role} puts an {fruit}"), set).await?;
    is_done.map(drop).ok_or("the plate was not empty".into())
}

async fn take(table: &mut Table, role: &str, fruit: &str) -> Result<()> {
    let mut get = cmd("GETDEL");
    get.arg(table.key("plate"));
    match table.report::<Option<String>>(&format!("{role} takes an {fruit}"), get).await? {
        Some(taken) if taken == fruit => Ok(()),
        other => Err(format!("the plate held {other:?} and not an {fruit}").into()),
    }
}

const BUFFER_ROLES: [&str; 4] = ["producer-1", "producer-2", "consumer-1", "consumer-2"];
const BUFFER_SIGNALS: [&str; 2] = ["spaces", "products"];

const ROOM: u32 = 3;
/// A consumer takes longer than a producer, so the buffer fills up.
const CONSUMING: Duration = Duration::from_millis(10);

/// Runs a producer or a consumer. The buffer has room for three products: producers wait for a
/// space, and consumers wait for a product.
///
/// The textbook has a third semaphore around the buffer itself. A list in Redis needs no such
/// semaphore.
async fn buffer(role: &str, table: &mut Table) -> Result<()> {
    let (spaces, products) = (table.signal("spaces", ROOM)?, table.signal("products", 0)?);
    for round in 1..=ROUNDS {
        if role.starts_with("producer") {
            p(&spaces).await?;
            let mut push = cmd("RPUSH");
            push.arg(table.key("buffer")).arg(format!("{role}/{round}"));
            let length: u32 = table.report(&format!("{role} adds {role}/{round}"), push).await?;
            if length > ROOM {
                return Err(format!("{length} in a buffer with room for {ROOM}").into());
            }
            v(&products).await?;
        } else {
            p(&products).await?;
            let mut pop = cmd("LPOP");
            pop.arg(table.key("buffer"));
            let product: Option<String> = table.report(&format!("{role} takes one"), pop).await?;
            println!("{role} has {}", product.ok_or("the buffer was empty")?);
            v(&spaces).await?;
            tokio::time::sleep(CONSUMING).await;
        }
    }
    Ok(())
}

const READERS_ROLES: [&str; 6] =
    ["reader-1", "reader-2", "reader-3", "reader-4", "writer-1", "writer-2"];

const AT_ONCE: u32 = 4;
const READING: Duration = Duration::from_millis(3);

/// Runs a reader, which acquires one permit, or a writer, which acquires all permits.
///
/// The textbook counts the readers in a variable with its own semaphore, and a writer may wait
/// forever while readers come and go. Here permits are granted in order of arrival: a reader waits
/// for every writer that arrived before it.
async fn readers(role: &str, table: &mut Table) -> Result<()> {
    let access = table.semaphore("access", AT_ONCE)?;
    // A writer increases two numbers. A reader must find equal numbers.
    let command = |command, key| -> Cmd {
        let mut command = cmd(command);
        command.arg(key);
        command
    };
    let (left, right) = (table.key("left"), table.key("right"));
    let (weight, what) = if role.starts_with("writer") { (AT_ONCE, "INCR") } else { (1, "GET") };
    for _ in 0..ROUNDS {
        let permit = access.acquire_many(weight).await?;
        let begins = format!("{role} begins");
        let first: Option<u32> = table.report(&begins, command(what, &left)).await?;
        tokio::time::sleep(READING).await;
        let second: Option<u32> =
            table.report(&format!("{role} ends"), command(what, &right)).await?;
        if first != second {
            return Err(format!("half of a write was seen: {first:?} and {second:?}").into());
        }
        permit.release().await?;
    }
    Ok(())
}

const PHILOSOPHERS_ROLES: [&str; 5] =
    ["philosopher-1", "philosopher-2", "philosopher-3", "philosopher-4", "philosopher-5"];

const REACHING: Duration = Duration::from_millis(2);
const EATING: Duration = Duration::from_millis(2);

/// Runs one of five philosophers, who share five forks, and a room that admits four of them.
/// Without the room, all five could take their left forks, and then wait forever for their right
/// forks.
async fn philosophers(role: &str, table: &mut Table) -> Result<()> {
    let place =
        PHILOSOPHERS_ROLES.iter().position(|name| *name == role).ok_or("not one of the five")?;
    let room = table.semaphore("room", PHILOSOPHERS_ROLES.len() as u32 - 1)?;
    let left = table.semaphore(&format!("fork-{place}"), 1)?;
    let right = table.semaphore(&format!("fork-{}", (place + 1) % PHILOSOPHERS_ROLES.len()), 1)?;
    for _ in 0..ROUNDS {
        let seat = room.acquire().await?;
        let left = left.acquire().await?;
        tokio::time::sleep(REACHING).await;
        let right = right.acquire().await?;

        let meals: u32 = table.report(&format!("{role} begins"), count(table, role, 0)).await?;
        tokio::time::sleep(EATING).await;
        let now: u32 = table.report(&format!("{role} ends"), count(table, role, 1)).await?;
        if now != meals + 1 {
            return Err(format!("{role} had {now} meals after {meals}").into());
        }

        for permit in [right, left, seat] {
            permit.release().await?;
        }
    }
    Ok(())
}

fn count(table: &Table, role: &str, meals: u32) -> Cmd {
    let mut count = cmd("HINCRBY");
    count.arg(table.key("meals")).arg(role).arg(meals);
    count
}

/// The shared state of the processes: semaphores, and several keys in Redis with the story.
struct Table {
    client: SemaphoreClient,
    redis: MultiplexedConnection,
    name: String,
}

impl Table {
    async fn open(name: &str) -> Result<Self> {
        let url = redis_url()?;
        let client = SemaphoreClient::connect(&url).await?;
        // The default of redis-rs, 500 ms, is short for a busy machine.
        let timeout = Some(Duration::from_secs(5));
        let config = AsyncConnectionConfig::new().set_response_timeout(timeout);
        let redis = Client::open(url)?;
        let redis = redis.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { client, redis, name: name.to_owned() })
    }

    /// Returns a semaphore whose holders release their permits.
    fn semaphore(&self, what: &str, limit: u32) -> Result<Semaphore> {
        Ok(self.client.semaphore(format!("{}-{what}", self.name)).limit(limit).build()?)
    }

    /// Returns a signaling semaphore: one process adds permits, and another process uses them up.
    fn signal(&self, what: &str, initial: u32) -> Result<Semaphore> {
        let name = format!("{}-{what}", self.name);
        Ok(self.client.semaphore(name).initial_permits(initial).build()?)
    }

    fn key(&self, what: &str) -> String {
        format!("{}:{what}", self.name)
    }

    /// Runs a command and adds a line to the story, in one transaction. The story therefore
    /// contains all actions in their order.
    async fn report<T: FromRedisValue>(&mut self, line: &str, command: Cmd) -> Result<T> {
        let mut steps = pipe();
        steps.atomic().add_command(command).rpush(self.key("history"), line).ignore();
        let (reply,) = steps.query_async(&mut self.redis).await?;
        println!("{line}");
        Ok(reply)
    }

    async fn clear(&mut self) -> Result<()> {
        self.clear_signals().await?;
        let keys = ["history", "plate", "buffer", "left", "right", "meals"];
        let mut delete = cmd("DEL");
        delete.arg(keys.map(|key| self.key(key)).as_slice());
        Ok(delete.exec_async(&mut self.redis).await?)
    }

    /// Clears the runtime limits of the signals, because Redis would keep them forever.
    async fn clear_signals(&self) -> Result<()> {
        for what in PLATE_SIGNALS.into_iter().chain(BUFFER_SIGNALS) {
            self.signal(what, 0)?.clear_limit().await?;
        }
        Ok(())
    }
}

/// The textbook's P: uses up a permit. If the permit was lost before it was used up, another
/// process may have it, so P tries again.
async fn p(signal: &Semaphore) -> Result<()> {
    loop {
        match signal.acquire().await?.forget().await {
            Err(Error::Lost { .. }) => {}
            done => return Ok(done?),
        }
    }
}

/// The textbook's V: adds a permit.
async fn v(signal: &Semaphore) -> Result<()> {
    signal.add_permits(1).await?;
    Ok(())
}
