//! Limits, as a process sees them that has used a semaphore for long.

use redis_semaphore::{Semaphore, Semaphores};

use crate::support::server::{Server, shared_url, unique_name};

async fn use_once(semaphore: &Semaphore) {
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

/// The server forgets the limit of a semaphore that nobody uses: two hours after the last lease.
#[tokio::test]
async fn what_is_added_comes_on_top_of_what_was_declared_though_the_server_has_forgotten_it() {
    let server = Server::start();
    let semaphores = Semaphores::connect(&server.url()).await.unwrap();
    let semaphore = semaphores.semaphore("jobs").limit(4).build().unwrap();
    use_once(&semaphore).await;
    server.clock.run_ahead_by(3 * 3600 * 1_000_000);
    assert_eq!(semaphore.add_permits(1).await.unwrap(), 5);
    assert_eq!(semaphore.clear_limit().await.unwrap(), 4);
    server.clock.run_ahead_by(6 * 3600 * 1_000_000);
    assert_eq!(semaphore.set_limit(9).await.unwrap(), 4);
    assert_eq!(semaphore.clear_limit().await.unwrap(), 4);
}

#[tokio::test]
async fn a_newer_declaration_stays_when_an_older_process_adds() {
    let (url, name) = (shared_url(), unique_name());
    let build = async |limit| {
        let semaphores = Semaphores::connect(&url).await.unwrap();
        semaphores.semaphore(&name).limit(limit).build().unwrap()
    };
    let (older, newer) = (build(3).await, build(5).await);
    use_once(&older).await;
    use_once(&newer).await;
    assert_eq!(older.add_permits(1).await.unwrap(), 6);
    assert_eq!(older.clear_limit().await.unwrap(), 5);
}

#[tokio::test]
async fn initial_permits_begin_anew_once_they_were_cleared() {
    let semaphores = Semaphores::connect(&shared_url()).await.unwrap();
    let semaphore = semaphores.semaphore(unique_name()).initial_permits(5).build().unwrap();
    use_once(&semaphore).await;
    assert_eq!(semaphore.add_permits(2).await.unwrap(), 7);
    assert_eq!(semaphore.clear_limit().await.unwrap(), 0);
    assert_eq!(semaphore.add_permits(1).await.unwrap(), 6);
    semaphore.clear_limit().await.unwrap();
}
