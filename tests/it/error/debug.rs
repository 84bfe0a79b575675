//! Tests that the `Debug` output of public types is short, even if a value contains much data.

use std::fmt::Debug;

use redis_semaphore::{Credentials, Error, ScriptRegistry, SemaphoreClient, acquire_all};
use tokio::task::JoinSet;

use test_support::observer::Observer;
use test_support::server::{Server, shared_url, unique_name};

fn assert_short(value: &impl Debug) {
    for text in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(text.len() < 1000, "{} bytes: {text}", text.len());
    }
}

#[tokio::test]
async fn debug_output_is_short_with_a_thousand_waits() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 1).await;
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let builder = || client.semaphore(&name).limit(1);
    let semaphore = builder().build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let mut waits = JoinSet::new();
    for _ in 0..1000 {
        waits.spawn(semaphore.request().acquire());
    }
    observer.sees(1, 1000).await;
    assert_short(&semaphore.inspect().await.unwrap());
    assert_short(&client);
    assert_short(&builder());
    assert_short(&semaphore);
    assert_short(&semaphore.request());
    assert_short(&permit);
    assert_short(&permit.watch());
    assert_short(&semaphore.acquire_many(0).await.unwrap_err());
    assert!(format!("{permit:?}").contains(&name));
}

#[tokio::test]
async fn debug_output_of_permits_names_and_diagnoses_is_short() {
    let server = Server::start();
    server.grant("+scan");
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let several: Vec<_> = (0..100)
        .map(|number| client.semaphore(format!("one-{number}")).limit(1).build().unwrap())
        .collect();
    let requests = several.iter().map(redis_semaphore::Semaphore::request);
    let permits = acquire_all(requests).await.unwrap();
    assert_short(&permits);
    assert!(format!("{permits:?}").contains("100"));
    let names = client.names().await.unwrap();
    assert_eq!(names.names.len(), 100);
    assert_short(&names);
    assert_short(&client.doctor().await.unwrap());
    permits.release().await.unwrap();
}

/// A server may return an error text of any length.
#[test]
fn debug_output_of_a_long_server_error_is_short() {
    let code = redis::ErrorKind::Extension;
    let said: redis::RedisError = (code, "it says", "x".repeat(1 << 20)).into();
    assert_short(&Error::from(said));
}

#[test]
fn debug_output_of_builders_credentials_and_scripts_is_short() {
    assert_short(&SemaphoreClient::builder());
    assert_short(&Credentials::new("secret"));
    assert_short(ScriptRegistry::embedded());
    assert_short(&ScriptRegistry::embedded().script("acquire"));
}
