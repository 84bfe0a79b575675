//! Lists the semaphores. Each semaphore that was used has a key `PREFIX:{NAME}:state`, which
//! outlives the semaphore's other keys by two hours.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::SemaphoreClient;
use crate::context::Context;
use crate::diagnosis::permission;
use crate::error::{Error, is_transient};
use crate::protocol::check_name;
use crate::server::{Backoff, Cluster, Link, QueryError, Servers};

/// The names of the semaphores on a server, or on all primaries of a cluster. Returned by
/// [`SemaphoreClient::names`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Names {
    /// The sorted names, without the prefix.
    pub names: Vec<String>,
    /// The number of keys when the search ended. `None` if the user lacks `+dbsize`, or if the
    /// server is in memory.
    pub keys: Option<u64>,
    /// The duration of the search.
    pub elapsed: Duration,
}

/// Prints only the number of names.
impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names")
            .field("names", &format_args!("{} listed", self.names.len()))
            .field("keys", &self.keys)
            .field("elapsed", &self.elapsed)
            .finish()
    }
}

impl SemaphoreClient {
    /// Lists the names of all semaphores under the prefix that were used in the last two hours or
    /// have a runtime limit.
    ///
    /// The server scans all its keys (`SCAN`), in steps of well below 1 ms. A scan takes a round
    /// trip for each 250 keys. A million keys take 1 to 2 s. In a cluster, the primaries are
    /// scanned one after the other. If slots move during the scan, all primaries are scanned twice.
    ///
    /// The user needs `+scan` and, in a cluster, `+cluster|nodes`. Semaphores need neither
    /// permission. `+scan` reveals the names of all keys, including keys that the user has no
    /// permission to use.
    ///
    /// The list is complete, or an error is returned. A semaphore that appears or disappears during
    /// the scan may or may not be listed. A name that is not UTF-8 is omitted. Only a client other
    /// than this crate can create such a name. After a lost connection or a failover, the scan
    /// starts again.
    ///
    /// # Errors
    ///
    /// - [`Error::Connect`]: for about three times the response timeout, a server was unreachable or
    ///   interrupted the scan repeatedly; or the user lacks a permission, or a slot of the cluster has
    ///   no node.
    /// - [`Error::Shutdown`]: the I/O runtime has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe. The call only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// client.semaphore("uploads").limit(10).build()?.acquire().await?.release().await?;
    /// let found = client.names().await?;
    /// assert!(found.names.contains(&"uploads".to_owned()));
    /// println!("{} among {:?} keys, in {:?}", found.names.len(), found.keys, found.elapsed);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn names(&self) -> Result<Names, Error> {
        let context = self.context.clone();
        let search =
            async move { Search { context: &context, found: BTreeSet::new() }.run().await };
        self.context.in_a_task(search).await
    }
}

struct Search<'a> {
    context: &'a Context,
    found: BTreeSet<String>,
}

impl Search<'_> {
    async fn run(mut self) -> Result<Names, Error> {
        let (started, settings) = (Instant::now(), self.context.settings);
        let mut backoff = Backoff::of_connections(settings.response_timeout);
        let mut failing_since = None;
        let keys = loop {
            let failure = match self.try_once().await {
                Ok(keys) => break keys,
                Err(failure) => failure,
            };
            let since = failing_since.get_or_insert_with(Instant::now);
            let pause = backoff.next();
            let is_over = since.elapsed() + pause >= settings.call_timeout();
            if is_over || !is_transient(&failure.error) {
                return Err(self.explain(failure));
            }
            tracing::debug!(error = %failure.error, "the scan of keys was interrupted; it starts \
                                                     again");
            tokio::time::sleep(pause).await;
        };
        let names = self.found.into_iter().collect();
        Ok(Names { names, keys, elapsed: started.elapsed() })
    }

    /// Lists the names once. Returns the number of keys.
    async fn try_once(&mut self) -> Result<Option<u64>, QueryError> {
        let links = match &self.context.servers {
            Servers::One(link) => {
                self.look_through(std::slice::from_ref(link)).await?;
                vec![link.clone()]
            }
            Servers::Cluster(cluster) => self.look_through_cluster(cluster).await?,
            #[cfg(feature = "local")]
            Servers::Local(local) => {
                self.found.extend(local.names(&self.context.prefix));
                return Ok(None);
            }
        };
        let mut keys = Some(0);
        for link in links {
            keys = keys.zip(link.count_keys().await?).map(|(sum, more)| sum + more);
        }
        Ok(keys)
    }

    /// Finds the names of the semaphores in a cluster. Returns the nodes that were scanned.
    ///
    /// If a key moves from a node that is not yet scanned to a scanned node, the first scan misses
    /// the key. The second scan finds the key, because a key is not expected to move twice.
    async fn look_through_cluster(
        &mut self,
        cluster: &Arc<Cluster>,
    ) -> Result<Vec<Arc<Link>>, QueryError> {
        let (links, before) = cluster.shares().await?;
        self.look_through(&links).await?;
        let (links, after) = cluster.shares().await?;
        if before != after || after.are_moving() {
            self.look_through(&links).await?;
            cluster.same_primaries(&after).await?;
        }
        Ok(links)
    }

    async fn look_through(&mut self, links: &[Arc<Link>]) -> Result<(), QueryError> {
        let (prefix, found) = (&self.context.prefix, &mut self.found);
        let pattern = pattern(prefix);
        let name = |key: Vec<u8>| name_in(&key, prefix);
        for link in links {
            link.scan(&pattern, |keys| found.extend(keys.into_iter().filter_map(name))).await?;
        }
        Ok(())
    }

    fn explain(&self, failure: QueryError) -> Error {
        let QueryError { address, command, error } = failure;
        let is_sharded = matches!(self.context.servers, Servers::Cluster(_));
        permission::explain(address, &self.context.prefix, is_sharded, command, error)
    }
}

/// Returns the pattern for `SCAN`, with the special characters of the prefix escaped.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::new();
    for c in prefix.chars() {
        if "*?[]\\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + ":{*}:state"
}

/// Returns the name in a key that matches the pattern, if the name is valid.
fn name_in(key: &[u8], prefix: &str) -> Option<String> {
    let key = std::str::from_utf8(key).ok()?;
    let name = key.strip_prefix(prefix)?.strip_prefix(":{")?.strip_suffix("}:state")?;
    check_name("name", name).is_ok().then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_characters_in_a_prefix_are_escaped() {
        assert_eq!(pattern("shop:sem"), "shop:sem:{*}:state");
        assert_eq!(pattern(r"a*b?[c]\d"), r"a\*b\?\[c\]\\d:{*}:state");
    }

    #[test]
    fn only_keys_of_semaphores_have_a_name() {
        let name = |key: &str| name_in(key.as_bytes(), "sem");
        assert_eq!(name("sem:{a*[b] c}:state").as_deref(), Some("a*[b] c"));
        for strange in [
            "sem:{}:state",
            "sem:{a}b}:state",
            "sem:{a{b}:state",
            "sem:{a\n}:state",
            "sem:{a}:x:state",
        ] {
            assert_eq!(name(strange), None, "{strange}");
        }
        assert_eq!(name_in(b"sem:{\xff}:state", "sem"), None);
    }
}
