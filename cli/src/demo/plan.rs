//! The semaphore and the job, on which all processes of a run must agree.

use std::time::Duration;

use redis_semaphore::{Error, Semaphore, SemaphoreClient};

use crate::failure::Failure;
use crate::server;
use crate::server::options::Server;

pub const WORKERS: usize = 6;
/// How many workers may work at the same time.
pub const LIMIT: u32 = 3;

/// The longest time for which a dead worker keeps its permit. Two seconds suit a short
/// demonstration. The default of 30 s suits most programs, because the lease also limits how long
/// an outage of Redis may last before a permit is lost.
pub const LEASE: Duration = Duration::from_secs(2);

pub const PAGES: u32 = 60;

/// How long a page takes. Every twentieth page takes longer than the lease, to show that the crate
/// refreshes the lease in the background while the holder is alive.
pub fn time_for(page: u32) -> Duration {
    match page % 20 {
        5 => Duration::from_millis(2500),
        _ => Duration::from_millis(250 + u64::from(page) * 37 % 150),
    }
}

pub fn is_long(page: u32) -> bool {
    time_for(page) > LEASE
}

/// Returns the client name of a worker, which `inspect` shows.
pub fn name_of(worker: usize) -> String {
    format!("worker-{}", worker + 1)
}

pub fn worker_of(name: &str) -> Option<usize> {
    (0..WORKERS).find(|worker| name_of(*worker) == name)
}

/// Connects a process. `inspect` shows its permits with this client name.
pub async fn connect(server: &Server, client_name: &str) -> Result<SemaphoreClient, Failure> {
    server::connect(server, SemaphoreClient::builder().client_name(client_name)).await
}

/// Opens the semaphore. All processes that use this name with the same prefix, server and database
/// share the semaphore.
pub fn database_connections(semaphores: &SemaphoreClient) -> Result<Semaphore, Error> {
    semaphores.semaphore("database-connections").limit(LIMIT).lease(LEASE).build()
}
