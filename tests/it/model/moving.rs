//! The only node of a cluster that has slots, and during each call the slot of the semaphore is on
//! its way to another one. All keys are still there; but the node takes one that a script has
//! emptied for one that has moved, and ends a script that comes back to it half way.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value, cmd};

use test_support::cluster::Cluster;
use test_support::scripts::Scripts;
use test_support::server::Server;

pub struct Moving {
    to: String,
    slot: u16,
    /// Calls that were served, and not turned away because a key is missing.
    pub served: u32,
    _target: Server,
}

/// A server to begin a move from, and whatever moves.
pub fn start(key: &str) -> (Server, Moving) {
    let mut cluster = Cluster::form(1, false, &[]);
    let target = cluster.add_node();
    let to = cluster.run(target, &["MYID"]);
    let slot = cluster.run(0, &["KEYSLOT", key]);
    let [server, target] = cluster.nodes.try_into().ok().expect("two nodes");
    (server, Moving { to, slot, served: 0, _target: target })
}

impl Moving {
    /// The answer of a call that is made while the slot moves; if it was turned away, of one that
    /// is made when it is back.
    pub fn answer(
        &mut self,
        scripts: &mut Scripts,
        call: impl Fn(&mut Scripts) -> Result<Value, RedisError>,
    ) -> Result<Value, RedisError> {
        self.set_slot(scripts, &["MIGRATING", &self.to]);
        let answer = call(scripts);
        self.set_slot(scripts, &["STABLE"]);
        let turned_away = [ServerErrorKind::TryAgain, ServerErrorKind::Ask].map(ErrorKind::Server);
        match answer {
            Err(error) if turned_away.contains(&error.kind()) => call(scripts),
            answer => {
                self.served += 1;
                answer
            }
        }
    }

    fn set_slot(&self, scripts: &mut Scripts, to: &[&str]) {
        let mut set = cmd("CLUSTER");
        set.arg("SETSLOT").arg(self.slot).arg(to).exec(&mut scripts.connection).unwrap();
    }
}
