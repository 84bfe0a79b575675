//! What all processes of a run must agree on: the semaphore, and the job.

use std::time::Duration;

use redis_semaphore::{Error, Semaphore, SemaphoreClient};

use crate::failure::Failure;
use crate::server;
use crate::server::options::Server;

/// How many processes there are ...
pub const WORKERS: usize = 6;
/// ... and how many of them may work at the same time.
pub const LIMIT: u32 = 3;

/// For how long a dead worker keeps its permit. Two seconds suit a short demonstration; the default
/// of thirty suits most programs, as it also says how long an outage of Redis may last before a
/// permit is lost.
pub const LEASE: Duration = Duration::from_secs(2);

pub const PAGES: u32 = 60;

/// How long a page takes. Every twentieth takes longer than the lease, to show that the crate
/// renews the lease of a permit in the background for as long as its holder lives.
pub fn time_for(page: u32) -> Duration {
    match page % 20 {
        5 => Duration::from_millis(2500),
        _ => Duration::from_millis(250 + u64::from(page) * 37 % 150),
    }
}

pub fn is_long(page: u32) -> bool {
    time_for(page) > LEASE
}

/// A process connects once. The client name is the name under which `inspect` shows its permits.
pub async fn connect(server: &Server, client_name: &str) -> Result<SemaphoreClient, Failure> {
    server::connect(server, SemaphoreClient::builder().client_name(client_name)).await
}

/// Processes that use the same name and prefix on the same server share the semaphore.
pub fn database_connections(semaphores: &SemaphoreClient) -> Result<Semaphore, Error> {
    semaphores.semaphore("database-connections").limit(LIMIT).lease(LEASE).build()
}
