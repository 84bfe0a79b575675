//! Tests with servers that are not ready yet.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use redis::RedisError;
use redis_semaphore::{ConnectErrorKind, SemaphoreClient};

use super::{assert_says, refusal};
use test_support::observer::{eventually, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::Server;

/// A script that runs until it is killed.
pub struct EndlessScript<'a> {
    server: &'a Server,
    run: JoinHandle<RedisError>,
}

impl<'a> EndlessScript<'a> {
    pub async fn start(server: &'a Server) -> Self {
        let mut admin = server.connect();
        redis::cmd("CONFIG").arg(&["SET", "lua-time-limit", "1"]).exec(&mut admin).unwrap();
        let mut other = server.connect();
        let run = std::thread::spawn(move || {
            redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut other).unwrap_err()
        });
        let response =
            async || redis::cmd("PING").exec(&mut admin).err().map(|error| error.to_string());
        let is_busy = |response: &Option<String>| {
            response.as_ref().is_some_and(|error| error.contains("BUSY"))
        };
        eventually("busy", response, is_busy).await;
        Self { server, run }
    }

    pub fn kill(self) {
        redis::cmd("SCRIPT").arg("KILL").exec(&mut self.server.connect()).unwrap();
        assert!(self.run.join().unwrap().to_string().contains("killed"));
    }
}

/// If the URL selects a database, the text of Redis's error differs.
#[tokio::test]
async fn connecting_reports_that_the_server_runs_a_long_script() {
    let server = Server::start();
    server.grant("+select");
    let script = EndlessScript::start(&server).await;
    for url in [server.url(), server.url() + "3"] {
        let refused = refusal(&url).await;
        let words = ["the server is running a long script (BUSY): wait"];
        assert_says(&refused, ConnectErrorKind::NotReady, &words);
        assert!(refused.is_transient());
    }
    script.kill();
}

/// The last attempt of a call may have almost no time left.
#[tokio::test]
async fn an_error_contains_the_last_reply_if_the_last_attempt_is_cut_short() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let response_timeout = Duration::from_secs(3);
    let builder = SemaphoreClient::builder().response_timeout(response_timeout);
    let client = builder.connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("not_ready").limit(1).build().unwrap();
    let script = EndlessScript::start(&server).await;
    let try_acquire = async || semaphore.try_acquire().await.unwrap_err();
    let inspect = async || semaphore.inspect().await.unwrap_err();
    for call in [try_acquire().boxed_local(), inspect().boxed_local()] {
        let attempt = async || {
            let before = proxy.passed_requests();
            let passed = async || proxy.passed_requests();
            eventually("an attempt", passed, |passed| *passed > before).await;
        };
        let silence = async {
            attempt().await;
            // After one response timeout, a further attempt has less than a full response timeout.
            let begun = Instant::now();
            eventually("later", async || begun.elapsed(), |past| *past > response_timeout).await;
            attempt().await;
            proxy.replies(Flow::Hold);
        };
        let (error, ()) = tokio::join!(call, silence);
        assert!(error.to_string().contains("BUSY"), "{error}");
        proxy.replies(Flow::Pass);
    }
    script.kill();
}

#[tokio::test]
async fn connecting_reports_that_the_connection_limit_is_reached() {
    let server = Server::start();
    let set = ["SET", "maxclients", "1"];
    let mut admin = server.connect();
    redis::cmd("CONFIG").arg(&set).exec(&mut admin).unwrap();
    let refused = refusal(&server.url()).await;
    let words = ["its maximum number of connections", "raise maxclients"];
    assert_says(&refused, ConnectErrorKind::NotReady, &words);
    assert!(refused.is_transient());
}

/// A server that restarts needs time to load its data.
#[tokio::test]
async fn calls_and_connecting_wait_until_the_server_has_loaded_its_data() {
    // While a server loads data, it replies to clients only once per 2 MB. The test therefore
    // stores many values of 2 MB.
    let slow = ["--key-load-delay", "300000", "--rdbcompression", "no"];
    let mut server = Server::start_with(&slow);
    for key in 0..40 {
        let value = vec![b'v'; 2_100_000];
        redis::cmd("SET").arg(key).arg(value).exec(&mut server.connect()).unwrap();
    }
    let build = |client: &SemaphoreClient| client.semaphore("slow").limit(1).build().unwrap();
    // A call is retried for twice the response timeout.
    let before = SemaphoreClient::builder().response_timeout(Duration::from_secs(60));
    let before = before.connect(&server.url()).await.unwrap();
    let semaphore = build(&before);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    redis::cmd("SAVE").exec(&mut server.connect()).unwrap();
    server.kill();
    server.start_again();
    let refused = refusal(&server.url()).await;
    let words = ["the server is loading its data (LOADING): retry"];
    assert_says(&refused, ConnectErrorKind::NotReady, &words);
    assert!(refused.is_transient());
    // A call and a new client both wait until the data are loaded.
    let patient = SemaphoreClient::builder().connect_timeout(Duration::from_secs(600));
    let url = server.url();
    let call = tokio::spawn(async move { semaphore.try_acquire().await });
    let connecting = tokio::spawn(async move { patient.connect(&url).await });
    let mut admin = server.connect();
    let rejected = async || -> usize {
        let info: String = redis::cmd("INFO").arg("errorstats").query(&mut admin).unwrap();
        let count = info.lines().find_map(|line| line.strip_prefix("errorstat_LOADING:count="));
        count.map_or(0, |count| count.trim().parse().unwrap())
    };
    eventually("attempts of both", rejected, |count| *count > 10).await;
    assert!(!call.is_finished() && !connecting.is_finished());
    // Redis 6.2 rejects CONFIG SET while it loads.
    if !server.is_older_than_7() {
        redis::cmd("CONFIG").arg(&["SET", "key-load-delay", "0"]).exec(&mut admin).unwrap();
    }
    let permit = in_time("the call", call).await.unwrap().unwrap().expect("no permit is held");
    permit.release().await.unwrap();
    let after = in_time("the client", connecting).await.unwrap().unwrap();
    build(&after).acquire().await.unwrap().release().await.unwrap();
}
