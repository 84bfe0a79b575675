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
    fn note(&mut self, what: &str, told: impl ToString) {
        let mut told = told.to_string();
        for (number, id) in self.ids.iter().enumerate() {
            told = told.replace(id, &format!("<permit {number}>"));
        }
        if let Some((before, (_, after))) = told
            .split_once("within ")
            .and_then(|(before, rest)| Some((before, rest.split_once(',')?)))
        {
            told = format!("{before}within <time>,{after}");
        }
        self.lines.push(format!("{what}: {told}"));
    }

    fn fails<T: std::fmt::Debug>(&mut self, what: &str, answer: Result<T, Error>) {
        self.note(what, whole(&answer.unwrap_err()));
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

async fn waits_and_limits(told: &mut Transcript, one: &Semaphore, other: &Semaphore) {
    let first = told.knows(one.acquire_many(2).await.unwrap());
    told.note("try", other.try_acquire_many(2).await.unwrap().is_none());
    let waiting = tokio::spawn(other.request().weight(2).acquire());
    Observer::of(one.clone()).sees(2, 1).await;
    told.looks(one).await;
    told.fails("timeout", other.acquire_timeout(Duration::from_secs(1)).await);
    told.fails("too heavy", one.acquire_many(4).await);
    told.fails("too heavy to try", other.try_acquire_many(4_000_000_000).await);
    told.fails("no weight", other.acquire_many(0).await);
    told.note("limit", other.set_limit(5).await.unwrap());
    let next = told.knows(in_time("its turn", waiting).await.unwrap().unwrap());
    told.note("tokens", next.fencing_token() > first.fencing_token());
    told.looks(one).await;
    told.fails("too many", one.add_permits(u32::MAX).await);
    told.note("more", one.add_permits(1).await.unwrap());
    told.note("cleared", other.clear_limit().await.unwrap());
    let beyond = one.inspect_range(u64::MAX - 1..u64::MAX, 1 << 53..1 << 54).await.unwrap();
    told.note("beyond the last", beyond.holders.len() + beyond.waiters.len());
    next.forget().await.unwrap();
    told.looks(one).await;
    first.release().await.unwrap();
    told.note("free", one.available_permits().await.unwrap());
    told.note("cleared", other.clear_limit().await.unwrap());
}

async fn losses(told: &mut Transcript, one: &Semaphore, other: &Semaphore) {
    let permit = told.knows(one.acquire().await.unwrap());
    told.note("revoked", format!("{:?}", other.revoke(permit.id()).await.unwrap()));
    told.note("revoked", format!("{:?}", other.revoke(permit.id()).await.unwrap()));
    told.fails("revoked", other.revoke("x").await);
    told.fails("refresh", permit.refresh().await);
    told.note("lost", permit.is_lost());
    told.fails("release", permit.release().await);
    let lost = told.knows(one.acquire().await.unwrap());
    other.revoke(lost.id()).await.unwrap();
    told.fails("forget", lost.forget().await);
    let lost = told.knows(one.acquire().await.unwrap());
    other.revoke(lost.id()).await.unwrap();
    told.fails("let_expire", lost.let_expire().await);
    one.acquire().await.unwrap().let_expire().await.unwrap();
    told.looks(other).await;
}

async fn moves(told: &mut Transcript, one: &Semaphore, other: &Semaphore) {
    let detached = told.knows(one.acquire_many(2).await.unwrap()).detach();
    let adopted = told.knows(other.adopt(detached.clone()).await.unwrap());
    told.note("token", adopted.fencing_token() == detached.fencing_token());
    told.fails("adopt", one.adopt(detached.clone()).await);
    adopted.release().await.unwrap();
    told.looks(other).await;
    let strange = detached.to_string().replace(one.name(), "strange").parse().unwrap();
    told.fails("strange", one.adopt(strange).await);
}

async fn ends(told: &mut Transcript, [one, other]: &[SemaphoreClient; 2], name: &str) {
    let unknown = format!("{name} unknown");
    let unknown = one.semaphore(&unknown).existing_limit().build().unwrap();
    told.fails("no limit", unknown.acquire().await);
    told.looks(&unknown).await;
    let alone = one.semaphore(format!("{name} alone")).limit(1);
    let alone = alone.acknowledged_by(1, Duration::from_millis(20)).build().unwrap();
    told.fails("acknowledged", alone.acquire().await);
    let signals = one.semaphore(format!("{name} signals")).initial_permits(0).build().unwrap();
    told.note("signalled", signals.add_permits(2).await.unwrap());
    let both = acquire_all([signals.request().weight(2), unknown.request()]).await;
    told.fails("one of both", both.map(drop));
    let twice = acquire_all([signals.request(), signals.request()]).await;
    told.fails("twice", twice.map(drop));
    Observer::of(signals.clone()).sees(0, 0).await;
    signals.close();
    told.fails("closed", signals.acquire().await);
    let left = build(other, name);
    other.shutdown().await;
    told.fails("shut down", left.acquire().await);
}

async fn transcript(processes: [SemaphoreClient; 2], name: &str) -> Vec<String> {
    let mut told = Transcript::default();
    let [one, other] = [0, 1].map(|index| build(&processes[index], name));
    waits_and_limits(&mut told, &one, &other).await;
    losses(&mut told, &one, &other).await;
    moves(&mut told, &one, &other).await;
    ends(&mut told, &processes, name).await;
    told.lines
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
