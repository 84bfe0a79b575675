//! Tests that users get the same texts from a real server and from the server in memory. The model
//! test compares the behavior of both.

use std::time::Duration;

use redis_semaphore::{Error, Inspection, Permit, Semaphore, SemaphoreClient, acquire_all};

use test_support::errors::whole;
use test_support::observer::{Observer, in_time};
use test_support::server::{shared_admin_url, unique_name};

const LEASE: Duration = Duration::from_secs(600);

/// The outputs so far, without the IDs and times that differ from run to run.
#[derive(Default)]
struct Transcript {
    lines: Vec<String>,
    ids: Vec<String>,
}

impl Transcript {
    fn note(&mut self, what: &str, reported: impl ToString) {
        let mut reported = reported.to_string();
        for (number, id) in self.ids.iter().enumerate() {
            reported = reported.replace(id, &format!("<permit {number}>"));
        }
        if let Some((before, (_, after))) = reported
            .split_once("within ")
            .and_then(|(before, rest)| Some((before, rest.split_once(',')?)))
        {
            reported = format!("{before}within <time>,{after}");
        }
        self.lines.push(format!("{what}: {reported}"));
    }

    fn fails<T: std::fmt::Debug>(&mut self, what: &str, response: Result<T, Error>) {
        self.note(what, whole(&response.unwrap_err()));
    }

    fn knows(&mut self, permit: Permit) -> Permit {
        self.ids.push(permit.id().to_owned());
        permit
    }

    async fn looks(&mut self, semaphore: &Semaphore) {
        let Inspection {
            limit, declared_limit, runtime_limit, held, queued, holders, waiters, ..
        } = semaphore.inspect().await.unwrap();
        let limits = (limit, declared_limit, runtime_limit);
        let mut holders: Vec<_> =
            holders.iter().map(|holder| (holder.client_name(), holder.weight)).collect();
        holders.sort();
        let waiters: Vec<_> = waiters
            .iter()
            .map(|it| (it.client_name(), it.weight, it.position, it.alive_for.is_some()))
            .collect();
        let seen = format!("{limits:?}, {held} by {holders:?}, {queued} as {waiters:?}");
        self.note("inspect", seen);
    }
}

fn build(client: &SemaphoreClient, name: &str) -> Semaphore {
    client.semaphore(name).limit(3).lease(LEASE).build().unwrap()
}

async fn waits_and_limits(reported: &mut Transcript, one: &Semaphore, other: &Semaphore) {
    let first = reported.knows(one.acquire_many(2).await.unwrap());
    reported.note("try", other.try_acquire_many(2).await.unwrap().is_none());
    let waiting = tokio::spawn(other.request().weight(2).acquire());
    Observer::of(one.clone()).sees(2, 1).await;
    reported.looks(one).await;
    reported.fails("timeout", other.acquire_timeout(Duration::from_secs(1)).await);
    reported.fails("too heavy", one.acquire_many(4).await);
    reported.fails("too heavy to try", other.try_acquire_many(4_000_000_000).await);
    reported.fails("no weight", other.acquire_many(0).await);
    reported.note("limit", other.set_limit(5).await.unwrap());
    let next = reported.knows(in_time("its turn", waiting).await.unwrap().unwrap());
    reported.note("tokens", next.fencing_token() > first.fencing_token());
    reported.looks(one).await;
    reported.fails("too many", one.add_permits(u32::MAX).await);
    reported.note("more", one.add_permits(1).await.unwrap());
    reported.note("cleared", other.clear_limit().await.unwrap());
    let beyond = one.inspect_range(u64::MAX - 1..u64::MAX, 1 << 53..1 << 54).await.unwrap();
    reported.note("beyond the last", beyond.holders.len() + beyond.waiters.len());
    next.forget().await.unwrap();
    reported.looks(one).await;
    first.release().await.unwrap();
    reported.note("free", one.available_permits().await.unwrap());
    reported.note("cleared", other.clear_limit().await.unwrap());
}

async fn losses(reported: &mut Transcript, one: &Semaphore, other: &Semaphore) {
    let permit = reported.knows(one.acquire().await.unwrap());
    reported.note("revoked", format!("{:?}", other.revoke(permit.id()).await.unwrap()));
    reported.note("revoked", format!("{:?}", other.revoke(permit.id()).await.unwrap()));
    reported.fails("revoked", other.revoke("x").await);
    reported.fails("refresh", permit.refresh().await);
    reported.note("lost", permit.is_lost());
    reported.fails("release", permit.release().await);
    let lost = reported.knows(one.acquire().await.unwrap());
    other.revoke(lost.id()).await.unwrap();
    reported.fails("forget", lost.forget().await);
    let lost = reported.knows(one.acquire().await.unwrap());
    other.revoke(lost.id()).await.unwrap();
    reported.fails("let_expire", lost.let_expire().await);
    one.acquire().await.unwrap().let_expire().await.unwrap();
    reported.looks(other).await;
}

async fn moves(reported: &mut Transcript, one: &Semaphore, other: &Semaphore) {
    let detached = reported.knows(one.acquire_many(2).await.unwrap()).detach();
    let adopted = reported.knows(other.adopt(detached.clone()).await.unwrap());
    reported.note("token", adopted.fencing_token() == detached.fencing_token());
    reported.fails("adopt", one.adopt(detached.clone()).await);
    adopted.release().await.unwrap();
    reported.looks(other).await;
    let strange = detached.to_string().replace(one.name(), "strange").parse().unwrap();
    reported.fails("strange", one.adopt(strange).await);
}

async fn ends(reported: &mut Transcript, [one, other]: &[SemaphoreClient; 2], name: &str) {
    let unknown = format!("{name} unknown");
    let unknown = one.semaphore(&unknown).existing_limit().build().unwrap();
    reported.fails("no limit", unknown.acquire().await);
    reported.looks(&unknown).await;
    let alone = one.semaphore(format!("{name} alone")).limit(1);
    let alone = alone.acknowledged_by(1, Duration::from_millis(20)).build().unwrap();
    reported.fails("acknowledged", alone.acquire().await);
    let signals = one.semaphore(format!("{name} signals")).initial_permits(0).build().unwrap();
    reported.note("signalled", signals.add_permits(2).await.unwrap());
    let both = acquire_all([signals.request().weight(2), unknown.request()]).await;
    reported.fails("one of both", both.map(drop));
    let twice = acquire_all([signals.request(), signals.request()]).await;
    reported.fails("twice", twice.map(drop));
    Observer::of(signals.clone()).sees(0, 0).await;
    signals.close();
    reported.fails("closed", signals.acquire().await);
    let left = build(other, name);
    other.shutdown().await;
    reported.fails("shut down", left.acquire().await);
}

async fn transcript(processes: [SemaphoreClient; 2], name: &str) -> Vec<String> {
    let mut reported = Transcript::default();
    let [one, other] = [0, 1].map(|index| build(&processes[index], name));
    waits_and_limits(&mut reported, &one, &other).await;
    losses(&mut reported, &one, &other).await;
    moves(&mut reported, &one, &other).await;
    ends(&mut reported, &processes, name).await;
    reported.lines
}

#[tokio::test]
async fn the_in_memory_server_returns_the_same_texts_as_a_real_server() {
    let name = unique_name();
    let named = || SemaphoreClient::builder().client_name("same");
    let (url, local) = (shared_admin_url(), named().local().unwrap());
    let real = [named().connect(&url).await.unwrap(), named().connect(&url).await.unwrap()];
    let local = [local.clone(), local.another_process().unwrap()];
    let (real, local) = (transcript(real, &name).await, transcript(local, &name).await);
    // The texts differ only in the server's address.
    let address = url.trim_start_matches("redis://").trim_end_matches('/');
    let address = address.rsplit('@').next().unwrap();
    for (real, local) in real.iter().zip(&local) {
        assert_eq!(*local, real.replace(address, "local"));
    }
    assert_eq!((real.len(), local.len()), (37, 37), "{real:#?}");
}
