//! Tests of wrong, missing and unavailable passwords. The errors describe the problem, and show no
//! password.

use std::time::Duration;

use redis_semaphore::{ConnectErrorKind, SemaphoreClient};

use super::{PATIENCE, assert_says, refusal};
use test_support::acl;
use test_support::errors::whole;
use test_support::observer::{eventually, in_time};
use test_support::server::{Server, unique_name};

#[tokio::test]
async fn connecting_reports_unneeded_missing_and_wrong_passwords() {
    let server = Server::start();
    let url = |user: &str| format!("redis://{user}@127.0.0.1:{}/", server.port);
    // The server has no password.
    let refused = refusal(&url(":geheim")).await;
    let words =
        ["a password was sent without a user, but the default user has none: name the user"];
    assert_says(&refused, ConnectErrorKind::Authentication, &words);
    assert!(!format!("{refused:?} {}", whole(&refused)).contains("geheim"), "{refused:?}");

    let set = ["SET", "requirepass", "geheim"];
    redis::cmd("CONFIG").arg(&set).exec(&mut server.connect()).unwrap();
    let refused = refusal(&server.admin_url()).await;
    let words =
        ["the server requires a password for the default user, but none was sent (NOAUTH): add \
          one"];
    assert_says(&refused, ConnectErrorKind::Authentication, &words);
    for user in [":falsch", "nobody:falsch", &format!("{}:falsch", acl::USER)] {
        for url in [url(user), format!("{}?protocol=resp3", url(user))] {
            let refused = refusal(&url).await;
            let words = ["rejects ", "user", "with this password", "(WRONGPASS)"];
            assert_says(&refused, ConnectErrorKind::Authentication, &words);
            let named = user.split(':').next().unwrap_or_default();
            assert!(refused.to_string().contains(named), "{refused}");
            assert!(!format!("{refused:?} {}", whole(&refused)).contains("falsch"), "{refused:?}");
        }
    }
}

/// If a password is required, a server rejects a long call with an error other than NOAUTH.
#[tokio::test]
async fn a_call_reports_a_password_that_was_set_after_connecting() {
    let server = Server::start();
    let client = SemaphoreClient::builder().response_timeout(Duration::from_millis(300));
    let client = client.connect(&server.admin_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    require_password(&mut server.connect());
    // The server closes the connection. If the call is still being sent, the error is another.
    let refused = async || whole(&semaphore.try_acquire().await.unwrap_err());
    let words = "the server requires a password, but none was sent";
    eventually("the reason", refused, |refused| refused.contains(words)).await;
}

fn require_password(admin: &mut redis::Connection) {
    redis::cmd("CONFIG").arg(&["SET", "requirepass", "geheim"]).exec(admin).unwrap();
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(admin).unwrap();
}

/// Like a wrong password, which may be right again after the next rotation.
#[tokio::test]
async fn a_wait_survives_a_password_that_is_required_for_a_while() {
    let server = Server::start();
    let client = SemaphoreClient::builder().heartbeat_timeout(Duration::from_secs(3));
    let client = client.connect(&server.admin_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let held = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    let queued = async || semaphore.inspect().await.unwrap().queued;
    eventually("it waits", queued, |queued| *queued == 1).await;
    let mut admin = server.connect();
    require_password(&mut admin);
    let mut connections = || {
        let stats: redis::InfoDict = redis::cmd("INFO").arg("stats").query(&mut admin).unwrap();
        stats.get::<u64>("total_connections_received").unwrap()
    };
    // The server closes the connection after each call without a login.
    let before = connections();
    eventually("attempts", async || connections(), |now| *now > before + 3).await;
    redis::cmd("CONFIG").arg(&["SET", "requirepass", ""]).exec(&mut admin).unwrap();
    held.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn connecting_reports_a_wrong_password_and_a_failure_of_a_provider() {
    let server = Server::start();
    let (url, builder) =
        (server.admin_url(), || SemaphoreClient::builder().response_timeout(PATIENCE));
    let wrong = async || {
        Ok::<_, std::io::Error>(redis_semaphore::Credentials::new("falsch").username(acl::USER))
    };
    let connecting = builder().credentials_provider(wrong).connect(&url);
    let refused = in_time("a reply", connecting).await.unwrap_err();
    let words = ["rejects the user \"jobs\" with this password", "(WRONGPASS)"];
    assert_says(&refused, ConnectErrorKind::Authentication, &words);

    let broken = async || Err(std::io::Error::other("the vault is closed"));
    let connecting = builder().credentials_provider(broken).connect(&url);
    let refused = in_time("a reply", connecting).await.unwrap_err();
    let words = ["the credentials provider failed: the vault is closed: check the provider"];
    assert_says(&refused, ConnectErrorKind::Authentication, &words);
}
