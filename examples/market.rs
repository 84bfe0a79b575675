//! A market with eight traders, each of which is a process. The traders first use one lock for the
//! whole market, and then a lock for each item.
//!
//! ```text
//! scripts/with-redis cargo run --release --example market
//! ```
//!
//! This example replaces the market of "Redis in Action" (4.4 and 6.2). The first design of the
//! book used a WATCH loop, in which every sale forced all other buyers to start again. The second
//! design used fine-grained locks, which buyers polled. If a buyer crashed at the wrong moment,
//! such a lock stayed locked permanently, or admitted two buyers.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use futures_util::future::try_join_all;
use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{AsyncConnectionConfig, Client, cmd, pipe};
use redis_semaphore::{Semaphore, SemaphoreClient};
use tokio::process::Command;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const TRADERS: u32 = 8;
const ITEMS: u32 = 24;
const FUNDS: i64 = 100;
const ATTEMPTS: u32 = 25;
/// The time that the buyer's bank takes to confirm.
const BANK: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, ValueEnum)]
enum Locking {
    /// One lock for the whole market
    Whole,
    /// A lock for each item
    Items,
}

/// Let eight processes trade, first with one lock for the whole market, then with one for each item
///
/// The final state of the traders stays in Redis, under names that begin with NAME-whole and
/// NAME-items.
#[derive(Parser)]
struct Options {
    #[arg(default_value = "market")]
    name: String,
    /// Used when the program starts itself: the number of the trader, and the kind of locks
    #[arg(hide = true, requires = "locking")]
    trader: Option<u32>,
    #[arg(hide = true)]
    locking: Option<Locking>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { name, trader, locking } = Options::parse();
    let outcome = match (trader, locking) {
        (Some(trader), Some(locking)) => trade(&name, trader, locking).await,
        _ => compare(&name).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("market: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(name: &str) -> Result<()> {
    let whole = trades_per_second(&format!("{name}-whole"), "whole").await?;
    let items = trades_per_second(&format!("{name}-items"), "items").await?;
    println!("one lock for the whole market: {whole:.0} trades per second");
    println!("one lock for each item: {items:.0} trades per second");
    Ok(())
}

async fn trades_per_second(name: &str, locking: &str) -> Result<f64> {
    Goods::open(name).await?.hand_out(TRADERS).await?;
    let start = Instant::now();
    let trades = try_join_all((1..=TRADERS).map(|me| in_process(name, me, locking))).await?;
    Ok(trades.iter().sum::<f64>() / start.elapsed().as_secs_f64())
}

/// Starts this program as a trader. Returns how many items the trader bought.
async fn in_process(name: &str, me: u32, locking: &str) -> Result<f64> {
    let mut trader = Command::new(std::env::current_exe()?);
    trader.arg(name).arg(me.to_string()).arg(locking).kill_on_drop(true);
    let ended = trader.stdout(Stdio::piped()).spawn()?.wait_with_output().await?;
    if !ended.status.success() {
        return Err(format!("trader {me}: {}", ended.status).into());
    }
    let reported = String::from_utf8(ended.stdout)?;
    print!("{reported}");
    Ok(reported.rsplit(' ').next().unwrap_or_default().trim().parse()?)
}

fn redis_url() -> Result<String> {
    std::env::var("REDIS_URL").map_err(|_| "REDIS_URL is not set: see scripts/with-redis".into())
}

/// Runs a trader, which offers all its items and tries to buy the items that others offer.
async fn trade(name: &str, me: u32, locking: Locking) -> Result<()> {
    let client = SemaphoreClient::connect(&redis_url()?).await?;
    let locks = Locks::new(&client, name, locking)?;
    let mut goods = Goods::open(name).await?;
    let mut bought = 0;
    for _ in 0..ATTEMPTS {
        for item in goods.items_of(me).await? {
            // No other process removes items from this inventory.
            let permit = locks.of(item).acquire().await?;
            goods.offer(&Offer { item, seller: me }, random(20) as i64 + 1).await?;
            permit.release().await?;
        }
        let mut offers = goods.offers().await?;
        offers.retain(|offer| offer.seller != me);
        if !offers.is_empty() {
            let offer = offers.swap_remove(random(offers.len()));
            bought += u32::from(buy(&offer, me, &locks, &mut goods).await?);
        }
    }
    client.shutdown().await;
    println!("trader {me} bought {bought}");
    Ok(())
}

/// Buys an item. The lock of the item makes these steps atomic. The lock does not protect the
/// buyer's funds, which only this process spends, one purchase after the other. If several
/// processes spent the same funds, each would first acquire a lock for the buyer, and then the lock
/// of the item.
async fn buy(offer: &Offer, me: u32, locks: &Locks, goods: &mut Goods) -> Result<bool> {
    let permit = locks.of(offer.item).acquire().await?;
    let price = goods.price(offer).await?;
    let funds = goods.funds_of(me).await?;
    let affordable = price.filter(|price| *price <= funds);
    if let Some(price) = affordable {
        tokio::time::sleep(BANK).await;
        // After a long outage of Redis, another process may hold the lock.
        if permit.is_lost() {
            return Ok(false);
        }
        goods.hand_over(offer, me, price).await?;
    }
    permit.release().await?;
    Ok(affordable.is_some())
}

struct Locks(Vec<Semaphore>);

impl Locks {
    fn new(client: &SemaphoreClient, name: &str, locking: Locking) -> Result<Self> {
        let names = match locking {
            Locking::Whole => vec![name.to_owned()],
            Locking::Items => (1..=ITEMS).map(|item| format!("{name}-item-{item}")).collect(),
        };
        let lock = |name| client.semaphore(name).limit(1).build();
        Ok(Self(names.into_iter().map(lock).collect::<std::result::Result<_, _>>()?))
    }

    fn of(&self, item: u32) -> &Semaphore {
        &self.0[(item as usize - 1) % self.0.len()]
    }
}

/// Returns a number from 0 to `below - 1`, which is random enough for a market.
fn random(below: usize) -> usize {
    RandomState::new().hash_one(0) as usize % below
}

/// The possessions of all traders: plain keys in Redis, which are read and written in several
/// steps. Only the locks make these steps atomic.
///
/// - `NAME:market`: a sorted set of "item.seller" by price
/// - `NAME:inventory:TRADER`: a set of items
/// - `NAME:funds`: a hash of money by trader
struct Goods {
    redis: MultiplexedConnection,
    name: String,
}

struct Offer {
    item: u32,
    seller: u32,
}

impl Offer {
    fn member(&self) -> String {
        format!("{}.{}", self.item, self.seller)
    }

    fn read(member: &str) -> Result<Self> {
        let (item, seller) = member.split_once('.').ok_or("an offer without a seller")?;
        Ok(Self { item: item.parse()?, seller: seller.parse()? })
    }
}

impl Goods {
    async fn open(name: &str) -> Result<Self> {
        // The default of redis-rs, 500 ms, is short for a busy machine.
        let timeout = Some(Duration::from_secs(5));
        let config = AsyncConnectionConfig::new().set_response_timeout(timeout);
        let client = Client::open(redis_url()?)?;
        let redis = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { redis, name: name.to_owned() })
    }

    /// Creates a new market, in which all items are in the inventories and all traders have equal
    /// funds.
    async fn hand_out(&mut self, traders: u32) -> Result<()> {
        let mut steps = pipe();
        steps.atomic().del(self.market()).ignore();
        for trader in 1..=traders {
            steps.hset(self.funds(), trader, FUNDS).ignore().del(self.inventory(trader)).ignore();
        }
        for item in 1..=ITEMS {
            steps.sadd(self.inventory(item % traders + 1), item).ignore();
        }
        Ok(steps.query_async(&mut self.redis).await?)
    }

    async fn items_of(&mut self, trader: u32) -> Result<Vec<u32>> {
        Ok(cmd("SMEMBERS").arg(self.inventory(trader)).query_async(&mut self.redis).await?)
    }

    async fn offers(&mut self) -> Result<Vec<Offer>> {
        let mut offers = cmd("ZRANGE");
        offers.arg(self.market()).arg(0).arg(-1);
        let members: Vec<String> = offers.query_async(&mut self.redis).await?;
        members.iter().map(|member| Offer::read(member)).collect()
    }

    /// Returns the price, or `None` if the offer no longer exists.
    async fn price(&mut self, offer: &Offer) -> Result<Option<i64>> {
        let mut price = cmd("ZSCORE");
        Ok(price.arg(self.market()).arg(offer.member()).query_async(&mut self.redis).await?)
    }

    async fn funds_of(&mut self, trader: u32) -> Result<i64> {
        Ok(cmd("HGET").arg(self.funds()).arg(trader).query_async(&mut self.redis).await?)
    }

    async fn offer(&mut self, offer: &Offer, price: i64) -> Result<()> {
        let mut steps = pipe();
        steps.atomic().srem(self.inventory(offer.seller), offer.item).ignore();
        steps.zadd(self.market(), offer.member(), price).ignore();
        Ok(steps.query_async(&mut self.redis).await?)
    }

    /// Runs one transaction, so that a crash loses neither money nor goods.
    async fn hand_over(&mut self, offer: &Offer, buyer: u32, price: i64) -> Result<()> {
        let mut steps = pipe();
        steps.atomic().hincr(self.funds(), buyer, -price).ignore();
        steps.hincr(self.funds(), offer.seller, price).ignore();
        steps.sadd(self.inventory(buyer), offer.item).ignore();
        steps.zrem(self.market(), offer.member()).ignore();
        Ok(steps.query_async(&mut self.redis).await?)
    }

    fn market(&self) -> String {
        format!("{}:market", self.name)
    }

    fn inventory(&self, trader: u32) -> String {
        format!("{}:inventory:{trader}", self.name)
    }

    fn funds(&self) -> String {
        format!("{}:funds", self.name)
    }
}
