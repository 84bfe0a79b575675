//! Tests a host name that can no longer be resolved. The client runs in a separate process.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use redis_semaphore::{Error, SemaphoreClient};

use test_support::child::{self, Process, say};
use test_support::observer::Observer;
use test_support::preload::build_library;
use test_support::proxy::Proxy;
use test_support::server::Server;

#[tokio::test]
async fn a_wait_survives_a_host_name_that_stops_resolving_for_a_while() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let direct = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = direct.semaphore("named").limit(1).build().unwrap();
    let holder = semaphore.acquire().await.unwrap();
    let observer = Observer::new(&server.url(), "named", 1).await;

    let name = Name::unknown();
    let mut client = start_client(&name, proxy.port());
    let said = client.next().await.unwrap();
    assert!(said.contains("the host name cannot be resolved"), "{said}");
    name.make_known();
    let mut client = start_client(&name, proxy.port());
    assert_eq!(client.next().await.unwrap(), "connected");
    observer.sees(1, 1).await;

    name.forget();
    proxy.cut_all();
    client.report("look");
    let said = client.next().await.unwrap();
    assert!(said.contains("the host name cannot be resolved"), "{said}");
    name.make_known();
    holder.release().await.unwrap();
    assert_eq!(client.next().await.unwrap(), "granted");
    client.report("look");
    assert_eq!(client.next().await.unwrap(), "1 held");
}

/// This is not a test, but the code of the other process. Without a URL, this function does
/// nothing.
#[tokio::test]
async fn a_process_that_connects_to_a_host_name() {
    let Some(url) = child::role() else { return };
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(2));
    let client = match builder.connect(&url).await {
        Ok(client) => client,
        Err(error) => return say(&error.to_string()),
    };
    say("connected");
    let semaphore = client.semaphore("named").limit(1).build().unwrap();
    let waiter = semaphore.clone();
    let waiting = tokio::spawn(async move {
        let permit = waiter.acquire().await;
        say(permit.as_ref().map_or("refused", |_| "granted"));
        permit
    });
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            // The test may have ended.
            let _ = sender.send(line);
        }
    });
    while lines.recv().await.is_some() {
        match semaphore.inspect().await {
            Ok(now) => say(&format!("{} held", now.held)),
            Err(error @ Error::Unavailable { .. }) => say(&error.to_string()),
            Err(error) => panic!("{error}"),
        }
    }
    waiting.abort();
}

/// Starts a client that connects to this host name, with `names.c` between the client and the
/// system's resolver.
fn start_client(name: &Name, port: u16) -> Process {
    let library = build_library("tests/it/server/outages/names.c");
    let environment = [("LD_PRELOAD", library.as_os_str()), ("TEST_NAME", name.0.as_os_str())];
    let url = format!("redis://redis.test:{port}/");
    Process::start_with(
        "server::outages::names::a_process_that_connects_to_a_host_name",
        &url,
        &environment,
    )
}

/// A host name that the resolver knows while this file exists.
struct Name(PathBuf);

impl Name {
    fn unknown() -> Self {
        Self(std::env::temp_dir().join(format!("redis-semaphore-{}", uuid::Uuid::new_v4())))
    }

    fn make_known(&self) {
        File::create(&self.0).unwrap();
    }

    fn forget(&self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // The file may not exist.
        let _ = std::fs::remove_file(&self.0);
    }
}
