//! A trader: a process that offers whatever it has, and tries to buy what others offer.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use redis_semaphore::{Semaphore, Semaphores};

use crate::goods::{Goods, ITEMS, Offer};
use crate::start::{self, Result};
use crate::{Locking, crew};

const ATTEMPTS: u32 = 25;
/// How long the bank of a buyer takes to say yes.
const BANK: Duration = Duration::from_millis(5);

pub async fn run(name: &str, me: u32, locking: Locking) -> Result<()> {
    crew::end_with_parent();
    let semaphores = Semaphores::connect(&start::redis_url()?).await?;
    let locks = Locks::new(&semaphores, name, locking)?;
    let mut goods = Goods::open(name).await?;
    let mut bought = 0;
    for _ in 0..ATTEMPTS {
        for item in goods.items_of(me).await? {
            // Nobody else takes anything out of this inventory.
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
    semaphores.shutdown().await;
    println!("trader {me} bought {bought}");
    Ok(())
}

/// The lock of the item makes these steps one. It keeps nobody from spending the buyer's money
/// elsewhere meanwhile: only this process does that, one purchase after the other. If several did,
/// each would take a lock for the buyer first, and then that of the item.
async fn buy(offer: &Offer, me: u32, locks: &Locks, goods: &mut Goods) -> Result<bool> {
    let permit = locks.of(offer.item).acquire().await?;
    let price = goods.price(offer).await?;
    let funds = goods.funds_of(me).await?;
    let affordable = price.filter(|price| *price <= funds);
    if let Some(price) = affordable {
        tokio::time::sleep(BANK).await;
        // Not if Redis was away for so long that somebody else may have the lock by now.
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
    fn new(semaphores: &Semaphores, name: &str, locking: Locking) -> Result<Self> {
        let names = match locking {
            Locking::Whole => vec![name.to_owned()],
            Locking::Items => (1..=ITEMS).map(|item| format!("{name}-item-{item}")).collect(),
        };
        let lock = |name| semaphores.semaphore(name).limit(1).build();
        Ok(Self(names.into_iter().map(lock).collect::<std::result::Result<_, _>>()?))
    }

    fn of(&self, item: u32) -> &Semaphore {
        &self.0[(item as usize - 1) % self.0.len()]
    }
}

/// From 0 to below that number, as random as a market needs it.
fn random(below: usize) -> usize {
    RandomState::new().hash_one(0) as usize % below
}
