//! A cluster in which one node has all slots. During each call, the semaphore's slot is migrating
//! to another node. All keys are still on the first node. If a script empties a key, however, the
//! first node considers the key moved. The node aborts the script when the script accesses the key
//! again.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value, cmd};

use test_support::cluster::Cluster;
use test_support::scripts::Scripts;
use test_support::server::Server;

pub struct Moving {
    to: String,
    slot: u16,
    /// The number of calls that were executed. The other calls were redirected because a key was
    /// missing.
    pub served: u32,
    _target: Server,
}

/// Starts the source node of the migration. Returns the server with the value that moves slots.
pub fn start(key: &str) -> (Server, Moving) {
    let mut cluster = Cluster::form(1, false, &[]);
    let target = cluster.add_node();
    let to = cluster.run(target, &["MYID"]);
    let slot = cluster.run(0, &["KEYSLOT", key]);
    let [server, target] = cluster.nodes.try_into().ok().expect("two nodes");
    (server, Moving { to, slot, served: 0, _target: target })
}

impl Moving {
    /// Returns the reply to a call made while the slot moves. If the node redirects the call,
    /// returns the reply to a call made after the slot is back.
    pub fn response(
        &mut self,
        scripts: &mut Scripts,
        call: impl Fn(&mut Scripts) -> Result<Value, RedisError>,
    ) -> Result<Value, RedisError> {
        self.set_slot(scripts, &["MIGRATING", &self.to]);
        let response = call(scripts);
        self.set_slot(scripts, &["STABLE"]);
        let turned_away = [ServerErrorKind::TryAgain, ServerErrorKind::Ask].map(ErrorKind::Server);
        match response {
            Err(error) if turned_away.contains(&error.kind()) => call(scripts),
            response => {
                self.served += 1;
                response
            }
        }
    }

    fn set_slot(&self, scripts: &mut Scripts, to: &[&str]) {
        let mut set = cmd("CLUSTER");
        set.arg("SETSLOT").arg(self.slot).arg(to).exec(&mut scripts.connection).unwrap();
    }
}
