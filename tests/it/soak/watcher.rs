//! Looks at the keys all the time, past the proxy: who waits, how long an answer takes, whether all
//! keys will expire, and whether the dead hold for longer than a lease.

use std::collections::HashSet;
use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use redis_semaphore::{Holder, Inspection, Semaphore, Semaphores};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::support::scripts::keys_of;

use super::crew::Log;
use super::history::{ALL, Moment, What, now};
use super::{KINDS, Kind, LEASE};

const LOOK: Duration = Duration::from_millis(40);
/// An answer that takes longer says that all may be slow.
const SLOW: Duration = Duration::from_millis(50);
/// Within that time somebody calls, whatever is wrong.
const CUT: Duration = Duration::from_secs(5);

struct Watcher {
    url: String,
    log: Log,
    /// Who waited when it last looked, and when it began to look.
    queued: [(HashSet<String>, Moment); KINDS.len()],
    /// Since when somebody seems to hold for longer than a lease.
    too_long: [Option<Moment>; KINDS.len()],
    found: bool,
}

/// Says when the server is slow to answer, or does not answer at all, without this crate.
pub fn ping(url: &str, log: &Log) -> JoinHandle<()> {
    async fn answer(connection: &mut Option<MultiplexedConnection>, url: &str) -> RedisResult<()> {
        if connection.is_none() {
            let client = redis::Client::open(url)?;
            *connection = Some(client.get_multiplexed_async_connection().await?);
        }
        let connection = connection.as_mut().expect("it is there by now");
        redis::cmd("PING").exec_async(connection).await
    }

    let (url, log) = (url.to_owned(), log.clone());
    tokio::spawn(async move {
        let mut connection = None;
        loop {
            let since = now();
            // One without an answer within the timeout of redis-rs is replaced.
            if answer(&mut connection, &url).await.is_err() {
                connection = None;
            }
            if connection.is_none() || u128::from(now() - since) > SLOW.as_nanos() {
                log.say(ALL, What::Slow { since });
            }
            sleep(LOOK).await;
        }
    })
}

pub async fn start(url: &str, log: &Log) -> JoinHandle<()> {
    let semaphores = Semaphores::connect(url).await.unwrap();
    let (url, log, found) = (url.to_owned(), log.clone(), false);
    let (queued, too_long) = Default::default();
    let mut watcher = Watcher { url, log, queued, too_long, found };
    let build = |kind: &Kind| semaphores.semaphore(kind.name).limit(kind.limit).build().unwrap();
    let semaphores = KINDS.each_ref().map(build);
    tokio::spawn(async move {
        loop {
            // The server may be away right now.
            let _ = watcher.look(&semaphores).await;
            sleep(LOOK).await;
        }
    })
}

impl Watcher {
    async fn look(&mut self, semaphores: &[Semaphore]) -> Option<()> {
        let client = redis::Client::open(&*self.url).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.ok()?;
        loop {
            for (number, semaphore) in semaphores.iter().enumerate() {
                let since = now();
                let seen = semaphore.inspect().await.ok()?;
                self.check_leases(number, &seen);
                let queued = seen.waiters.into_iter().map(|waiter| waiter.id).collect();
                self.tell_changes(number, queued, since);
                self.check_expiry(&mut connection, &KINDS[number]).await?;
            }
            sleep(LOOK).await;
        }
    }

    fn tell_changes(&mut self, number: usize, queued: HashSet<String>, since: Moment) {
        let (before, until) = std::mem::replace(&mut self.queued[number], (queued, since));
        let (queued, _) = &self.queued[number];
        let ids: Vec<_> = before.difference(queued).cloned().collect();
        if !ids.is_empty() {
            self.log.say(ALL, What::Left { ids, until });
        }
        let ids: Vec<_> = queued.difference(&before).cloned().collect();
        if !ids.is_empty() {
            self.log.say(ALL, What::Queued { ids });
        }
    }

    /// No lease ends later than a lease from now, unless the clock went back. Then it is cut when
    /// somebody waits for the place and calls, which nobody may be able to do for a while.
    fn check_leases(&mut self, number: usize, seen: &Inspection) {
        let is_too_long = |holder: &Holder| holder.expires_in > LEASE + SLOW;
        let holder = seen.holders.iter().find(|holder| is_too_long(holder));
        let Some(holder) = holder.filter(|_| seen.queued > 0) else {
            self.too_long[number] = None;
            return;
        };
        let since = *self.too_long[number].get_or_insert_with(now);
        if u128::from(now() - since) > CUT.as_nanos() {
            let (id, expires_in) = (&holder.id, holder.expires_in);
            self.find("leases", format!("{id} holds for {expires_in:?}, and others wait"));
        }
    }

    /// Once is enough.
    fn find(&mut self, rule: &str, what: String) {
        if !std::mem::replace(&mut self.found, true) {
            self.log.say(ALL, What::Found { rule: rule.to_owned(), what });
        }
    }

    /// A key that never expires stays for ever when its clients are gone.
    async fn check_expiry(
        &mut self,
        connection: &mut MultiplexedConnection,
        kind: &Kind,
    ) -> Option<()> {
        // A limit that is set at run time is kept.
        let count = if kind.changes { 3 } else { 4 };
        for key in keys_of(kind.name).iter().take(count) {
            let lives: i64 = redis::cmd("PTTL").arg(key).query_async(connection).await.ok()?;
            if lives == -1 {
                self.find("expiry", format!("the key {key} never expires"));
            }
        }
        Some(())
    }
}
