//! Designs that can be filled with idle holders.

use std::ops::Range;

use super::Result;
use super::baseline::Baseline;
use super::design::Design;
use super::designs::blocking_list::BlockingList;
use super::designs::fair::Fair;
use super::designs::locked::Locked;
use super::ours::Ours;
use super::scripts::{GRANTED, Scripts, batches};

pub trait Fill: Design {
    /// Adds holders with these numbers. They hold their permits until the bench ends.
    fn add_holders(&mut self, numbers: Range<u64>) -> impl Future<Output = Result<()>>;
}

impl Fill for Baseline {
    async fn add_holders(&mut self, _: Range<u64>) -> Result<()> {
        Ok(())
    }
}

impl Fill for Ours {
    async fn add_holders(&mut self, numbers: Range<u64>) -> Result<()> {
        let mut scripts = Scripts::open(self.semaphore.name()).await?;
        for ids in batches(numbers) {
            scripts.acquire(u32::MAX, &ids, GRANTED).await?;
        }
        Ok(())
    }
}

impl Fill for Fair {
    async fn add_holders(&mut self, numbers: Range<u64>) -> Result<()> {
        self.sets.add_holders(&mut self.connection, numbers).await
    }
}

impl Fill for Locked {
    async fn add_holders(&mut self, numbers: Range<u64>) -> Result<()> {
        self.fair.add_holders(numbers).await
    }
}

impl Fill for BlockingList {
    async fn add_holders(&mut self, numbers: Range<u64>) -> Result<()> {
        self.sets.add_holders(&mut self.connection, numbers).await
    }
}
