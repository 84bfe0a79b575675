//! Four problems out of textbooks on operating systems, each with processes that share nothing but
//! Redis.
//!
//! ```text
//! scripts/with-redis cargo run --example textbook -- plate
//! ```
//!
//! They replace the record semaphore: a number, and a list of those that sleep until V wakes one.
//! It lives in the memory of one machine; a process that dies between P and V takes its permit
//! along; and nothing shows who waits for what.
//!
//! - `plate`: it holds one fruit. Father puts apples on it, mother oranges; the daughter takes
//!   nothing but apples, the son nothing but oranges.
//! - `buffer`: producers and consumers with a bounded buffer between them.
//! - `readers`: many may read at once, but a writer is alone.
//! - `philosophers`: they dine, each with the forks of both sides, and none starves.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use futures_util::future::try_join_all;
use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{Client, Cmd, FromRedisValue, cmd, pipe};
use redis_semaphore::{Error, Semaphore, SemaphoreClient};
use tokio::process::Command;

/// Whatever fails here ends up as a message for a person.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How often each process does what it does.
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

/// Has several processes solve a problem, and prints what each of them does
///
/// The story stays in Redis as the list NAME:history.
#[derive(Parser)]
struct Options {
    problem: Problem,
    #[arg(default_value = "textbook")]
    name: String,
    /// How the program starts itself again, as one of the processes
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

/// Starts this program again as one of the processes. When one fails, the others are killed.
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

/// A plate that holds one fruit. Who takes waits for a signal of who puts, and the other way round.
async fn plate(role: &str, table: &mut Table) -> Result<()> {
    let empty = table.signal("empty", 1)?;
    let (fruit, puts) = match role {
        "father" => ("apple", true),
        "mother" => ("orange", true),
        "daughter" => ("apple", false),
        "son" => ("orange", false),
        _ => return Err(format!("nobody here is called {role}").into()),
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
    let is_done = table.tell::<Option<String>>(&format!("{role} puts an {fruit}"), set).await?;
    is_done.map(drop).ok_or("the plate was not empty".into())
}

async fn take(table: &mut Table, role: &str, fruit: &str) -> Result<()> {
    let mut get = cmd("GETDEL");
    get.arg(table.key("plate"));
    match table.tell::<Option<String>>(&format!("{role} takes an {fruit}"), get).await? {
        Some(taken) if taken == fruit => Ok(()),
        other => Err(format!("the plate held {other:?} and not an {fruit}").into()),
    }
}

const BUFFER_ROLES: [&str; 4] = ["producer-1", "producer-2", "consumer-1", "consumer-2"];
const BUFFER_SIGNALS: [&str; 2] = ["spaces", "products"];

const ROOM: u32 = 3;
/// Longer than a producer needs, so the buffer fills up.
const CONSUMING: Duration = Duration::from_millis(10);

/// A buffer with room for three: producers wait for a space, consumers for something to consume.
///
/// The textbook has a third semaphore around the buffer itself. A list in Redis needs none.
async fn buffer(role: &str, table: &mut Table) -> Result<()> {
    let (spaces, products) = (table.signal("spaces", ROOM)?, table.signal("products", 0)?);
    for round in 1..=ROUNDS {
        if role.starts_with("producer") {
            p(&spaces).await?;
            let mut push = cmd("RPUSH");
            push.arg(table.key("buffer")).arg(format!("{role}/{round}"));
            let length: u32 = table.tell(&format!("{role} adds {role}/{round}"), push).await?;
            if length > ROOM {
                return Err(format!("{length} in a buffer with room for {ROOM}").into());
            }
            v(&products).await?;
        } else {
            p(&products).await?;
            let mut pop = cmd("LPOP");
            pop.arg(table.key("buffer"));
            let product: Option<String> = table.tell(&format!("{role} takes one"), pop).await?;
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

/// Readers and writers: a reader takes one permit, a writer all of them.
///
/// The textbook counts the readers in a variable with a semaphore of its own, and a writer may wait
/// for ever while readers come and go. Here the order of arrival is kept: readers that come after a
/// writer wait for it.
async fn readers(role: &str, table: &mut Table) -> Result<()> {
    let access = table.semaphore("access", AT_ONCE)?;
    // The two numbers are to be the same, always.
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
        let first: Option<u32> = table.tell(&begins, command(what, &left)).await?;
        tokio::time::sleep(READING).await;
        let second: Option<u32> =
            table.tell(&format!("{role} ends"), command(what, &right)).await?;
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

/// Five philosophers, five forks, and a room that lets in four at once. If all five could reach for
/// their left fork, all would wait for the right one for ever.
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

        let meals: u32 = table.tell(&format!("{role} begins"), count(table, role, 0)).await?;
        tokio::time::sleep(EATING).await;
        let now: u32 = table.tell(&format!("{role} ends"), count(table, role, 1)).await?;
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

/// What the processes share: semaphores, and a few keys in Redis with the story of what was done.
struct Table {
    client: SemaphoreClient,
    redis: MultiplexedConnection,
    name: String,
}

impl Table {
    async fn open(name: &str) -> Result<Self> {
        let url = redis_url()?;
        let client = SemaphoreClient::connect(&url).await?;
        let redis = Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { client, redis, name: name.to_owned() })
    }

    /// For permits that are given back by whoever took them.
    fn semaphore(&self, what: &str, limit: u32) -> Result<Semaphore> {
        Ok(self.client.semaphore(format!("{}-{what}", self.name)).limit(limit).build()?)
    }

    /// For signals: one process adds permits, another one uses them up.
    fn signal(&self, what: &str, initial: u32) -> Result<Semaphore> {
        let name = format!("{}-{what}", self.name);
        Ok(self.client.semaphore(name).initial_permits(initial).build()?)
    }

    fn key(&self, what: &str) -> String {
        format!("{}:{what}", self.name)
    }

    /// Runs a command and adds a line to the story, in one transaction, so the story has all that
    /// was done in the order in which it was.
    async fn tell<T: FromRedisValue>(&mut self, line: &str, command: Cmd) -> Result<T> {
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

    /// The number of permits that can be signalled is data, which Redis keeps until it is cleared.
    async fn clear_signals(&self) -> Result<()> {
        for what in PLATE_SIGNALS.into_iter().chain(BUFFER_SIGNALS) {
            self.signal(what, 0)?.clear_limit().await?;
        }
        Ok(())
    }
}

/// The textbook's P: uses a permit up for good. One that was lost before is not used up, which
/// means that somebody else may have it: once more, then.
async fn p(signal: &Semaphore) -> Result<()> {
    loop {
        match signal.acquire().await?.forget().await {
            Err(Error::Lost { .. }) => {}
            done => return Ok(done?),
        }
    }
}

/// The textbook's V.
async fn v(signal: &Semaphore) -> Result<()> {
    signal.add_permits(1).await?;
    Ok(())
}
