//! F: the waits of a small tenant beside another tenant's flood of requests, without groups and
//! with groups. Four processes use the library: one for the small tenant, three for the flood.

use std::hash::{DefaultHasher, Hasher};
use std::io::stdin;
use std::ops::Range;
use std::time::{Duration, Instant};

use redis_semaphore::{Group, Permit, Semaphore};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::hand_off::partner::Partner;
use crate::support::Result;
use crate::support::arguments::only_tests;
use crate::support::course::percentiles;
use crate::support::figure::Figure;
use crate::support::runner::Runner;
use crate::support::server::{semaphores, unique_name};

/// The name of this measurement for the other processes.
pub const PARTNER: &str = "flood";
const LIMIT: u32 = 4;
/// The number of processes of the flood.
const PROCESSES: u64 = 3;
const WORK: Range<u64> = 1_000..3_000; // µs
/// The time between two requests of the small tenant.
const PAUSE: Range<u64> = 50_000..150_000; // µs

/// How the requests of the flood are divided into groups. If there are groups, the small tenant has
/// its own group.
const VARIANTS: [(&str, u64, Option<u32>); 5] = [
    ("no groups", 0, None),
    ("1 group", 1, None),
    ("1 group, cap 3", 1, Some(3)),
    ("50 groups", 50, None),
    ("50 groups, cap 3", 50, Some(3)),
];

/// The task of another process.
#[derive(Serialize, Deserialize)]
struct Role {
    semaphore: String,
    /// The numbers of the flood's requests. The small tenant has an empty range.
    requests: Range<u64>,
    groups: u64,
    cap: Option<u32>,
}

pub async fn all() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut without_groups = None;
    for (variant, groups, cap) in VARIANTS {
        let (waits, seconds) = measure(groups, cap).await?;
        let requests = waits.len();
        let waits_ms = percentiles(waits);
        let p99 = waits_ms[98];
        let baseline = *without_groups.get_or_insert(p99);
        let what = format!("a wait beside a flood, p99: {variant}");
        let details = json!({
            "variant": variant, "flood": flood(), "seconds": seconds,
            "requests": requests, "waits_ms": waits_ms,
        });
        figures.push(Figure::new("F", what, "ms", (baseline, p99)).with_details(details)?);
    }
    Ok(figures)
}

/// Returns the number of requests of the flood.
fn flood() -> u64 {
    if only_tests() { 300 } else { 20_000 }
}

/// Returns the waits of the small tenant, and how long the flood lasted, in s.
async fn measure(groups: u64, cap: Option<u32>) -> Result<(Vec<Duration>, f64)> {
    let name = unique_name("flood");
    let semaphore = semaphores().await?.semaphore(&name).limit(LIMIT).build()?;
    let start = |requests| {
        let role = Role { semaphore: name.clone(), requests, groups, cap };
        Partner::start(PARTNER, &serde_json::to_string(&role)?)
    };
    let mut tenant = start(0..0)?;
    let part = |process| flood() * process / PROCESSES;
    let mut processes = (0..PROCESSES)
        .map(|process| start(part(process)..part(process + 1)))
        .collect::<Result<Vec<_>>>()?;
    // The measurement begins when all requests of the flood are queued.
    let all_permits = semaphore.request().weight(LIMIT).acquire().await?;
    for process in &mut processes {
        process.asks()?;
    }
    while semaphore.inspect().await?.queued < flood() {
        sleep(Duration::from_millis(20)).await;
    }
    all_permits.release().await?;
    let begun = Instant::now();
    tenant.asks()?;
    for process in &mut processes {
        process.line()?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    // Ends the small tenant, which prints its waits.
    Ok((serde_json::from_str(&tenant.asks()?)?, seconds))
}

/// Plays a role in another process. Each line on its standard input is a command to continue.
pub fn serve(role: &str) -> Result<()> {
    let role: Role = serde_json::from_str(role)?;
    let runner = Runner::new()?;
    let semaphore = runner
        .run(async { Ok(semaphores().await?.semaphore(&role.semaphore).limit(LIMIT).build()?) });
    wait_for_line()?;
    println!("begins");
    let play = async {
        let is_tenant = role.requests.is_empty();
        let task = if is_tenant {
            tokio::spawn(ask_now_and_then(semaphore, role))
        } else {
            tokio::spawn(ask_for_all(semaphore, role))
        };
        task.await?
    };
    println!("{}", serde_json::to_string(&runner.run(play))?);
    Ok(())
}

fn wait_for_line() -> Result<()> {
    stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Makes all requests of the flood at the same time.
async fn ask_for_all(semaphore: Semaphore, role: Role) -> Result<Vec<Duration>> {
    let mut tasks = JoinSet::new();
    for number in role.requests.clone() {
        let (semaphore, group) = (semaphore.clone(), role.group(number));
        tasks.spawn(async move {
            let permit = acquire(&semaphore, group).await?;
            work(number, permit).await
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(Vec::new())
}

/// Makes one request after another until the next line. Returns the waits.
async fn ask_now_and_then(semaphore: Semaphore, role: Role) -> Result<Vec<Duration>> {
    let flood = spawn_blocking(wait_for_line);
    let mut waits = Vec::new();
    for number in 0.. {
        sleep(time(PAUSE, number)).await;
        if flood.is_finished() {
            break;
        }
        let group = (role.groups > 0).then(|| Group::new("small"));
        let asked = Instant::now();
        let permit = acquire(&semaphore, group).await?;
        waits.push(asked.elapsed());
        work(number, permit).await?;
    }
    Ok(waits)
}

async fn acquire(semaphore: &Semaphore, group: Option<Group>) -> Result<Permit> {
    let request = semaphore.request();
    let request = if let Some(group) = group { request.group(group) } else { request };
    Ok(request.acquire().await?)
}

async fn work(number: u64, permit: Permit) -> Result<()> {
    sleep(time(WORK, number)).await;
    Ok(permit.release().await?)
}

/// Returns a time in this range of µs. It looks random, but is the same in each run.
fn time(range: Range<u64>, number: u64) -> Duration {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(number);
    Duration::from_micros(range.start + hasher.finish() % (range.end - range.start))
}

impl Role {
    /// Returns the group of a request of the flood.
    fn group(&self, number: u64) -> Option<Group> {
        let group = Group::new(format!("flood-{}", number.checked_rem(self.groups)?));
        Some(if let Some(cap) = self.cap { group.cap(cap) } else { group })
    }
}
