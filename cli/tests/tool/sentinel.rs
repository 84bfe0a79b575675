//! The CLI behind sentinels.

use redis_semaphore::SemaphoreClient;
use test_support::acl;
use test_support::replicated::{Pair, SERVICE, Sentinels};

use crate::support::eventually;
use crate::support::tool::{Outcome, tool};

#[tokio::test]
async fn the_cli_uses_separate_passwords_for_the_sentinels_and_the_primary() {
    const PASSWORD: &str = "only-for-sentinels";
    let pair = Pair::start();
    pair.servers.iter().for_each(|server| server.grant("+scan"));
    let sentinels = Sentinels::watch(&pair);
    let client = SemaphoreClient::connect(&pair.urls()[0]).await.unwrap();
    let _held = client.semaphore("printer").limit(1).build().unwrap().acquire().await.unwrap();
    sentinels.want_password(PASSWORD);

    let urls = sentinels.urls().join(",");
    let list = |of_sentinels: &str, of_primary: &str| {
        let urls = urls.replace("redis://", &format!("redis://:{of_sentinels}@"));
        let mut list = tool(&["ls", "--sentinel", SERVICE, "--user", acl::USER]);
        list.env("REDIS_URL", urls).env("REDIS_PASSWORD", of_primary);
        let Outcome { status, stdout, stderr } = Outcome::of(list);
        (status, stdout + &stderr)
    };
    let (status, text) = list(PASSWORD, acl::PASSWORD);
    assert!(status == Some(0) && text.contains("\nprinter  1/1"), "{text}");
    for (of_sentinels, of_primary, at) in [
        (acl::PASSWORD, acl::PASSWORD, " (a sentinel): "),
        (PASSWORD, PASSWORD, " (the primary that the sentinel at "),
    ] {
        let (status, text) = list(of_sentinels, of_primary);
        assert!(status == Some(69) && text.contains(" password"), "{text}");
        assert!(text.contains(at), "{text}");
    }
}

/// The message contains the server that was tried, and what the sentinels report about that server.
#[tokio::test]
async fn the_error_for_an_unreachable_primary_names_its_address() {
    let mut pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    let urls = sentinels.urls().join(",");
    let list = |service: &str| {
        let mut list = tool(&["ls", "--sentinel", service]);
        list.env("REDIS_URL", &urls);
        Outcome::of(list).stderr
    };
    let text = list("lorries");
    assert!(
        text.contains(&format!("no primary with the name \"lorries\"; it knows [{SERVICE:?}]")),
        "{text}"
    );
    let primary = format!("127.0.0.1:{}", pair.servers[0].port);
    // No server remains that could be promoted.
    pair.servers.iter_mut().for_each(|server| server.kill());
    let text = list(SERVICE);
    assert!(
        text.contains(&format!("{primary} (the primary that the sentinel at 127.0.0.1:")),
        "{text}"
    );
    assert!(text.contains("nothing listens there"), "{text}");
    sentinels.be_patient(std::time::Duration::from_millis(100));
    let is_marked = || {
        let text = list(SERVICE);
        text.contains(&format!("marks its primary {primary} as down (")).then_some(())
    };
    eventually("the mark", is_marked);
}
