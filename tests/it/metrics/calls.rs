//! The metrics of calls, of the requests that share a call, and of connections.

use redis_semaphore::SemaphoreClient;
use tokio::task::JoinSet;

use super::counted::Counted;
use test_support::observer::{eventually, in_time};
use test_support::proxy::Proxy;
use test_support::server::{Server, shared_url, unique_name};

const REQUESTS: u32 = 200;

#[tokio::test]
async fn the_batch_sizes_add_up_to_the_number_of_requests() {
    let counted = Counted::here();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(REQUESTS).build().unwrap();
    let mut acquires = JoinSet::new();
    for _ in 0..REQUESTS {
        acquires.spawn(semaphore.request().acquire());
    }
    let permits = in_time("the permits", acquires.join_all()).await;
    let acquire = [("script", "acquire")];
    let calls = counted.get("batch_size_count", &acquire);
    assert_eq!(counted.get("batch_size_sum", &acquire), f64::from(REQUESTS));
    assert!((1.0..f64::from(REQUESTS / 2)).contains(&calls), "{calls}");
    let answered = [("script", "acquire"), ("outcome", "succeeded")];
    assert_eq!(counted.get("call_seconds_count", &answered), calls);
    let took = counted.get("call_seconds_sum", &answered);
    assert!(took > 0.0 && took < 20.0, "{took}");
    for permit in permits {
        permit.unwrap().release().await.unwrap();
    }
    assert_eq!(counted.get("batch_size_sum", &[("script", "release")]), f64::from(REQUESTS));
    semaphore.inspect().await.unwrap();
    let looked = [("script", "inspect"), ("outcome", "succeeded")];
    assert_eq!(counted.get("call_seconds_count", &looked), 1.0);
}

#[tokio::test]
async fn a_failed_call_counts_as_failed() {
    let counted = Counted::here();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    semaphore.acquire_many(2).await.unwrap_err();
    let calls =
        |outcome| counted.get("call_seconds_count", &[("script", "acquire"), ("outcome", outcome)]);
    assert_eq!((calls("failed"), calls("succeeded")), (1.0, 0.0));
}

#[tokio::test]
async fn reconnects_are_counted_for_each_connection() {
    let server = Server::start();
    let (counted, proxy) = (Counted::here(), Proxy::start(server.port).await);
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("cut").limit(1).build().unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let reconnects = || {
        ["commands", "messages"].map(|it| counted.get("reconnects_total", &[("connection", it)]))
    };
    assert!(counted.text().contains("reconnects_total{connection=\"commands\"} 0"));
    assert_eq!(reconnects(), [0.0, 0.0]);
    eventually("both connections", async || proxy.open(), |open| *open == [1, 1]).await;
    proxy.cut_wakeups();
    eventually("listens again", async || reconnects(), |now| *now == [0.0, 1.0]).await;
    // The connection for messages is replaced together with the connection for commands.
    proxy.cut_commands();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    eventually("both replaced", async || reconnects(), |now| *now == [1.0, 2.0]).await;
}
