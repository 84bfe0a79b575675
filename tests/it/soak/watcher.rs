//! Looks at the keys all the time, past the proxy: who waits, how long an answer takes, whether all
//! keys will expire, and whether the dead hold for longer than a lease.

use std::collections::HashSet;
use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use redis_semaphore::{Holder, Inspection, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use test_support::scripts::keys_of;

use super::crew::Log;
use super::history::{ALL, Moment, What, now};
use super::topology::Names;
use super::{KINDS, LEASE, Special};

const LOOK: Duration = Duration::from_millis(40);
const LOOK_AT_EXPIRY: Duration = Duration::from_millis(100);
/// An answer that takes longer says that all may be slow.
const SLOW: Duration = Duration::from_millis(50);
/// Within that time somebody calls, whatever is wrong.
const CUT: Duration = Duration::from_secs(5);

struct Watcher {
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

/// Says when a key never expires: it would stay for ever when its clients are gone.
pub fn check_expiry(url: &str, names: &Names, log: &Log) -> JoinHandle<()> {
    async fn lasting(keys: &[String], url: &str) -> RedisResult<Option<String>> {
        let client = redis::Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        loop {
            for key in keys {
                // Where it is another node's.
                let lives = redis::cmd("PTTL").arg(key).query_async::<i64>(&mut connection).await;
                match lives {
                    Ok(-1) => return Ok(Some(key.clone())),
                    Err(error) if error.code() != Some("MOVED") => return Err(error),
                    _ => {}
                }
            }
            sleep(LOOK_AT_EXPIRY).await;
        }
    }

    let keys = names.iter().zip(&KINDS).flat_map(|(name, kind)| {
        // A limit that is set at run time is kept.
        keys_of(name).into_iter().take(if kind.special == Special::Changes { 3 } else { 4 })
    });
    let (keys, url, log) = (keys.collect::<Vec<_>>(), url.to_owned(), log.clone());
    tokio::spawn(async move {
        loop {
            // The server may be away right now.
            if let Ok(Some(key)) = lasting(&keys, &url).await {
                let (rule, what) = ("expiry".to_owned(), format!("the key {key} never expires"));
                // Once is enough.
                return log.say(ALL, What::Found { rule, what });
            }
            sleep(LOOK).await;
        }
    })
}

/// Says who waits, and who holds for too long.
pub fn look(semaphores: &[Semaphore], log: &Log) -> JoinHandle<()> {
    let (log, found) = (log.clone(), false);
    let (queued, too_long) = Default::default();
    let mut watcher = Watcher { log, queued, too_long, found };
    let semaphores = semaphores.to_vec();
    tokio::spawn(async move {
        loop {
            for (number, semaphore) in semaphores.iter().enumerate() {
                // The server may be away right now.
                watcher.look(number, semaphore).await;
            }
            sleep(LOOK).await;
        }
    })
}

impl Watcher {
    async fn look(&mut self, number: usize, semaphore: &Semaphore) {
        let since = now();
        if let Ok(seen) = semaphore.inspect().await {
            self.check_leases(number, &seen);
            let queued = seen.waiters.into_iter().map(|waiter| waiter.id).collect();
            self.tell_changes(number, queued, since);
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
}
