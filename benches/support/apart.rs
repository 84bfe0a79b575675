//! Tasks that share nothing but the server, as if each were a process.

use super::Result;
use super::design::Design;

pub struct Apart<D> {
    name: String,
    limit: u32,
    design: D,
}

impl<D: Design + Sync> Design for Apart<D> {
    const NAME: &'static str = D::NAME;
    type Permit = D::Permit;

    async fn open(name: &str, limit: u32) -> Result<Self> {
        Ok(Self { name: name.to_owned(), limit, design: D::open(name, limit).await? })
    }

    async fn for_task(&self) -> Result<Self> {
        Self::open(&self.name, self.limit).await
    }

    async fn acquire(&mut self) -> Result<D::Permit> {
        self.design.acquire().await
    }

    async fn release(&mut self, permit: D::Permit) -> Result<()> {
        self.design.release(permit).await
    }
}
