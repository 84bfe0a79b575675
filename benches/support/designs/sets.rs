//! The keys of the fair semaphore in "Redis in Action" by Josiah Carlson (6.3.2): two sorted sets
//! and a counter. The first set has the time of each acquire by the clients' clocks. The second set
//! has the order of arrival, which the counter determines. A holder is in both sets, and its rank
//! in the second set is below the limit.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;

use crate::support::Result;
use crate::support::scripts::numbered_id;

/// The time in seconds after which a permit expires. "Redis in Action" uses 10 s, and refreshes
/// permits before this time. The benches do not refresh, so this timeout is longer than any bench.
const TIMEOUT: f64 = 3600.0;

#[derive(Clone)]
pub struct Sets {
    pub times: String,
    pub owners: String,
    pub counter: String,
}

impl Sets {
    pub fn new(name: &str) -> Self {
        let key = |part: &str| format!("{{{name}}}:{part}");
        Self { times: key("times"), owners: key("owners"), counter: key("counter") }
    }

    /// Adds holders, as if they had acquired in this order.
    pub async fn add_holders(
        &self,
        connection: &mut MultiplexedConnection,
        numbers: Range<u64>,
    ) -> Result<()> {
        let now = now();
        let times: Vec<_> = numbers.clone().map(|number| (now, numbered_id(number))).collect();
        let owners: Vec<_> = numbers.clone().map(|number| (number, numbered_id(number))).collect();
        let mut pipeline = redis::pipe();
        pipeline.zadd_multiple(&self.times, &times).zadd_multiple(&self.owners, &owners);
        pipeline.set(&self.counter, numbers.end);
        Ok(pipeline.exec_async(connection).await?)
    }
}

pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs_f64()
}

/// Returns a time. Permits that were acquired before this time have expired.
pub fn ended(now: f64) -> f64 {
    now - TIMEOUT
}
