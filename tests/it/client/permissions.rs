//! Tests that the user of `docs/production.md` has all rights that are needed, and no other rights.
//! Most other tests connect as this user.

use std::time::Duration;

use redis::{Connection, FromRedisValue, RedisError};
use redis_semaphore::{ConnectErrorKind, Error, Semaphore, SemaphoreClient};

use test_support::acl;
use test_support::cluster::Cluster;
use test_support::errors::whole;
use test_support::observer::{Observer, in_time};
use test_support::scripts::{Scripts, id, words};
use test_support::server::{Server, connect};

/// Returns each rule that grants a right to commands, keys or channels.
fn rights(rules: &[String]) -> Vec<&str> {
    let is_right = |rule: &&str| rule.starts_with(['+', '~', '&']);
    let rights: Vec<&str> = rules.iter().map(String::as_str).filter(is_right).collect();
    for kind in ['+', '~', '&'] {
        assert!(rights.iter().any(|right| right.starts_with(kind)), "no {kind}: {rights:?}");
    }
    rights
}

#[tokio::test]
async fn connecting_names_the_right_that_the_user_lacks() {
    let mut server = Server::start();
    let rules = acl::documented_rules();
    for lacking in rights(rules) {
        server.set_user(&acl::without(rules, lacking));
        match SemaphoreClient::connect(&server.url()).await {
            Err(Error::Connect { right: Some(right), kind, .. }) => {
                assert_eq!((right.as_str(), kind), (lacking, ConnectErrorKind::Permission));
            }
            other => panic!("without {lacking}: {other:?}"),
        }
    }
    server.set_user(rules);
    SemaphoreClient::connect(&server.url()).await.unwrap();
}

/// From Redis 7.2 on, a permission error in a script contains the user's name.
#[tokio::test]
async fn a_missing_right_is_reported_for_a_user_named_readonly() {
    let server = Server::start();
    let rules = acl::without(acl::documented_rules(), "+zadd");
    acl::set_user(&mut server.connect(), "readonly", &rules);
    match SemaphoreClient::connect(&server.url_of("readonly")).await {
        Err(Error::Connect { right, kind, .. }) => {
            assert_eq!((right.as_deref(), kind), (Some("+zadd"), ConnectErrorKind::Permission));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn connecting_to_a_cluster_names_the_right_that_the_user_lacks() {
    let Some(mut cluster) = Cluster::start(1, false).await else { return };
    let node = &mut cluster.nodes[0];
    let rules = acl::cluster_rules();
    for lacking in rights(rules) {
        node.set_user(&acl::without(rules, lacking));
        match SemaphoreClient::builder().connect_cluster([node.url()]).await {
            Err(Error::Connect { right: Some(right), kind, .. }) => {
                assert_eq!((right.as_str(), kind), (lacking, ConnectErrorKind::Permission));
            }
            other => panic!("without {lacking}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn connect_primary_of_requires_role_and_acknowledged_by_requires_wait() {
    let server = Server::start();
    let connect = async || SemaphoreClient::builder().connect_primary_of([server.url()]).await;
    match connect().await {
        Err(Error::Connect { right: Some(right), .. }) => assert_eq!(right, "+role"),
        other => panic!("{other:?}"),
    }
    server.grant("+role");
    let client = connect().await.unwrap();
    let within = Duration::from_millis(1);
    let semaphore = client.semaphore(NAME).limit(1).acknowledged_by(1, within).build().unwrap();
    let refused = semaphore.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Rejected { .. }), "{refused}");
    assert!(whole(&refused).contains("wait"), "{refused}");
    server.grant("+wait");
    let refused = semaphore.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::NotAcknowledged { replicas: 0, .. }), "{refused}");
}

/// Two applications on one server, each with its own prefix and user.
struct Tenants {
    server: Server,
    /// A semaphore of the user "theirs": limit 1, one holder and one waiter.
    semaphore: Semaphore,
    holder: redis_semaphore::Permit,
    waiter: tokio::task::JoinHandle<Result<redis_semaphore::Permit, Error>>,
    observer: Observer,
    /// A connection of the other user, which acts as an attacker.
    intruder: Connection,
}

const NAME: &str = "printer";

fn rules_for(prefix: &str) -> Vec<String> {
    let rules = acl::documented_rules().iter();
    rules
        .map(|rule| {
            rule.replace("~sem:", &format!("~{prefix}:")).replace("&sem:", &format!("&{prefix}:"))
        })
        .collect()
}

async fn semaphore_of(server: &Server, user: &str, prefix: &str) -> Result<Semaphore, Error> {
    let client = SemaphoreClient::builder().prefix(prefix).connect(&server.url_of(user)).await?;
    client.semaphore(NAME).limit(1).build()
}

impl Tenants {
    async fn start() -> Self {
        let server = Server::start();
        for tenant in ["theirs", "ours"] {
            acl::set_user(&mut server.connect(), tenant, &rules_for(tenant));
        }
        let semaphore = semaphore_of(&server, "theirs", "theirs").await.unwrap();
        let holder = semaphore.acquire().await.unwrap();
        let waiter = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().await }
        });
        let observer = Observer::of(semaphore_of(&server, "theirs", "theirs").await.unwrap());
        observer.sees(1, 1).await;
        let intruder = connect(&server.url_of("ours"));
        Self { server, semaphore, holder, waiter, observer, intruder }
    }

    /// Returns the channels of the waiting process and of the observer.
    fn channels(&self) -> Vec<String> {
        let mut list = redis::cmd("PUBSUB");
        list.arg("CHANNELS").arg("theirs:wake:*").query(&mut self.server.connect()).unwrap()
    }

    fn try_command<T: FromRedisValue>(&mut self, words: &[&str]) -> Result<T, RedisError> {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.intruder)
    }

    /// Checks that the attacker has acquired, released and published nothing, and that the handoff
    /// still works.
    async fn are_unharmed(self) {
        let now = self.observer.look().await;
        assert_eq!((now.held, now.queued, now.limit), (1, 1, 1));
        assert_eq!(now.holders[0].id, self.holder.id());
        assert!(!self.waiter.is_finished());
        self.holder.release().await.unwrap();
        let next = in_time("its turn", self.waiter).await.unwrap().unwrap();
        next.release().await.unwrap();
        assert_eq!(self.semaphore.inspect().await.unwrap().held, 0);
    }
}

fn assert_refused<T: std::fmt::Debug>(what: &str, response: Result<T, RedisError>) {
    let refused = response.expect_err(what).to_string();
    let reasons =
        ["permissions", "can't run this command", "can't access", "can't publish", "ACL failure"];
    assert!(reasons.iter().any(|reason| refused.contains(reason)), "{what}: {refused}");
}

#[tokio::test]
async fn tenants_with_equal_semaphore_names_do_not_affect_each_other() {
    let tenants = Tenants::start().await;
    let ours = semaphore_of(&tenants.server, "ours", "ours").await.unwrap();
    let permit = ours.try_acquire().await.unwrap().expect("there is room in ours");
    let now = ours.inspect().await.unwrap();
    assert_eq!((now.held, now.queued), (1, 0));
    permit.release().await.unwrap();
    tenants.are_unharmed().await;
}

#[tokio::test]
async fn connecting_with_another_tenants_prefix_names_the_missing_key_right() {
    let tenants = Tenants::start().await;
    match semaphore_of(&tenants.server, "ours", "theirs").await {
        Err(Error::Connect { right: Some(right), .. }) => assert_eq!(right, "~theirs:{*"),
        other => panic!("{other:?}"),
    }
    tenants.are_unharmed().await;
}

#[tokio::test]
async fn no_script_runs_on_the_keys_of_another_tenant() {
    let mut tenants = Tenants::start().await;
    let held = tenants.holder.id().to_owned();
    let mut scripts = Scripts::new(connect(&tenants.server.url_of("ours")), NAME);
    let keys: Vec<_> = scripts.keys.iter().map(|key| key.replacen("sem", "theirs", 1)).collect();
    for (script, arguments) in [
        ("acquire", format!("declare_if_unset 9 1000 {} try", id("N", "x", 1, 1000, "new"))),
        ("release", format!("return {held}")),
        ("refresh", format!("{held} 1")),
        ("wake", String::new()),
        ("limit", format!("existing 0 set 9 {}", id("N", "x", 0, 1000, "mark"))),
        ("inspect", "0 10 0 10".to_owned()),
        ("probe", "N x".to_owned()),
    ] {
        assert_refused(script, scripts.call_with(script, &keys, &words(&arguments)));
    }
    // If a script uses a key that it does not declare, the server checks that key, too.
    for call in ["'ZREM', K, 'x'", "'HSET', K, 'runtime', '9'", "'ZRANGE', K, 0, 9", "'UNLINK', K"]
    {
        let script = format!("local K = 'theirs:{{{NAME}}}:permits' return redis.call({call})");
        assert_refused(call, tenants.try_command::<redis::Value>(&["EVAL", &script, "0"]));
    }
    tenants.are_unharmed().await;
}

#[tokio::test]
async fn a_tenant_cannot_publish_or_subscribe_to_channels_of_another_tenant() {
    let mut tenants = Tenants::start().await;
    let channels = tenants.channels();
    assert_eq!(channels.len(), 2, "{channels:?}");
    let mut connections = channels.iter().map(|_| tenants.server.connect()).collect::<Vec<_>>();
    let mut listeners: Vec<_> = connections.iter_mut().map(Connection::as_pubsub).collect();
    for (channel, listener) in channels.iter().zip(&mut listeners) {
        listener.subscribe(channel).unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    let waiter = tenants.observer.look().await.waiters[0].id.clone();
    let grant = format!("{NAME}\n{waiter} 9000000000000000 9000000000000");
    for channel in &channels {
        assert_refused("PUBLISH", tenants.try_command::<i64>(&["PUBLISH", channel, &grant]));
        assert_refused("SUBSCRIBE", tenants.try_command::<()>(&["SUBSCRIBE", channel]));
        let script = "return redis.call('PUBLISH', ARGV[1], ARGV[2])";
        let eval = tenants.try_command::<i64>(&["EVAL", script, "0", channel, &grant]);
        assert_refused("PUBLISH in a script", eval);
    }
    assert_refused("PUBSUB CHANNELS", tenants.try_command::<redis::Value>(&["PUBSUB", "CHANNELS"]));
    assert_refused("PSUBSCRIBE", tenants.try_command::<()>(&["PSUBSCRIBE", "*"]));
    // The attacker grants a permit of its own semaphore to another tenant's ID. The name of the
    // message's channel consists of the attacker's prefix and the client of the ID.
    let mut own = connect(&tenants.server.url_of("ours"));
    let mut own = own.as_pubsub();
    for channel in &channels {
        own.subscribe(channel.replacen("theirs", "ours", 1)).unwrap();
    }
    own.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut scripts = Scripts::new(connect(&tenants.server.url_of("ours")), NAME);
    scripts.keys.iter_mut().for_each(|key| *key = key.replacen("sem", "ours", 1));
    let first = id("N", "x", 1, 60_000, "first");
    scripts.ok("acquire", &format!("declare_if_unset 1 60000 {first} try"));
    scripts.ok("acquire", &format!("declare_if_unset 1 60000 {waiter} wait"));
    scripts.ok("release", &format!("return {first}"));
    let message: String = own.get_message().unwrap().get_payload().unwrap();
    assert!(message.starts_with(&format!("{NAME}\n{waiter} ")), "{message}");
    let mut admin = tenants.server.connect();
    for (channel, listener) in channels.iter().zip(&mut listeners) {
        redis::cmd("PUBLISH").arg(channel).arg("the first message").exec(&mut admin).unwrap();
        let message: String = listener.get_message().unwrap().get_payload().unwrap();
        assert_eq!(message, "the first message");
    }
    tenants.are_unharmed().await;
}

#[tokio::test]
async fn the_documented_user_cannot_access_other_data_or_administer_the_server() {
    let mut tenants = Tenants::start().await;
    for command in [
        "GET theirs",
        "SET ours:{x} y",
        "KEYS *",
        "SCAN 0",
        "FLUSHALL",
        "CONFIG GET save",
        "INFO",
        "CLIENT LIST",
        "SCRIPT FLUSH",
        "SCRIPT KILL",
        "ACL LIST",
        "SHUTDOWN",
        "MONITOR",
        "DBSIZE",
    ] {
        assert_refused(
            command,
            tenants.try_command::<redis::Value>(&command.split(' ').collect::<Vec<_>>()),
        );
    }
    tenants.are_unharmed().await;
}
