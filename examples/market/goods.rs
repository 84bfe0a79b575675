//! Who has what: plain keys in Redis, read and written in several steps. Only the locks make these
//! steps one.
//!
//! - `NAME:market`: a sorted set of "item.seller" by price
//! - `NAME:inventory:TRADER`: a set of items
//! - `NAME:funds`: a hash of money by trader

use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{Client, cmd, pipe};

use crate::start::{self, Result};

pub const ITEMS: u32 = 24;
const FUNDS: i64 = 100;

pub struct Goods {
    redis: MultiplexedConnection,
    name: String,
}

pub struct Offer {
    pub item: u32,
    pub seller: u32,
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
    pub async fn open(name: &str) -> Result<Self> {
        let redis = Client::open(start::redis_url()?)?.get_multiplexed_async_connection().await?;
        Ok(Self { redis, name: name.to_owned() })
    }

    /// A new market: all items are in the inventories, and everybody has the same funds.
    pub async fn hand_out(&mut self, traders: u32) -> Result<()> {
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

    pub async fn items_of(&mut self, trader: u32) -> Result<Vec<u32>> {
        Ok(cmd("SMEMBERS").arg(self.inventory(trader)).query_async(&mut self.redis).await?)
    }

    pub async fn offers(&mut self) -> Result<Vec<Offer>> {
        let mut offers = cmd("ZRANGE");
        offers.arg(self.market()).arg(0).arg(-1);
        let members: Vec<String> = offers.query_async(&mut self.redis).await?;
        members.iter().map(|member| Offer::read(member)).collect()
    }

    /// `None` when it is gone.
    pub async fn price(&mut self, offer: &Offer) -> Result<Option<i64>> {
        let mut price = cmd("ZSCORE");
        Ok(price.arg(self.market()).arg(offer.member()).query_async(&mut self.redis).await?)
    }

    pub async fn funds_of(&mut self, trader: u32) -> Result<i64> {
        Ok(cmd("HGET").arg(self.funds()).arg(trader).query_async(&mut self.redis).await?)
    }

    pub async fn offer(&mut self, offer: &Offer, price: i64) -> Result<()> {
        let mut steps = pipe();
        steps.atomic().srem(self.inventory(offer.seller), offer.item).ignore();
        steps.zadd(self.market(), offer.member(), price).ignore();
        Ok(steps.query_async(&mut self.redis).await?)
    }

    /// In one transaction, so that a crash loses neither money nor goods.
    pub async fn hand_over(&mut self, offer: &Offer, buyer: u32, price: i64) -> Result<()> {
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
