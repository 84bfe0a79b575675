//! Tests of passwords that come from a provider and that change while the program runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use redis::Connection;
use redis_semaphore::{
    ConnectErrorKind, Credentials, Error, Semaphore, SemaphoreClient, SemaphoreClientBuilder,
};

use test_support::acl;
use test_support::cluster::Cluster;
use test_support::errors::{kind_of, whole};
use test_support::observer::{Observer, eventually, in_time};
use test_support::replicated::{Pair, Sentinels};
use test_support::server::{Server, unique_name};

const NEW: &str = "another-secret";

#[derive(Clone, Copy)]
enum Says {
    Password(&'static str),
    Failure,
    Nothing,
    Panics,
}

struct Vault {
    says: Mutex<Says>,
    asked: AtomicUsize,
}

impl Vault {
    fn that_says(says: Says) -> Arc<Self> {
        Arc::new(Self { says: Mutex::new(says), asked: AtomicUsize::new(0) })
    }

    fn say(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    fn ask(&self) -> BoxFuture<'static, Result<Credentials, String>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let says = *self.says.lock().unwrap();
        async move {
            match says {
                Says::Password(password) => Ok(Credentials::new(password).username(acl::USER)),
                Says::Failure => Err("the vault\n\r is closed".to_owned()),
                Says::Nothing => pending().await,
                Says::Panics => panic!("the vault has collapsed, which is part of a test"),
            }
        }
        .boxed()
    }

    async fn is_asked_again(&self) {
        let before = self.asked.load(Ordering::SeqCst);
        let asked = async || self.asked.load(Ordering::SeqCst);
        eventually("it is asked again", asked, |asked| *asked > before + 3).await;
    }
}

fn builder(vault: &Arc<Vault>) -> SemaphoreClientBuilder {
    let vault = vault.clone();
    // With this heartbeat timeout, no heartbeat reveals the change.
    let builder = SemaphoreClient::builder().heartbeat_timeout(Duration::from_secs(3600));
    builder.credentials_provider(move || vault.ask())
}

/// The user cannot log in without a password, so every connection must call the provider.
fn url(server: &Server) -> String {
    format!("redis://{}@127.0.0.1:{}/", acl::USER, server.port)
}

/// Changes the password and closes all connections. New connections need the new password.
fn change_password(server: &Server, vault: &Vault) {
    let mut admin: Connection = server.connect();
    let mut set = redis::cmd("ACL");
    set.arg("SETUSER").arg(acl::USER).arg("resetpass").arg(format!(">{NEW}"));
    set.exec(&mut admin).unwrap();
    vault.say(Says::Password(NEW));
    let killed: i64 =
        redis::cmd("CLIENT").arg(&["KILL", "USER", acl::USER]).query(&mut admin).unwrap();
    assert!(killed >= 2, "the connections for commands and for messages");
}

fn channels(server: &Server, list: &str) -> Vec<String> {
    let mut channels = redis::cmd("PUBSUB");
    channels.arg(list).arg("sem:*wake:*").query(&mut server.connect()).unwrap()
}

/// Checks that a waiter is notified by a message.
async fn hands_off(semaphore: &Semaphore, observer: &Observer) {
    let held = in_time("a permit", semaphore.acquire()).await.unwrap();
    let waits = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    observer.sees(1, 1).await;
    held.release().await.unwrap();
    in_time("its turn", waits).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_client_reconnects_with_a_changed_password_at_a_server() {
    let server = Server::start();
    server.grant("+wait");
    let vault = Vault::that_says(Says::Password(acl::PASSWORD));
    let client = builder(&vault).connect(&url(&server)).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let wanted = client.semaphore(unique_name()).limit(1);
    let wanted = wanted.acknowledged_by(1, Duration::from_millis(1)).build().unwrap();
    let observer = SemaphoreClient::connect(&server.admin_url()).await.unwrap();
    let observer = observer.semaphore(semaphore.name()).limit(1).build().unwrap();
    let observer = Observer::of(observer);
    hands_off(&semaphore, &observer).await;
    let refused = wanted.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::NotAcknowledged { .. }), "{refused}");
    let before = channels(&server, "CHANNELS");

    change_password(&server, &vault);
    let received = async || channels(&server, "CHANNELS");
    eventually("new subscriptions", received, |received| received.len() == before.len()).await;
    hands_off(&semaphore, &observer).await;
    let refused = in_time("a reply", wanted.acquire()).await.unwrap_err();
    assert!(matches!(refused, Error::NotAcknowledged { .. }), "{refused}");
    let diagnosis = in_time("a diagnosis", client.doctor()).await.unwrap().to_string();
    assert!(diagnosis.contains(&format!("ACL SETUSER {} +info", acl::USER)), "{diagnosis}");
}

#[tokio::test]
async fn a_provider_without_a_user_name_logs_in_the_default_user() {
    let server = Server::start();
    let set = ["SET", "requirepass", NEW];
    redis::cmd("CONFIG").arg(&set).exec(&mut server.connect()).unwrap();
    let builder = SemaphoreClient::builder();
    let builder = builder.credentials_provider(async || Ok::<_, String>(Credentials::new(NEW)));
    let client = in_time("a connection", builder.connect(&server.admin_url())).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    in_time("a permit", semaphore.acquire()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_client_reconnects_with_a_changed_password_in_a_cluster() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    let vault = Vault::that_says(Says::Password(acl::PASSWORD));
    let admin_urls: Vec<_> = cluster.nodes.iter().map(Server::admin_url).collect();
    let client = builder(&vault).connect_cluster(cluster.nodes.iter().map(url)).await.unwrap();
    let observers = SemaphoreClient::builder().connect_cluster(admin_urls).await.unwrap();
    let mut all = Vec::new();
    for node in 0..2 {
        let name = cluster.name_at(node);
        let semaphore = client.semaphore(&*name).limit(1).build().unwrap();
        let observer = observers.semaphore(&*name).limit(1).build().unwrap();
        let observer = Observer::of(observer);
        hands_off(&semaphore, &observer).await;
        all.push((semaphore, observer));
    }
    for (node, (semaphore, observer)) in cluster.nodes.iter().zip(&all) {
        let before = channels(node, "SHARDCHANNELS");
        change_password(node, &vault);
        let received = async || channels(node, "SHARDCHANNELS");
        eventually("new subscriptions", received, |received| received.len() == before.len()).await;
        hands_off(semaphore, observer).await;
    }
}

/// The provider is only for the primary. The sentinels' credentials are in their own URLs.
#[tokio::test]
async fn the_credentials_provider_is_not_used_for_sentinels() {
    let pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    let vault = Vault::that_says(Says::Password(acl::PASSWORD));
    let client = builder(&vault).connect_sentinel(sentinels.client()).await.unwrap();
    assert_eq!(vault.asked.load(Ordering::SeqCst), 2, "for commands, and for messages");
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    in_time("a permit", semaphore.acquire()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn connecting_reports_a_failing_credentials_provider() {
    let server = Server::start();
    let Some(cluster) = Cluster::start(1, false).await else { return };
    for (says, word) in [
        (Says::Failure, "the vault is closed"),
        (Says::Nothing, "no reply within 450 ms"),
        (Says::Panics, "it panicked"),
    ] {
        let vault = Vault::that_says(says);
        let builder = || builder(&vault).response_timeout(Duration::from_millis(500));
        let (url, nodes) = (url(&server), cluster.nodes.iter().map(url));
        let tried = [
            in_time("a reply", builder().connect(&url)).await,
            in_time("a reply", builder().connect_primary_of([&*url])).await,
            in_time("a reply", builder().connect_cluster(nodes)).await,
        ];
        for refused in tried {
            let refused = refused.unwrap_err();
            assert_eq!(kind_of(&refused), Some(ConnectErrorKind::Authentication), "{refused}");
            let text = whole(&refused);
            assert!(text.contains(&format!("the credentials provider failed: {word}")), "{text}");
            assert!(!text.contains(acl::PASSWORD), "{text}");
        }
    }
}

#[tokio::test]
async fn calls_go_on_when_the_provider_works_again() {
    calls_go_on("").await;
}

/// With RESP3, the server rejects a password with a different text. In a cluster, the client always
/// uses RESP3.
#[tokio::test]
async fn calls_go_on_with_resp3_when_the_provider_works_again() {
    calls_go_on("?protocol=resp3").await;
}

async fn calls_go_on(query: &str) {
    let server = Server::start();
    let vault = Vault::that_says(Says::Password(acl::PASSWORD));
    let builder = builder(&vault).response_timeout(Duration::from_millis(500));
    let client = builder.connect(&(url(&server) + query)).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let observer = SemaphoreClient::connect(&server.admin_url()).await.unwrap();
    let observer = observer.semaphore(semaphore.name()).limit(1).build().unwrap();
    let observer = Observer::of(observer);
    hands_off(&semaphore, &observer).await;
    let before = channels(&server, "CHANNELS");
    for says in [Says::Failure, Says::Password("a-wrong-one"), Says::Nothing, Says::Panics] {
        vault.say(says);
        let mut kill = redis::cmd("CLIENT");
        kill.arg(&["KILL", "USER", acl::USER]).exec(&mut server.connect()).unwrap();
        let failed = semaphore.try_acquire().await.unwrap_err();
        assert!(matches!(failed, Error::Unavailable { .. }), "{failed}");
        let text = whole(&failed);
        assert!(!matches!(says, Says::Failure) || text.contains("credentials provider"), "{text}");
        assert!(!matches!(says, Says::Failure) || !text.contains("no reply"), "{text}");
        assert!(!text.contains("a-wrong-one"), "{text}");
        let goes_on = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().await }
        });
        vault.is_asked_again().await;
        vault.say(Says::Password(acl::PASSWORD));
        in_time("a permit", goes_on).await.unwrap().unwrap().release().await.unwrap();
        let received = async || channels(&server, "CHANNELS");
        eventually("new subscriptions", received, |received| received.len() == before.len()).await;
        hands_off(&semaphore, &observer).await;
    }
}
