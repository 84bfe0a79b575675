//! Tests that grant messages report only grants that have been made.

mod refused;
mod unwanted;

use std::time::Duration;

use redis_semaphore::SemaphoreClient;

use test_support::observer::{Observer, eventually, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, unique_name};

/// A grant message arrives after its permit was lost, and after a "queued" reply. The client must
/// not treat the message as a new grant.
#[tokio::test]
async fn an_old_message_is_not_a_new_grant() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let observer = Observer::new(&server.url(), "old", 1).await;
    let direct = SemaphoreClient::connect(&server.url()).await.unwrap();
    let other = direct.semaphore("old").limit(1).build().unwrap();
    let holder = other.acquire().await.unwrap();
    let heartbeat_timeout = Duration::from_secs(3);
    let client = SemaphoreClient::builder()
        .heartbeat_timeout(heartbeat_timeout)
        .connect(&proxy.url())
        .await
        .unwrap();
    let lease = Duration::from_millis(400);
    let semaphore = client.semaphore("old").limit(1).lease(lease).build().unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    let before = observer.sees(1, 1).await.last_token;

    // The request is granted and its permit expires, while the client receives neither messages nor
    // replies.
    proxy.messages(Flow::Hold);
    proxy.requests(Flow::Hold);
    holder.release().await.unwrap();
    assert!(observer.look().await.last_token > before, "the request was not granted");
    let next = in_time("the other client's turn", other.acquire()).await.unwrap();
    // The client sends its request again and is queued. After that, the old message arrives.
    proxy.requests(Flow::Pass);
    observer.sees(1, 1).await;
    proxy.messages(Flow::Pass);
    // After two more heartbeats, the client still does not consider itself a holder.
    let mut connection = server.connect();
    let mut received = async || -> Vec<String> {
        let clients = ["sem:{old}:clients", "0", "-1", "WITHSCORES"];
        redis::cmd("ZRANGE").arg(&clients).query(&mut connection).unwrap()
    };
    for _ in 0..2 {
        let before = received().await;
        eventually("a heartbeat", &mut received, |received| *received != before).await;
    }
    assert!(!waiting.is_finished(), "it considers itself the holder beside {}", next.id());
    next.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// A pong is too late, and the client cannot open a new connection.
#[tokio::test]
async fn an_abandoned_connection_delivers_messages_until_it_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let observer = Observer::new(&server.url(), "given-up", 1).await;
    let direct = SemaphoreClient::connect(&server.url()).await.unwrap();
    let holder = direct.semaphore("given-up").limit(1).build().unwrap().acquire().await.unwrap();
    let builder = SemaphoreClient::builder().heartbeat_timeout(Duration::from_secs(3));
    let builder = builder.response_timeout(Duration::from_millis(300));
    let client = builder.connect(&proxy.url()).await.unwrap();
    // Less than a sixth of the lease passes before the message arrives, so the permit need not be
    // refreshed.
    let lease = Duration::from_secs(300);
    let semaphore = client.semaphore("given-up").limit(1).lease(lease).build().unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    observer.sees(1, 1).await;
    proxy.refuse_connections(true);
    proxy.commands(Flow::Hold);
    proxy.messages(Flow::Hold);
    holder.release().await.unwrap();
    let refused = async || proxy.refused();
    eventually("both have tried to connect", refused, |refused| *refused >= 10).await;
    proxy.messages(Flow::Pass);
    let permit = in_time("its turn", waiting).await.unwrap().unwrap();
    proxy.refuse_connections(false);
    proxy.commands(Flow::Pass);
    observer.sees(1, 0).await;
    permit.release().await.unwrap();
}

/// The server rejects the first write of the granting script, so the script must not notify any
/// client. The waiter stays in the queue, because the replicas may return soon.
#[tokio::test]
async fn a_rejected_limit_change_grants_no_permit_and_ends_no_wait() {
    let server = Server::start();
    let mut admin = server.connect();
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_millis(500));
    let client = builder.connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("refused").limit(1).build().unwrap();
    let observer = Observer::new(&server.url(), "refused", 1).await;
    let holder = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    observer.sees(1, 1).await;
    let replicas = |number: u32| ["min-replicas-to-write".to_owned(), number.to_string()];
    redis::cmd("CONFIG").arg("SET").arg(&replicas(1)).exec(&mut admin).unwrap();
    let refused = semaphore.set_limit(2).await.unwrap_err();
    assert!(refused.is_transient() && refused.to_string().contains("NOREPLICAS"), "{refused}");
    let now = observer.sees(1, 1).await;
    assert_eq!((now.limit, now.runtime_limit), (1, None));
    // A client that subscribes again sends its waiting requests again.
    let asked = server.calls("evalsha");
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).exec(&mut admin).unwrap();
    let calls = async || server.calls("evalsha");
    eventually("it is asked again, and again", calls, |calls| *calls > asked + 2).await;
    redis::cmd("CONFIG").arg("SET").arg(&replicas(0)).exec(&mut admin).unwrap();
    assert!(!waiting.is_finished());
    holder.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// A subscriber that stayed on the old primary receives the messages of the new primary. The new
/// primary does not count this subscriber. The subscriber must not get a false message.
#[tokio::test]
async fn a_subscriber_of_a_replica_receives_no_false_grant_message() {
    let primary = Server::start();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let name = unique_name();
    let on_primary = SemaphoreClient::connect(&primary.url()).await.unwrap();
    let semaphore = on_primary.semaphore(&name).limit(1).build().unwrap();
    let holder = semaphore.acquire().await.unwrap();
    let (permits, channel) = (format!("sem:{{{name}}}:permits"), "sem:wake:left-behind");
    // A client in another language subscribes at the replica.
    let mut listener = replica.connect();
    let subscribe = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
    listener.send_packed_command(&subscribe).unwrap();
    listener.recv_response().unwrap();
    let mut scripts = test_support::scripts::Scripts::new(primary.connect(), &name);
    let stranger = test_support::scripts::id("P", "left-behind", 1, 30_000, "stranger");
    let reply = scripts.ok("acquire", &format!("declare_if_unset 1 10000 {stranger} wait"));
    assert_eq!(reply[3], 2, "queued");
    holder.release().await.unwrap();
    // A message published now arrives after all earlier messages.
    let publish = |text: &str| {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg(text).exec(&mut primary.connect()).unwrap();
    };
    let synced = async || {
        let mut exists = redis::cmd("EXISTS");
        let exists = exists.arg(permits.replace("permits", "state"));
        exists.query::<i64>(&mut replica.connect()).ok()
    };
    eventually("the replica follows", synced, |exists| *exists == Some(1)).await;
    publish("end of test");
    let reply = listener.recv_response().unwrap();
    let (_, _, text): (String, String, String) = redis::from_redis_value(reply).unwrap();
    assert_eq!(text, "end of test");
    assert!(semaphore.try_acquire().await.unwrap().is_some());
}
