//! The state of a server.

use std::time::SystemTime;

use redis::Connection;
// The user of this URL has all rights.
pub use test_support::server::{connect, shared_admin_url as shared_url};

use crate::support::eventually;

/// Returns the number of holders and of waiters.
pub fn held_and_queued(connection: &mut Connection, name: &str) -> (u64, u64) {
    let key = |key| format!("sem:{{{name}}}:{key}");
    let mut both = redis::pipe();
    // The member that counts the weights has a score of at most 0.
    both.cmd("ZCOUNT").arg(key("permits")).arg("(0").arg("+inf").cmd("ZCARD").arg(key("queue"));
    both.query(connection).unwrap()
}

pub fn await_held_and_queued(url: &str, name: &str, wanted: (u64, u64)) {
    let mut connection = connect(url);
    eventually(&format!("{wanted:?} held and queued"), || {
        (held_and_queued(&mut connection, name) == wanted).then_some(())
    });
}

/// Returns when the lease of the only permit expires, by the clock of this machine, in ms.
pub fn lease_end(connection: &mut Connection, name: &str) -> u128 {
    let key = format!("sem:{{{name}}}:permits");
    let mut range = redis::cmd("ZRANGEBYSCORE");
    range.arg(key).arg("(0").arg("+inf").arg("WITHSCORES");
    let [(_, end)]: [(String, f64); 1] =
        range.query::<Vec<_>>(connection).unwrap().try_into().expect("one permit");
    end as u128
}

pub fn now() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()
}
