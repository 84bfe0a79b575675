//! The semaphore of this crate, with its default settings.

use std::ops::Range;

use redis_semaphore::{Permit, Semaphore};

use super::Result;
use super::design::Design;
use super::scripts::Scripts;
use super::server::semaphores;

pub struct Ours {
    pub semaphore: Semaphore,
}

impl Design for Ours {
    const NAME: &'static str = "ours";
    type Permit = Permit;

    async fn open(name: &str, limit: u32) -> Result<Self> {
        let semaphore = semaphores().await?.semaphore(name).limit(limit).build()?;
        Ok(Self { semaphore })
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(Self { semaphore: self.semaphore.clone() })
    }

    async fn acquire(&mut self) -> Result<Permit> {
        Ok(self.semaphore.acquire().await?)
    }

    async fn release(&mut self, permit: Permit) -> Result<()> {
        Ok(permit.release().await?)
    }

    async fn add_holders(&mut self, numbers: Range<u64>) -> Result<()> {
        Scripts::open(self.semaphore.name()).await?.hold(numbers).await
    }
}
