use redis_semaphore::ConnectErrorKind;

use super::{assert_says, refusal};
use crate::support::observer::eventually;
use crate::support::server::Server;

/// Redis says so in other words where a database is selected.
#[tokio::test]
async fn a_script_that_takes_long_will_end() {
    let server = Server::start();
    server.grant("+select");
    let mut admin = server.connect();
    redis::cmd("CONFIG").arg(&["SET", "lua-time-limit", "1"]).exec(&mut admin).unwrap();
    let mut other = server.connect();
    let script = std::thread::spawn(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut other).unwrap_err()
    });
    let answer = async || redis::cmd("PING").exec(&mut admin).err().map(|error| error.to_string());
    let is_busy =
        |answer: &Option<String>| answer.as_ref().is_some_and(|error| error.contains("BUSY"));
    eventually("busy", answer, is_busy).await;
    for url in [server.url(), server.url() + "3"] {
        let refused = refusal(&url).await;
        let words = ["the server runs a script that takes long (BUSY): wait"];
        assert_says(&refused, ConnectErrorKind::NotReady, &words);
        assert!(refused.is_transient());
    }
    redis::cmd("SCRIPT").arg("KILL").exec(&mut server.connect()).unwrap();
    assert!(script.join().unwrap().to_string().contains("killed"));
}
