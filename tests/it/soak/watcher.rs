//! Watches the keys all the time, without the proxy: which requests wait, how long a reply takes,
//! whether all keys will expire, and whether a dead holder holds longer than a lease.

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
/// If a reply takes longer, all replies may be slow.
const SLOW: Duration = Duration::from_millis(50);
/// Within this time, at least one client makes a call, even during faults.
const CUT: Duration = Duration::from_secs(5);

struct Watcher {
    log: Log,
    /// For each semaphore, the requests that waited at the last inspection, and the moment at which
    /// this inspection began.
    queued: [(HashSet<String>, Moment); KINDS.len()],
    /// For each semaphore, the moment since which a permit seems to be held longer than a lease.
    too_long: [Option<Moment>; KINDS.len()],
    found: bool,
}

/// Reports when the server replies slowly or not at all. The function does not use this crate.
pub fn ping(url: &str, log: &Log) -> JoinHandle<()> {
    async fn response(
        connection: &mut Option<MultiplexedConnection>,
        url: &str,
    ) -> RedisResult<()> {
        if connection.is_none() {
            let client = redis::Client::open(url)?;
            *connection = Some(client.get_multiplexed_async_connection().await?);
        }
        let connection = connection.as_mut().expect("a connection was made above");
        redis::cmd("PING").exec_async(connection).await
    }

    let (url, log) = (url.to_owned(), log.clone());
    tokio::spawn(async move {
        let mut connection = None;
        loop {
            let since = now();
            // If a connection gets no reply within the timeout of redis-rs, the connection is
            // replaced.
            if response(&mut connection, &url).await.is_err() {
                connection = None;
            }
            if connection.is_none() || u128::from(now() - since) > SLOW.as_nanos() {
                log.say(ALL, What::Slow { since });
            }
            sleep(LOOK).await;
        }
    })
}

/// Reports a key that never expires. Such a key would remain after its clients have ended.
pub fn check_expiry(url: &str, names: &Names, log: &Log) -> JoinHandle<()> {
    async fn lasting(keys: &[String], url: &str) -> RedisResult<Option<String>> {
        let client = redis::Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        loop {
            for key in keys {
                // The key may belong to another node.
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
        // The key `state` never expires while it contains a runtime limit.
        let is_kept = |key: &String| kind.special == Special::Changes && key.ends_with(":state");
        keys_of(name).into_iter().filter(move |key| !is_kept(key))
    });
    let (keys, url, log) = (keys.collect::<Vec<_>>(), url.to_owned(), log.clone());
    tokio::spawn(async move {
        loop {
            // The server may be unavailable.
            if let Ok(Some(key)) = lasting(&keys, &url).await {
                let (rule, what) = ("expiry".to_owned(), format!("the key {key} never expires"));
                return log.say(ALL, What::Found { rule, what });
            }
            sleep(LOOK).await;
        }
    })
}

/// Reports the requests that wait, and the permits that are held too long.
pub fn look(semaphores: &[Semaphore], log: &Log) -> JoinHandle<()> {
    let (log, found) = (log.clone(), false);
    let (queued, too_long) = Default::default();
    let mut watcher = Watcher { log, queued, too_long, found };
    let semaphores = semaphores.to_vec();
    tokio::spawn(async move {
        loop {
            for (number, semaphore) in semaphores.iter().enumerate() {
                // The server may be unavailable.
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
            self.report_changes(number, queued, since);
        }
    }

    fn report_changes(&mut self, number: usize, queued: HashSet<String>, since: Moment) {
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

    /// Checks that no lease expires later than one lease from now. If the clock moved back, the
    /// next call of a waiter shortens the lease, but faults may delay this call.
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

    /// Reports only the first violation.
    fn find(&mut self, rule: &str, what: String) {
        if !std::mem::replace(&mut self.found, true) {
            self.log.say(ALL, What::Found { rule: rule.to_owned(), what });
        }
    }
}
