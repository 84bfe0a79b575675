//! The tool behind sentinels.

use redis_semaphore::Semaphores;
use test_support::acl;
use test_support::replicated::{Pair, SERVICE, Sentinels};

use crate::support::tool::{Outcome, tool};

#[tokio::test]
async fn the_tool_has_a_password_for_the_sentinels_and_another_for_the_primary() {
    const PASSWORD: &str = "only-for-sentinels";
    let pair = Pair::start();
    pair.servers.iter().for_each(|server| server.grant("+scan"));
    let sentinels = Sentinels::watch(&pair);
    let semaphores = Semaphores::connect(&pair.urls()[0]).await.unwrap();
    let _held = semaphores.semaphore("printer").limit(1).build().unwrap().acquire().await.unwrap();
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
    for (of_sentinels, of_primary) in [(acl::PASSWORD, acl::PASSWORD), (PASSWORD, PASSWORD)] {
        let (status, text) = list(of_sentinels, of_primary);
        assert!(status == Some(69) && text.contains(" password"), "{text}");
    }
}
