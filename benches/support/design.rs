//! The interface of a semaphore for the benches, so that several designs can be compared.

use std::ops::Range;

use super::Result;

pub trait Design: Send + Sized + 'static {
    const NAME: &'static str;
    type Permit: Send;

    /// Opens a semaphore. All clients that use the same name on the same server share it.
    fn open(name: &str, limit: u32) -> impl Future<Output = Result<Self>> + Send;

    /// Returns the same semaphore for another task of this process. Tasks share connections, unless
    /// the design needs a connection for each task.
    fn for_task(&self) -> impl Future<Output = Result<Self>> + Send;

    /// Acquires without a timeout.
    fn acquire(&mut self) -> impl Future<Output = Result<Self::Permit>> + Send;

    fn release(&mut self, permit: Self::Permit) -> impl Future<Output = Result<()>> + Send;

    /// Adds holders with these numbers. They hold their permits until the bench ends. Does nothing
    /// if the server stores no holders.
    fn add_holders(&mut self, _: Range<u64>) -> impl Future<Output = Result<()>> {
        async { Ok(()) }
    }
}

/// Returns the same semaphore for each of these tasks.
pub async fn for_tasks<D: Design>(design: &D, tasks: usize) -> Result<Vec<D>> {
    let mut designs = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        designs.push(design.for_task().await?);
    }
    Ok(designs)
}
