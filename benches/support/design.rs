//! The interface of a semaphore for the benches, so that several designs can be compared.

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
}
