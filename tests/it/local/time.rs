//! Tests in which Tokio's clock is paused. Hours pass immediately, and everything happens at
//! exactly the right moment.

use std::time::Duration;

use redis_semaphore::{
    Error, Permit, Revoked, Semaphore, SemaphoreBuilder, SemaphoreClient, acquire_all,
};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, advance, sleep};

const LEASE: Duration = Duration::from_secs(30);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Returns the builders of two processes.
fn builders(limit: u32) -> [SemaphoreBuilder; 2] {
    let one = SemaphoreClient::local().unwrap();
    let other = one.another_process().unwrap();
    [one, other].map(|client| client.semaphore("jobs").limit(limit))
}

fn semaphores(limit: u32) -> [Semaphore; 2] {
    builders(limit).map(|builder| builder.build().unwrap())
}

/// Starts a wait, and returns after the request was queued.
async fn queue(
    semaphore: &Semaphore,
    weight: u32,
    ahead: Duration,
) -> JoinHandle<(Permit, Instant)> {
    let before = semaphore.inspect().await.unwrap().queued;
    let wait = semaphore.request().weight(weight).head_start(ahead).acquire();
    let wait = tokio::spawn(async move { (wait.await.unwrap(), Instant::now()) });
    // The paused clock cannot provide a deadline, so the loop has a fixed number of rounds.
    for _ in 0..100 {
        if semaphore.inspect().await.unwrap().queued > before {
            return wait;
        }
        yield_now().await;
    }
    panic!("it is not queued");
}

fn is_lost<T: std::fmt::Debug>(response: Result<T, Error>) -> bool {
    matches!(response, Err(Error::Lost { .. }))
}

/// The holder's deadline has passed, and the lease on the server expires in the next millisecond.
#[tokio::test(start_paused = true)]
async fn a_lost_permit_can_be_neither_forgotten_nor_refreshed() {
    let [tickets, other] = builders(3).map(|builder| builder.lease(SECOND).auto_refresh(false));
    let (tickets, other) = (tickets.build().unwrap(), other.build().unwrap());
    let (forgotten, refreshed) =
        (tickets.acquire().await.unwrap(), tickets.acquire().await.unwrap());
    forgotten.lost().await;
    assert_eq!(other.inspect().await.unwrap().held, 2);
    assert!(is_lost(refreshed.refresh().await) && is_lost(forgotten.forget().await));
    assert_eq!(other.inspect().await.unwrap().holders[0].expires_in, MS);
    assert_eq!(other.limit().await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn waiters_get_permits_immediately_and_in_strict_order() {
    let [one, other] = semaphores(3);
    let held = one.acquire_many(3).await.unwrap();
    let heavy = queue(&other, 3, Duration::ZERO).await;
    let light = queue(&one, 1, Duration::ZERO).await;
    let last = queue(&other, 2, Duration::ZERO).await;
    sleep(HOUR).await;
    let now = one.inspect().await.unwrap();
    let waits: Vec<_> = now.waiters.iter().map(|it| (it.weight, it.waited)).collect();
    assert_eq!(waits, [(3, HOUR), (1, HOUR), (2, HOUR)]);
    assert!(one.try_acquire().await.unwrap().is_none());
    let released = Instant::now();
    held.release().await.unwrap();
    let (heavy, at) = heavy.await.unwrap();
    assert_eq!(at, released);
    sleep(SECOND).await;
    assert!(!light.is_finished() && !last.is_finished());
    drop(heavy);
    let ((light, at), (last, at_last)) = (light.await.unwrap(), last.await.unwrap());
    assert_eq!((at, at_last), (released + SECOND, released + SECOND));
    assert!(light.fencing_token() < last.fencing_token());
}

#[tokio::test(start_paused = true)]
async fn a_head_start_overtakes_only_requests_that_arrived_within_that_time() {
    let [one, other] = semaphores(1);
    let held = one.acquire().await.unwrap();
    let first = queue(&one, 1, Duration::ZERO).await;
    sleep(SECOND * 20).await;
    let second = queue(&one, 1, Duration::ZERO).await;
    sleep(SECOND).await;
    let urgent = queue(&other, 1, SECOND * 10).await;
    sleep(SECOND).await;
    let waiters = one.inspect().await.unwrap().waiters;
    let waited: Vec<_> = waiters.iter().map(|waiter| waiter.waited).collect();
    assert_eq!(waited, [SECOND * 22, SECOND, SECOND * 2]);
    drop(held);
    let tokens =
        [first, urgent, second].map(|wait| async { wait.await.unwrap().0.fencing_token() });
    let [first, urgent, second] = tokens;
    let (first, urgent, second) = (first.await, urgent.await, second.await);
    assert!(first < urgent && urgent < second);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_permit_exactly_when_the_lease_expires() {
    let [one, other] = builders(1);
    let one = one.auto_refresh(false).build().unwrap();
    let (other, started) = (other.build().unwrap(), Instant::now());
    let permit = one.acquire().await.unwrap();
    let waits = queue(&other, 1, Duration::ZERO).await;
    sleep(SECOND * 10).await;
    permit.refresh().await.unwrap();
    sleep(SECOND * 5).await;
    assert_eq!(permit.expires_in(), SECOND * 25 - MS);
    assert_eq!(one.inspect().await.unwrap().holders[0].expires_in, SECOND * 25);
    permit.lost().await;
    assert_eq!(started.elapsed(), SECOND * 10 + LEASE - MS);
    let (next, at) = waits.await.unwrap();
    assert_eq!(at, started + SECOND * 10 + LEASE);
    assert!(permit.is_lost() && is_lost(permit.refresh().await));
    assert!(is_lost(permit.release().await));
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_server_clock_follows_the_paused_tokio_clock() {
    let [one, _] = builders(1);
    let one = one.auto_refresh(false).build().unwrap();
    let permit = one.acquire().await.unwrap();
    let watch = permit.watch();
    advance(LEASE - MS * 2).await;
    assert!(watch.is_held() && one.try_acquire().await.unwrap().is_none());
    // The server counts in whole milliseconds. The lease may last until the end of this
    // millisecond.
    advance(MS).await;
    assert!(watch.is_lost() && one.try_acquire().await.unwrap().is_none());
    advance(MS).await;
    assert!(one.try_acquire().await.unwrap().is_some());
}

/// `advance` does not wait for refreshes, but `sleep` does.
#[tokio::test(start_paused = true)]
async fn a_permit_survives_advances_with_sleeps_in_between() {
    let [one, _] = semaphores(1);
    let permit = one.acquire().await.unwrap();
    for _ in 0..100 {
        advance(LEASE / 2).await;
        sleep(MS).await;
    }
    permit.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_held_while_it_is_refreshed_and_at_most_for_max_hold() {
    let [one, other] = builders(2);
    let (kept, limited) = (one.build().unwrap(), other.max_hold(HOUR).build().unwrap());
    let (permit, limited) = (kept.acquire().await.unwrap(), limited.acquire().await.unwrap());
    let started = Instant::now();
    limited.lost().await;
    assert_eq!(started.elapsed(), HOUR - MS);
    sleep(HOUR * 24).await;
    assert!(!permit.is_lost() && permit.expires_in() > SECOND * 19);
    permit.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_or_aborted_wait_leaves_the_queue() {
    let [one, other] = semaphores(1);
    let held = one.acquire().await.unwrap();
    let first = queue(&one, 1, Duration::ZERO).await;
    match other.acquire_timeout(HOUR).await.unwrap_err() {
        Error::Timeout { waited, position, .. } => assert_eq!((waited, position), (HOUR, Some(2))),
        error => panic!("{error}"),
    }
    first.abort();
    held.release().await.unwrap();
    sleep(SECOND).await;
    let now = one.inspect().await.unwrap();
    assert_eq!((now.held, now.queued), (0, 0), "{now:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_permits_stay_held_until_expiry_and_waits_end() {
    let one = SemaphoreClient::local().unwrap();
    let [holds, waits, dead] = [(); 3].map(|()| one.another_process().unwrap());
    let build = |of: &SemaphoreClient| of.semaphore("jobs").limit(1).build().unwrap();
    let permit = build(&holds).acquire().await.unwrap();
    sleep(SECOND * 25).await;
    let given_up = build(&dead);
    let given_up = tokio::spawn(async move { given_up.acquire().await.map(drop) });
    let next = queue(&build(&waits), 1, Duration::ZERO).await;
    let started = Instant::now();
    holds.shutdown().await;
    dead.shutdown().await;
    assert!(matches!(given_up.await.unwrap(), Err(Error::Shutdown)));
    let (next, at) = next.await.unwrap();
    // The lease was refreshed at intervals of ten seconds.
    assert_eq!((at - started, permit.is_lost()), (SECOND * 25, true));
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_finds_out_about_a_revoke_at_its_next_refresh() {
    let [one, other] = semaphores(1);
    let (started, permit) = (Instant::now(), one.acquire().await.unwrap());
    let next = queue(&other, 1, Duration::ZERO).await;
    let revoked = other.revoke(permit.id()).await.unwrap();
    assert!(matches!(revoked, Revoked::Permit { lease, .. } if lease == LEASE), "{revoked:?}");
    let (next, at) = next.await.unwrap();
    permit.lost().await;
    assert_eq!((at, Instant::now()), (started, started + LEASE / 3));
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn waiters_get_permits_when_the_limit_is_raised() {
    let [one, other] = semaphores(1);
    assert_eq!(one.set_limit(0).await.unwrap(), 1);
    let [first, second] =
        [queue(&one, 1, Duration::ZERO).await, queue(&other, 1, Duration::ZERO).await];
    sleep(HOUR).await;
    assert!(!first.is_finished() && !second.is_finished());
    assert_eq!(other.clear_limit().await.unwrap(), 1);
    let (first, _) = first.await.unwrap();
    sleep(HOUR).await;
    assert!(!second.is_finished());
    assert_eq!(one.add_permits(1).await.unwrap(), 2);
    let (second, _) = second.await.unwrap();
    first.forget().await.unwrap();
    assert_eq!(other.limit().await.unwrap(), 1);
    second.release().await.unwrap();
}

/// A waiter sends heartbeats at intervals of five seconds. The grant may have been made at any
/// moment since the last heartbeat.
#[tokio::test(start_paused = true)]
async fn a_permit_granted_after_a_wait_has_most_of_its_lease() {
    let [one, other] = builders(1).map(|builder| builder.lease(SECOND * 10).build().unwrap());
    let held = one.acquire().await.unwrap();
    let waits = queue(&other, 1, Duration::ZERO).await;
    sleep(SECOND * 4).await;
    held.release().await.unwrap();
    let (permit, _) = waits.await.unwrap();
    assert!(permit.expires_in() > SECOND * 9, "{:?}", permit.expires_in());
}

/// The time of the first refresh depends on the permit's own lease, not on the refreshes of other
/// permits.
#[tokio::test(start_paused = true)]
async fn a_permit_granted_after_a_wait_keeps_almost_two_thirds_of_its_lease() {
    for has_another in [false, true] {
        let [one, other] = semaphores(1 + u32::from(has_another));
        let held = one.acquire().await.unwrap();
        let _another = if has_another { other.try_acquire().await.unwrap() } else { None };
        sleep(SECOND * 6).await;
        let waits = queue(&other, 1, Duration::ZERO).await;
        sleep(SECOND * 4 + MS).await;
        held.release().await.unwrap();
        let (permit, _) = waits.await.unwrap();
        for _ in 0..300 {
            sleep(SECOND / 10).await;
            assert!(permit.expires_in() > LEASE * 2 / 3 - SECOND, "{:?}", permit.expires_in());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_let_expire_a_permit_counts_for_one_lease() {
    let [one, other] = builders(2).map(|builder| builder.let_expire_on_drop(true).build().unwrap());
    let started = Instant::now();
    let mut starts = Vec::new();
    for semaphore in [&one, &other, &one, &other, &one] {
        sleep(SECOND).await;
        let permit = semaphore.acquire().await.unwrap();
        starts.push(started.elapsed());
        permit.let_expire().await.unwrap();
    }
    assert_eq!(starts, [1, 2, 31, 32, 61].map(Duration::from_secs));
}

/// A start counts for one lease, or for `max_hold` if `max_hold` is shorter.
#[tokio::test(start_paused = true)]
async fn after_let_expire_a_permit_counts_for_at_most_max_hold() {
    let [one, other] = builders(1).map(|builder| builder.max_hold(LEASE / 3).build().unwrap());
    let started = Instant::now();
    one.acquire().await.unwrap().let_expire().await.unwrap();
    let _next = other.acquire().await.unwrap();
    assert_eq!(started.elapsed(), LEASE / 3);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_permit_has_the_lease_and_max_hold_of_its_new_holder() {
    let [one, other] = builders(1);
    let one = one.max_hold(LEASE * 2).build().unwrap();
    let other = other.lease(LEASE * 2).max_hold(LEASE * 3).build().unwrap();
    let parted = one.acquire().await.unwrap().detach();
    sleep(LEASE - SECOND).await;
    let adopted = other.adopt(parted).await.unwrap();
    assert!(adopted.expires_in() > LEASE * 2 - SECOND, "{:?}", adopted.expires_in());
    let started = Instant::now();
    adopted.lost().await;
    let held = started.elapsed();
    assert!(held > LEASE * 3 - SECOND && held <= LEASE * 3, "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn a_detached_permit_is_adopted_or_expires_with_its_lease() {
    let [one, other] = semaphores(1);
    let (parted, started) = (one.acquire().await.unwrap().detach(), Instant::now());
    sleep(LEASE - SECOND).await;
    let adopted = other.adopt(parted).await.unwrap();
    sleep(HOUR).await;
    let parted = adopted.detach();
    let next = one.acquire().await.unwrap();
    let took = started.elapsed() - HOUR - (LEASE - SECOND);
    // The last refresh was up to ten seconds earlier.
    assert!(took > LEASE * 2 / 3 - SECOND && took <= LEASE, "{took:?}");
    assert!(is_lost(other.adopt(parted).await));
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn acquire_all_acquires_all_permits_or_none() {
    let client = SemaphoreClient::local().unwrap();
    let [one, other] =
        ["one", "other"].map(|name| client.semaphore(name).limit(1).build().unwrap());
    let held = other.acquire().await.unwrap();
    let both = || [one.request().timeout(HOUR), other.request()];
    let started = Instant::now();
    let refused = acquire_all(both()).await.unwrap_err();
    assert!(matches!(refused, Error::Timeout { waited, .. } if waited == HOUR), "{refused}");
    assert_eq!(started.elapsed(), HOUR);
    sleep(SECOND).await;
    assert_eq!(one.available_permits().await.unwrap(), 1);
    let permits = tokio::spawn(acquire_all(both()));
    sleep(SECOND).await;
    held.release().await.unwrap();
    permits.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn acquire_fails_if_no_replica_acknowledges_the_grant_in_time() {
    let [one, _] = builders(1);
    let one = one.acknowledged_by(1, SECOND * 2).build().unwrap();
    let started = Instant::now();
    let refused = one.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::NotAcknowledged { replicas: 0, .. }), "{refused}");
    assert_eq!(started.elapsed(), SECOND * 2);
    sleep(SECOND).await;
    assert_eq!(one.available_permits().await.unwrap(), 1);
}
