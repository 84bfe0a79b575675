//! Tests of every form of a server's URL. No part of a URL is ignored, and no secret in a URL is
//! shown.

use proptest::prelude::*;
use redis_semaphore::redis::{Client, ConnectionInfo, ProtocolVersion};
use redis_semaphore::{ConnectErrorKind, Credentials, Error, IntoServer, SemaphoreClient};

use test_support::acl;
use test_support::cluster::Cluster;
use test_support::errors::{kind_of, whole};
use test_support::observer::in_time;
use test_support::server::{Server, unique_name};

/// Returns address, user, password and database, and `3` if the URL selects RESP3.
fn read(url: &str) -> String {
    let info: ConnectionInfo = url.into_server().unwrap_or_else(|error| panic!("{url}: {error}"));
    let its = info.redis_settings();
    let user = format!("{}:{}", its.username().unwrap_or("-"), its.password().unwrap_or("-"));
    let newer = if its.protocol() == ProtocolVersion::RESP3 { " 3" } else { "" };
    format!("{} {user} {}{newer}", info.addr(), its.db())
}

#[test]
fn every_supported_form_of_a_url_is_accepted() {
    for (url, read_as) in [
        ("redis://h", "h:6379 -:- 0"),
        ("redis://h/", "h:6379 -:- 0"),
        ("redis://h:/", "h:6379 -:- 0"),
        ("REDIS://h:7/3", "h:7 -:- 3"),
        ("valkey://h.example:7/3/", "h.example:7 -:- 3"),
        (" redis://h:7\r\n", "h:7 -:- 0"),
        ("redis://[::1]:7/3", "::1:7 -:- 3"),
        ("redis://[fe80::1%25eth0]", "fe80::1%eth0:6379 -:- 0"),
        ("redis://h?protocol=3", "h:6379 -:- 0 3"),
        ("redis://h/3?protocol=resp3", "h:6379 -:- 3 3"),
        ("redis://h/?protocol=resp2", "h:6379 -:- 0"),
        ("redis://:pw@h", "h:6379 -:pw 0"),
        ("redis://jobs:pw@h:7/3", "h:7 jobs:pw 3"),
        ("redis://jobs:p:w@h", "h:6379 jobs:p:w 0"),
        ("redis://jobs:p@w@h", "h:6379 jobs:p@w 0"),
        ("redis://j%40bs:p%40%2f%3A%23%25%2cw@h", "h:6379 j@bs:p@/:#%,w 0"),
        ("redis://jobs:p+w@h", "h:6379 jobs:p+w 0"),
        ("redis://jobs:p%C3%A4@h", "h:6379 jobs:pä 0"),
        // A URL may contain a user and no password.
        ("redis://jobs@h", "h:6379 jobs: 0"),
        ("redis://jobs:@h", "h:6379 jobs: 0"),
        ("redis://@h", "h:6379 -:- 0"),
        ("redis://:@h", "h:6379 -:- 0"),
        ("rediss://h", "h:6379 -:- 0"),
        ("valkeys://jobs:pw@[::1]:7/3", "::1:7 jobs:pw 3"),
        ("unix:///p", "/p -:- 0"),
        ("unix:/p", "/p -:- 0"),
        ("redis+unix:///p/q", "/p/q -:- 0"),
        ("valkey+unix:/p%20q%40", "/p q@ -:- 0"),
        ("unix://localhost/p", "/p -:- 0"),
        ("unix:///p?db=3&user=jobs&pass=p%2Bw&protocol=3", "/p jobs:p+w 3 3"),
        ("unix:/p?db=1", "/p -:- 1"),
        ("unix:/p?pass=x", "/p -:x 0"),
        ("unix:/p?user=jobs", "/p jobs: 0"),
    ] {
        assert_eq!(read(url), read_as, "{url}");
    }
    assert_eq!(String::from("redis://h").into_server().unwrap().addr().to_string(), "h:6379");
    assert_eq!(("h", 7).into_server().unwrap().addr().to_string(), "h:7");
}

#[test]
fn invalid_urls_are_rejected_with_a_reason_and_without_secrets() {
    let (unreadable, look) =
        ("cannot be read (in a password @ is %40", "a URL looks like redis://");
    let slashes = "begins with a slash, as in redis+unix:///path/of/socket";
    let login = "of a socket after \"?\", as in redis+unix:///path/of/socket?user=";
    for (url, words) in [
        ("", "it is empty"),
        (" ", "it is empty"),
        ("localhost", "begins with neither redis:// nor unix://"),
        ("localhost:6379", "begins with neither redis:// nor unix://"),
        ("http://127.0.0.1", "it begins with http://, which is not a Redis scheme"),
        ("geheim://127.0.0.1", "a scheme that is not for Redis"),
        ("jobs:geheim@h:6379", "begins with neither redis:// nor unix://"),
        ("redis:h", "two slashes must follow"),
        ("redis:/h", "two slashes must follow"),
        ("redis://", "the host is missing"),
        ("redis://:geheim", "the host is missing"),
        ("redis://h:geheim", unreadable),
        ("redis://h:0", unreadable),
        ("redis://h:65536", unreadable),
        ("redis://h:+1", unreadable),
        ("redis://::1", "in brackets, as in redis://[::1]:6379/"),
        ("redis://2001:db8::1:6379/0", "in brackets, as in redis://[::1]:6379/"),
        ("redis://2001:db8:0:0:0:0:0:1:6379", "in brackets, as in redis://[::1]:6379/"),
        ("rediss://jobs:geheim@fe80::1%eth0:6379", "in brackets, as in redis://[::1]:6379/"),
        ("redis://jobs:gehe:im", unreadable),
        ("redis://[::1", unreadable),
        ("redis://[geheim]", unreadable),
        ("redis://h,i", "only one server is allowed here"),
        ("redis://h%41", unreadable),
        ("redis://h i", "it contains white space"),
        ("redis://0.0.0.0", "addresses to listen on"),
        ("redis://[::]:7", "addresses to listen on"),
        ("redis://jobs:ge/heim@h/", unreadable),
        ("redis://:ge#heim@h", unreadable),
        ("redis://:ge?heim@h", unreadable),
        ("redis://%zz@h", "two hexadecimal digits must follow"),
        ("redis://:100%@h", "two hexadecimal digits must follow"),
        ("redis://:%ff@h", "is not UTF-8"),
        ("redis://:%00@h", "it contains %00"),
        ("redis://h/geheim", "invalid database number"),
        ("redis://h/-1", "invalid database number"),
        ("redis://h/1/2", "invalid database number"),
        (
            "redis://h?db=5",
            "\"db\" after \"?\" is not supported: write a database as in redis://host:6379/3",
        ),
        ("redis://h?password=geheim", "write user and password before the host"),
        ("redis://h?geheim=1", "a parameter after \"?\" is not supported"),
        ("redis://h?geheim", "has no value"),
        ("redis://h?protocol=geheim", "protocol=2 or protocol=3"),
        ("redis://h?protocol=2&protocol=3", "twice"),
        ("redis://h#foo", "nothing may follow \"#\""),
        ("rediss://h#foo", "nothing may follow \"#\""),
        (
            "rediss://h/#insecure",
            "#insecure, which accepts any certificate, is not supported: pass",
        ),
        ("redis://h/#insecure", "nothing may follow \"#\""),
        ("unix:///p#foo", "nothing may follow \"#\""),
        ("unix:///p?foo=1", "is not supported"),
        ("unix:///p?foo", "has no value"),
        ("unix:///p?pass=", "has no value"),
        ("unix:///p?password=geheim", "\"password\" after \"?\" is not supported: write pass"),
        ("unix:/p?username=jobs", "\"username\" after \"?\" is not supported: write user"),
        ("unix:/p?db=x", "invalid database number"),
        ("unix:/p?pass=a+b", "write a plus as %2B"),
        ("unix:///:geheim@/run/redis.sock", login),
        ("unix://:geheim@/run/redis.sock", login),
        ("unix:/jobs:geheim@/run/redis.sock", login),
        ("unix:///:geheim/run/redis.sock", login),
        ("unix://run/redis.sock", slashes),
        ("unix:p", slashes),
        ("unix:///", slashes),
    ] {
        match url.into_server() {
            Err(Error::Invalid { what: "url", reason, .. }) => {
                assert!(reason.contains(words), "{url:?}: {reason}");
                assert!(!reason.contains("heim"), "{url:?}: {reason}");
                let is_about_form = reason.contains(look) || reason.contains(": ");
                assert!(
                    is_about_form
                        || ["as in", " is ", "write "].iter().any(|words| reason.contains(words)),
                    "{reason}"
                );
            }
            other => panic!("{url:?}: {other:?}"),
        }
    }
}

/// URLs with `@%` at each position at which a user may have put a secret. The test replaces `@%` by
/// the secret. At the position of a host or a path, the secret is treated as a host or a path.
const PLACES: [&str; 26] = [
    "redis://:@%@h:1",
    "redis://jobs:@%@127.0.0.1:1",
    "redis://@%@127.0.0.1:1",
    "redis://:@%",
    "redis://127.0.0.1:@%",
    "redis://127.0.0.1:1/@%",
    "redis://127.0.0.1:1/?@%",
    "redis://127.0.0.1:1/?@%=1",
    "redis://127.0.0.1:1/?pass=@%",
    "redis://127.0.0.1:1/?protocol=@%",
    "redis://127.0.0.1:1/#@%",
    "rediss://127.0.0.1:1/#@%",
    "rediss://jobs:@%@127.0.0.1:1",
    "redis://127.0.0.1:1,redis://:@%@127.0.0.1:1",
    "unix:///nowhere?pass=@%",
    "unix:/nowhere?pass=@%",
    "unix:///nowhere?password=@%",
    "unix:///nowhere?@%",
    "unix:///nowhere#@%",
    "unix:///:@%@/run/redis.sock",
    "unix://:@%@/run/redis.sock",
    "unix:///jobs:@%@/run/redis.sock",
    "@%://127.0.0.1:1",
    "@%",
    ":@%@127.0.0.1:1",
    "redis:@%",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_error_contains_a_secret_of_a_url(
        place in prop::sample::select(&PLACES[..]),
        // These characters change the structure of a URL. The secret itself contains only letters
        // and digits.
        before in "[@:/?#&%=+ ,]{0,3}",
        after in "[@:/?#&%=+ ,]{0,3}",
    ) {
        const SECRET: &str = "Xq7Zw9";
        let url = place.replace("@%", &format!("{before}{SECRET}{after}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let texts = runtime.block_on(async {
            let mut texts = Vec::new();
            let connected = [
                in_time("a reply", SemaphoreClient::connect(&url)).await,
                in_time("a reply", SemaphoreClient::builder().connect_primary_of([&*url])).await,
                in_time("a reply", SemaphoreClient::builder().connect_cluster([&*url])).await,
            ];
            for connected in connected {
                let error = connected.expect_err("no server listens");
                texts.push(format!("{error} {error:?} {error:#?} {}", whole(&error)));
            }
            texts
        });
        // Errors show hosts and paths, because a secret does not belong in a host or a path.
        let info = url.as_str().into_server();
        let address = info.map(|info| info.addr().to_string()).unwrap_or_default();
        prop_assume!(!address.contains(SECRET));
        for text in texts {
            prop_assert!(!text.contains(SECRET), "{}: {}", url, text);
        }
    }
}

/// A replica has the permits in the database of its primary.
#[tokio::test]
async fn servers_of_a_list_with_different_databases_are_rejected() {
    let connect = |urls| SemaphoreClient::builder().connect_primary_of(urls);
    for urls in [["redis://127.0.0.1:1/3", "redis://127.0.0.1:2/4"], ["redis://a", "redis://b/1"]] {
        let refused = in_time("a reply", connect(urls)).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
        assert!(refused.to_string().contains("the database must be the same"), "{refused}");
    }
    let refused = in_time("a reply", connect(["redis://127.0.0.1:1/3", "redis://127.0.0.1:2/3"]));
    assert!(matches!(refused.await.unwrap_err(), Error::Connect { .. }));
}

#[tokio::test]
async fn the_user_of_a_url_is_combined_with_a_password_of_a_provider() {
    let server = Server::start();
    let url = format!("redis://{}@127.0.0.1:{}/", acl::USER, server.port);
    let with = |credentials: Credentials| {
        let report = move || std::future::ready(Ok::<_, String>(credentials.clone()));
        SemaphoreClient::builder().credentials_provider(report)
    };
    let semaphores = with(Credentials::new(acl::PASSWORD)).connect(&url).await.unwrap();
    let semaphore = semaphores.semaphore(unique_name()).limit(1).build().unwrap();
    in_time("a permit", semaphore.acquire()).await.unwrap().release().await.unwrap();
    let mut list = redis::cmd("CLIENT");
    let clients: String = list.arg("LIST").query(&mut server.connect()).unwrap();
    assert_eq!(clients.matches(&format!("user={}", acl::USER)).count(), 2, "{clients}");

    let other = Credentials::new(acl::PASSWORD).username("somebody");
    let refused = with(other).connect(&url).await.unwrap_err();
    assert!(whole(&refused).contains("\"somebody\", but the URL names \"jobs\""), "{refused}");
    let both = with(Credentials::new(acl::PASSWORD)).connect(&server.url()).await.unwrap_err();
    assert!(
        both.to_string().contains("the URL has a password, and a credentials provider is set"),
        "{both}"
    );
}

/// The connection uses the URL's user, not the default user.
#[tokio::test]
async fn a_user_without_a_password_is_logged_in_or_rejected() {
    let server = Server::start();
    let mut rules = acl::without(acl::documented_rules(), ">secret");
    rules.push("nopass".to_owned());
    acl::set_user(&mut server.connect(), "looker", &rules);
    let socket = server.socket();
    for url in [
        format!("redis://looker@127.0.0.1:{}/", server.port),
        format!("redis://looker:@127.0.0.1:{}/?protocol=3", server.port),
        format!("unix:{}?user=looker", socket.display()),
    ] {
        let semaphores = SemaphoreClient::connect(&url).await.unwrap();
        let client = Client::open(url.as_str().into_server().unwrap()).unwrap();
        let who: String = redis::cmd("ACL")
            .arg("WHOAMI")
            .query(&mut client.get_connection().unwrap())
            .unwrap_or_else(|refused| refused.to_string());
        assert!(who.contains("looker") || who.contains("permissions"), "{who}");
        semaphores.shutdown().await;
    }
    for (user, words) in [
        ("nobody@", "the server rejects the user of the URL without a password"),
        ("nobody:wrong@", "the server rejects the user \"nobody\" with this password"),
        (":wrong-as-well@", "a password was sent without a user"),
    ] {
        for query in ["", "?protocol=3"] {
            let url = format!("redis://{user}127.0.0.1:{}/{query}", server.port);
            if user.starts_with(':') && !query.is_empty() {
                continue; // With RESP3, the default user may connect with any password.
            }
            let refused = in_time("a reply", SemaphoreClient::connect(&url)).await.unwrap_err();
            assert_eq!(kind_of(&refused), Some(ConnectErrorKind::Authentication), "{refused}");
            assert!(refused.to_string().contains(words), "{url}: {refused}");
            assert!(!whole(&refused).contains("wrong"), "{refused}");
        }
    }
}

#[tokio::test]
async fn cluster_nodes_with_conflicting_urls_are_rejected() {
    let cluster = |urls: [&'static str; 2]| async move {
        let refused = SemaphoreClient::builder().connect_cluster(urls).await.unwrap_err();
        (kind_of(&refused), refused.to_string())
    };
    for urls in [
        ["redis://a:x@127.0.0.1:1", "redis://b:x@127.0.0.1:1"],
        ["redis://127.0.0.1:1", "redis://:x@127.0.0.1:1"],
        ["redis://127.0.0.1:1", "rediss://127.0.0.1:1"],
        ["redis://127.0.0.1:1", "redis://127.0.0.1:1/3"],
    ] {
        let (kind, text) = cluster(urls).await;
        assert!(kind.is_none() && text.contains("must be the same in all"), "{urls:?}: {text}");
    }
    let (kind, text) = cluster(["redis://a:x@127.0.0.1:1", "redis://127.0.0.1:1"]).await;
    assert_eq!(kind, Some(ConnectErrorKind::Refused), "{text}");
}

/// A cluster of Valkey 9 has several databases if it is configured for them. Other clusters have
/// only database 0.
#[tokio::test]
async fn a_cluster_may_have_several_databases() {
    let plain = Server::start();
    let info: String = redis::cmd("INFO").arg("server").query(&mut plain.connect()).unwrap();
    let has_several = info.contains("valkey_version:9");
    let options: &[&str] = if has_several { &["--cluster-databases", "16"] } else { &[] };
    let cluster = Cluster::form(1, false, options);
    let connecting = async |database: &str| {
        let url = format!("{}{database}", cluster.nodes[0].admin_url());
        in_time("a reply", SemaphoreClient::builder().connect_cluster([url])).await
    };
    if !has_several {
        if !plain.is_older_than_7() {
            let refused = connecting("1").await.unwrap_err().to_string();
            assert!(refused.contains("a cluster has only database 0"), "{refused}");
        }
        return;
    }
    let (name, mut held) = (unique_name(), Vec::new());
    for database in ["", "1"] {
        let semaphores = connecting(database).await.unwrap();
        let semaphore = semaphores.semaphore(&*name).limit(1).build().unwrap();
        // Each database has its own semaphore.
        let permit = in_time("a permit", semaphore.try_acquire()).await.unwrap();
        held.push(permit.expect("no other client holds it"));
    }
    let refused = connecting("99").await.unwrap_err().to_string();
    assert!(refused.contains("the server has no database with that number"), "{refused}");
}
