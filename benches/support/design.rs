//! What the benches ask of a semaphore, so that several designs can be measured side by side.

use super::Result;

pub trait Design: Send + Sized + 'static {
    const NAME: &'static str;
    type Permit: Send;

    /// Whoever opens the same name on the same server shares the semaphore.
    fn open(name: &str, limit: u32) -> impl Future<Output = Result<Self>> + Send;

    /// The same semaphore for one more task of this process. Tasks share connections, unless the
    /// design needs one for each.
    fn for_task(&self) -> impl Future<Output = Result<Self>> + Send;

    /// Waits as long as it takes.
    fn acquire(&mut self) -> impl Future<Output = Result<Self::Permit>> + Send;

    fn release(&mut self, permit: Self::Permit) -> impl Future<Output = Result<()>> + Send;
}
